"""Sandboxes over REST: listed, made, looked at, changed, started, stopped and destroyed."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tornado import web

from jupyter_ext.handles import handle, manager
from jupyter_ext.hardening import JupyterSandbox
from sandbox_kernel.client.options import spec_changes
from sandbox_kernel.errors import SandboxExistsError, SandboxNotFoundError, ValidationFailedError
from sandbox_kernel.manager.identity import check_sandbox_id
from sandbox_kernel.wire.operations import Empty, Health
from sandbox_kernel.wire.record import Record

if TYPE_CHECKING:
    from jupyter_ext.rest import RestHandler
    from sandbox_kernel.manager.manager import SandboxInfo
    from sandbox_kernel.wire.record import JSON

__all__ = [
    "CreateSandbox",
    "SandboxDescription",
    "SandboxLimits",
    "SandboxList",
    "SandboxRequest",
    "SandboxWishes",
    "StopRequest",
]

_LONGEST_GRACE = 600.0

_HARMLESS = frozenset(("env", "keep_alive", "keep_packages", "sleep_after"))
"""Wishes that anybody may have on a locked server."""


class SandboxRequest(Record):
    """Names a sandbox by the address alone."""


class SandboxLimits(Record):
    """Limits of a whole sandbox; null asks for none."""

    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = 4096
    file_bytes: int | None = None


class SandboxWishes(Record):
    """What shall differ from the server's settings; a name that is left out follows them.

    ``sleep_after``, ``keep_alive`` and ``output_policy`` reach a sandbox that runs, the others the
    next start.  ``sleep_after`` is seconds or a text such as ``10m``, and null is never.
    """

    engine: str | None = None
    image: str | None = None
    network: bool = False
    notebook_folder: str | None = None
    folder_mode: str = "overlay"
    folder_required: bool = False
    keep_packages: bool = False
    env: dict[str, str] = {}  # noqa: RUF012  records are frozen
    limits: SandboxLimits | None = None
    accept_weaker_limits: bool = False
    allow_ptrace: bool = False
    sleep_after: JSON = 600.0
    keep_alive: bool = False
    output_policy: str = "default"


class CreateSandbox(SandboxWishes):
    """A new sandbox, and its id unless one shall be made; see `SandboxWishes`."""

    sandbox_id: str | None = None


class StopRequest(Record):
    """How long programs have to end by themselves after SIGTERM, in seconds."""

    grace: float = 5.0


class SandboxDescription(Record):
    """What is known of a sandbox.

    What an environment variable holds is not told.
    """

    sandbox_id: str
    state: str
    """``running`` or ``stopped``."""
    engine: str
    lifetime: str
    """Changes when it is destroyed and made again."""
    ephemeral: bool
    """Whether it goes, with its files, once it no longer runs."""
    created_at: float
    started_at: float | None
    image: str | None
    """What it is made of, where it was chosen for this sandbox and its engine has images."""
    network: bool
    notebook_folder: str | None
    folder_mode: str
    keep_packages: bool
    env_names: list[str]
    limits: SandboxLimits
    allow_ptrace: bool
    sleep_after: float | None
    keep_alive: bool
    output_policy: str
    isolation: dict[str, str]
    """What separates it while it runs."""
    limits_reached: dict[str, str]
    """How far each limit holds while it runs: ``hard``, ``per process`` or ``absent``."""
    notices: list[str]
    """What is not as asked, in sentences."""
    health: Health | None
    """How its runtime is; null while it does not run, and in lists."""


class SandboxList(Record):
    """Sandboxes in the order of their ids."""

    sandboxes: list[SandboxDescription]


async def list_sandboxes(_: RestHandler, __: SandboxRequest) -> SandboxList:
    """Answer with every sandbox of the server's user."""
    found = await asyncio.to_thread(manager().list)
    return SandboxList(sandboxes=[_described(info) for info in found])


async def inspect(handler: RestHandler, _: SandboxRequest) -> SandboxDescription:
    """Answer with what is known of one."""
    return await _present(handler.sandbox_id)


async def put(handler: RestHandler, wishes: SandboxWishes) -> SandboxDescription:
    """Make the sandbox of the address, or find it as it is wished."""
    return await _made(handler, handler.sandbox_id, wishes)


async def create(handler: RestHandler, wishes: CreateSandbox) -> SandboxDescription:
    """Make a sandbox whose id is in the body, follows from the key, or is made."""
    sandbox_id = wishes.sandbox_id
    if sandbox_id is None:
        sandbox_id = f"s-{os.urandom(6).hex()}"
    made = await _made(handler, sandbox_id, wishes)
    handler.set_header("Location", f"{handler.request.path.rstrip('/')}/{sandbox_id}")
    return made


