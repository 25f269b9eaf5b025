"""Passes messages between a browser's WebSocket and a terminal's channel.

Memory: what the browser does not take stays in the sandbox.  While the WebSocket has something to
write, the channel is not read; the runtime then counts the viewer as full, and in the end sends it
a screen in the place of what it has missed.  The other way round: while too much input waits for
the runtime, the WebSocket is not read; a browser that can be told is told that we are here.

A connection to the sandbox that breaks is taken up again where it broke, and the browser learns
nothing of it, unless the sandbox has stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from sandbox_kernel.client.terminal_protocol import (
    MAX_MESSAGE,
    TOO_BIG,
    Close,
    Dialect,
    Message,
    Ping,
)
from sandbox_kernel.errors import (
    ContainerUnavailableError,
    OperationInterruptedError,
    ProtocolViolationError,
    SandboxError,
    TerminalControlError,
    TransportError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import ConnectTerminalRequest, TerminalInfo
from sandbox_kernel.wire.rpc import ChannelFrame, FrameKind
from sandbox_kernel.wire.terminal import (
    Acknowledge,
    Exited,
    Interrupt,
    Live,
    Output,
    Replay,
    Screen,
    Terminate,
    acknowledge,
    control,
    viewer_event,
)

if TYPE_CHECKING:
    from sandbox_kernel.client.terminal_protocol import Event, Order
    from sandbox_kernel.transports.base import Channel

    Resume = Callable[[ConnectTerminalRequest], Awaitable[Channel]]

__all__ = [
    "Bridge",
    "HandlerSocket",
    "Socket",
    "WebSocketHandler",
    "frame_head",
    "frames_of",
    "refused",
    "serve",
    "socket_of",
]

_INPUT_BYTES = 64 << 10
"""Input is passed on in frames of this size, so that other viewers' input comes in between."""

RESUME_PAUSE = 1.0
"""Seconds, at least, between two times that one browser's connection to its sandbox is taken up."""

LEAST_TOLD = 1 << 10
"""Bytes since the browser had drawn all, up to which the runtime need not know how many it has.

They are no part worth naming of the window, nor does a screen wait for them.  Otherwise each
keystroke would cost both ends another message.
"""

REASSURE_EVERY = 2.0
"""Seconds between two signs of life for a browser whose input waits; its questions wait, too."""

_OFFSET = 8


