"""create: a sandbox with its settings, before the first command."""

from __future__ import annotations

import asyncio
import secrets
from argparse import Namespace
from contextlib import closing

from sandbox_kernel.cli.exit_codes import OK
from sandbox_kernel.cli.naming import checked_id, pairs
from sandbox_kernel.cli.report import print_json, warn
from sandbox_kernel.cli.sandboxes import facts
from sandbox_kernel.cli.wishes import wished_options
from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.manager.manager import Manager

__all__ = ["create"]


def create(arguments: Namespace) -> int:
    """Start the sandbox, which makes it if need be, and print its id."""
    return asyncio.run(_create(arguments))


async def _create(arguments: Namespace) -> int:
    name = checked_id(arguments.id) if arguments.id else f"s-{secrets.token_hex(6)}"
    with closing(Manager()) as manager:
        options = wished_options(arguments, manager.settings)
        given = {
            "engine": arguments.engine,
            "image": arguments.image,
            "sleep_after": arguments.sleep_after,
            "keep_alive": arguments.keep_alive,
            "notebook_folder": arguments.folder,
            "env": pairs(arguments.env) or None,
        }
        changes = {option: value for option, value in given.items() if value is not None}
        is_new = manager.lookup(name) is None
        async with get_sandbox(name, manager=manager, **{**options, **changes}) as sandbox:
            info = await sandbox.start()
            for notice in sandbox.notices:
                warn(notice)
    if arguments.json:
        print_json({"created": is_new, **facts(info)})
    else:
        print(name)
        if not is_new:
            warn(f"sandbox {name} was there already")
    return OK
