"""A sandbox, as people hold it: started by its first operation, found by its id from anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack, cast

from sandbox_kernel.client.git import GitOperations
from sandbox_kernel.client.options import SandboxOptions, spec_changes
from sandbox_kernel.client.ports import PortOperations
from sandbox_kernel.client.process import ExecResult, Process, ProcessDoor, ProcessExit
from sandbox_kernel.client.terminal import Terminal, TerminalDoor
from sandbox_kernel.client.terminal_protocol import Acknowledged, Dialect, Stable
from sandbox_kernel.client.terminal_socket import refused, serve, socket_of
from sandbox_kernel.errors import (
    CommandTimeoutError,
    ContainerUnavailableError,
    InvalidCommandError,
    InvalidTerminalCursorError,
    OperationInterruptedError,
    ProcessNotFoundError,
    SandboxError,
    StaleProcessHandleError,
    StaleTerminalHandleError,
    StdinClosedError,
    TerminalNotFoundError,
    TransportError,
    UnauthorizedError,
)
from sandbox_kernel.manager.identity import check_sandbox_id
from sandbox_kernel.manager.manager import Manager, SandboxInfo
from sandbox_kernel.manager.running import Running
from sandbox_kernel.manager.settings import data_folder
from sandbox_kernel.transports.choice import AnyTransport, chosen_transport, make_transport
from sandbox_kernel.wire.operations import (
    CreateTerminalRequest,
    Empty,
    ExecRequest,
    Health,
    OutputEvent,
    ProcessInfo,
    ProcessList,
    ProcessRequest,
    StartProcessRequest,
    TerminalInfo,
    TerminalList,
    TerminalRequest,
)
from sandbox_kernel.wire.operations import ExecResult as WireExecResult
from sandbox_kernel.wire.terminal import check_size, cursor_owner

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from sandbox_kernel.client.terminal_socket import Socket, WebSocketHandler
    from sandbox_kernel.transports.base import Channel, EventStream
    from sandbox_kernel.wire.operations import ConnectTerminalRequest
    from sandbox_kernel.wire.record import Record

__all__ = ["Sandbox", "get_sandbox", "list_sandboxes"]

T = TypeVar("T")

_PAUSE = 0.005
_ATTEMPTS = 8
"""How often we look again when a sandbox ends between being found and our connection."""

_SILENCE = 5.0
"""Seconds after which a runtime that neither answers nor hangs up is not asked again."""

_BEGINNINGS = 3
"""How many incarnations in a row may end before they take an operation."""

_MAX_OUTPUT = 256 << 20

_INPUT_AT_ONCE = 8 << 20
"""Input up to this size travels with the command; more of it follows in pieces."""

_KEPT_IN_ERROR = 64 << 10

_TERMINAL_BUFFER = 1 << 20


def get_sandbox(
    sandbox_id: str,
    *,
    manager: Manager | None = None,
    normalize_id: bool = False,
    transport: str | None = None,
    **options: Unpack[SandboxOptions],
) -> Sandbox:
    """Return a handle on the sandbox of this id; starts nothing.

    The same id is the same sandbox, whoever asks: its first operation starts it, and it is the one
    that a notebook, a server or another script uses under that id.

    Parameters
    ----------
    sandbox_id : str
        1 to 63 lower-case letters, digits and inner hyphens.
    manager : Manager, optional
        By default one for the user's settings.
    normalize_id : bool
        Lower the id first.
    transport : str, optional
        ``rpc``, ``http`` or ``websocket`` (deprecated): what carries this handle's operations.  By
        default what the environment variable ``SANDBOX_TRANSPORT`` says, else ``rpc``.
    **options
        What shall differ from the settings, see `SandboxOptions`; used when the sandbox starts.
        ``sleep_after`` and ``keep_alive`` reach one that runs too.

    Raises
    ------
    InvalidSandboxIdError, SandboxConfigurationError
        The id or an option cannot be used.
    """
    return Sandbox(
        check_sandbox_id(sandbox_id, normalize_id=normalize_id),
        manager=manager if manager is not None else _default_manager(),
        options=options,
        transport=transport,
    )


async def list_sandboxes(*, manager: Manager | None = None) -> list[SandboxInfo]:
    """Return every sandbox of this user, running or not; starts nothing."""
    return await asyncio.to_thread((manager if manager is not None else _default_manager()).list)


def _default_manager() -> Manager:
    return _manager_of(data_folder())


@functools.cache
def _manager_of(_data_folder: Path) -> Manager:
    return Manager()


class Sandbox(GitOperations, PortOperations):
    """One sandbox; get it from `get_sandbox`.

    Operations start the sandbox when it does not run; looking it up, listing, and using the handle
    of a process or a terminal never do.  Calls may run at the same time.  Closing a handle
    (``async with``, or `aclose`) closes a connection and nothing else; handles that are dropped
    close it themselves.
    """

    def __init__(
        self,
        sandbox_id: str,
        *,
        manager: Manager,
        options: SandboxOptions | None = None,
        transport: str | None = None,
    ) -> None:
        self._id = sandbox_id
        self._transport_name = chosen_transport(transport)
        self._manager = manager
        self._changes = spec_changes(options or {})
        self._transport: AnyTransport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Lock | None = None
        self._notices: list[str] = []

    def __repr__(self) -> str:
        return f"<Sandbox {self._id}>"

    @property
    def id(self) -> str:
        """Names the sandbox, for ever."""
        return self._id

    @property
    def notices(self) -> list[str]:
        """What is not as asked, in sentences; known after the first operation."""
        return list(self._notices)

    # --- its life ---

    async def start(self) -> SandboxInfo:
        """Start it if it does not run, and return what is known of it."""
        await self._connected()
        info = await self.info()
        if info is None:
            raise ContainerUnavailableError(self._id, "it was destroyed at once")
        return info

    async def info(self) -> SandboxInfo | None:
        """Return what is known of it; None if it never ran or was destroyed.  Starts nothing."""
        return await self._in_thread(functools.partial(self._manager.lookup, self._id))

    async def health(self) -> Health | None:
        """Return how its runtime is, and what keeps it awake; None if it does not run."""
        return cast("Health | None", await self._asked("runtime.health", Empty()))

    async def configure(self, **options: Unpack[SandboxOptions]) -> None:
        """Change options; those of idle sleep at once, others from the next start on."""
        self._changes = {**self._changes, **spec_changes(options)}
        if await self._in_thread(functools.partial(self._manager.find_running, self._id)):
            await self._ensured()

    async def stop(self, *, grace: float = 5.0) -> None:
        """End every process in it; files stay, and the next operation starts it again.

        Parameters
        ----------
        grace : float
            Seconds the programs have to end by themselves after SIGTERM.
        """
        # The connection last: what is under way hears from the runtime how it ended.
        await self._in_thread(functools.partial(self._manager.stop, self._id, grace=grace))
        await self.aclose()

    async def destroy(self) -> None:
        """End it and remove its files; the id is free for a new one.  A second time is fine."""
        await self._in_thread(functools.partial(self._manager.destroy, self._id))
        await self.aclose()

    # --- commands ---

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  travels to the runtime
        stdin: bytes | str | AsyncIterable[bytes] | None = None,
        merge_stderr: bool = False,
        max_output: int = _MAX_OUTPUT,
        on_output: Callable[[str, bytes], object] | None = None,
    ) -> ExecResult:
        """Run a command to its end and return what it wrote.

        There is no shell; ask for one with ``["bash", "-c", "..."]``.  Returns when the command
        itself has ended; what it left in the background goes on.  Cancelling kills the command
        with its process group.

        Parameters
        ----------
        argv : sequence of str
            Program and arguments.
        cwd : str, optional
            Folder to run in; by default the notebook's folder, or ``/workspace``.
        env : mapping, optional
            Laid over the sandbox's environment; None unsets a name.
        timeout : float, optional
            Seconds after which the process group is killed.
        stdin : bytes, str or asynchronous iterable of bytes, optional
            Its whole input; text is sent as UTF-8.  By default it reads end of file at once.  An
            iterable is given up when the command ends before it.
        merge_stderr : bool
            Collect both streams in `ExecResult.stdout`, in the order they were written.
        max_output : int
            Bytes to collect; what comes after is read and dropped, and `ExecResult.truncated` says
            so.
        on_output : callable, optional
            Called with ``"stdout"`` or ``"stderr"`` and bytes as they come.

        Raises
        ------
        CommandTimeoutError
            The time limit passed; its ``context`` holds the beginning of what was written.
        CommandNotFoundError, CommandPermissionDeniedError, InvalidCommandError
            The command cannot be run.
        InvalidProcessCwdError, InvalidProcessEnvironmentError
            The folder or a name in `env` cannot be used.
        OperationInterruptedError
            The sandbox ended, or the connection broke, while the command ran.
        """
        words = _argv(argv)
        collected = _Collected(max_output, on_output)
        if isinstance(stdin, str):
            stdin = stdin.encode()
        if stdin is None or (isinstance(stdin, bytes) and len(stdin) <= _INPUT_AT_ONCE):
            request = ExecRequest(
                argv=words,
                cwd=cwd,
                env=dict(env or {}),
                timeout=timeout,
                merge_stderr=merge_stderr,
                stdin=stdin,
            )
            end = await self._taken(functools.partial(_executed, request, collected))
            reason = "timeout" if end.timed_out else end.reason
            return collected.result(
                words,
                timeout,
                exit_code=end.exit_code,
                signal=end.signal,
                duration=end.duration,
                reason=reason,
            )
        process = await self.start_process(
            words, cwd=cwd, env=env, timeout=timeout, stdin=True, merge_stderr=merge_stderr
        )
        ended = await _fed(process, stdin, collected)
        return collected.result(
            words,
            timeout,
            exit_code=ended.exit_code,
            signal=ended.signal,
            duration=ended.duration,
            reason=ended.reason,
        )

    async def start_process(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  travels to the runtime
        stdin: bool = False,
        merge_stderr: bool = False,
        process_id: str | None = None,
    ) -> Process:
        """Start a command that goes on by itself, and return a handle on it.

        Parameters
        ----------
        argv, cwd, env, timeout, merge_stderr
            As for `exec`.
        stdin : bool
            Whether `Process.write_stdin` will be used; else it reads end of file at once.
        process_id : str, optional
            A name to find it by; by default one is made.

        Raises
        ------
        CommandNotFoundError, CommandPermissionDeniedError, InvalidCommandError
            The command cannot be run.
        """
        request = StartProcessRequest(
            argv=_argv(argv),
            cwd=cwd,
            env=dict(env or {}),
            timeout=timeout,
            stdin=stdin,
            merge_stderr=merge_stderr,
            process_id=process_id,
        )
        started = await self._taken(lambda transport: transport.call("process.start", request))
        return self._process(cast("ProcessInfo", started))

    async def get_process(self, process_id: str) -> Process | None:
        """Return a handle on a process, or None if this container knows none.  Starts nothing."""
        try:
            info = await self._asked("process.get", ProcessRequest(process_id=process_id))
        except ProcessNotFoundError:
            return None
        if info is None:
            return None
        return self._process(cast("ProcessInfo", info))

    async def list_processes(self) -> list[Process]:
        """Return the processes of the present container, running ones first.  Starts nothing."""
        listed = await self._asked("process.list", Empty())
        if listed is None:
            return []
        return [self._process(info) for info in cast("ProcessList", listed).processes]

    # --- terminals ---

    async def create_terminal(
        self,
        argv: Sequence[str] | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        cols: int = 80,
        rows: int = 24,
        buffer_size: int = _TERMINAL_BUFFER,
        terminal_id: str | None = None,
        session_id: str | None = None,
    ) -> Terminal:
        """Start a command on a terminal of its own, and return a handle on it.

        There is no shell in between.  The terminal goes on when everybody has left it; the sandbox
        sleeps all the same once nothing but its shell is there.

        Parameters
        ----------
        argv : sequence of str, optional
            Program and arguments; by default the sandbox's shell.
        cwd, env
            As for `exec`.
        cols, rows : int
            Its size, at most 2000 by 1000 and 500000 cells; known before the program starts.
        buffer_size : int
            Bytes of output that are kept for exact replay.
        terminal_id : str, optional
            A name to find it by; by default one is made that never comes again.
        session_id : str, optional
            A session, which has one terminal: if that lives it is returned as it is, else the new
            one is the session's.  See `terminal`.

        Raises
        ------
        CommandNotFoundError, CommandPermissionDeniedError, InvalidCommandError
            The command cannot be run.
        InvalidTerminalCwdError, InvalidProcessEnvironmentError
            The folder or a name in `env` cannot be used.
        """
        check_size(cols, rows)
        request = CreateTerminalRequest(
            argv=None if argv is None else _argv(argv),
            cwd=cwd,
            env=dict(env or {}),
            cols=cols,
            rows=rows,
            buffer_size=buffer_size,
            terminal_id=terminal_id,
            session=session_id,
        )
        created = await self._taken(lambda transport: transport.call("terminal.create", request))
        return self._terminal(cast("TerminalInfo", created))

    async def get_terminal(self, terminal_id: str) -> Terminal | None:
        """Return a handle on a terminal, or None if this container knows none.  Starts nothing."""
        try:
            info = await self._asked("terminal.get", TerminalRequest(terminal_id=terminal_id))
        except TerminalNotFoundError:
            return None
        return None if info is None else self._terminal(cast("TerminalInfo", info))

    async def list_terminals(self) -> list[Terminal]:
        """Return the terminals of the present container, running ones first.  Starts nothing."""
        listed = await self._asked("terminal.list", Empty())
        if listed is None:
            return []
        return [self._terminal(info) for info in cast("TerminalList", listed).terminals]

    async def terminal(
        self,
        handler: WebSocketHandler | Socket,
        *,
        session_id: str = "default",
        cols: int = 80,
        rows: int = 24,
        cursor: str | None = None,
        acknowledged: bool = False,
        start: bool = True,
    ) -> None:
        """Connect a browser's WebSocket to the one terminal of a session.

        Await it in the ``open`` method of a tornado `WebSocketHandler`.  The first browser makes
        the terminal, with the sandbox's shell; later ones see the same.  From then on the
        handler's messages are the terminal's, until one of both ends; its own ``on_close`` is still
        called.  What goes wrong is told to the browser, and the WebSocket closed.

        Parameters
        ----------
        handler : tornado.websocket.WebSocketHandler or Socket
            One whose upgrade is done, or another carrier of its messages.  Who may connect was
            decided before.
        session_id : str
            Names the session.
        cols, rows : int
            The browser's size.
        cursor : str, optional
            What the browser has drawn already.  It then wants that very terminal: nothing is
            started, neither a sandbox nor a shell.  Needs `acknowledged`.
        acknowledged : bool
            Whether the browser speaks the acknowledged protocol; else it is the stable protocol,
            whose browsers cannot say that they come again.  After the end of the session's shell
            such a one gets the last screen, and a new shell when Enter is typed.
        start : bool
            Whether a sandbox that does not run is started.  Without it the session's last shell is
            shown if none lives: nobody asked for a new one.
        """
        socket = socket_of(handler)
        dialect = Acknowledged(cursor) if acknowledged else Stable()
        if cursor is not None and acknowledged:
            await self._resume_session(socket, dialect, session_id, (cols, rows), cursor)
        else:
            await self._serve_session(
                socket,
                dialect,
                CreateTerminalRequest(
                    session=session_id,
                    find_ended=not acknowledged or not start,
                    cols=cols,
                    rows=rows,
                ),
                start=start,
            )

    async def _serve_session(
        self,
        socket: Socket,
        dialect: Dialect,
        request: CreateTerminalRequest,
        *,
        start: bool,
    ) -> None:
        if socket.is_closed:
            return
        cols, rows, session_id = request.cols, request.rows, request.session
        try:
            check_size(cols, rows)
            if not start and await self._found() is None:
                raise ContainerUnavailableError(self._id, "it has stopped")
            made = await self._taken(lambda transport: transport.call("terminal.create", request))
            info = cast("TerminalInfo", made)
            viewing = dialect.request(info.terminal_id, cols, rows)
            channel = await self._terminal_connect("terminal.connect", viewing, info)
        except SandboxError as error:
            refused(socket, dialect, error)
            return

        async def again() -> None:
            anew = CreateTerminalRequest(session=session_id, cols=cols, rows=rows)
            await self._serve_session(socket, Stable(), anew, start=True)

        resume = self._resuming(info)
        serve(channel, dialect, socket, sandbox_id=self._id, resume=resume, again=again)

    async def _resume_session(
        self,
        socket: Socket,
        dialect: Dialect,
        session_id: str,
        size: tuple[int, int],
        cursor: str,
    ) -> None:
        try:
            check_size(*size)
            incarnation, terminal_id = cursor_owner(cursor)
            request = dialect.request(terminal_id, *size)
            channel = await self._connect_channel(
                "terminal.connect", request, terminal_id, incarnation
            )
        except SandboxError as error:
            refused(socket, dialect, error)
            return
        info = cast("TerminalInfo", channel.opening)
        if info.session != session_id:
            channel.close()
            refused(socket, dialect, InvalidTerminalCursorError(terminal_id))
            return
        resume = self._resuming(info)
        serve(channel, dialect, socket, sandbox_id=self._id, resume=resume)

    def _resuming(
        self, info: TerminalInfo
    ) -> Callable[[ConnectTerminalRequest], Awaitable[Channel]]:
        return lambda request: self._terminal_reconnect("terminal.connect", request, info)

    # --- the connection ---

    async def aclose(self) -> None:
        """Close this handle's connection; the sandbox runs on and the handle can be used again."""
        transport, self._transport = self._transport, None
        if transport is not None and self._loop is asyncio.get_running_loop():
            await transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _taken(self, work: Callable[[AnyTransport], Awaitable[T]]) -> T:
        """Have the sandbox do something, and a later incarnation if one ends before it begins."""
        for _ in range(_BEGINNINGS):
            transport = await self._connected()
            try:
                return await work(transport)
            except ContainerUnavailableError as error:
                last = error
        raise last

    async def _asked(self, operation: str, request: Record) -> Record | None:
        """Ask the sandbox for something if it runs; starts nothing."""
        transport = await self._found()
        if transport is None:
            return None
        try:
            return await transport.call(operation, request)
        except ContainerUnavailableError:
            return None

    async def _connected(self) -> AnyTransport:
        """Return a connected transport, starting the sandbox if need be.

        Nothing has been sent yet when a connection fails here, so trying again is safe.
        """
        async with self._lock():
            if self._transport is not None and await self._opens(self._transport):
                return self._transport
            for attempt in range(_ATTEMPTS):
                running = await self._ensured()
                transport = make_transport(self._transport_name, running.endpoint)
                asked_at = time.monotonic()
                try:
                    await transport.open()
                except (ContainerUnavailableError, UnauthorizedError) as error:
                    ended = running.started and await self._in_thread(
                        functools.partial(self._manager.was_ended, running)
                    )
                    if running.started and not ended:
                        raise self._manager.failed_start(running) from error
                    if ended and attempt == _ATTEMPTS - 1:
                        raise ContainerUnavailableError(
                            self._id, "it was stopped or destroyed while it started"
                        ) from error
                    # It went to sleep, or was killed, in this very moment; until the system has
                    # torn it down it looks alive.  One that lives and says nothing is no such case.
                    if attempt == _ATTEMPTS - 1 or time.monotonic() - asked_at > _SILENCE:
                        raise
                    await asyncio.sleep(_PAUSE * 2**attempt)
                    continue
                self._transport = transport
                return transport
            raise AssertionError  # the last attempt returns or raises

    async def _found(self) -> AnyTransport | None:
        """Return a connected transport if the sandbox runs; starts nothing."""
        async with self._lock():
            if self._transport is not None and await self._opens(self._transport):
                return self._transport
            running = await self._in_thread(functools.partial(self._manager.find_running, self._id))
            if running is None:
                return None
            transport = make_transport(self._transport_name, running.endpoint)
            if not await self._opens(transport):
                return None
            self._transport = transport
            return transport

    async def _opens(self, transport: AnyTransport) -> bool:
        try:
            await transport.open()
        except (ContainerUnavailableError, UnauthorizedError):
            await transport.aclose()
            return False
        return True

    def _lock(self) -> asyncio.Lock:
        # A handle may live longer than the event loop that used it; connections may not.
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._connecting is None:
            self._loop, self._transport, self._connecting = loop, None, asyncio.Lock()
        return self._connecting

    async def _ensured(self) -> Running:
        running = await self._in_thread(
            functools.partial(self._manager.ensure, self._id, changes=self._changes)
        )
        self._notices = running.notices
        return running

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    # --- handles, which never start anything ---

    def _process(self, info: ProcessInfo) -> Process:
        return Process(ProcessDoor(self._process_call, self._process_stream), info)

    async def _process_call(self, operation: str, request: Record, info: ProcessInfo) -> Record:
        stale = StaleProcessHandleError(info.process_id)
        return await self._handle_call(operation, request, info.incarnation, stale)

    def _process_stream(
        self, operation: str, request: Record, info: ProcessInfo
    ) -> AbstractAsyncContextManager[EventStream]:
        stale = StaleProcessHandleError(info.process_id)
        return self._handle_stream(operation, request, info.incarnation, stale)

    def _terminal(self, info: TerminalInfo) -> Terminal:
        door = TerminalDoor(
            self._terminal_call,
            self._terminal_stream,
            self._terminal_connect,
            self._terminal_reconnect,
            sandbox_id=self._id,
        )
        return Terminal(door, info)

    async def _terminal_call(self, operation: str, request: Record, info: TerminalInfo) -> Record:
        stale = StaleTerminalHandleError(info.terminal_id)
        return await self._handle_call(operation, request, info.incarnation, stale)

    def _terminal_stream(
        self, operation: str, request: Record, info: TerminalInfo
    ) -> AbstractAsyncContextManager[EventStream]:
        stale = StaleTerminalHandleError(info.terminal_id)
        return self._handle_stream(operation, request, info.incarnation, stale)

    async def _terminal_connect(
        self, operation: str, request: Record, info: TerminalInfo
    ) -> Channel:
        return await self._connect_channel(operation, request, info.terminal_id, info.incarnation)

    async def _terminal_reconnect(
        self, operation: str, request: Record, info: TerminalInfo
    ) -> Channel:
        """Open a channel in the place of one whose connection broke.

        Raises
        ------
        ContainerUnavailableError
            The sandbox has stopped, or runs anew.
        TransportError
            It runs, as far as the system knows, and cannot be reached.
        """
        begin = time.monotonic()
        last: SandboxError | None = None
        for attempt in range(_ATTEMPTS):
            running = await self._in_thread(functools.partial(self._manager.find_running, self._id))
            if running is None:
                raise ContainerUnavailableError(self._id, "it has stopped") from last
            try:
                return await make_transport(self._transport_name, running.endpoint).connect(
                    operation, request, incarnation=info.incarnation
                )
            except StaleTerminalHandleError as error:
                raise ContainerUnavailableError(self._id, "it has stopped") from error
            except (
                ContainerUnavailableError,
                UnauthorizedError,
                OperationInterruptedError,
            ) as error:
                last = error
            if time.monotonic() - begin > _SILENCE:
                break
            # One that was killed looks alive until the system has torn it down.
            await asyncio.sleep(_PAUSE * 2**attempt)
        raise TransportError(
            f"The connection to terminal {info.terminal_id!r} of sandbox {self._id!r} broke, and "
            "could not be made again."
        ) from last

    async def _connect_channel(
        self, operation: str, request: Record, terminal_id: str, incarnation: str
    ) -> Channel:
        transport = await self._found()
        if transport is None:
            raise StaleTerminalHandleError(terminal_id)
        try:
            return await transport.connect(operation, request, incarnation=incarnation)
        except (ContainerUnavailableError, UnauthorizedError) as error:
            raise StaleTerminalHandleError(terminal_id) from error

    async def _handle_call(
        self, operation: str, request: Record, incarnation: str, stale: SandboxError
    ) -> Record:
        transport = await self._found()
        if transport is None:
            raise stale
        try:
            return await transport.call(operation, request, incarnation=incarnation)
        except ContainerUnavailableError as error:
            raise stale from error

    @asynccontextmanager
    async def _handle_stream(
        self, operation: str, request: Record, incarnation: str, stale: SandboxError
    ) -> AsyncIterator[EventStream]:
        transport = await self._found()
        if transport is None:
            raise stale
        try:
            async with transport.stream(operation, request, incarnation=incarnation) as events:
                yield events
        except ContainerUnavailableError as error:
            raise stale from error


