"""Terminals in a sandbox, as people hold them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from sandbox_kernel.arguments import number
from sandbox_kernel.client.terminal_protocol import Acknowledged, Preview
from sandbox_kernel.client.terminal_socket import refused, serve, socket_of
from sandbox_kernel.client.time_limits import check_limit
from sandbox_kernel.errors import (
    ProtocolViolationError,
    SandboxError,
    TerminalNotFoundError,
    TerminalWaitTimeoutError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import (
    ConnectTerminalRequest,
    ResizeTerminalRequest,
    TerminalInfo,
    TerminalOutputEnd,
    TerminalOutputEvent,
    TerminalOutputRequest,
    TerminalRequest,
    TerminalScreen,
    TerminateTerminalRequest,
    WriteTerminalRequest,
)
from sandbox_kernel.wire.rpc import FrameKind
from sandbox_kernel.wire.terminal import (
    ChannelFailed,
    Exited,
    Interrupt,
    Live,
    Output,
    Replay,
    Resize,
    Screen,
    Size,
    Terminate,
    View,
    acknowledge,
    check_size,
    control,
    encode_cursor,
    viewer_event,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from sandbox_kernel.client.terminal_socket import Socket, WebSocketHandler
    from sandbox_kernel.transports.base import Channel, EventStream
    from sandbox_kernel.widget.terminal_widget import TerminalWidget
    from sandbox_kernel.wire.record import Record

__all__ = [
    "Terminal",
    "TerminalEnd",
    "TerminalExit",
    "TerminalFailure",
    "TerminalOutput",
    "TerminalSnapshot",
    "TerminalTruncated",
    "TerminalView",
]

ViewEvent = Output | Replay | Live | Screen | Size | Exited | ChannelFailed
"""What a `TerminalView` yields; see `sandbox_kernel.wire.terminal`."""

_WRITE_BYTES = 1 << 20
"""Input is sent in pieces of this size, so that a program that does not read holds up little."""


@dataclass(frozen=True, kw_only=True)
class TerminalExit:
    """How a terminal's program ended."""

    terminal_id: str
    exit_code: int
    """The code, or 128 plus the signal that ended it."""
    signal: int | None
    reason: str | None
    """Why it was ended, where that is known: ``memory_limit``, ``terminated``, ``stopped``."""
    duration: float
    """Seconds from start to end."""

    @property
    def success(self) -> bool:
        """Whether the code is 0."""
        return self.exit_code == 0


@dataclass(frozen=True, kw_only=True)
class TerminalFailure:
    """Why a terminal ended that did not end by its program."""

    code: str
    """As in `sandbox_kernel.errors`."""
    message: str


@dataclass(frozen=True, kw_only=True)
class TerminalOutput:
    """Bytes that came to the terminal, as its program wrote them."""

    type: Literal["data"] = field(default="data", init=False)
    terminal_id: str
    data: bytes
    cursor: str
    """Pass it as `since` to go on after these bytes."""
    timestamp: float
    """When they were read, in seconds since the epoch."""


@dataclass(frozen=True, kw_only=True)
class TerminalTruncated:
    """Output before this is no longer held."""

    type: Literal["truncated"] = field(default="truncated", init=False)
    terminal_id: str
    cursor: str
    timestamp: float


@dataclass(frozen=True, kw_only=True)
class TerminalEnd:
    """The terminal has ended, and all of its output was delivered."""

    type: Literal["terminal"] = field(default="terminal", init=False)
    terminal_id: str
    state: Literal["exited", "error"]
    exit: TerminalExit | None
    """How its program ended; None in state ``error`` if that is not known."""
    error: TerminalFailure | None
    """Set in state ``error``."""
    cursor: str
    timestamp: float


