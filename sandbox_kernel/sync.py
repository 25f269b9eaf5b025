"""The names of `sandbox_kernel` for code without an event loop, and for notebooks with one.

Each method here does what the method of the same name and parameters of the asynchronous class
does, and blocks until it is done.  What passes messages as they come (`Sandbox.terminal`,
`Terminal.connect`, `Terminal.view`) has no blocking form.  One thread with an event loop serves the
whole process, so these functions also work where a loop is running already, as in a notebook.

>>> from sandbox_kernel.sync import get_sandbox
>>> with get_sandbox("my-sandbox") as sandbox:   # doctest: +SKIP
...     print(sandbox.exec("echo hi").stdout_text)
hi
"""

from __future__ import annotations

import asyncio
import os
import re
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from sandbox_kernel.client import sandbox as _sandbox
from sandbox_kernel.client.commands import CommandInput
from sandbox_kernel.client.loop_thread import Caller, LoopThread
from sandbox_kernel.client.options import SandboxOptions
from sandbox_kernel.client.process import (
    ExecResult,
    LogMatch,
    ProcessExit,
    ProcessLogs,
    ProcessOutput,
)
from sandbox_kernel.client.process import Process as AsyncProcess
from sandbox_kernel.client.sandbox import Sandbox as AsyncSandbox
from sandbox_kernel.client.session import Session as AsyncSession
from sandbox_kernel.client.terminal import Terminal as AsyncTerminal
from sandbox_kernel.client.terminal import (
    TerminalEnd,
    TerminalExit,
    TerminalFailure,
    TerminalOutput,
    TerminalSnapshot,
    TerminalTruncated,
)
from sandbox_kernel.manager.manager import Manager, SandboxInfo
from sandbox_kernel.sync_files import BlockingFiles
from sandbox_kernel.sync_ports import BlockingPorts, PortForward

if TYPE_CHECKING:
    from sandbox_kernel.client.command_operations import CommandOperations
    from sandbox_kernel.client.ports import PortReady
    from sandbox_kernel.manager.activity import ActivityPage
    from sandbox_kernel.manager.stats import SandboxStats
    from sandbox_kernel.widget.terminal_widget import TerminalWidget
    from sandbox_kernel.wire.operations import Health

__all__ = [
    "ExecResult",
    "LogMatch",
    "PortForward",
    "Process",
    "ProcessExit",
    "ProcessLogs",
    "ProcessOutput",
    "Sandbox",
    "SandboxInfo",
    "Session",
    "Terminal",
    "TerminalEnd",
    "TerminalExit",
    "TerminalFailure",
    "TerminalOutput",
    "TerminalSnapshot",
    "TerminalTruncated",
    "get_sandbox",
    "list_sandboxes",
]

T = TypeVar("T")

_MAX_OUTPUT = 256 << 20
_SIGKILL = 9
_TERMINAL_BUFFER = 1 << 20


_thread = LoopThread("sandbox-kernel-sync")


def get_sandbox(
    sandbox_id: str,
    *,
    manager: Manager | None = None,
    normalize_id: bool = False,
    transport: str | None = None,
    enable_default_session: bool = True,
    command_timeout: float | None = None,
    **options: Unpack[SandboxOptions],
) -> Sandbox:
    """Return a handle on the sandbox of this id; see `sandbox_kernel.get_sandbox`."""
    return Sandbox(
        _sandbox.get_sandbox(
            sandbox_id,
            manager=manager,
            normalize_id=normalize_id,
            transport=transport,
            enable_default_session=enable_default_session,
            command_timeout=command_timeout,
            **options,
        )
    )


def list_sandboxes(*, manager: Manager | None = None) -> list[SandboxInfo]:
    """Return every sandbox of this user; see `sandbox_kernel.list_sandboxes`."""
    return _thread.run(_sandbox.list_sandboxes(manager=manager))