class _Collected:
    """What a command writes, up to a limit."""

    def __init__(self, room: int, on_output: Callable[[str, bytes], object] | None) -> None:
        self._room = room
        self._on_output = on_output
        self._chunks: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._truncated = False

    def add(self, stream: str, data: bytes) -> None:
        if self._on_output is not None:
            self._on_output(stream, data)
        if len(data) > self._room:
            data, self._truncated = data[: self._room], True
        self._room -= len(data)
        self._chunks["stderr" if stream == "stderr" else "stdout"].append(data)

    def result(
        self,
        argv: list[str],
        timeout: float | None,
        *,
        exit_code: int,
        signal: int | None,
        duration: float,
        reason: str | None,
    ) -> ExecResult:
        stdout, stderr = b"".join(self._chunks["stdout"]), b"".join(self._chunks["stderr"])
        if reason == "timeout":
            raise CommandTimeoutError(
                argv[0],
                timeout or 0.0,
                stdout[:_KEPT_IN_ERROR].decode(errors="replace"),
                stderr[:_KEPT_IN_ERROR].decode(errors="replace"),
            )
        return ExecResult(
            argv=argv,
            exit_code=exit_code,
            stdout=stdout,
            stderr=stderr,
            signal=signal,
            duration=duration,
            reason=reason,
            truncated=self._truncated,
        )


