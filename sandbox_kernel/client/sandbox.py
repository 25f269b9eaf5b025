"""A sandbox, as people hold it: started by its first operation, found by its id from anywhere."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack, cast

from sandbox_kernel.arguments import (
    as_configuration,
    environment,
    flag,
    inside_path,
    number,
    words,
)
from sandbox_kernel.client.command_operations import CommandOperations
from sandbox_kernel.client.commands import Commands
from sandbox_kernel.client.git import GitOperations
from sandbox_kernel.client.making import made
from sandbox_kernel.client.options import SandboxOptions, spec_changes
from sandbox_kernel.client.ports import PortOperations
from sandbox_kernel.client.process import (
    Process,
    ProcessDoor,
)
from sandbox_kernel.client.recorded import Recorded, Recorder
from sandbox_kernel.client.session import Session
from sandbox_kernel.client.terminal import Terminal, TerminalDoor
from sandbox_kernel.client.terminal_protocol import Acknowledged, Dialect, Stable
from sandbox_kernel.client.terminal_socket import refused, serve, socket_of
from sandbox_kernel.client.time_limits import limit_to_send
from sandbox_kernel.errors import (
    ContainerUnavailableError,
    InvalidTerminalCursorError,
    OperationInterruptedError,
    ProcessNotFoundError,
    SandboxError,
    SessionNotFoundError,
    StaleProcessHandleError,
    StaleTerminalHandleError,
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
    Health,
    KillAllRequest,
    KillAllResult,
    ProcessInfo,
    ProcessList,
    ProcessRequest,
    TerminalInfo,
    TerminalList,
    TerminalRequest,
    TerminateTerminalRequest,
)
from sandbox_kernel.wire.session_operations import (
    CreateSessionRequest,
    SessionInfo,
    SessionList,
    SessionRequest,
    SetEnvRequest,
)
from sandbox_kernel.wire.terminal import check_size, cursor_owner

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from sandbox_kernel.client.terminal_socket import Socket, WebSocketHandler
    from sandbox_kernel.manager.activity import ActivityPage
    from sandbox_kernel.manager.stats import SandboxStats
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

_FALLING_ASLEEP = 15.0
"""Seconds in which one that falls asleep gets out of the way of its successor."""

_DEFAULT_SESSION = "default"
_TERMINAL_BUFFER = 1 << 20


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
        ``rpc``, ``http`` or ``websocket`` (deprecated): what carries this handle's operations; or
        ``inprocess``, for tests against a runtime in this process, which isolates nothing.  By
        default what the environment variable ``SANDBOX_TRANSPORT`` says, else ``rpc``.
    enable_default_session : bool
        Whether texts given to this handle share one shell; else each has a shell of its own.
    command_timeout : float, optional
        Seconds for commands of `Sandbox.exec` for which neither they nor their session have a
        limit; by default the setting's.
    **options
        What shall differ from the settings, see `SandboxOptions`; used when the sandbox starts.
        ``sleep_after`` and ``keep_alive`` reach one that runs too.

    Raises
    ------
    InvalidSandboxIdError, SandboxConfigurationError
        The id or an option cannot be used.
    """
    with as_configuration():
        flag("normalize_id", normalize_id)
    return Sandbox(
        check_sandbox_id(sandbox_id, normalize_id=normalize_id),
        manager=manager if manager is not None else default_manager(),
        options=options,
        transport=transport,
        enable_default_session=enable_default_session,
        command_timeout=command_timeout,
    )


async def list_sandboxes(*, manager: Manager | None = None) -> list[SandboxInfo]:
    """Return every sandbox of this user, running or not; starts nothing."""
    return await asyncio.to_thread((manager if manager is not None else default_manager()).list)


def default_manager() -> Manager:
    """Return the manager for the user's settings, the same one each time."""
    return _manager_of(data_folder())


@functools.cache
def _manager_of(_data_folder: Path) -> Manager:
    return Manager()


async def _ended(transport: AnyTransport, created: Record) -> None:
    info = cast("TerminalInfo", created)
    if not info.existing:
        request = TerminateTerminalRequest(terminal_id=info.terminal_id, grace=0.0)
        await transport.call("terminal.terminate", request)