class Process:
    """A handle on one process; see `sandbox_kernel.Process`."""

    def __init__(self, process: AsyncProcess) -> None:
        self._process = process

    def __repr__(self) -> str:
        return repr(self._process)

    @property
    def id(self) -> str:
        """Names the process within its sandbox."""
        return self._process.id

    @property
    def pid(self) -> int:
        """The process id as programs in the sandbox see it."""
        return self._process.pid

    @property
    def argv(self) -> list[str]:
        """The command."""
        return self._process.argv

    @property
    def command(self) -> str:
        """The text that a shell runs, or would take for the words."""
        return self._process.command

    @property
    def session(self) -> str | None:
        """The session in whose shell it runs."""
        return self._process.session

    @property
    def cwd(self) -> str:
        """The folder it was started in."""
        return self._process.cwd

    @property
    def status(self) -> str:
        """As of the last answer: ``running``, ``completed``, ``failed`` or ``killed``."""
        return self._process.status

    @property
    def exit(self) -> ProcessExit | None:
        """How it ended, as of the last answer; None while it runs."""
        return self._process.exit

    def refresh(self) -> Process:
        """Ask for the present state, and return this handle."""
        _thread.run(self._process.refresh())
        return self

    def output(
        self, *, since: str | None = None, replay: bool = True, follow: bool = False
    ) -> Iterator[ProcessOutput | ProcessExit]:
        """Iterate over what the process wrote; see `sandbox_kernel.Process.output`."""
        return _iterate(self._process.output(since=since, replay=replay, follow=follow))

    def logs(self, *, max_output: int = _MAX_OUTPUT) -> ProcessLogs:
        """Return what it has written so far, without waiting for more."""
        return _thread.run(self._process.logs(max_output=max_output))

    def wait_for_log(
        self,
        pattern: str | bytes | re.Pattern[str] | re.Pattern[bytes],
        *,
        stream: str | None = None,
        since: str | None = None,
        timeout: float | None = None,
    ) -> LogMatch:
        """Wait until it has written something; see `sandbox_kernel.Process.wait_for_log`."""
        return _thread.run(
            self._process.wait_for_log(pattern, stream=stream, since=since, timeout=timeout)
        )

    def write_stdin(self, data: bytes | str, *, close: bool = False) -> None:
        """Write to the process; returns when all is in its pipe."""
        _thread.run(self._process.write_stdin(data, close=close))

    def close_stdin(self) -> None:
        """Close the process's input: it reads end of file."""
        _thread.run(self._process.close_stdin())

    def send_signal(self, signal: int | str, *, group: bool = True) -> None:
        """Send a signal to the process's whole group, or to the process alone."""
        _thread.run(self._process.send_signal(signal, group=group))

    def terminate(self) -> None:
        """Send SIGTERM to the process's whole group."""
        _thread.run(self._process.terminate())

    def kill(self, signal: int | str = _SIGKILL) -> None:
        """Send a signal, 1 to 64 or a name, to the whole group; returns when it is delivered."""
        _thread.run(self._process.kill(signal))

    def wait_for_exit(self, timeout: float | None = None) -> ProcessExit:
        """Wait until the process has ended; see `sandbox_kernel.Process.wait_for_exit`."""
        return _thread.run(self._process.wait_for_exit(timeout=timeout))

    def wait_for_port(
        self,
        port: int,
        *,
        mode: str = "tcp",
        path: str = "/",
        status: int | tuple[int, int] = (200, 399),
        timeout: float | None = None,
    ) -> PortReady:
        """Wait until a program listens on a port; see `sandbox_kernel.Process.wait_for_port`."""
        return _thread.run(
            self._process.wait_for_port(port, mode=mode, path=path, status=status, timeout=timeout)
        )