class Socket(Protocol):
    """A browser's end, as a bridge needs it."""

    def send(self, messages: Sequence[Message]) -> Callable[[Callable[[], object]], object] | None:
        """Send messages, nothing in between.

        Returns None if there is room for more; else a function that calls its argument, once, as
        soon as there is.
        """
        ...

    def receive_into(self, bridge: Bridge) -> None:
        """Hand each message to `Bridge.message`, and the end to `Bridge.closed`."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        ...


class Bridge:
    """One browser at one terminal, from `serve` until one of both ends."""

    def __init__(
        self,
        channel: Channel,
        dialect: Dialect,
        socket: Socket,
        *,
        sandbox_id: str,
        resume: Resume,
        again: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._channel = channel
        self._dialect = dialect
        self._socket = socket
        self._sandbox_id = sandbox_id
        self._resume = resume
        self._again = again
        self._is_over = False
        self._reached: int | None = None  # the browser has, or was shown, all before this offset
        self._replay_end = 0
        self._gathered: list[memoryview] = []  # output that came together, up to `_reached`
        self._is_replay = False  # what comes next
        self._untold = 0  # bytes of output since the runtime knew that all was drawn
        self._is_live = False
        self._resuming: asyncio.Task[None] | None = None
        self._resumed_at = float("-inf")

    def start(self) -> None:
        """Say the first words and begin to pass on."""
        info = self._channel.opening
        assert isinstance(info, TerminalInfo)  # noqa: S101  as the table declares
        self._info = info
        self._send(self._dialect.opened(info))
        self._socket.receive_into(self)
        if not self._is_over:
            self._channel.listen(self._take, self._pass_on)

    # --- from the runtime ---

    def _take(self, frame: ChannelFrame | None) -> None:
        if self._is_over:
            return
        if frame is None:
            self._pass_on()
            self._channel.close()
            self._resuming = asyncio.get_running_loop().create_task(self._take_up())
            self._resuming.add_done_callback(self._taken_up)
            return
        payload = frame.payload
        if frame.kind is FrameKind.DATA:
            assert isinstance(payload, memoryview)  # noqa: S101  ClientConnection makes it so
            offset = int.from_bytes(payload[:_OFFSET], "big")
            self._reached = offset
            data = payload[_OFFSET:]
            self._untold += len(data)
            self._gathered.append(data)
            if self._is_replay:
                self._is_replay = False  # nor is what follows
                self._pass_on()
            return
        self._pass_on()
        assert isinstance(payload, memoryview)  # noqa: S101  likewise
        try:
            event = viewer_event(frame.kind, payload)
        except ProtocolViolationError as error:
            self._fail(error)
            return
        if event is None or isinstance(event, Output):
            return
        if isinstance(event, Exited):
            # Nothing follows; a viewer that is kept has nobody to type to.
            self._finish()
            if event.reason == "stopped":
                stopped = ContainerUnavailableError(self._sandbox_id, "it has stopped")
                self._send(self._dialect.failed(stopped))
                return
        self._is_replay = isinstance(event, Replay | Screen)
        self._tell(event)

    def _pass_on(self) -> None:
        """Send the output that came together as one message: each costs some of its own."""
        pieces, self._gathered = self._gathered, []
        if pieces and not self._is_over:
            assert self._reached is not None  # noqa: S101  it came with them
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._send(self._dialect.output(self._reached, data))

    def _tell(self, event: Event) -> None:
        """Tell the browser; of a replay only if it knows that there is one."""
        if isinstance(event, Replay):
            self._replay_end = event.offset
            if self._reached is not None:
                if event.kind == "screen":
                    self._send(self._dialect.event(Screen(offset=event.offset)))
                return
        elif isinstance(event, Live):
            if self._is_live:
                return
            self._is_live = True
            if self._reached is None:
                self._reached = self._replay_end
        self._send(self._dialect.event(event))

    def _fail(self, error: SandboxError) -> None:
        self._finish()
        self._send(self._dialect.failed(error))

    async def _take_up(self) -> None:
        """Go on with a new channel in the place of one whose connection broke."""
        loop, dialect = asyncio.get_running_loop(), self._dialect
        has_lost_input = self._channel.has_lost_input
        await asyncio.sleep(self._resumed_at + RESUME_PAUSE - loop.time())
        channel = await self._resume(dialect.resumption(self._reached))
        self._resuming, self._resumed_at, self._channel = None, loop.time(), channel
        orders, messages = dialect.resumed()
        for order in orders:
            self._post(*control(order))
        self._send(messages)
        if has_lost_input:
            lost = OperationInterruptedError("typing", "what was typed last may be missing")
            self._send(dialect.refused(lost))
        channel.listen(self._take, self._pass_on)

    def _taken_up(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._resuming = None
        if isinstance(error, SandboxError):
            self._fail(error)
        else:
            # A mistake of ours: not to be left with a browser that looks connected.
            self._fail(TransportError("The connection to the sandbox could not be made again."))
            raise error

    def _send(self, messages: Sequence[Message]) -> None:
        if not messages or self._socket.is_closed:
            return
        wait = self._socket.send(messages)
        if wait is not None and not self._is_over:
            self._channel.pause()
            wait(self._has_room)

    def _has_room(self) -> None:
        if not self._is_over:
            self._channel.resume()

    # --- from the browser ---

    def message(self, message: str | bytes) -> Awaitable[None] | None:
        """Take a message; when something is returned, it is to be awaited before the next."""
        if len(message) > MAX_MESSAGE:
            error = ValidationFailedError("message", f"exceeds {MAX_MESSAGE} bytes")
            self._send([*self._dialect.refused(error), Close(TOO_BIG, "message too big")])
            return None
        if isinstance(message, str):
            return self._obey(message)
        if self._is_over:
            again = self._again
            if again is None or b"\r" not in message:
                return None
            self._again = None
            return again()
        if self._resuming is not None:
            return self._after_resuming(message)
        if len(message) > _INPUT_BYTES:
            return self._reassuring(self._type_much(message))
        if not self._post(FrameKind.INPUT, message):
            return self._reassuring(self._channel.drained())
        return None

    def _post(self, kind: FrameKind, *parts: bytes | memoryview) -> bool:
        try:
            return self._channel.post(kind, *parts)
        except SandboxError:
            return True  # it has broken, and its end is on the way to `_take`

    async def _type_much(self, message: bytes) -> None:
        rest = memoryview(message)
        channel = self._channel
        with contextlib.suppress(SandboxError):
            # What was on its way when a channel broke is lost, so the rest makes no sense.
            while rest and not self._is_over and channel is self._channel:
                await channel.send(FrameKind.INPUT, rest[:_INPUT_BYTES])
                rest = rest[_INPUT_BYTES:]

    async def _reassuring(self, work: Awaitable[None]) -> None:
        """Wait for something during which the browser is not read, and show it that we are here."""
        loop = asyncio.get_running_loop()

        timer: asyncio.TimerHandle | None = None

        def reassure_later() -> None:
            nonlocal timer
            if timer is not None:
                self._send(self._dialect.waiting())
            timer = loop.call_later(REASSURE_EVERY, reassure_later)

        reassure_later()
        try:
            await work
        finally:
            if timer is not None:
                timer.cancel()

    async def _after_resuming(self, message: str | bytes) -> None:
        if self._resuming is not None:
            await self._reassuring(_end_of(self._resuming))
        rest = self.message(message)
        if rest is not None:
            await rest

    def _obey(self, text: str) -> Awaitable[None] | None:
        try:
            order = self._dialect.order(text)
        except ValidationFailedError as error:
            self._send(self._dialect.refused(error))
            return None
        if isinstance(order, Ping):
            self._send(['{"type":"pong"}'])
            return None
        if order is None:
            return None
        if self._is_over:
            self._refuse_ended(order)
            return None
        if self._resuming is None:
            if isinstance(order, Acknowledge):
                self._acknowledge(order.offset)
            else:
                self._post(*control(order))
            return None
        if isinstance(order, Acknowledge):
            return None  # the new channel has not sent it
        return self._after_resuming(text)

    def _acknowledge(self, offset: int) -> None:
        if offset == self._reached:
            if self._untold <= LEAST_TOLD:
                return
            self._untold = 0
        self._post(*acknowledge(offset))

    def _refuse_ended(self, order: Order) -> None:
        """Say to a viewer that is kept after the end that there is nothing left to control."""
        if isinstance(order, Interrupt | Terminate):
            action = "interrupt" if isinstance(order, Interrupt) else "terminate"
            error = TerminalControlError(self._info.terminal_id, action, "it has ended")
            self._send(self._dialect.refused(error))

    def closed(self) -> None:
        """Leave the terminal: the browser has gone.  A second time is fine.

        What it typed before still goes to the program.
        """
        self._finish()

    def _finish(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._channel.close_when_sent()
            if self._resuming is not None:
                self._resuming.cancel()


async def _end_of(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def serve(
    channel: Channel,
    dialect: Dialect,
    socket: Socket,
    *,
    sandbox_id: str,
    resume: Resume,
    again: Callable[[], Awaitable[None]] | None = None,
) -> Bridge:
    """Join a browser and a terminal; returns at once, both are served until one of them ends.

    Parameters
    ----------
    channel : Channel
        Of ``terminal.connect``, asked for by `Dialect.request`; closed at the end.
    dialect : Dialect
        What the browser speaks.
    socket : Socket
        The browser.
    sandbox_id : str
        For messages.
    resume : callable
        Opens a channel for a request, in the place of one whose connection broke.
    again : callable, optional
        Called, and awaited, when Enter is typed by a browser that is kept after the end.
    """
    bridge = Bridge(channel, dialect, socket, sandbox_id=sandbox_id, resume=resume, again=again)
    bridge.start()
    return bridge


def refused(socket: Socket, dialect: Dialect, error: SandboxError) -> None:
    """Tell a browser why it cannot have its terminal, and close."""
    if not socket.is_closed:
        socket.send(dialect.failed(error))


class WebSocketHandler(Protocol):
    """What is used of a tornado ``WebSocketHandler``."""

    ws_connection: Any  # a foreign border: tornado's protocol object, None once closed

    def on_close(self) -> None:
        """Hear that the WebSocket has ended."""
        ...

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close the WebSocket."""
        ...

    def set_nodelay(self, value: bool, /) -> None:  # noqa: FBT001  tornado's
        """Send small messages at once."""
        ...


