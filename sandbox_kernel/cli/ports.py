"""ports: what listens in a sandbox, and who may reach it."""

from __future__ import annotations

from argparse import Namespace
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sandbox_kernel.cli.exit_codes import OK
from sandbox_kernel.cli.naming import existing
from sandbox_kernel.cli.report import print_json, print_table, printable, time_text
from sandbox_kernel.manager.manager import Manager

if TYPE_CHECKING:
    from sandbox_kernel.manager.ports import ExposedPort
    from sandbox_kernel.wire.port_operations import ListeningPort

__all__ = ["expose", "list_exposed", "listen", "unexpose"]


def listen(arguments: Namespace) -> int:
    """Print the ports on which programs inside listen."""
    import asyncio  # noqa: PLC0415  start-up time

    async def ask() -> list[ListeningPort]:
        from sandbox_kernel.client.sandbox import get_sandbox  # noqa: PLC0415  start-up time

        async with get_sandbox(name, manager=manager) as sandbox:
            return await sandbox.list_ports()

    with closing(Manager()) as manager:
        name = existing(manager, arguments.sandbox).sandbox_id
        found = asyncio.run(ask())
    if arguments.json:
        print_json([{"port": each.port, "addresses": each.addresses} for each in found])
    elif found:
        rows = [(str(each.port), ", ".join(each.addresses)) for each in found]
        print_table(("PORT", "ADDRESSES"), rows)
    else:
        print("No program listens.")
    return OK


def list_exposed(arguments: Namespace) -> int:
    """Print the ports that are exposed."""
    with closing(Manager()) as manager:
        found = manager.ports.exposed(existing(manager, arguments.sandbox).sandbox_id)
    if arguments.json:
        print_json([_facts(each) for each in found])
    elif found:
        rows = [
            (str(each.port), each.name or "-", time_text(each.exposed_at), str(each))
            for each in found
        ]
        print_table(("PORT", "NAME", "EXPOSED", "PREVIEW"), rows)
    else:
        print("No port is exposed.")
    return OK


def expose(arguments: Namespace) -> int:
    """Expose a port, which starts the sandbox, and print where it is seen."""
    import asyncio  # noqa: PLC0415  start-up time

    async def ask() -> ExposedPort:
        from sandbox_kernel.client.sandbox import get_sandbox  # noqa: PLC0415  start-up time

        async with get_sandbox(name, manager=manager) as sandbox:
            return await sandbox.expose_port(arguments.port, arguments.name, arguments.token)

    with closing(Manager()) as manager:
        name = existing(manager, arguments.sandbox).sandbox_id
        found = asyncio.run(ask())
    if arguments.json:
        print_json(_facts(found))
    else:
        print(printable(str(found)))
    return OK


def unexpose(arguments: Namespace) -> int:
    """Revoke a port's token."""
    with closing(Manager()) as manager:
        name = existing(manager, arguments.sandbox).sandbox_id
        manager.ports.unexpose(name, arguments.port)
    if arguments.json:
        print_json({"sandbox_id": name, "port": arguments.port, "result": "unexposed"})
    else:
        print(f"{name}: port {arguments.port} is not exposed")
    return OK


def _facts(each: ExposedPort) -> dict[str, Any]:
    return {
        "sandbox_id": each.sandbox_id,
        "port": each.port,
        "name": each.name,
        "token": each.token,
        "exposed_at": each.exposed_at,
        "path": each.path,
        "url": each.url,
    }