class Terminal:
    """A handle on one terminal; see `sandbox_kernel.Terminal`."""

    def __init__(self, terminal: AsyncTerminal) -> None:
        self._terminal = terminal

    def __repr__(self) -> str:
        return repr(self._terminal)

    @property
    def id(self) -> str:
        """Names the terminal within its sandbox; never that of another one."""
        return self._terminal.id

    @property
    def pid(self) -> int:
        """The process id of its program, as programs in the sandbox see it."""
        return self._terminal.pid

    @property
    def argv(self) -> list[str]:
        """The command."""
        return self._terminal.argv

    @property
    def cwd(self) -> str:
        """The folder it was started in."""
        return self._terminal.cwd

    @property
    def session(self) -> str | None:
        """The session it belongs to, if `sandbox_kernel.Sandbox.terminal` made it."""
        return self._terminal.session

    @property
    def status(self) -> str:
        """As of the last answer: ``running``, ``exited`` or ``error``."""
        return self._terminal.status

    @property
    def cols(self) -> int:
        """Columns, as of the last answer."""
        return self._terminal.cols

    @property
    def rows(self) -> int:
        """Rows, as of the last answer."""
        return self._terminal.rows

    @property
    def title(self) -> str:
        """As its program set it, as of the last answer."""
        return self._terminal.title

    @property
    def created_at(self) -> float:
        """When it was made, in seconds since the epoch."""
        return self._terminal.created_at

    @property
    def cursor(self) -> str:
        """The end of its output, as of the last answer."""
        return self._terminal.cursor

    @property
    def exit(self) -> TerminalExit | None:
        """How it ended, as of the last answer; None while it runs."""
        return self._terminal.exit

    def refresh(self) -> Terminal:
        """Ask for the present state, and return this handle."""
        _thread.run(self._terminal.refresh())
        return self

    def get_snapshot(self) -> TerminalSnapshot:
        """Return its state and what its screen shows now."""
        return _thread.run(self._terminal.get_snapshot())

    def write(self, data: bytes | str) -> None:
        """Type into the terminal; returns when its program can read all of it."""
        _thread.run(self._terminal.write(data))

    def resize(self, cols: int, rows: int) -> None:
        """Set its size; holds until a viewer decides otherwise."""
        _thread.run(self._terminal.resize(cols, rows))

    def output(
        self, *, since: str | None = None, replay: bool = True, follow: bool = False
    ) -> Iterator[TerminalOutput | TerminalEnd | TerminalTruncated]:
        """Iterate over what came to the terminal; see `sandbox_kernel.Terminal.output`."""
        return _iterate(self._terminal.output(since=since, replay=replay, follow=follow))

    def wait_for_exit(self, timeout: float | None = None) -> TerminalExit:
        """Wait until the terminal has ended; see `sandbox_kernel.Terminal.wait_for_exit`."""
        return _thread.run(self._terminal.wait_for_exit(timeout=timeout))

    def interrupt(self) -> None:
        """Interrupt what runs in the foreground, as Ctrl-C does."""
        _thread.run(self._terminal.interrupt())

    def terminate(self, *, grace: float = 1.0) -> TerminalExit:
        """End the terminal and all that was started in it, and return how it ended."""
        return _thread.run(self._terminal.terminate(grace=grace))

    def widget(self, **options: Any) -> TerminalWidget:
        """Return a widget that shows it in a cell; see `sandbox_kernel.widget.TerminalWidget`."""
        return self._terminal.widget(**options)


class _InLoop:
    """What files and ports need of the loop's thread."""

    def _wait(self, work: Coroutine[Any, Any, T], caller: Caller | None = None) -> T:
        return _thread.run(work, caller)

    def _each(self, events: AsyncGenerator[T, None]) -> Iterator[T]:
        return _iterate(events)


class _BlockingCommands(ABC):
    """Commands of a sandbox or session."""

    @property
    @abstractmethod
    def _runs(self) -> CommandOperations:
        """What runs them in the loop."""

    def exec(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        stdin: CommandInput | Iterable[bytes] | None = None,
        merge_stderr: bool = False,
        max_output: int = _MAX_OUTPUT,
        on_output: Callable[[str, bytes], object] | None = None,
    ) -> ExecResult:
        """Run a command to its end; see `sandbox_kernel.Sandbox.exec`.

        `on_output` is called here, in the thread that waits, and may itself make blocking calls.
        `stdin` may be any iterable of bytes, which is iterated over here, too.
        """
        caller = Caller()
        return _thread.run(
            self._runs.exec(
                command,
                cwd=cwd,
                env=env,
                timeout=timeout,
                stdin=caller.source(stdin),
                merge_stderr=merge_stderr,
                max_output=max_output,
                on_output=caller.here(on_output),
            ),
            caller,
        )

    def exec_stream(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        stdin: bytes | str | None = None,
        merge_stderr: bool = False,
    ) -> Iterator[ProcessOutput | ProcessExit]:
        """Run a command and iterate over what it writes; see `sandbox_kernel.Sandbox.exec_stream`.

        Leaving the loop early ends the command.
        """
        return _iterate(
            self._runs.exec_stream(
                command, cwd=cwd, env=env, timeout=timeout, stdin=stdin, merge_stderr=merge_stderr
            )
        )

    def start_process(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        stdin: bool = False,
        merge_stderr: bool = False,
        process_id: str | None = None,
    ) -> Process:
        """Start a command that goes on by itself; see `sandbox_kernel.Sandbox.start_process`."""
        return Process(
            _thread.run(
                self._runs.start_process(
                    command,
                    cwd=cwd,
                    env=env,
                    timeout=timeout,
                    stdin=stdin,
                    merge_stderr=merge_stderr,
                    process_id=process_id,
                )
            )
        )


