"""Entry of the kernelspec: ``python -m sandbox_kernel.kernel.launch FILE [-- KERNEL ...]``.

A child starts the sandbox while this process imports what it needs for itself.  Nothing is printed
at a normal start.

A kernel of another language is named after ``--``, with ``@connection_file@`` where its own
connection file goes (Jupyter would replace its usual form with ours).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from sandbox_kernel.errors import (
    ContainerUnavailableError,
    InvalidProcessCwdError,
    SandboxConfigurationError,
    SandboxError,
)
from sandbox_kernel.kernel import standby
from sandbox_kernel.kernel.aside import Aside
from sandbox_kernel.kernel.connection import ConnectionInfo, read_connection_file
from sandbox_kernel.kernel.hints import NO_KERNEL, NO_KERNEL_MEND, Facts
from sandbox_kernel.kernel.identity import Identity
from sandbox_kernel.kernel.lifecycle import (
    RESTART_WAIT,
    RESTARTED,
    SUPERSEDED,
    ParentWatch,
    Signals,
    destroy_later,
)
from sandbox_kernel.kernel.link import Link, end_kernel
from sandbox_kernel.kernel.started import Started, folder_inside, passed_on
from sandbox_kernel.kernel.starter import Starter
from sandbox_kernel.manager.running import Running
from sandbox_kernel.wall.modes import Mode, Wall
from sandbox_kernel.wire.operations import KernelInfo, StartKernelRequest

if TYPE_CHECKING:
    from sandbox_kernel.kernel.requests import Request

__all__ = ["main"]

_OUTPUTS = {
    Mode.STRICT: "strict: what acts is left out",
    Mode.DEFAULT: "default: what acts is drawn in frames",
    Mode.TRUSTED: "TRUSTED: they can act in the page, and so on the host",
}


_ASLEEP = frozenset({"it goes to sleep", "it hung up"})
"""Why a runtime starts no interpreter that does so after its next start."""

_FALLING_ASLEEP = 15.0
"""Seconds in which programs end that a sandbox has when it goes to sleep, and more."""

_PAUSE = 0.1


def main(arguments: Sequence[str]) -> int:
    """Serve one kernel; return the exit code."""
    signals = Signals()
    if list(arguments[:1]) == [standby.OPTION]:
        return _stand_by(int(arguments[1]), signals)
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
    return _run(
        info,
        started,
        kernel,
        signals,
        tell=partial(_complain, starter=starter),
        again=lambda: Aside(partial(_start, connection_file, info.key, starter)).result(),
    )


def _stand_by(descriptor: int, signals: Signals) -> int:
    """Wait, with everything imported, for the kernel to serve; return the exit code."""
    _import_for_the_relay()
    post = standby.Post(descriptor)
    order = post.wait(signals)
    if order is None:
        return 0
    try:
        os.environ.clear()
        os.environ.update(order.environ)
        os.chdir(order.cwd)
        info = read_connection_file(order.connection_file)
    except (OSError, SandboxError) as error:
        post.refuse(str(error))
        return 1
    return _run(
        info, order.started, None, signals, tell=lambda error: post.refuse(str(error)), post=post
    )


def _run(
    info: ConnectionInfo,
    started: Started,
    kernel: list[str] | None,
    signals: Signals,
    *,
    tell: Callable[[SandboxError], None],
    post: standby.Post | None = None,
    again: Callable[[], Started] | None = None,
) -> int:
    """Serve the kernel, and end the sandbox that was for it alone; return the exit code.

    With `again` a sandbox that falls asleep in this very moment is started anew.
    """
    deadline = time.monotonic() + _FALLING_ASLEEP
    try:
        while True:
            try:
                code = _serve(
                    info=info,
                    started=started,
                    kernel=kernel,
                    signals=signals,
                    post=post,
                )
                break
            except ContainerUnavailableError as error:
                asleep = error.context.get("reason") in _ASLEEP
                if again is None or not asleep or time.monotonic() > deadline:
                    raise
                # Until its runtime has hung up it looks alive.
                time.sleep(_PAUSE)
                started = again()
    except SandboxError as error:
        tell(error)
        if post is not None and not post.is_done:
            return 1  # the server starts another relay, for the same sandbox
        # Where it ran before, it is another relay's.
        code, is_ours, wait = 1, started.running.started, 0.0
    else:
        # After a crash Jupyter starts the kernel again, and a user's files are still wanted.
        is_ours, wait = code != SUPERSEDED, RESTART_WAIT if code else 0.0
    if started.identity.ephemeral and is_ours:
        destroy_later(started.identity.sandbox_id, wait=wait)
    return max(code, 0)  # those below stand for it


def _start(connection_file: str, key: bytes, starter: Starter) -> Started:
    """Have the kernel's sandbox run; in a child, so the imports are its own."""
    from sandbox_kernel.kernel.plan import plan  # noqa: PLC0415
    from sandbox_kernel.manager.manager import Manager  # noqa: PLC0415

    planned = plan(connection_file, key, environ=os.environ, cwd=os.getcwd())
    with closing(Manager(planned.settings)) as manager:
        running = manager.ensure(
            planned.identity.sandbox_id,
            planned.spec,
            changes=starter.changes(planned.spec),
            ephemeral=planned.identity.ephemeral,
        )
    return planned.started(running)


def _import_for_the_relay() -> None:
    """Import while the sandbox starts, or nobody waits; it takes tens of milliseconds."""
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


def _serve(
    *,
    info: ConnectionInfo,
    started: Started,
    kernel: list[str] | None,
    signals: Signals,
    post: standby.Post | None,
) -> int:
    """Relay until the end; return the exit code, or what stands for it."""
    running, identity = started.running, started.identity
    request = StartKernelRequest(
        kernel_id=identity.kernel_id,
        argv=kernel,
        cwd=folder_inside(running.spec, os.getcwd()),
        env=passed_on(os.environ),
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
            expose=lambda port, incarnation: _expose(running, port, incarnation),
            answered=_cell_notes(started, link.request.kernel_id),
        )
        if post is not None:
            post.done()
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


def _cell_notes(started: Started, kernel_id: str) -> Callable[[Request, bytes], None] | None:
    """Return what notes the cells, if they are to be noted."""
    if started.activity is None:
        return None
    from sandbox_kernel.kernel.cell_notes import CellNotes  # noqa: PLC0415
    from sandbox_kernel.manager.activity import name_program  # noqa: PLC0415

    name_program("kernel")
    running = started.running
    return CellNotes(started.activity, running.sandbox_id, running.lifetime, kernel_id).done


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


def _facts(started: Started, cwd: str | None) -> Facts:
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


def _expose(running: Running, port: int, incarnation: str) -> tuple[str, str]:
    """Let a port be seen in the browser; return its address, and a link to it."""
    from sandbox_kernel.manager.manager import Manager  # noqa: PLC0415
    from sandbox_kernel.manager.settings import Settings, data_folder  # noqa: PLC0415

    with closing(Manager(Settings(data_dir=data_folder() / "sandbox"))) as manager:
        exposed = manager.ports.expose(
            running.sandbox_id, port, secret=running.endpoint.token, incarnation=incarnation
        )
    if exposed is None:
        raise ContainerUnavailableError(running.sandbox_id, "it has stopped")
    return str(exposed), exposed._repr_html_()


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
