"""Entry of the kernelspec: ``python -m sandbox_kernel.kernel.launch FILE [-- KERNEL ...]``.

The order is for speed: the sandbox is asked for, and the interpreter in it started, before this
process imports what it needs for itself.  Nothing is printed at a normal start.

A kernel of another language is named after ``--``, with ``@connection_file@`` where its own
connection file goes (Jupyter would replace its usual form with ours).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from sandbox_kernel.engines.base import FolderMode
from sandbox_kernel.errors import InvalidProcessCwdError, SandboxConfigurationError, SandboxError
from sandbox_kernel.kernel.connection import ConnectionInfo, read_connection_file
from sandbox_kernel.kernel.hints import Facts
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
from sandbox_kernel.manager.manager import Manager, Running
from sandbox_kernel.manager.settings import Settings, load_settings, own_config_file
from sandbox_kernel.wire.operations import KernelInfo, StartKernelRequest

__all__ = ["main"]

_PASSED_ON = ("JPY_SESSION_NAME", "LANG", "LC_ALL", "LC_CTYPE", "MPLBACKEND", "TZ")
"""Variables of the host that an interpreter gets to see; nothing else of the environment does."""

_EPHEMERAL_STAY = 20.0
"""Lease and idle time, in seconds, of a sandbox for one kernel: only a new relay could want it."""


def main(arguments: Sequence[str]) -> int:
    """Serve one kernel; return the exit code."""
    signals = Signals()
    starter = Starter(os.environ)
    try:
        connection_file, kernel = _read_arguments(arguments)
        info = read_connection_file(connection_file)
        settings = load_settings()
        identity = choose(
            connection_file=connection_file,
            key=info.key,
            environ=os.environ,
            cwd=os.getcwd(),
            configured_id=settings.kernel.sandbox_id,
        )
        spec = settings.spec(notebook_folder=Path(os.getcwd()))
        if identity.ephemeral:
            spec = replace(spec, sleep_after=_EPHEMERAL_STAY, keep_alive=False)
        before = set(sys.modules)
        with closing(Manager(settings)) as manager:
            running = manager.ensure(
                identity.sandbox_id,
                spec,
                changes=starter.changes(spec),
                ephemeral=identity.ephemeral,
            )
        del manager
        starter.tell_notices(running.notices)
        _forget(set(sys.modules) - before)
    except SandboxError as error:
        _complain(error, starter)
        return 1
    try:
        code = _serve(
            info=info,
            settings=settings,
            identity=identity,
            running=running,
            kernel=kernel,
            signals=signals,
        )
    except SandboxError as error:
        _complain(error, starter)
        # Where it ran before, it is another relay's.
        code, is_ours, wait = 1, running.started, 0.0
    else:
        # After a crash Jupyter starts the kernel again, and a user's files are still wanted.
        is_ours, wait = code != SUPERSEDED, RESTART_WAIT if code else 0.0
    if identity.ephemeral and is_ours:
        destroy_later(identity.sandbox_id, wait=wait)
    return 0 if code == SUPERSEDED else code


def _forget(names: set[str]) -> None:
    """Drop the modules that were there for the sandbox's start only.

    What is imported next goes where they were: 1 MB of some 15 that a relay takes for days.
    Whoever needs one again imports it again.
    """
    for name in names:
        # A module in C is there once per process and cannot be had anew.
        if (getattr(sys.modules[name], "__file__", None) or "").endswith(".py"):
            del sys.modules[name]
            package, _, module = name.rpartition(".")
            if package in sys.modules:
                vars(sys.modules[package]).pop(module, None)
    gc.collect()


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


def _serve(
    *,
    info: ConnectionInfo,
    settings: Settings,
    identity: Identity,
    running: Running,
    kernel: list[str] | None,
    signals: Signals,
) -> int:
    """Relay until the end; return the exit code, or what stands for it."""
    request = StartKernelRequest(
        kernel_id=identity.kernel_id,
        argv=kernel,
        cwd=os.getcwd() if running.spec.folder_mode is not FolderMode.NONE else None,
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        lease=_EPHEMERAL_STAY if identity.ephemeral else settings.kernel.lease,
    )
    link = Link(running.endpoint, request)
    link.open()

    # The interpreter is starting; now there is time for imports of tens of milliseconds.
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
        link, started = _started(link, identity)
        journal = Journal(os.path.join(running.layout.root, "kernels"), link.request.kernel_id)
        inheritance = journal.load()
        if inheritance is not None and inheritance.mark == mark_of(started):
            sockets.use_session(inheritance.session)
        relay = Relay(
            sockets=sockets,
            link=link,
            info=started,
            inheritance=inheritance,
            journal=journal,
            facts=_facts(running, link.request.cwd, identity),
            describe=lambda: _describe(running),
            policy=Policy(),
            signals=signals,
            parent=ParentWatch(os.environ),
        )
        code = relay.run()
    except BaseException:
        sockets.close(linger=False)
        raise
    link.close()
    sockets.close()
    return RESTARTED if code == 0 and relay.shutdown else code


def _started(link: Link, identity: Identity) -> tuple[Link, KernelInfo]:
    """Wait for the interpreter, choosing another where this one is not to be had."""
    try:
        started = link.wait_until_started()
    except InvalidProcessCwdError:
        # The notebook's folder could not be shared; the status says why.
        link = _again(link, cwd=None)
        started = link.wait_until_started()
    if started.attached and link.request.kernel_id != identity.spare_kernel_id:
        # A living relay serves the notebook's interpreter, for another server or window.
        link = _again(link, kernel_id=identity.spare_kernel_id)
        started = link.wait_until_started()
    return link, started


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


def _facts(running: Running, cwd: str | None, identity: Identity) -> Facts:
    """Return what hints may say; `cwd` of None is a notebook's folder that is not shown inside."""
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
        config_file=str(own_config_file()),
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