class Session(_InLoop, _BlockingCommands, BlockingFiles):
    """A handle on one session; see `sandbox_kernel.Session`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    @property
    def _files(self) -> AsyncSession:
        return self._session

    @property
    def _runs(self) -> AsyncSession:
        return self._session

    def __repr__(self) -> str:
        return repr(self._session)

    @property
    def id(self) -> str:
        """Names the session within its sandbox."""
        return self._session.id

    @property
    def status(self) -> str:
        """As of the last answer: ``idle``, ``running`` or ``terminated``."""
        return self._session.status

    @property
    def cwd(self) -> str:
        """Where its shell was, as of the last answer, after its last command."""
        return self._session.cwd

    @property
    def pid(self) -> int:
        """The shell's process id as of the last answer; 0 while there is none."""
        return self._session.pid

    @property
    def command_timeout(self) -> float | None:
        """Seconds for commands that bring no limit of their own."""
        return self._session.command_timeout

    @property
    def created_at(self) -> float:
        """When it was made, in seconds since the epoch."""
        return self._session.created_at

    def refresh(self) -> Session:
        """Ask for the present state, and return this handle.  Starts nothing."""
        _thread.run(self._session.refresh())
        return self

    def create_terminal(
        self,
        argv: Sequence[str | os.PathLike[str]] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        cols: int = 80,
        rows: int = 24,
        buffer_size: int = _TERMINAL_BUFFER,
        terminal_id: str | None = None,
    ) -> Terminal:
        """Return the session's terminal; see `sandbox_kernel.Session.create_terminal`."""
        return Terminal(
            _thread.run(
                self._session.create_terminal(
                    argv,
                    cwd=cwd,
                    env=env,
                    cols=cols,
                    rows=rows,
                    buffer_size=buffer_size,
                    terminal_id=terminal_id,
                )
            )
        )

    def set_env(self, env: Mapping[str, str | None]) -> None:
        """Set variables of the shell, when it has its turn: all or none; None unsets a name."""
        _thread.run(self._session.set_env(env))

    def delete(self) -> None:
        """End it with all that was started in its shell."""
        _thread.run(self._session.delete())


