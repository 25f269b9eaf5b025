"""The browser's socket, once tornado has answered the upgrade: read and written without tornado.

tornado's way makes some futures and tasks of each message, which is most of what a keystroke costs
the server.  Here a message is a call.  `detach` says where that is possible; where it is not, such
as behind the server's own TLS, the handler stays in charge, and everything else is the same.

Memory: while more than `BACKLOG` bytes wait for the browser, or a message is still being handled,
the socket is not read.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tornado.iostream import IOStream
from tornado.websocket import WebSocketProtocol13

from jupyter_ext.websocket_frames import (
    CLOSE,
    PING,
    FrameError,
    FrameParser,
    close_payload,
    read_close,
)
from sandbox_kernel.client.terminal_socket import frame_head

__all__ = ["BACKLOG", "DetachedSocket", "detach"]

BACKLOG = 64 << 10
"""Bytes that may wait for a browser that is still read from."""

_FIRST_READ, _LARGE_READ = 8 << 10, 64 << 10
_CLOSE_TIME = 5.0
"""Seconds for which the other end's close is waited for."""

_SERVE = "_receive_frame_loop"
"""What tornado does once a handler's `open` is done; not public, and put aside here."""


class DetachedSocket:
    """A WebSocket after its upgrade, served from the event loop's own callbacks.

    Parameters
    ----------
    stream : IOStream
        The stream whose socket it is; still the one that closes it.
    on_message : callable
        See the attribute.
    max_message : int
        Bytes of a message, at most.
    ahead : bytes
        What the stream has read already.
    """

    def __init__(
        self,
        stream: IOStream,
        on_message: Callable[[str | bytes], Awaitable[None] | None],
        *,
        max_message: int,
        ahead: bytes,
    ) -> None:
        self._socket = stream.socket
        self._fd = stream.socket.fileno()
        self._loop = asyncio.get_running_loop()
        self.on_message = on_message
        """Called with each message; what it returns, if anything, is awaited before the next."""
        self._parser: FrameParser | None = FrameParser(max_message)
        self._events: deque[str | bytes | tuple[int, bytes] | FrameError] = deque()
        self._handling: asyncio.Task[None] | None = None
        self._backlog: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._when_written: list[Callable[[], object]] = []
        self._read_bytes = _FIRST_READ
        self._is_watched = False
        self._closing: asyncio.TimerHandle | None = None
        self._is_heard_out = False  # the other end has said its last
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing will come or go any more; the stream is to be closed then."""
        self.close_code: int | None = None
        self.close_reason: str | None = None
        """What the other end closed with."""
        self.waiting_since: float | None = None
        """Since when the browser is listened to and has said nothing."""
        if ahead:
            self._loop.call_soon(self._take, ahead)
        self._watch()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closing is not None or self.ended.done()

    # --- reading ---

    def _watch(self) -> None:
        """Listen exactly while what comes can be handled."""
        wanted = (
            not self.ended.done() and self._handling is None and self._waiting_bytes <= BACKLOG
        ) or (self._closing is not None and not self.ended.done())
        if wanted == self._is_watched:
            return
        self._is_watched = wanted
        if wanted:
            self.waiting_since = time.monotonic()
            self._loop.add_reader(self._fd, self._readable)
        else:
            self.waiting_since = None
            self._loop.remove_reader(self._fd)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.abort()
            return
        self._read_bytes = _LARGE_READ if len(data) == self._read_bytes else _FIRST_READ
        self.waiting_since = time.monotonic()
        self._take(data)

    def _take(self, data: bytes) -> None:
        if self._parser is None:
            return  # after its last word, or ours
        events = self._parser.feed(data)
        if not events:
            return
        self._events.extend(events)
        if self._handling is None:
            self._handle()

    def _handle(self) -> None:
        events = self._events
        while events and not self.ended.done():
            event = events.popleft()
            if isinstance(event, tuple):
                self._control(*event)
            elif isinstance(event, FrameError):
                self._fail(event)
            elif self._closing is None:
                try:
                    work = self.on_message(event)
                except Exception:
                    self.abort()
                    raise
                if work is not None:
                    self._handling = self._loop.create_task(self._finish(work))
                    self._watch()
                    return

    async def _finish(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:
            self.abort()
            raise
        finally:
            self._handling = None
        self._handle()
        self._watch()

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self._write(_frame(0x8A, payload))
        elif opcode == CLOSE:
            try:
                self.close_code, self.close_reason = read_close(payload)
            except FrameError as error:
                self._fail(error)
                return
            self._hear_no_more()
            if self._closing is None:
                self._say_close(payload[:2])
            self._end_when_written()

    def _fail(self, error: FrameError) -> None:
        self._hear_no_more()
        self.close(error.code, str(error))

    def _hear_no_more(self) -> None:
        self._parser = None
        self._events.clear()

    # --- writing ---

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send whole frames, unless it is too late for that."""
        if self._closing is None:
            self._write(b"".join(parts))

    @property
    def is_written(self) -> bool:
        """Whether nothing waits for the browser."""
        return not self._backlog

    def when_written(self, go_on: Callable[[], object]) -> None:
        """Call something once, as soon as nothing waits for the browser any more."""
        self._when_written.append(go_on)

    def ping(self, data: bytes = b"") -> None:
        """Ask for a sign of life."""
        if self._closing is None:
            self._write(_frame(0x89, data))

    def _write(self, data: bytes) -> None:
        if self.ended.done():
            return
        if not self._backlog:
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                # Not from within: who writes does not expect its own end.
                self._loop.call_soon(self.abort)
                return
            if sent == len(data):
                return
            self._loop.add_writer(self._fd, self._flush)
            self._backlog.append(memoryview(data)[sent:])
            self._waiting_bytes = len(data) - sent
        else:
            self._backlog.append(memoryview(data))
            self._waiting_bytes += len(data)
        self._watch()

    def _flush(self) -> None:
        backlog = self._backlog
        while backlog:
            try:
                sent = self._socket.send(backlog[0])
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.abort()
                return
            self._waiting_bytes -= sent
            if sent < len(backlog[0]):
                backlog[0] = backlog[0][sent:]
                break
            backlog.popleft()
        if backlog:
            self._watch()
            return
        self._loop.remove_writer(self._fd)
        if self._is_heard_out:
            self.abort()
            return
        self._watch()
        waiting, self._when_written = self._when_written, []
        for each in waiting:
            each()

    # --- the end ---

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Say that this is the end, and wait for the other one's word for some seconds."""
        if not self.is_closed:
            self._say_close(close_payload(code, reason))
            self._watch()

    def _say_close(self, payload: bytes) -> None:
        self._write(_frame(0x80 | CLOSE, payload))
        self._closing = self._loop.call_later(_CLOSE_TIME, self.abort)

    def _end_when_written(self) -> None:
        self._is_heard_out = True
        if not self._backlog:
            self.abort()

    def abort(self) -> None:
        """Leave the socket to its stream, at once.  A second time is fine."""
        if self.ended.done():
            return
        self.ended.set_result(None)
        if self._closing is not None:
            self._closing.cancel()
        if self._backlog:
            self._backlog.clear()
            self._loop.remove_writer(self._fd)
        self._watch()
        self._events.clear()
        self._when_written.clear()


def detach(
    protocol: Any, on_message: Callable[[str | bytes], Awaitable[None] | None]
) -> DetachedSocket | None:
    """Take a WebSocket's socket from tornado; None if that cannot be.

    Parameters
    ----------
    protocol : WebSocketProtocol13
        Of a handler whose `open` is not done yet.  Its owner awaits `DetachedSocket.ended` in the
        place of tornado's loop.
    on_message : callable
        See `DetachedSocket`.
    """
    stream = getattr(protocol, "stream", None)
    ahead = getattr(stream, "_read_buffer", None)  # not public: without it we are not sure
    if (
        type(stream) is not IOStream  # one of TLS is a subclass
        or not isinstance(ahead, bytearray)
        or not hasattr(WebSocketProtocol13, _SERVE)
        or protocol.params.compression_options is not None
        or stream.closed()
        or stream.reading()
        or stream.writing()
    ):
        return None
    stream.io_loop.remove_handler(stream.fileno())
    return DetachedSocket(
        stream, on_message, max_message=protocol.params.max_message_size, ahead=bytes(ahead)
    )


def _frame(first: int, payload: bytes) -> bytes:
    return frame_head(first, len(payload)) + payload