async def _executed(
    request: ExecRequest, collected: _Collected, transport: AnyTransport
) -> WireExecResult:
    async with transport.stream("exec", request) as events:
        async for event in events:
            assert isinstance(event, OutputEvent)  # noqa: S101  as the table declares
            collected.add(event.stream, event.data)
        end = events.end
    assert isinstance(end, WireExecResult)  # noqa: S101  as the table declares
    return end


async def _fed(
    process: Process, stdin: bytes | AsyncIterable[bytes], collected: _Collected
) -> ProcessExit:
    """Write to a process while collecting what it writes, until it has ended."""
    broken: list[Exception] = []
    feeding = asyncio.create_task(_feed(process, stdin, broken))
    try:
        ended = None
        async with aclosing(process.output(follow=True)) as events:
            async for event in events:
                if isinstance(event, ProcessExit):
                    ended = event
                else:
                    collected.add(event.stream, event.data)
        if broken:
            # The command's end, which it brought about, may be seen before the task's.
            raise broken[0]  # noqa: TRY301  leaving the command ended is what follows
        if feeding.done():
            feeding.result()
        return ended or await process.wait_for_exit()
    except BaseException:
        # Shielded: giving up the waiting must not leave the command behind.
        await asyncio.shield(_killed(process))
        raise
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])


async def _feed(
    process: Process, stdin: bytes | AsyncIterable[bytes], broken: list[Exception]
) -> None:
    # A program may close its input before it has read all, or end; that is its right.
    with contextlib.suppress(StdinClosedError, ProcessNotFoundError):
        if isinstance(stdin, bytes):
            await process.write_stdin(stdin, close=True)
            return
        try:
            async for data in stdin:
                await process.write_stdin(data)
            await process.close_stdin()
        except (StdinClosedError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001  the caller gets it, whatever it is
            # The caller's stream broke: what came of half an input is of no use.
            broken.append(error)
            await _killed(process)
        finally:
            if isinstance(stdin, AsyncGenerator):
                await stdin.aclose()


async def _killed(process: Process) -> None:
    with contextlib.suppress(SandboxError):
        await process.kill()


def _argv(argv: Sequence[str]) -> list[str]:
    if isinstance(argv, str | bytes):
        # Splitting it would be a guess, and one word without arguments hides the mistake.
        raise InvalidCommandError("it is one string")
    return list(argv)