class HandlerSocket:
    """The WebSocket of a tornado handler whose upgrade is done.

    Messages are framed here and written in one piece: tornado's own way makes a task and a system
    call for each, which is most of what a keystroke costs.
    """

    def __init__(self, handler: WebSocketHandler) -> None:
        self._handler = handler
        self._after_close = handler.on_close
        self._stream = None
        if handler.ws_connection is not None:
            # Two small messages would otherwise wait for each other's acknowledgement, 40 ms.
            handler.set_nodelay(True)
            self._stream = handler.ws_connection.stream

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        connection = self._handler.ws_connection
        return (
            connection is None
            or connection.is_closing()
            or self._stream is None
            or self._stream.closed()
        )

    def send(self, messages: Sequence[Message]) -> Callable[[Callable[[], object]], object] | None:
        """Write messages in one piece; see `Socket.send`."""
        stream = self._stream
        assert stream is not None  # noqa: S101  asked before: `is_closed`
        parts, closing = frames_of(messages)
        written = None
        if parts:
            try:
                written = stream.write(b"".join(parts))
            except OSError:
                # The browser has gone; the handler is about to hear of it.
                return None
        if closing is not None:
            self._handler.close(closing.code, closing.reason or None)
            return None
        if written is None or written.done() or not stream.writing():
            return None

        def wait(go_on: Callable[[], object]) -> None:
            written.add_done_callback(lambda _: go_on())

        return wait

    def receive_into(self, bridge: Bridge) -> None:
        """Let the handler's messages and its end come to a bridge."""
        handler, after_close = self._handler, self._after_close

        def on_close() -> None:
            bridge.closed()
            after_close()

        # Set on the object: they hide the methods of its class from here on.
        vars(handler).update(on_message=bridge.message, on_close=on_close)
        if self.is_closed:
            bridge.closed()


def socket_of(handler: WebSocketHandler | Socket) -> Socket:
    """Return the socket of a tornado handler; what is a socket already stays as it is."""
    if hasattr(handler, "receive_into"):
        return cast("Socket", handler)
    return HandlerSocket(handler)


def frames_of(messages: Sequence[Message]) -> tuple[list[bytes | memoryview], Close | None]:
    """Return the frames of messages, in parts, and the close among them, which ends them."""
    parts: list[bytes | memoryview] = []
    for message in messages:
        if isinstance(message, Close):
            return parts, message
        if isinstance(message, str):
            data: bytes | memoryview = message.encode()
            parts.append(frame_head(0x81, len(data)))
        else:
            data = message
            parts.append(frame_head(0x82, len(data)))
        parts.append(data)
    return parts, None


def frame_head(first: int, size: int) -> bytes:
    """Return the header of an unmasked frame (RFC 6455, section 5.2)."""
    if size < 126:
        return bytes((first, size))
    if size < 1 << 16:
        return bytes((first, 126)) + size.to_bytes(2, "big")
    return bytes((first, 127)) + size.to_bytes(8, "big")