class Sandbox(_InLoop, _BlockingCommands, BlockingFiles, BlockingPorts):
    """One sandbox; see `sandbox_kernel.Sandbox`."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    def __repr__(self) -> str:
        return repr(self._sandbox)

    @property
    def _files(self) -> AsyncSandbox:
        return self._sandbox

    @property
    def _runs(self) -> AsyncSandbox:
        return self._sandbox

    @property
    def id(self) -> str:
        """Names the sandbox, for ever."""
        return self._sandbox.id

    @property
    def notices(self) -> list[str]:
        """What is not as asked, in sentences; known after the first operation."""
        return self._sandbox.notices

    def start(self) -> SandboxInfo:
        """Start it if it does not run, and return what is known of it."""
        return _thread.run(self._sandbox.start())

    def info(self) -> SandboxInfo | None:
        """Return what is known of it, or None.  Starts nothing."""
        return _thread.run(self._sandbox.info())

    def health(self) -> Health | None:
        """Return how its runtime is; None if it does not run."""
        return _thread.run(self._sandbox.health())

    def stats(self, *, disk: bool = False) -> SandboxStats | None:
        """Return what it uses; None if there is none.  Starts nothing."""
        return _thread.run(self._sandbox.stats(disk=disk))

    def activity(self, *, since: str | None = None, limit: int = 1000) -> ActivityPage:
        """Return who did what in it, and when.  Starts nothing."""
        return _thread.run(self._sandbox.activity(since=since, limit=limit))

    def configure(self, **options: Unpack[SandboxOptions]) -> None:
        """Change options; those of idle sleep at once, others from the next start on."""
        _thread.run(self._sandbox.configure(**options))

    def stop(self, *, grace: float = 5.0) -> None:
        """End every process in it; files stay, and the next operation starts it again."""
        _thread.run(self._sandbox.stop(grace=grace))

    def destroy(self) -> None:
        """End it and remove its files; the id is free for a new one.  A second time is fine."""
        _thread.run(self._sandbox.destroy())

    def get_process(self, process_id: str) -> Process | None:
        """Return a handle on a process, or None.  Starts nothing."""
        process = _thread.run(self._sandbox.get_process(process_id))
        return None if process is None else Process(process)

    def list_processes(self) -> list[Process]:
        """Return the processes of the present container, running ones first.  Starts nothing."""
        return [Process(each) for each in _thread.run(self._sandbox.list_processes())]

    def kill_all_processes(self, *, grace: float = 1.0) -> int:
        """End every process that `start_process` started, and return how many there were."""
        return _thread.run(self._sandbox.kill_all_processes(grace=grace))

    def create_session(
        self,
        session_id: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        command_timeout: float | None = None,
    ) -> Session:
        """Make a session; see `sandbox_kernel.Sandbox.create_session`."""
        return Session(
            _thread.run(
                self._sandbox.create_session(
                    session_id, cwd=cwd, env=env, command_timeout=command_timeout
                )
            )
        )

    def get_session(self, session_id: str) -> Session | None:
        """Return a handle on a session, or None.  Starts nothing."""
        session = _thread.run(self._sandbox.get_session(session_id))
        return None if session is None else Session(session)

    def list_sessions(self) -> list[Session]:
        """Return the sessions of the present container, oldest first.  Starts nothing."""
        return [Session(each) for each in _thread.run(self._sandbox.list_sessions())]

    def delete_session(self, session_id: str) -> None:
        """End a session with all that was started in its shell.  Starts nothing."""
        _thread.run(self._sandbox.delete_session(session_id))

    def set_env(self, env: Mapping[str, str | None]) -> None:
        """Set variables for all that is started from now on, and in the default session."""
        _thread.run(self._sandbox.set_env(env))

    def create_terminal(
        self,
        argv: Sequence[str | os.PathLike[str]] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        cols: int = 80,
        rows: int = 24,
        buffer_size: int = _TERMINAL_BUFFER,
        terminal_id: str | None = None,
        session_id: str | None = None,
    ) -> Terminal:
        """Start a command on a terminal; see `sandbox_kernel.Sandbox.create_terminal`."""
        return Terminal(
            _thread.run(
                self._sandbox.create_terminal(
                    argv,
                    cwd=cwd,
                    env=env,
                    cols=cols,
                    rows=rows,
                    buffer_size=buffer_size,
                    terminal_id=terminal_id,
                    session_id=session_id,
                )
            )
        )

    def get_terminal(self, terminal_id: str) -> Terminal | None:
        """Return a handle on a terminal, or None.  Starts nothing."""
        terminal = _thread.run(self._sandbox.get_terminal(terminal_id))
        return None if terminal is None else Terminal(terminal)

    def list_terminals(self) -> list[Terminal]:
        """Return the terminals of the present container, running ones first.  Starts nothing."""
        return [Terminal(each) for each in _thread.run(self._sandbox.list_terminals())]

    def close(self) -> None:
        """Close this handle's connection; the sandbox runs on and the handle can be used again."""
        _thread.run(self._sandbox.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _iterate(events: AsyncGenerator[T, None]) -> Iterator[T]:
    """Iterate over events as they come; leaving early ends the reading."""
    reading = _Reading(events)
    try:
        while (event := _thread.run(reading.take())) is not None:
            yield event
    finally:
        _thread.finish(reading.aclose())


class _Reading(Generic[T]):
    """One reader of events, who may be interrupted while an event is awaited."""

    def __init__(self, events: AsyncGenerator[T, None]) -> None:
        self._events = events
        self._taking: asyncio.Task[Any] | None = None

    async def take(self) -> T | None:
        self._taking = asyncio.current_task()
        try:
            return await anext(self._events, None)
        finally:
            self._taking = None

    async def aclose(self) -> None:
        # Who was interrupted is told so by now, and may still be on the way out of the events.
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait([self._taking])
        await self._events.aclose()
