"""Entry of the kernelspec: ``python -m sandbox_kernel.kernel.launch FILE [-- KERNEL ...]``.

A child starts the sandbox while this process imports what it needs for itself.  Nothing is printed
at a normal start.

A kernel of another language is named after ``--``, with ``@connection_file@`` where its own
connection file goes (Jupyter would replace its usual form with ours).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.engines.base import FolderMode
from sandbox_kernel.errors import InvalidProcessCwdError, SandboxConfigurationError, SandboxError
from sandbox_kernel.kernel.aside import Aside
from sandbox_kernel.kernel.connection import ConnectionInfo, read_connection_file
from sandbox_kernel.kernel.hints import NO_KERNEL, NO_KERNEL_MEND, Facts
from sandbox_kernel.kernel.identity import Identity, choose
from sandbox_kernel.kernel.lifecycle import (
    RESTART_WAIT,
    RESTARTED,
    SUPERSEDED,
    ParentWatch,
    Signals,
    destroy_later,
)
from sandbox_kernel.kernel.link import Link, end_kernel
from sandbox_kernel.kernel.starter import Starter
from sandbox_kernel.manager.running import Running
from sandbox_kernel.wall.modes import FrameKeeper, Mode, OutputLimits, Wall
from sandbox_kernel.wire.operations import KernelInfo, StartKernelRequest

if TYPE_CHECKING:
    from sandbox_kernel.manager.settings import Settings

__all__ = ["main"]

_PASSED_ON = ("JPY_SESSION_NAME", "LANG", "LC_ALL", "LC_CTYPE", "MPLBACKEND", "TZ")
"""Variables of the host that an interpreter gets to see; nothing else of the environment does."""

_OUTPUTS = {
    Mode.STRICT: "strict: what acts is left out",
    Mode.DEFAULT: "default: what acts is drawn in frames",
    Mode.TRUSTED: "TRUSTED: they can act in the page, and so on the host",
}

_EPHEMERAL_STAY = 20.0
"""Lease and idle time, in seconds, of a sandbox for one kernel: only a new relay could want it."""


def main(arguments: Sequence[str]) -> int:
    """Serve one kernel; return the exit code."""
    signals = Signals()
    starter = Starter(os.environ)
    try:
        connection_file, kernel = _read_arguments(arguments)
        info = read_connection_file(connection_file)
        start = Aside(partial(_start, connection_file, info.key, starter))
        _import_for_the_relay()
        started = start.result()
        starter.tell_notices(started.running.notices)
    except SandboxError as error:
        _complain(error, starter)
        return 1
    try:
        code = _serve(
            info=info,
            started=started,
            kernel=kernel,
            signals=signals,
        )
    except SandboxError as error:
        _complain(error, starter)
        # Where it ran before, it is another relay's.
        code, is_ours, wait = 1, started.running.started, 0.0
    else:
        # After a crash Jupyter starts the kernel again, and a user's files are still wanted.
        is_ours, wait = code != SUPERSEDED, RESTART_WAIT if code else 0.0
    if started.identity.ephemeral and is_ours:
        destroy_later(started.identity.sandbox_id, wait=wait)
    return 0 if code == SUPERSEDED else code


@dataclass(frozen=True, kw_only=True)
class _Started:
    identity: Identity
    running: Running
    lease: float
    limits: OutputLimits
    keeper: FrameKeeper | None
    config_file: str


def _start(connection_file: str, key: bytes, starter: Starter) -> _Started:
    """Have the kernel's sandbox run; in a child, so the imports are its own."""
    from sandbox_kernel.manager.manager import Manager  # noqa: PLC0415
    from sandbox_kernel.manager.settings import load_settings, own_config_file  # noqa: PLC0415

    settings = load_settings()
    identity = choose(
        connection_file=connection_file,
        key=key,
        environ=os.environ,
        cwd=os.getcwd(),
        configured_id=settings.kernel.sandbox_id,
    )
    spec = settings.spec(notebook_folder=Path(os.getcwd()))
    lease = settings.kernel.lease
    if identity.ephemeral:
        spec = replace(spec, sleep_after=_EPHEMERAL_STAY, keep_alive=False)
        lease = _EPHEMERAL_STAY
    with closing(Manager(settings)) as manager:
        running = manager.ensure(
            identity.sandbox_id, spec, changes=starter.changes(spec), ephemeral=identity.ephemeral
        )
    return _Started(
        identity=identity,
        running=running,
        lease=lease,
        limits=settings.outputs,
        keeper=_keeper(settings, running.sandbox_id),
        config_file=str(own_config_file()),
    )


def _import_for_the_relay() -> None:
    """Import while the sandbox starts; it takes tens of milliseconds."""
    import sandbox_kernel.kernel.relay  # noqa: F401, PLC0415


def _read_arguments(arguments: Sequence[str]) -> tuple[str, list[str] | None]:
    given = list(arguments)
    kernel: list[str] | None = None
    if "--" in given:
        split = given.index("--")
        kernel = [
            word.replace("@connection_file@", "{connection_file}") for word in given[split + 1 :]
        ]
        given = given[:split]
    if len(given) == 2 and given[0] == "-f":
        del given[0]
    if len(given) != 1 or kernel == []:
        raise SandboxConfigurationError(
            "A kernel takes one argument, its connection file.",
            hint="Jupyter starts it; see 'jupyter sandbox kernelspec'.",
        )
    return given[0], kernel