async def configure(handler: RestHandler, wishes: SandboxWishes) -> SandboxDescription:
    """Change what it shall be; starts nothing."""
    changes = _changes(handler, wishes)
    sandbox_id = check_sandbox_id(handler.sandbox_id)
    change = functools.partial(manager().configure, sandbox_id, changes)
    if not await asyncio.to_thread(change):
        raise SandboxNotFoundError(sandbox_id)
    return await _present(sandbox_id)


async def start(handler: RestHandler, _: SandboxRequest) -> SandboxDescription:
    """Start it, if it does not run."""
    await _present(handler.sandbox_id)
    await handler.sandbox.start()
    return await _present(handler.sandbox_id)


async def stop(handler: RestHandler, request: StopRequest) -> SandboxDescription:
    """Stop it, if it runs; files stay."""
    if not 0 <= request.grace <= _LONGEST_GRACE:
        raise ValidationFailedError("grace", f"must be 0 to {_LONGEST_GRACE:g} seconds")
    await _present(handler.sandbox_id)
    await handler.sandbox.stop(grace=request.grace)
    return await _present(handler.sandbox_id)


async def destroy(handler: RestHandler, _: SandboxRequest) -> Empty:
    """End it and remove its files."""
    await handler.sandbox.destroy()
    return Empty()


async def _present(sandbox_id: str) -> SandboxDescription:
    sandbox = handle(sandbox_id)
    info = await sandbox.info()
    if info is None:
        raise SandboxNotFoundError(sandbox_id)
    health = await sandbox.health() if info.state == "running" else None
    return _described(info, health)


async def _made(handler: RestHandler, sandbox_id: str, wishes: SandboxWishes) -> SandboxDescription:
    name = check_sandbox_id(sandbox_id)
    changes = _changes(handler, wishes)
    found = await asyncio.to_thread(manager().lookup, name)
    if found is None:
        ensure = functools.partial(manager().ensure, name, changes=changes)
        running = await asyncio.to_thread(ensure)
        if running.started:
            handler.says(201)
            return await _present(name)
        found = await asyncio.to_thread(manager().lookup, name)
        if found is None:
            raise SandboxNotFoundError(name)
    differing = [field for field, value in changes.items() if getattr(found.spec, field) != value]
    if differing:
        raise SandboxExistsError(name, differing)
    return await _present(name)


def _changes(handler: RestHandler, wishes: SandboxWishes) -> dict[str, Any]:
    """Return the wishes that the body holds, as fields of a specification."""
    _check_allowed(handler)
    said: dict[str, Any] = {
        name: getattr(wishes, name) for name in SandboxWishes.FIELDS if name in handler.said
    }
    if isinstance(said.get("engine"), str) and not said["engine"].isidentifier():
        raise ValidationFailedError("engine", "must be the name of an engine")
    if "limits" in said:
        said["limits"] = _limits(said["limits"])
    return spec_changes(said)


def _check_allowed(handler: RestHandler) -> None:
    """Refuse, on a locked server, what would let a sandbox do more than its settings say."""
    widening = (handler.said & SandboxWishes.FIELDS.keys()) - _HARMLESS
    if widening and JupyterSandbox(config=handler.config).locked:
        raise web.HTTPError(
            403, "A locked server decides itself on: %s", ", ".join(sorted(widening))
        )


def _limits(wished: SandboxLimits | None) -> Any:
    from sandbox_kernel.engines.base import Limits  # noqa: PLC0415

    if wished is None:
        return Limits()
    return Limits(**{name: getattr(wished, name) for name in SandboxLimits.FIELDS})


def _described(info: SandboxInfo, health: Health | None = None) -> SandboxDescription:
    spec, instance = info.spec, info.instance
    return SandboxDescription(
        sandbox_id=info.sandbox_id,
        state=info.state,
        engine=info.engine,
        lifetime=info.lifetime,
        ephemeral=info.ephemeral,
        created_at=info.created_at,
        started_at=info.started_at,
        image=spec.image,
        network=spec.network,
        notebook_folder=None if spec.notebook_folder is None else str(spec.notebook_folder),
        folder_mode=spec.folder_mode.value,
        keep_packages=spec.keep_packages,
        env_names=sorted(spec.env),
        limits=SandboxLimits(**{name: getattr(spec.limits, name) for name in SandboxLimits.FIELDS}),
        allow_ptrace=spec.allow_ptrace,
        sleep_after=spec.sleep_after,
        keep_alive=spec.keep_alive,
        output_policy=spec.output_policy.value,
        isolation=_texts(instance.isolation if instance else {}),
        limits_reached=_texts(instance.limits if instance else {}),
        notices=list(instance.notices) if instance else [],
        health=health,
    )


def _texts(facts: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in facts.items()}
