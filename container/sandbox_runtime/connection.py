"""One client of the frame door: its calls, its bounded write queue, its life.

Overflow rules.  Streams and channels stop producing while more than `STREAM_MARK` bytes wait to be
sent; answers may always be queued, but above `ANSWER_MARK` nothing more is read from the client,
so what waits is bounded by what it asked for.  A slow client thus delays itself only.
"""

from __future__ import annotations

from _socket import SHUT_RD, SO_SNDBUF, SOL_SOCKET
from itertools import islice

from sandbox_kernel.errors import (
    SandboxError,
    UnauthorizedError,
    ValidationFailedError,
)
from sandbox_kernel.wire.codec import encode
from sandbox_kernel.wire.rpc import (
    Call,
    Cancel,
    ChannelFrame,
    Credit,
    FrameKind,
    Hello,
    Reply,
    ServerConnection,
    Switch,
    frame_header,
)
from sandbox_kernel.wire.version import agree
from sandbox_runtime.loop import READ, WRITE
from sandbox_runtime.quick import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from sandbox_kernel.wire.http import HttpServer
    from sandbox_kernel.wire.record import Record
    from sandbox_kernel.wire.websocket import WebSocketServer
    from sandbox_runtime.loop import Loop

    class Door(Protocol):
        """What a connection asks of the server that accepted it."""

        sandbox_id: str
        incarnation: str

        def admits(self, token: str) -> bool:
            """Whether this is the incarnation's token."""

        def dispatch(self, call: Call, exchange: Exchange) -> None:
            """Begin an operation; its failure is told through the exchange."""

        def welcomed(self, connection: Connection) -> None:
            """Learn that a client was let in."""

        def gone(self, connection: Connection) -> None:
            """Forget a closed connection."""

    class ChannelOwner(Protocol):
        """What speaks on a connection that has become a channel."""

        def channel_frame(self, kind: FrameKind, payload: memoryview) -> None:
            """Take a frame from the client; raise `ProtocolViolationError` if it is none."""

        def channel_writable(self) -> None:
            """Go on producing; the queue has drained."""

        def channel_lost(self) -> None:
            """Learn that the connection is closed; called once."""

        def channel_choked(self) -> bool:
            """Whether the client must not be read from for now."""


__all__ = ["ANSWER_MARK", "STREAM_MARK", "Connection", "Exchange"]

STREAM_MARK = 1 << 20
ANSWER_MARK = 4 << 20
MOST_CALLS = 1024
HELLO_TIMEOUT = 10.0

_SEND_BUFFER = 1 << 20
"""Bytes that may wait in the socket of a client that is sent more than it usually holds; as far as
the system allows so much."""

FLUSH_TIMEOUT = 5.0