@dataclass(frozen=True, kw_only=True)
class TerminalSnapshot:
    """A terminal at one moment: its state, and what its screen shows."""

    id: str
    pid: int
    argv: list[str]
    cwd: str
    status: str
    """``running``, ``exited`` or ``error``."""
    exit: TerminalExit | None
    error: TerminalFailure | None
    cols: int
    rows: int
    title: str
    """As its program set it."""
    session: str | None
    cursor: str
    """The end of its output."""
    viewers: int
    """How many are connected."""
    lines: list[str]
    """The rows of the screen from the top, without trailing blanks."""
    cursor_col: int
    cursor_row: int
    is_cursor_visible: bool
    is_alternate: bool
    """Whether a full-screen program has the screen to itself."""


class TerminalDoor:
    """What a terminal handle needs of its sandbox: operations that never start it."""

    def __init__(
        self,
        call: Callable[[str, Record, TerminalInfo], Awaitable[Record]],
        stream: Callable[[str, Record, TerminalInfo], AbstractAsyncContextManager[EventStream]],
        connect: Callable[[str, Record, TerminalInfo], Awaitable[Channel]],
        reconnect: Callable[[str, Record, TerminalInfo], Awaitable[Channel]],
        *,
        sandbox_id: str,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.call = call
        self.stream = stream
        self.connect = connect
        self.reconnect = reconnect
        """As `connect`, for a channel that broke: tells a sandbox that has stopped from trouble."""


class TerminalView:
    """One viewer's connection to a terminal; made by `Terminal.view`.

    Iterate over it: first comes what the terminal shows (``Replay``, ``Output``, ``Live``), then
    output as it happens; the iteration ends after ``Exited``, or when the connection is lost.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        info = channel.opening
        assert isinstance(info, TerminalInfo)  # noqa: S101  as the table declares
        self.info = info
        """The terminal as it was when the connection was made."""
        self._has_ended = False

    def cursor(self, offset: int) -> str:
        """Return the cursor for an event's `offset`, to go on there with another view."""
        return encode_cursor(self.info.incarnation, self.info.terminal_id, offset)

    def __aiter__(self) -> AsyncIterator[ViewEvent]:
        return self

    async def __anext__(self) -> ViewEvent:
        while not self._has_ended:
            frame = await self._channel.receive()
            if frame is None:
                break
            event = viewer_event(*frame)
            # The runtime leaves it to the viewer to go.
            self._has_ended = isinstance(event, Exited)
            if event is not None:
                return event
        raise StopAsyncIteration

    async def write(self, data: bytes) -> None:
        """Type; returns when not too much waits to be sent."""
        rest = memoryview(data)
        while rest:
            await self._channel.send(FrameKind.INPUT, rest[:_WRITE_BYTES])
            rest = rest[_WRITE_BYTES:]

    async def acknowledge(self, offset: int) -> None:
        """Say that everything up to an event's `offset` is drawn."""
        await self._send(acknowledge(offset))

    async def resize(self, cols: int, rows: int) -> None:
        """Say how large this viewer is."""
        check_size(cols, rows)
        await self._send(control(Resize(cols=cols, rows=rows)))

    async def show(self, *, visible: bool | None = None, focused: bool | None = None) -> None:
        """Say whether this viewer can be seen and has the focus; None leaves it as it was."""
        await self._send(control(View(visible=visible, focused=focused)))

    async def interrupt(self) -> None:
        """Interrupt what runs in the foreground."""
        await self._send(control(Interrupt()))

    async def terminate(self, *, grace: float = 1.0) -> None:
        """End the terminal; `Exited` tells when it has ended."""
        await self._send(control(Terminate(grace=grace)))

    async def aclose(self) -> None:
        """Leave; the terminal runs on.  A second time is fine."""
        await self._channel.aclose()

    async def _send(self, frame: tuple[FrameKind, bytes]) -> None:
        await self._channel.send(*frame)


class Terminal:
    """A handle on one terminal; made by `Sandbox.create_terminal` and its like.

    The terminal outlives the handle, this Python process and every connection;
    `Sandbox.get_terminal` finds it again by its id.  Using the handle never starts a sandbox: once
    the sandbox has stopped or started anew, every method raises `StaleTerminalHandleError`.
    """

    def __init__(self, door: TerminalDoor, info: TerminalInfo) -> None:
        self._door = door
        self._info = info

    def __repr__(self) -> str:
        return f"<Terminal {self.id} {self.argv!r} {self.status}>"

    @property
    def id(self) -> str:
        """Names the terminal within its sandbox; never that of another one."""
        return self._info.terminal_id

    @property
    def pid(self) -> int:
        """The process id of its program, as programs in the sandbox see it."""
        return self._info.pid

    @property
    def argv(self) -> list[str]:
        """The command."""
        return list(self._info.argv)

    @property
    def cwd(self) -> str:
        """The folder it was started in."""
        return self._info.cwd

    @property
    def session(self) -> str | None:
        """The session it belongs to, if `Sandbox.terminal` made it."""
        return self._info.session

    @property
    def status(self) -> str:
        """As of the last answer: ``running``, ``exited`` or ``error``.

        `refresh` asks again.
        """
        return self._info.status

    @property
    def cols(self) -> int:
        """Columns, as of the last answer."""
        return self._info.cols

    @property
    def rows(self) -> int:
        """Rows, as of the last answer."""
        return self._info.rows

    @property
    def title(self) -> str:
        """As its program set it, as of the last answer."""
        return self._info.title

    @property
    def created_at(self) -> float:
        """When it was made, in seconds since the epoch."""
        return self._info.created_at

    @property
    def cursor(self) -> str:
        """The end of its output, as of the last answer."""
        return self._info.cursor

    @property
    def exit(self) -> TerminalExit | None:
        """How it ended, as of the last answer; None while it runs."""
        return _exit(self._info)

    async def refresh(self) -> Terminal:
        """Ask for the present state, and return this handle."""
        self._info = await self._call("terminal.get", TerminalRequest(terminal_id=self.id))
        return self

    async def get_snapshot(self) -> TerminalSnapshot:
        """Return its state and what its screen shows now."""
        request = TerminalRequest(terminal_id=self.id)
        answer = await self._door.call("terminal.snapshot", request, self._info)
        assert isinstance(answer, TerminalScreen)  # noqa: S101  as the table declares
        info = self._info = answer.info
        return TerminalSnapshot(
            id=info.terminal_id,
            pid=info.pid,
            argv=list(info.argv),
            cwd=info.cwd,
            status=info.status,
            exit=_exit(info),
            error=_failure(info.error_code, info.error_message),
            cols=info.cols,
            rows=info.rows,
            title=info.title,
            session=info.session,
            cursor=info.cursor,
            viewers=info.viewers,
            lines=list(answer.lines),
            cursor_col=answer.cursor_col,
            cursor_row=answer.cursor_row,
            is_cursor_visible=answer.is_cursor_visible,
            is_alternate=answer.is_alternate,
        )

    async def write(self, data: bytes | str) -> None:
        r"""Type into the terminal; returns when its program can read all of it.

        Parameters
        ----------
        data : bytes or str
            Text is sent as UTF-8.  The Enter key is ``"\r"``, Ctrl-C ``"\x03"``.

        Raises
        ------
        TerminalControlError
            It has ended, or what was typed was discarded.
        ValidationFailedError
            `data` is neither bytes nor text.
        """
        if not isinstance(data, str | bytes | bytearray | memoryview):
            raise ValidationFailedError("data", "must be bytes or text")
        rest = memoryview(data.encode() if isinstance(data, str) else data).cast("B")
        while rest:
            request = WriteTerminalRequest(terminal_id=self.id, data=bytes(rest[:_WRITE_BYTES]))
            await self._door.call("terminal.write", request, self._info)
            rest = rest[_WRITE_BYTES:]

    async def resize(self, cols: int, rows: int) -> None:
        """Set its size; holds until a viewer decides otherwise.

        Raises
        ------
        ValidationFailedError
            More than 2000 columns, 1000 rows or 500000 cells, or none.
        TerminalControlError
            It has ended.
        """
        check_size(cols, rows)
        request = ResizeTerminalRequest(terminal_id=self.id, cols=cols, rows=rows)
        await self._door.call("terminal.resize", request, self._info)

    async def output(
        self, *, since: str | None = None, replay: bool = True, follow: bool = False
    ) -> AsyncGenerator[TerminalOutput | TerminalEnd | TerminalTruncated, None]:
        """Iterate over what came to the terminal, and after its end over how it ended.

        Closing the iterator ends the reading only.  What the terminal no longer holds is missing,
        and a `TerminalTruncated` stands in its place.  Who follows and does not keep up slows the
        program down, unless another viewer keeps up.

        Parameters
        ----------
        since : str, optional
            A cursor; go on after it.
        replay : bool
            Without a cursor: begin with the oldest output held (True), or with what comes from now
            on.
        follow : bool
            Go on until the terminal has ended; else until what is there has been read.

        Yields
        ------
        TerminalOutput, TerminalTruncated or TerminalEnd
            The end comes last, once, and only when the terminal has ended.

        Raises
        ------
        InvalidTerminalCursorError
            `since` is no cursor of this terminal.
        """
        request = TerminalOutputRequest(
            terminal_id=self.id, since=since, replay=replay, follow=follow
        )
        async with self._door.stream("terminal.output", request, self._info) as events:
            async for event in events:
                assert isinstance(event, TerminalOutputEvent)  # noqa: S101  as the table declares
                yield self._output_event(event)
            end = events.end
        assert isinstance(end, TerminalOutputEnd)  # noqa: S101  as the table declares
        self._info = end.info

    def _output_event(
        self, event: TerminalOutputEvent
    ) -> TerminalOutput | TerminalEnd | TerminalTruncated:
        cursor, timestamp = event.cursor, event.timestamp
        if event.type == "data":
            return TerminalOutput(
                terminal_id=self.id, data=event.data or b"", cursor=cursor, timestamp=timestamp
            )
        if event.type == "truncated":
            return TerminalTruncated(terminal_id=self.id, cursor=cursor, timestamp=timestamp)
        if event.type != "terminal":
            raise ProtocolViolationError(f"a terminal event {event.type[:80]!r}")
        ended = None
        if event.exit_code is not None:
            ended = TerminalExit(
                terminal_id=self.id,
                exit_code=event.exit_code,
                signal=event.signal,
                reason=None,
                duration=max(0.0, timestamp - self._info.created_at),
            )
        return TerminalEnd(
            terminal_id=self.id,
            state="error" if event.state == "error" else "exited",
            exit=ended,
            error=_failure(event.error_code, event.error_message),
            cursor=cursor,
            timestamp=timestamp,
        )

    async def wait_for_exit(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  as for processes
    ) -> TerminalExit:
        """Wait until the terminal has ended.

        Cancelling, and the timeout, end the waiting only; to end the terminal there are
        `terminate` and `interrupt`.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Raises
        ------
        TerminalWaitTimeoutError
            The time passed first.
        ProcessAbortedError
            The sandbox stops.
        """
        try:
            async with asyncio.timeout(check_limit(timeout)) as clock:
                self._info = await self._call("terminal.wait", TerminalRequest(terminal_id=self.id))
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise TerminalWaitTimeoutError(self.id, timeout or 0.0) from error
        ended = _exit(self._info)
        if ended is None:
            # A runtime that answers before the end has lost the terminal.
            raise TerminalNotFoundError(self.id)
        return ended

    async def interrupt(self) -> None:
        """Interrupt what runs in the foreground, as Ctrl-C does.

        Raises
        ------
        TerminalControlError
            It has ended.
        """
        await self._door.call(
            "terminal.interrupt", TerminalRequest(terminal_id=self.id), self._info
        )

    async def terminate(self, *, grace: float = 1.0) -> TerminalExit:
        """End the terminal and all that was started in it, and return how it ended.

        Programs hear SIGHUP, after half of `grace` SIGTERM, after all of it SIGKILL.  Of a
        terminal that has ended, what it has left in the background is ended.

        Parameters
        ----------
        grace : float
            Seconds, 0 to 60.
        """
        request = TerminateTerminalRequest(terminal_id=self.id, grace=number("grace", grace))
        self._info = await self._call("terminal.terminate", request)
        ended = _exit(self._info)
        if ended is None:
            raise TerminalNotFoundError(self.id)
        return ended

    @asynccontextmanager
    async def view(
        self,
        *,
        cursor: str | None = None,
        cols: int | None = None,
        rows: int | None = None,
        acknowledges: bool = False,
        strip_queries: bool = False,
    ) -> AsyncIterator[TerminalView]:
        """Look at the terminal, and type into it, as a program that draws it does.

        Parameters
        ----------
        cursor : str, optional
            What this viewer has drawn already; by default nothing.
        cols, rows : int, optional
            Its size; both or neither.
        acknowledges : bool
            Whether it says how far it has drawn (`TerminalView.acknowledge`); then the program
            waits once 256 KiB are not drawn.
        strip_queries : bool
            Leave out of a replay what a terminal emulator would answer.

        Raises
        ------
        InvalidTerminalCursorError
            `cursor` is no cursor of this terminal.
        """
        request = ConnectTerminalRequest(
            terminal_id=self.id,
            cursor=cursor,
            cols=cols,
            rows=rows,
            acknowledges=acknowledges,
            strip_queries=strip_queries,
        )
        channel = await self._door.connect("terminal.connect", request, self._info)
        view = TerminalView(channel)
        try:
            yield view
        finally:
            await view.aclose()

    async def connect(
        self,
        handler: WebSocketHandler | Socket,
        *,
        cursor: str | None = None,
        cols: int | None = None,
        rows: int | None = None,
        acknowledged: bool = False,
    ) -> None:
        """Connect a browser's WebSocket to this terminal.

        Await it in the ``open`` method of a tornado `WebSocketHandler`.  From then on the handler's
        messages are the terminal's, until one of both ends; its own ``on_close`` is still called.
        What goes wrong is told to the browser, and the WebSocket closed.

        Parameters
        ----------
        handler : tornado.websocket.WebSocketHandler or Socket
            One whose upgrade is done, or another carrier of its messages.  Who may connect was
            decided before.
        cursor : str, optional
            What the browser has drawn already.
        cols, rows : int, optional
            The browser's size; both or neither.
        acknowledged : bool
            Whether the browser speaks the acknowledged protocol; else it is the preview protocol.
        """
        socket = socket_of(handler)
        dialect = Acknowledged(cursor) if acknowledged else Preview(cursor)
        try:
            request = dialect.request(self.id, cols, rows)
            channel = await self._door.connect("terminal.connect", request, self._info)
        except SandboxError as error:
            refused(socket, dialect, error)
        else:
            serve(
                channel,
                dialect,
                socket,
                sandbox_id=self._door.sandbox_id,
                resume=self._resume,
            )

    async def _resume(self, request: ConnectTerminalRequest) -> Channel:
        return await self._door.reconnect("terminal.connect", request, self._info)

    def widget(self, **options: Any) -> TerminalWidget:
        """Return a widget that shows it in a cell; see `sandbox_kernel.widget.TerminalWidget`."""
        # By name: widgets are above this layer, and loaded by who wants one only.
        widgets = import_module("sandbox_kernel.widget")
        shown: TerminalWidget = widgets.TerminalWidget(
            self._door.sandbox_id, terminal_id=self.id, **options
        )
        return shown

    async def _call(self, operation: str, request: Record) -> TerminalInfo:
        return cast("TerminalInfo", await self._door.call(operation, request, self._info))


def _exit(info: TerminalInfo) -> TerminalExit | None:
    if info.exit_code is None:
        return None
    return TerminalExit(
        terminal_id=info.terminal_id,
        exit_code=info.exit_code,
        signal=info.signal,
        reason=info.reason,
        duration=max(0.0, (info.ended_at or info.created_at) - info.created_at),
    )


def _failure(code: str | None, message: str | None) -> TerminalFailure | None:
    return None if code is None else TerminalFailure(code=code, message=message or code)
