"""Passes messages between a browser's WebSocket and a terminal's channel.

Memory: what the browser does not take stays in the sandbox.  While the WebSocket has something to
write, the channel is not read; the runtime then counts the viewer as full, and in the end sends it
a screen in the place of what it has missed.  The other way round: while too much input waits for
the runtime, the WebSocket is not read.
"""

from __future__ import annotations

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
    ProtocolViolationError,
    SandboxError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import TerminalInfo
from sandbox_kernel.wire.rpc import ChannelFrame, FrameKind
from sandbox_kernel.wire.terminal import (
    Acknowledge,
    Exited,
    Output,
    acknowledge,
    control,
    viewer_event,
)

if TYPE_CHECKING:
    from sandbox_kernel.transports.base import Channel

__all__ = ["Bridge", "HandlerSocket", "Socket", "WebSocketHandler", "refused", "serve", "socket_of"]

_INPUT_BYTES = 64 << 10
"""Input is passed on in frames of this size, so that other viewers' input comes in between."""

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
        again: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._channel = channel
        self._dialect = dialect
        self._socket = socket
        self._sandbox_id = sandbox_id
        self._again = again
        self._is_over = False

    def start(self) -> None:
        """Say the first words and begin to pass on."""
        info = self._channel.opening
        assert isinstance(info, TerminalInfo)  # noqa: S101  as the table declares
        self._info = info
        self._send(self._dialect.opened(info))
        self._socket.receive_into(self)
        if not self._is_over:
            self._channel.listen(self._take)

    # --- from the runtime ---

    def _take(self, frame: ChannelFrame | None) -> None:
        if self._is_over:
            return
        if frame is None:
            self._finish()
            self._send(self._dialect.failed(self._stopped()))
            return
        payload = frame.payload
        if frame.kind is FrameKind.DATA:
            assert isinstance(payload, memoryview)  # noqa: S101  ClientConnection makes it so
            offset = int.from_bytes(payload[:_OFFSET], "big")
            self._send(self._dialect.output(offset, payload[_OFFSET:]))
            return
        assert isinstance(payload, memoryview)  # noqa: S101  likewise
        try:
            event = viewer_event(frame.kind, payload)
        except ProtocolViolationError as error:
            self._finish()
            self._send(self._dialect.failed(error))
            return
        if event is None or isinstance(event, Output):
            return
        if isinstance(event, Exited):
            # Nothing follows; a viewer that is kept has nobody to type to.
            self._finish()
            if event.reason == "stopped":
                self._send(self._dialect.failed(self._stopped()))
                return
        self._send(self._dialect.event(event))

    def _stopped(self) -> SandboxError:
        return ContainerUnavailableError(self._sandbox_id, "it has stopped")

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
            self._obey(message)
            return None
        if self._is_over:
            again = self._again
            if again is None or b"\r" not in message:
                return None
            self._again = None
            return again()
        try:
            if len(message) > _INPUT_BYTES:
                return self._type_much(message)
            if not self._channel.post(FrameKind.INPUT, message):
                return self._channel.drained()
        except SandboxError:
            # The channel has broken; its end is on the way to `_take`.
            return None
        return None

    async def _type_much(self, message: bytes) -> None:
        rest = memoryview(message)
        with contextlib.suppress(SandboxError):
            while rest and not self._is_over:
                await self._channel.send(FrameKind.INPUT, rest[:_INPUT_BYTES])
                rest = rest[_INPUT_BYTES:]

    def _obey(self, text: str) -> None:
        try:
            order = self._dialect.order(text)
        except ValidationFailedError as error:
            self._send(self._dialect.refused(error))
            return
        if isinstance(order, Ping):
            self._send(['{"type":"pong"}'])
            return
        if order is None or self._is_over:
            return
        with contextlib.suppress(SandboxError):
            if isinstance(order, Acknowledge):
                self._channel.post(*acknowledge(order.offset))
            else:
                self._channel.post(*control(order))

    def closed(self) -> None:
        """Leave the terminal: the browser has gone.  A second time is fine."""
        self._finish()

    def _finish(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._channel.close()


def serve(
    channel: Channel,
    dialect: Dialect,
    socket: Socket,
    *,
    sandbox_id: str,
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
    again : callable, optional
        Called, and awaited, when Enter is typed by a browser that is kept after the end.
    """
    bridge = Bridge(channel, dialect, socket, sandbox_id=sandbox_id, again=again)
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
        parts: list[bytes | memoryview] = []
        closing = None
        for message in messages:
            if isinstance(message, Close):
                closing = message
                break
            if isinstance(message, str):
                data: bytes | memoryview = message.encode()
                parts.append(_head(0x81, len(data)))
            else:
                data = message
                parts.append(_head(0x82, len(data)))
            parts.append(data)
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


def _head(first: int, size: int) -> bytes:
    """Return the header of an unmasked frame (RFC 6455, section 5.2)."""
    if size < 126:
        return bytes((first, size))
    if size < 1 << 16:
        return bytes((first, 126)) + size.to_bytes(2, "big")
    return bytes((first, 127)) + size.to_bytes(8, "big")