async def _deleted(transport: AnyTransport, created: Record) -> None:
    session_id = cast("SessionInfo", created).session_id
    await transport.call("session.delete", SessionRequest(session_id=session_id))


class Sandbox(CommandOperations, GitOperations, PortOperations):
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
        enable_default_session: bool = True,
        command_timeout: float | None = None,
    ) -> None:
        with as_configuration():
            flag("enable_default_session", enable_default_session)
            limit = limit_to_send(command_timeout, "command_timeout")
        self._id = sandbox_id
        self._transport_name = chosen_transport(transport)
        self._manager = manager
        self._changes = spec_changes(options or {})
        self._transport: AnyTransport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Lock | None = None
        self._notices: list[str] = []
        self._command_timeout = limit
        if limit is None:
            self._command_timeout = manager.settings.command_timeout
        self._session_id = _DEFAULT_SESSION if enable_default_session else None

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

    async def stats(self, *, disk: bool = False) -> SandboxStats | None:
        """Return what it uses, and why it ended if nobody stopped it; None as of `info`.

        Starts nothing.

        Parameters
        ----------
        disk : bool
            Count its files too, which takes long where there are many.

        Raises
        ------
        EngineUnavailableError
            The engine that has to be asked does not answer.
        """
        return await self._in_thread(functools.partial(self._manager.stats, self._id, disk=disk))

    async def activity(self, *, since: str | None = None, limit: int = 1000) -> ActivityPage:
        """Return who did what in it, and when, the oldest first; never what was written.

        Starts nothing, and tells of the last sandbox of this id also after its end.

        Parameters
        ----------
        since : str, optional
            The ``cursor`` of an earlier page; by default from the oldest line there is.
        limit : int
            The most lines to return.

        Raises
        ------
        ValidationFailedError
            There is no such cursor.
        SandboxConfigurationError
            The settings want no such log (``SandboxManager.activity_log``).
        """
        return await self._in_thread(
            functools.partial(self._manager.read_activity, self._id, since=since, limit=limit)
        )

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
        seconds = number("grace", grace)
        # The connection last: what is under way hears from the runtime how it ended.
        await self._in_thread(functools.partial(self._manager.stop, self._id, grace=seconds))
        await self.aclose()

    async def destroy(self) -> None:
        """End it and remove its files; the id is free for a new one.  A second time is fine."""
        await self._in_thread(functools.partial(self._manager.destroy, self._id))
        await self.aclose()

    # --- commands ---

    @property
    def _commands(self) -> Commands:
        # Not kept: a handle that is dropped shall go at once, and with it its connection.
        return Commands(
            self,
            session=self._session_id,
            is_whole=False,
            fallback_timeout=self._command_timeout,
        )

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

    async def kill_all_processes(self, *, grace: float = 1.0) -> int:
        """End every process that `start_process` started, and return how many there were.

        Starts nothing.

        Parameters
        ----------
        grace : float
            Seconds between SIGTERM and SIGKILL.
        """
        answer = await self._asked("process.kill_all", KillAllRequest(grace=number("grace", grace)))
        return 0 if answer is None else cast("KillAllResult", answer).count

    # --- sessions ---

    async def create_session(
        self,
        session_id: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        command_timeout: float | None = None,
    ) -> Session:
        """Make a session: a shell that keeps its state, beside those of other sessions.

        It lives as long as the sandbox's container; its shell starts with its first command.
        Cancelled, none is left.

        Parameters
        ----------
        session_id : str, optional
            A name to find it by; by default one is made.
        cwd : str, optional
            Where its shell begins.
        env : mapping, optional
            Laid over the sandbox's environment; None unsets a name.
        command_timeout : float, optional
            Seconds for commands that bring no limit of their own.

        Raises
        ------
        SessionAlreadyExistsError
            One of this id lives.
        InvalidProcessCwdError, InvalidProcessEnvironmentError
            The folder or a name in `env` cannot be used.
        """
        request = CreateSessionRequest(
            session_id=session_id,
            cwd=None if cwd is None else inside_path("cwd", cwd),
            env=environment(env, may_unset=True),
            command_timeout=limit_to_send(command_timeout, "command_timeout"),
        )
        created = await self._taken(
            lambda transport: made(
                transport, "session.create", request, lambda info: _deleted(transport, info)
            )
        )
        return self._session(cast("SessionInfo", created))

    async def get_session(self, session_id: str) -> Session | None:
        """Return a handle on a session, or None if this container knows none.  Starts nothing."""
        try:
            info = await self._asked("session.get", SessionRequest(session_id=session_id))
        except SessionNotFoundError:
            return None
        return None if info is None else self._session(cast("SessionInfo", info))

    async def list_sessions(self) -> list[Session]:
        """Return the sessions of the present container, oldest first.  Starts nothing."""
        listed = await self._asked("session.list", Empty())
        if listed is None:
            return []
        return [self._session(info) for info in cast("SessionList", listed).sessions]

    async def delete_session(self, session_id: str) -> None:
        """End a session with all that was started in its shell.  Starts nothing.

        What runs or waits in it fails with `SessionDestroyedError`.  Processes of `start_process`
        and terminals go on.  The default session is made anew when it is used again.

        Raises
        ------
        SessionNotFoundError
            There is none of this id.
        """
        answer = await self._asked("session.delete", SessionRequest(session_id=session_id))
        if answer is None:
            raise SessionNotFoundError(session_id)

    async def set_env(self, env: Mapping[str, str | None]) -> None:
        """Set variables for all that is started from now on, and in the default session.

        All are set or none; None unsets a name.  It holds until the sandbox stops; the option `env`
        of `get_sandbox` holds for ever.

        Raises
        ------
        InvalidProcessEnvironmentError
            One of them cannot be set.
        """
        request = SetEnvRequest(env=environment(env, may_unset=True))
        await self._taken(lambda transport: transport.call("session.set_env", request))

    def _session(self, info: SessionInfo) -> Session:
        return Session(self, info)

    # --- terminals ---

    async def create_terminal(
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
        """Start a command on a terminal of its own, and return a handle on it.

        There is no shell in between.  The terminal goes on when everybody has left it; the sandbox
        sleeps all the same once nothing but its shell is there.  Cancelled, it leaves none running.

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
            argv=None if argv is None else words(argv),
            cwd=None if cwd is None else inside_path("cwd", cwd),
            env=environment(env, may_unset=True),
            cols=cols,
            rows=rows,
            buffer_size=buffer_size,
            terminal_id=terminal_id,
            session=session_id,
        )
        created = await self._taken(
            lambda transport: made(
                transport, "terminal.create", request, lambda info: _ended(transport, info)
            )
        )
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
            found = await self._taken(lambda transport: transport.call("terminal.create", request))
            info = cast("TerminalInfo", found)
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
        ended, asleep_by = 0, 0.0
        while True:
            transport = await self._connected()
            try:
                return await work(transport)
            except ContainerUnavailableError as error:
                reason = error.context.get("reason")
                if reason == "it is stopping":
                    # Somebody wants it ended: to start it again is not for us.
                    raise
                if reason == "it goes to sleep":
                    now = time.monotonic()
                    asleep_by = asleep_by or now + _FALLING_ASLEEP
                    if now >= asleep_by:
                        raise
                    # It hangs up by itself; other calls may still get their answers from it.
                    await asyncio.sleep(4 * _PAUSE)
                    continue
                ended += 1
                if ended == _BEGINNINGS:
                    raise

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
                transport = self._transport_to(running)
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
                except asyncio.CancelledError:
                    # Nobody else has it; an error that is kept somewhere would keep it open, too.
                    await transport.aclose()
                    raise
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
            transport = self._transport_to(running)
            try:
                if not await self._opens(transport):
                    return None
            except asyncio.CancelledError:
                await transport.aclose()
                raise
            self._transport = transport
            return transport

    def _transport_to(self, running: Running) -> AnyTransport:
        transport = make_transport(self._transport_name, running.endpoint)
        activity = self._manager.activity
        if activity is None:
            return transport
        return Recorded(transport, Recorder(activity, self._id, running.lifetime))

    async def _opens(self, transport: AnyTransport) -> bool:
        try:
            await transport.open()
        except (ContainerUnavailableError, UnauthorizedError):
            # Not closed: other calls may still get their answers through it, and it closes itself
            # when the last of them lets go of it.
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