def _keeper(settings: Settings, sandbox_id: str) -> FrameKeeper | None:
    """Return what keeps documents of frames where the server hands them out, if it is to."""
    if settings.kernel.frame_url is None:
        return None
    from sandbox_kernel.manager import frames  # noqa: PLC0415  only on such servers

    store = frames.FrameStore(frames.frame_folder(settings.data_dir))
    return frames.KeptFrames(store, sandbox_id, settings.kernel.frame_url)


def _serve(
    *,
    info: ConnectionInfo,
    started: _Started,
    kernel: list[str] | None,
    signals: Signals,
) -> int:
    """Relay until the end; return the exit code, or what stands for it."""
    running, identity = started.running, started.identity
    request = StartKernelRequest(
        kernel_id=identity.kernel_id,
        argv=kernel,
        cwd=os.getcwd() if running.spec.folder_mode is not FolderMode.NONE else None,
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        lease=started.lease,
    )
    link = Link(running.endpoint, request)
    link.open()

    from sandbox_kernel.kernel.journal import Journal  # noqa: PLC0415
    from sandbox_kernel.kernel.policy import Policy  # noqa: PLC0415
    from sandbox_kernel.kernel.relay import Relay, mark_of  # noqa: PLC0415
    from sandbox_kernel.kernel.sockets import Sockets  # noqa: PLC0415

    try:
        sockets = Sockets(info)
    except SandboxError:
        _take_back(link)
        raise
    try:
        link, interpreter = _interpreter(link, identity)
        journal = Journal(os.path.join(running.layout.root, "kernels"), link.request.kernel_id)
        inheritance = journal.load()
        if inheritance is not None and inheritance.mark == mark_of(interpreter):
            sockets.use_session(inheritance.session)
        relay = Relay(
            sockets=sockets,
            link=link,
            info=interpreter,
            inheritance=inheritance,
            journal=journal,
            facts=_facts(started, link.request.cwd),
            describe=lambda: _describe(running),
            policy=Policy(
                Wall(
                    mode=running.spec.output_policy,
                    network=running.spec.network,
                    limits=started.limits,
                    keeper=started.keeper,
                )
            ),
            signals=signals,
            parent=ParentWatch(os.environ),
        )
        code = relay.run()
    except BaseException:
        sockets.close(linger=False)
        raise
    link.close()
    sockets.close()
    if relay.lacks_kernel:
        # Most clients give up before they ask for anything that could be answered so.
        raise SandboxConfigurationError(NO_KERNEL, hint=f"To have one, {NO_KERNEL_MEND}.")
    return RESTARTED if code == 0 and relay.shutdown else code


def _interpreter(link: Link, identity: Identity) -> tuple[Link, KernelInfo]:
    """Wait for the interpreter, choosing another where this one is not to be had."""
    try:
        info = link.wait_until_started()
    except InvalidProcessCwdError:
        # The notebook's folder could not be shared; the status says why.
        link = _again(link, cwd=None)
        info = link.wait_until_started()
    if info.attached and link.request.kernel_id != identity.spare_kernel_id:
        # A living relay serves the notebook's interpreter, for another server or window.
        link = _again(link, kernel_id=identity.spare_kernel_id)
        info = link.wait_until_started()
    return link, info


def _take_back(link: Link) -> None:
    """End the interpreter that was asked for, if it was not there before."""
    try:
        if not link.wait_until_started(timeout=10.0).existing:
            end_kernel(link.endpoint, link.request.kernel_id, grace=0.5)
    except SandboxError:
        # It did not start, so there is nothing to end.
        return
    finally:
        link.close()


def _again(link: Link, **changes: object) -> Link:
    link.close()
    other = Link(link.endpoint, StartKernelRequest(**{**vars(link.request), **changes}))
    other.open()
    return other


def _facts(started: _Started, cwd: str | None) -> Facts:
    """Return what hints may say; `cwd` of None is a notebook's folder that is not shown inside."""
    running, identity = started.running, started.identity
    spec = running.spec
    return Facts(
        network=spec.network,
        notebook_folder=cwd,
        folder_mode=spec.folder_mode,
        folder_notice=next((each for each in running.notices if os.getcwd() in each), None),
        memory_bytes=spec.limits.memory_bytes,
        processes=spec.limits.processes,
        file_bytes=spec.limits.file_bytes,
        python_prefix=spec.python_prefix,
        config_file=started.config_file,
        sandbox_id="" if identity.ephemeral else identity.sandbox_id,
    )


def _describe(running: Running) -> list[tuple[str, str]]:
    """Return what is known of the sandbox, for ``%sandbox status``."""
    instance = running.instance
    limits = [
        (name, reached)
        for name, reached in instance.limits.items()
        if getattr(running.spec.limits, name, None) is not None
    ]
    return [
        ("sandbox", f"{running.sandbox_id} ({instance.engine})"),
        *instance.isolation.items(),
        ("outputs", _OUTPUTS[running.spec.output_policy]),
        *((f"limit {name}", reached) for name, reached in limits),
        *([] if limits else [("limits", "none set")]),
        *(("notice", notice) for notice in running.notices),
    ]


def _complain(error: SandboxError, starter: Starter) -> None:
    if starter.tell_error(error):
        return
    print(f"The sandbox kernel cannot start. {error}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