_READ_SIZE = 64 << 10
_LARGE_READ = 256 << 10  # whose memory the allocator maps anew each time: 30 us
_DRAINED_READS = 64
_BUFFERS = 64
_METHOD_BEGINS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""A frame of a legal first length begins with 0, a request of HTTP with a capital letter."""


class Exchange:
    """One call under way: how its handler answers, and learns that nobody waits any more.

    Attributes
    ----------
    on_cancel : callable or None
        Called once when the client gives the call up or is lost before the last word.  After it the
        handler still sends the last word; where the client is lost it goes nowhere.
    on_writable : callable or None
        Called when a stream may go on: credit was granted, or the queue has drained.
    """

    __slots__ = ("_connection", "call", "cancelled", "is_open", "on_cancel", "on_writable")

    def __init__(self, connection: Connection, call: int) -> None:
        self._connection = connection
        self.call = call
        self.is_open = True
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None

    @property
    def writable(self) -> bool:
        """Whether the stream may send an item now."""
        connection = self._connection
        return (
            self.is_open
            and connection.queued < STREAM_MARK
            and connection.protocol.credit(self.call) > 0
        )

    @property
    def connection(self) -> Connection:
        """The connection the call came over."""
        return self._connection

    @property
    def credit(self) -> int:
        """Bytes the client still grants."""
        return self._connection.protocol.credit(self.call)

    def result(self, record: Record) -> None:
        """Answer the call."""
        if self._finish():
            self._connection.send(self._connection.protocol.result(self.call, *encode(record)))

    def item(self, record: Record) -> None:
        """Send one event of a stream."""
        if self.is_open:
            self._connection.send(*self._connection.protocol.item_parts(self.call, *encode(record)))

    def end(self, record: Record) -> None:
        """End a stream."""
        if self._finish():
            self._connection.send(self._connection.protocol.end(self.call, *encode(record)))

    def fail(self, error: SandboxError) -> None:
        """End the call with an error."""
        if self._finish():
            self._connection.send(self._connection.protocol.failed(self.call, error))

    def _finish(self) -> bool:
        if not self.is_open:
            return False
        self.is_open = False
        self.on_cancel = self.on_writable = None
        self._connection.forget(self)
        return True

    def cancel(self) -> None:
        """Tell the handler that nobody waits."""
        self.cancelled = True
        callback, self.on_cancel = self.on_cancel, None
        if callback is not None:
            callback()

    def lose(self) -> None:
        """Let later answers go nowhere, and tell the handler."""
        self.is_open = False
        self.on_writable = None
        self.cancel()


class Connection:
    """A client's connection, from accept to close."""

    def __init__(self, loop: Loop, door: Door, sock: _socket.socket) -> None:
        self.protocol: ServerConnection | HttpServer | WebSocketServer = ServerConnection()
        self._is_new = True
        self.queued = 0
        self._loop = loop
        self._door = door
        self._socket = sock
        self._fd = sock.fileno()
        self._queue: deque[bytes | memoryview] = deque()
        self._calls: dict[int, Exchange] = {}
        self._channel: ChannelOwner | None = None
        self._closing = False
        self._closed = False
        self._is_enlarged = False
        self._is_leaving = False
        self._read_size = _READ_SIZE
        self._events = READ
        loop.add(self._fd, READ, self._ready)
        self._deadline = loop.call_later(HELLO_TIMEOUT, self.close)

    def __repr__(self) -> str:
        return f"<Connection fd={self._fd} calls={len(self._calls)} queued={self.queued}>"

    @property
    def is_closed(self) -> bool:
        """Whether the client is gone."""
        return self._closed

    # --- receiving ----------------------------------------------------------------------------

    def _ready(self, events: int) -> None:
        try:
            if events & WRITE:
                self._flush()
            if events & ~WRITE and not self._closed:
                self._receive()
        except Exception:
            # A fault of ours: the client must not wait for ever on a connection nobody serves.
            self.close()
            raise

    def _receive(self) -> bool:
        """Read once and act on it; return whether there may be more."""
        protocol = self.protocol
        space = protocol.space
        try:
            if space is None:
                data = self._socket.recv(self._read_size)
                count = len(data)
                self._read_size = _LARGE_READ if count >= _READ_SIZE else _READ_SIZE
            else:
                count = self._socket.recv_into(space)
        except BlockingIOError:
            return False
        except OSError:
            count = 0
        if not count:
            if not self._is_leaving:
                self.close()
            return False
        if self._closing:
            return False
        if self._is_new:
            self._is_new = False
            if space is None and data[0] in _METHOD_BEGINS:
                from sandbox_kernel.wire.http import HttpServer  # noqa: PLC0415  few speak it

                self.protocol = protocol = HttpServer()
        try:
            for event in protocol.receive(data) if space is None else protocol.received(count):
                self._handle(event)
                if self._closing or self._closed:
                    return False
        except SandboxError as error:
            self._refuse(error)
            return False
        self._watch()
        return True

    def drain(self) -> None:
        """Act on what the client has sent already, within bounds; it may be closed after that."""
        for _ in range(_DRAINED_READS):
            if self._closed or (self._channel is not None and self._channel.channel_choked()):
                return
            if not self._receive():
                return

    def _handle(
        self, event: Hello | Call | Cancel | Credit | ChannelFrame | Reply | Switch
    ) -> None:
        if isinstance(event, ChannelFrame):
            if self._channel is not None:
                self._channel.channel_frame(event.kind, event.payload)  # type: ignore[arg-type]
        elif isinstance(event, Call):
            self._call(event)
        elif isinstance(event, Credit):
            exchange = self._calls.get(event.call)
            if exchange is not None and exchange.on_writable is not None and exchange.writable:
                exchange.on_writable()
        elif isinstance(event, Cancel):
            exchange = self._calls.get(event.call)
            if exchange is not None:
                exchange.cancel()
        elif isinstance(event, Reply):
            self.send(event.data)
            self._close_if_over()
        elif isinstance(event, Switch):
            self._switch(event)
        else:
            self._hello(event)

    def _hello(self, hello: Hello) -> None:
        if not self._door.admits(hello.token):
            raise UnauthorizedError
        version = agree(hello.versions)
        self._deadline.cancel()
        welcome = self.protocol.welcome(version, self._door.sandbox_id, self._door.incarnation)
        if welcome:
            self.send(welcome)
        self._door.welcomed(self)

    def _switch(self, event: Switch) -> None:
        """Go on as a WebSocket; what was sent behind the request belongs to it."""
        from sandbox_kernel.wire.websocket import WebSocketServer  # noqa: PLC0415  few speak it

        self.protocol = protocol = WebSocketServer()
        for each in protocol.receive(event.rest):
            self._handle(each)

    def _call(self, call: Call) -> None:
        exchange = Exchange(self, call.call)
        self._calls[call.call] = exchange
        if len(self._calls) > MOST_CALLS:
            exchange.fail(
                ValidationFailedError("call", f"is one more than the {MOST_CALLS} allowed at once")
            )
            return
        self._door.dispatch(call, exchange)

    def _refuse(self, error: SandboxError) -> None:
        """Tell why, then close: what follows cannot be understood or must not be heard."""
        if not self.protocol.is_channel:
            self.send(self.protocol.failed(0, error))
        self.close_when_sent()

    # --- channels -----------------------------------------------------------------------------

    @property
    def can_become_channel(self) -> bool:
        """Whether only the one call that asks for the channel is under way."""
        return len(self._calls) == 1 and self.protocol.can_become_channel

    def become_channel(self, owner: ChannelOwner, *, send_buffer: int) -> None:
        """Hand the connection over, after the answer of the call that asked for it.

        The system may hold `send_buffer` bytes for a client that does not read, as far as it
        allows so much.
        """
        self.protocol.become_channel()
        self._channel = owner
        self._is_enlarged = True
        self._socket.setsockopt(SOL_SOCKET, SO_SNDBUF, send_buffer)

    def send_channel(self, kind: FrameKind, *parts: bytes | memoryview) -> None:
        """Send one channel frame."""
        if not self._closed:
            self.send(frame_header(kind, 0, sum(map(len, parts))), *parts)

    # --- sending ------------------------------------------------------------------------------

    def send(self, *buffers: bytes | memoryview) -> None:
        """Send at once what the socket takes and queue the rest."""
        if self._closed:
            return
        rest: Sequence[bytes | memoryview] = buffers
        if not self._queue:
            try:
                sent = self._socket.sendmsg(buffers)
            except BlockingIOError:
                sent = 0
            except OSError:
                # Told from the loop, so that no caller finds its connection closed under its feet.
                self._loop.call_soon(self.close)
                return
            rest = _after(buffers, sent)
        for each in rest:
            self._queue.append(each)
            self.queued += len(each)
        if rest:
            self._enlarge()
            self._watch()

    def _enlarge(self) -> None:
        """Have the system hold more for a client: each side then waits for the other less often."""
        if not self._is_enlarged:
            self._is_enlarged = True
            self._socket.setsockopt(SOL_SOCKET, SO_SNDBUF, _SEND_BUFFER)

    def _flush(self) -> None:
        """Send once: what the socket took leaves the queue."""
        batch = list(islice(self._queue, _BUFFERS))
        if batch:
            try:
                sent = self._socket.sendmsg(batch)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            self.queued -= sent
            for _ in batch:
                self._queue.popleft()
            self._queue.extendleft(reversed(_after(batch, sent)))
        if self._closing and not self._queue:
            self.close()
            return
        if self.queued < STREAM_MARK and not self._closing:
            self._resume()
        self._watch()

    def _resume(self) -> None:
        if self._channel is not None:
            self._channel.channel_writable()
            return
        for exchange in list(self._calls.values()):
            if exchange.on_writable is not None and exchange.writable:
                # Behind the others, so that each stream has its turn when the queue is short.
                self._calls[exchange.call] = self._calls.pop(exchange.call)
                exchange.on_writable()

    def _watch(self) -> None:
        """Ask the loop for exactly what can be acted on."""
        if self._closed:
            return
        reading = (
            not self._is_leaving
            and self.queued < ANSWER_MARK
            and not (self._channel is not None and self._channel.channel_choked())
        )
        events = (READ if reading else 0) | (WRITE if self._queue else 0)
        if events != self._events:
            self._events = events
            self._loop.modify(self._fd, events)

    def recheck(self) -> None:
        """Look again whether the client may be read from."""
        self._watch()

    # --- the end ------------------------------------------------------------------------------

    def forget(self, exchange: Exchange) -> None:
        """Drop an answered call."""
        self._calls.pop(exchange.call, None)
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self.protocol.is_over and not self._calls:
            # Soon, since the last answer is sent after its call is dropped.
            self._loop.call_soon(self.close_when_sent)

    def take_leave(self) -> None:
        """Answer the calls that have come, let no more come, and close once that is sent.

        A call that is read and dropped would look like one that was interrupted.
        """
        if not (self._closed or self._closing or self._channel is not None):
            self._is_leaving = True
            try:
                # On a unix socket a client cannot send any more, and knows so.
                self._socket.shutdown(SHUT_RD)
            except OSError:
                pass  # It has left already.
            else:
                self.drain()
            self._watch()
        self.close_when_sent()

    def close_when_sent(self) -> None:
        """Close once everything queued is sent, or the client has not taken it in time."""
        if self._closed or self._closing:
            return
        self._closing = True
        if not self._queue:
            self._loop.call_soon(self.close)
            return
        self._deadline.cancel()
        self._deadline = self._loop.call_later(FLUSH_TIMEOUT, self.close)

    def close(self) -> None:
        """Close now; every call and the channel are told.  Twice is fine."""
        if self._closed:
            return
        self._closed = True
        self._deadline.cancel()
        self._loop.remove(self._fd)
        self._socket.close()
        self._queue.clear()
        self.queued = 0
        calls, self._calls = self._calls, {}
        for exchange in calls.values():
            exchange.lose()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.channel_lost()
        self._door.gone(self)


def _after(buffers: Sequence[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """Return what is left of the buffers once `sent` bytes of them are gone."""
    rest: list[bytes | memoryview] = []
    for each in buffers:
        if sent >= len(each):
            sent -= len(each)
        else:
            rest.append(memoryview(each)[sent:] if sent else each)
            sent = 0
    return rest
