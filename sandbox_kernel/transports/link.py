"""One connection to a runtime, whatever is spoken on it: its calls, streams or channel.

What a stream has sent and nobody has taken yet is bounded by its credit, which is granted anew as
events are taken; so a consumer that stops taking stops the program that writes, and delays no other
call.  A protocol without credit has one call at a time, and the reading is held back in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Self

from sandbox_kernel.errors import (
    ContainerUnavailableError,
    OperationInterruptedError,
    ProtocolViolationError,
    SandboxError,
    TransportError,
    UnauthorizedError,
)
from sandbox_kernel.transports.endpoint import Endpoint, connect, connect_at_once
from sandbox_kernel.wire.codec import decode, encode
from sandbox_kernel.wire.operations import OPERATIONS, Kind, Operation
from sandbox_kernel.wire.record import Record
from sandbox_kernel.wire.rpc import (
    INITIAL_CREDIT,
    MAX_FRAME,
    ChannelFrame,
    ClientConnection,
    End,
    Failed,
    FrameKind,
    Item,
    Reply,
    Result,
    Welcome,
)

if TYPE_CHECKING:
    from sandbox_kernel.wire.http import HttpClient
    from sandbox_kernel.wire.websocket import WebSocketClient

__all__ = [
    "WELCOME_TIMEOUT",
    "Events",
    "FrameChannel",
    "Link",
    "ended_since",
    "lets_nobody_in",
    "row_of",
]

_READ_BYTES = 256 << 10
_FIRST_READ_BYTES = 16 << 10
"""Most and first size of a read: a buffer for bulk costs more than a short message itself."""

_CONNECT_TIMEOUT = 10.0

WELCOME_TIMEOUT = 15.0
"""Seconds until the runtime must have let us in; on a busy machine a start takes some."""

_SEND_BACKLOG = 1 << 20
"""Bytes that may wait for the socket; past it, senders wait."""

_LAST_WORDS = 60.0
"""Seconds that the other end has to take what was sent before an orderly close."""

_STREAM_CREDIT = 1 << 20
"""Bytes of events a stream may have on the way; more than the initial credit for bulk output."""

_UNSAID = Welcome(version=0, sandbox_id="", incarnation="")

_CHANNEL_BACKLOG = 64
"""Frames of a channel that may wait to be taken; past it, the socket is not read."""


class _Pending:
    """A call under way: who waits for it, and the events that nobody has taken yet."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.answer: asyncio.Future[Result | End] = asyncio.get_running_loop().create_future()
        self.items: deque[Item] = deque()
        self.waiting_bytes = 0
        self.news = asyncio.Event()


class Link:
    """One connected socket with its protocol state; ends with its reader task."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: socket.socket,
        protocol: ClientConnection | HttpClient | WebSocketClient,
        *,
        was_admitted: bool = False,
    ) -> None:
        self._endpoint = endpoint
        self._was_admitted = was_admitted
        self._is_foreign = False
        self._has_begun = False
        self._socket = client
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._outgoing: deque[memoryview] = deque()
        self._outgoing_bytes = 0
        self._last_sent = 0
        # The call whose frame the other end cannot have read to its end, hence not begun.
        self._untaken = 0
        self._written = 0  # bytes that were to be sent, in all
        self._input_end = 0  # of them, those up to the last input
        self._unsent_from: int | None = None  # once it has failed
        self._is_sendable = True
        self._sendable = asyncio.Event()
        self._sendable.set()
        self._pending: dict[int, _Pending] = {}
        self._broken: SandboxError | None = None
        # Bounded: above the backlog the socket is not read until there is room again.
        self._frames: asyncio.Queue[ChannelFrame | None] = asyncio.Queue()
        self._listener: Callable[[ChannelFrame | None], object] | None = None
        self._rested: Callable[[], object] | None = None
        self._is_paused = False
        self._closing = False
        self._is_watched = False
        self._read_bytes = _FIRST_READ_BYTES
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        if not protocol.needs_welcome:
            self._welcome.set_result(_UNSAID)
        self._write(protocol.hello(endpoint.token, "sandbox_kernel"))
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._reader = self._loop.create_task(self._read())
        # The close of a loop cancels the task, and with it goes the socket.

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        protocol: ClientConnection | HttpClient | WebSocketClient | None = None,
        *,
        was_admitted: bool = False,
    ) -> Self:
        """Connect and be welcomed, so that a call on this link is known to have a taker.

        Parameters
        ----------
        protocol : optional
            What to speak; the frame door's by default.
        was_admitted : bool
            Whether the endpoint's runtime has let us in before: who does not know us now is another
            one, and the endpoint's has ended.

        Raises
        ------
        ContainerUnavailableError
            Nobody listens, or the runtime ended before it answered, or it does not answer; or
            another incarnation listens there by now, and `was_admitted`.
        UnauthorizedError
            Another incarnation listens there by now.
        """
        # A unix socket connects at once unless its backlog is full; a thread may wait for that.
        # Threads may all be taken by those whom this very connection is to serve.
        client = connect_at_once(endpoint)
        if client is None:
            client = await _connected_in_thread(endpoint)
        client.setblocking(False)
        link = cls(endpoint, client, protocol or ClientConnection(), was_admitted=was_admitted)
        try:
            # Not wait_for, which may take a cancellation for an end of the wait.
            async with asyncio.timeout(WELCOME_TIMEOUT):
                await asyncio.shield(link._welcome)
        except TimeoutError as error:
            raise lets_nobody_in(endpoint) from error
        except OperationInterruptedError as error:
            reason = "it ended before it answered"
            raise ContainerUnavailableError(endpoint.sandbox_id, reason) from error
        except asyncio.CancelledError:
            # It may have been welcomed in this very moment, and nobody takes it any more.
            link.abandon()
            raise
        finally:
            if not link.is_welcome:
                await link.aclose()
        return link

    @property
    def is_welcome(self) -> bool:
        """Whether the runtime has accepted us."""
        return self._welcome.done() and self._welcome.exception() is None

    @property
    def is_foreign(self) -> bool:
        """Whether the other end has turned out to be another incarnation than the endpoint's."""
        return self._is_foreign

    @property
    def is_usable(self) -> bool:
        """Whether calls may be sent: the other end has not hung up, as far as we can know.

        The peek finds a hang-up that the reader task has not come to yet: a call sent after it
        would have to be reported as interrupted although it never began.
        """
        if self._broken is not None or not self._is_sendable:
            return False
        if self._pending:
            return True
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    # --- calls ---

    def begin(self, operation: Operation, request: Record, incarnation: str | None) -> int:
        """Send a call; return its id.

        Raises
        ------
        ContainerUnavailableError
            The other end has hung up; nothing was sent.
        """
        if self._broken is not None or not self._is_sendable:
            # Nobody is left to interrupt a call that comes after the end of the link.
            reason = "it ended before it took the operation"
            raise ContainerUnavailableError(self._endpoint.sandbox_id, reason) from self._broken
        value, body = encode(request)
        credit = _STREAM_CREDIT if operation.kind is Kind.STREAM else INITIAL_CREDIT
        call, data = self._protocol.call(
            operation.name, value, body, incarnation=incarnation, credit=credit
        )
        self._pending[call] = _Pending(operation)
        self._write(data, call)
        return call

    def pending(self, call: int) -> _Pending:
        """Return what is known of a call under way."""
        return self._pending[call]

    def finish(self, call: int) -> None:
        """Forget a call; one that has not been answered is cancelled at the other end."""
        pending = self._pending.pop(call, None)
        if pending is None:
            return
        if pending.answer.done():
            if not pending.answer.cancelled():
                # Marks an error as seen when the caller left before it came.
                pending.answer.exception()
            return
        pending.answer.cancel()
        if self._broken is None:
            self._write(self._protocol.cancel(call))

    def grant(self, call: int, amount: int) -> None:
        """Let a stream send `amount` more bytes."""
        if not self._protocol.has_credit:
            self.resume()
        elif self._broken is None and not self._pending[call].answer.done():
            self._write(self._protocol.grant(call, amount))

    def become_channel(self) -> None:
        """Expect the channel's frames behind the answer of the call just sent."""
        self._protocol.become_channel()

    def write_frame(self, kind: FrameKind, *parts: bytes | memoryview) -> None:
        """Send a frame of the channel, now or when the socket takes it."""
        if self._broken is not None:
            raise self._broken
        self._write(self._protocol.channel_frame(kind, *parts))
        if kind is FrameKind.INPUT:
            self._input_end = self._written

    @property
    def has_lost_input(self) -> bool:
        """Whether it broke with input that is known not to have been sent."""
        return self._unsent_from is not None and self._input_end > self._unsent_from

    @property
    def is_drained(self) -> bool:
        """Whether not too much waits for the socket."""
        return self._sendable.is_set()

    async def drained(self) -> None:
        """Wait until not too much waits for the socket."""
        await self._sendable.wait()

    # --- the socket ---

    def _write(self, data: bytes, call: int = 0) -> None:
        self._written += len(data)
        if not self._is_sendable or not data:
            return
        self._last_sent = call
        if not self._outgoing:
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self._untaken = self._last_sent
                self._stop_sending(len(data))
                return
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(self._socket.fileno(), self._flush)
        self._outgoing.append(memoryview(data))
        self._outgoing_bytes += len(data)
        if self._outgoing_bytes > _SEND_BACKLOG:
            self._sendable.clear()

    def _flush(self) -> None:
        while self._outgoing:
            first = self._outgoing[0]
            try:
                sent = self._socket.send(first)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._untaken = self._last_sent
                self._stop_sending()
                return
            self._outgoing_bytes -= sent
            if sent < len(first):
                self._outgoing[0] = first[sent:]
                continue
            self._outgoing.popleft()
        self._loop.remove_writer(self._socket.fileno())
        self._sendable.set()
        if self._closing:
            self.abandon()

    def _stop_sending(self, failed: int = 0) -> None:
        """Note that the other end takes nothing more; what it has sent is still to be read.

        Its last words, such as a stream's end, may lie in the socket; the reader comes to the
        end of file after them, and breaks the link then.
        """
        self._is_sendable = False
        if self._unsent_from is None:
            self._unsent_from = self._written - failed - sum(map(len, self._outgoing))
        if self._outgoing:
            self._loop.remove_writer(self._socket.fileno())
            self._outgoing.clear()
        self._sendable.set()

    async def _read(self) -> None:
        self._has_begun = True
        reason = "the runtime hung up"
        try:
            self._watch()
            reason = await self._ended
        finally:
            self._unwatch()
            self._break(reason)
            self._socket.close()

    def _watch(self) -> None:
        """Read when something comes.

        A callback that stays, where a task would ask the system for each message anew.
        """
        if not self._is_watched and not self._ended.done() and not self._reader.done():
            self._is_watched = True
            self._loop.add_reader(self._socket.fileno(), self._readable)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._socket.fileno())

    def _readable(self) -> None:
        data, space = b"", self._protocol.space
        try:
            if space is None:
                data = self._socket.recv(self._read_bytes)
                count = len(data)
            else:
                count = self._socket.recv_into(space)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            if isinstance(error, ConnectionResetError):
                # A unix socket is reset, rather than ended, when its peer closes it with bytes
                # unread; the last bytes are those of the frame sent last.
                self._untaken = self._last_sent
            self._end(error.strerror or "the connection failed")
            return
        if not count:
            self._end("the runtime hung up")
            return
        if space is None and count == self._read_bytes < _READ_BYTES:
            self._read_bytes = min(self._read_bytes * 4, _READ_BYTES)
        try:
            protocol = self._protocol
            for event in protocol.receive(data) if space is None else protocol.received(count):
                self._handle(event)
            if self._rested is not None:
                self._rested()
        except SandboxError as error:
            self._broken = self._broken or error
            self._end("what came made no sense")
            return
        if self._is_paused or self._frames.qsize() > _CHANNEL_BACKLOG:
            self._unwatch()

    def _end(self, reason: str) -> None:
        self._unwatch()
        if not self._ended.done():
            self._ended.set_result(reason)

    def _handle(self, event: Welcome | Result | Item | End | Failed | ChannelFrame | Reply) -> None:
        if isinstance(event, Item):
            self._take_item(event)
        elif isinstance(event, ChannelFrame):
            if self._listener is not None:
                self._listener(event)
            else:
                self._frames.put_nowait(event)
        elif isinstance(event, Reply):
            self._write(event.data)
        elif isinstance(event, Welcome):
            if not self._welcome.done():
                self._welcome.set_result(event)
        elif isinstance(event, Failed) and event.call == 0:
            self._broken = self._refusal(event.error)
            raise self._broken
        else:
            self._answer(event)

    def _answer(self, event: Result | End | Failed) -> None:
        pending = self._pending.get(event.call)
        # The answer of a call that was cancelled meanwhile has nobody to go to.
        if pending is None or pending.answer.done():
            return
        if isinstance(event, Failed):
            pending.answer.set_exception(self._refusal(event.error))
        else:
            pending.answer.set_result(event)
        pending.news.set()

    def _refusal(self, error: object) -> SandboxError:
        assert isinstance(error, SandboxError)  # noqa: S101  ClientConnection makes it so
        if self._was_admitted and isinstance(error, UnauthorizedError):
            self._is_foreign = True
            return ended_since(self._endpoint)
        return error

    def _take_item(self, event: Item) -> None:
        pending = self._pending.get(event.call)
        if pending is None:
            return
        pending.waiting_bytes += event.size
        if not self._protocol.has_credit:
            if pending.waiting_bytes > _STREAM_CREDIT:
                self.pause()
        elif pending.waiting_bytes > _STREAM_CREDIT + MAX_FRAME:
            raise ProtocolViolationError("a stream that does not keep to its credit")
        pending.items.append(event)
        pending.news.set()

    async def next_frame(self) -> ChannelFrame | None:
        """Take the next frame of a channel; None, again and again, once it has ended."""
        frame = await self._frames.get()
        if frame is None:
            self._frames.put_nowait(None)
        elif self._frames.qsize() <= _CHANNEL_BACKLOG // 2 and not self._is_paused:
            self._watch()
        return frame

    def listen(
        self,
        take: Callable[[ChannelFrame | None], object],
        rested: Callable[[], object] | None = None,
    ) -> None:
        """Hand frames on as they come, beginning with those that wait."""
        self._listener = take
        self._rested = rested
        while not self._frames.empty():
            take(self._frames.get_nowait())
        if rested is not None:
            rested()
        if not self._is_paused:
            self._watch()

    def pause(self) -> None:
        """Read nothing more for now; what was read already is still handed on."""
        self._is_paused = True
        self._unwatch()

    def resume(self) -> None:
        """Go on reading."""
        self._is_paused = False
        self._watch()

    def _break(self, reason: str) -> None:
        """Interrupt every call under way, once."""
        self._stop_sending()
        given = self._broken
        if given is None:
            self._broken = OperationInterruptedError("the connection", reason)
        for call, pending in self._pending.items():
            if not pending.answer.done():
                error = given or OperationInterruptedError(pending.operation.name, reason)
                if given is None and call == self._untaken:
                    error = ContainerUnavailableError(
                        self._endpoint.sandbox_id, "it ended before it took the operation"
                    )
                pending.answer.set_exception(error)
                # Whoever waits sees it; whoever has left must not be warned of it.
                pending.answer.exception()
                pending.news.set()
        if not self._welcome.done():
            self._welcome.set_exception(given or OperationInterruptedError("HELLO", reason))
            self._welcome.exception()
        if self._listener is not None:
            self._listener(None)
        else:
            self._frames.put_nowait(None)

    @property
    def has_ended(self) -> bool:
        """Whether its socket is closed."""
        return self._reader.done()

    def abandon(self) -> None:
        """Close soon, from any thread, when nobody is left who could await it."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._give_up)

    def _give_up(self) -> None:
        self._reader.cancel()
        if not self._has_begun:
            # A task that is cancelled before its first step never reaches its own clean-up.
            self._break("it was closed")
            self._socket.close()

    def close_when_sent(self) -> None:
        """Close once what was to be sent is with the system, after `_LAST_WORDS` seconds at most.

        What comes meanwhile is still handed on, so that the other end does not wait for us.
        """
        if not self._outgoing:
            self.abandon()
            return
        self.resume()
        self._closing = True
        self._loop.call_later(_LAST_WORDS, self.abandon)

    async def aclose(self) -> None:
        """Close the connection; calls under way are interrupted."""
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        # A task that was cancelled before its first step never reached its own clean-up.
        self._break("it was closed")
        self._socket.close()


async def _connected_in_thread(endpoint: Endpoint) -> socket.socket:
    connecting = asyncio.get_running_loop().run_in_executor(
        None, functools.partial(connect, endpoint, timeout=_CONNECT_TIMEOUT)
    )
    try:
        return await asyncio.shield(connecting)
    except asyncio.CancelledError:
        # Nobody takes the socket any more.
        connecting.add_done_callback(_closed_when_connected)
        raise


def _closed_when_connected(connecting: asyncio.Future[socket.socket]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()


class Events:
    """The events of one stream; see `EventStream`."""

    def __init__(self, link: Link, call: int) -> None:
        self._link = link
        self._call = call
        self._pending = link.pending(call)
        self._taken = 0
        self._end: Record | None = None

    @property
    def end(self) -> Record | None:
        """The operation's result; None while events may follow."""
        return self._end

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        pending = self._pending
        while not pending.items:
            if pending.answer.done():
                answer = pending.answer.result()
                self._end = decode(pending.operation.result, answer.value, answer.body)
                raise StopAsyncIteration
            pending.news.clear()
            await pending.news.wait()
        item = pending.items.popleft()
        pending.waiting_bytes -= item.size
        self._taken += item.size
        # Grants in large steps: one for each event would double the frames.
        if self._taken >= _STREAM_CREDIT // 4:
            self._link.grant(self._call, self._taken)
            self._taken = 0
        event = pending.operation.event
        assert event is not None  # noqa: S101  the table's streams have one
        return decode(event, item.value, item.body)


class FrameChannel:
    """A connection that carries one channel; see `Channel`."""

    def __init__(self, link: Link, opening: Record) -> None:
        self._link = link
        self._opening = opening

    @property
    def opening(self) -> Record:
        """What the operation answered before the connection became a channel."""
        return self._opening

    async def send(self, kind: FrameKind, *parts: bytes | memoryview) -> None:
        """Send one frame; returns when not too much waits to be sent."""
        self._link.write_frame(kind, *parts)
        await self._link.drained()

    def post(self, kind: FrameKind, *parts: bytes | memoryview) -> bool:
        """Send one frame; False if too much waits now, so that `drained` is to be awaited."""
        self._link.write_frame(kind, *parts)
        return self._link.is_drained

    async def drained(self) -> None:
        """Wait until not too much waits to be sent."""
        await self._link.drained()

    def listen(
        self,
        take: Callable[[ChannelFrame | None], object],
        rested: Callable[[], object] | None = None,
    ) -> None:
        """Have frames handed on as they come, then None once, in the place of `receive`.

        `take` is called from the event loop and must not wait; `pause` stops the reading, so that
        what it cannot pass on stays in the sandbox.  `rested` is called behind frames that came
        together.
        """
        self._link.listen(take, rested)

    def pause(self) -> None:
        """Read nothing more until `resume`; frames read already are still handed on."""
        self._link.pause()

    def resume(self) -> None:
        """Go on reading."""
        self._link.resume()

    @property
    def has_lost_input(self) -> bool:
        """Whether the connection broke with input that is known not to have been sent."""
        return self._link.has_lost_input

    def close(self) -> None:
        """Close the connection soon, without waiting for it."""
        self._link.abandon()

    def close_when_sent(self) -> None:
        """Close once all that was sent is on its way, without waiting for it."""
        self._link.close_when_sent()

    async def receive(self) -> tuple[FrameKind, memoryview] | None:
        """Return the next frame, or None once the runtime has closed the channel."""
        frame = await self._link.next_frame()
        if frame is None:
            return None
        assert isinstance(frame.payload, memoryview)  # noqa: S101  ClientConnection makes it so
        return frame.kind, frame.payload

    async def aclose(self) -> None:
        """Close the connection; a second time is fine."""
        await self._link.aclose()


def ended_since(endpoint: Endpoint) -> ContainerUnavailableError:
    """Return the error for an endpoint that had let us in, where another incarnation is by now."""
    reason = "it has ended, and another incarnation runs"
    return ContainerUnavailableError(endpoint.sandbox_id, reason)


def lets_nobody_in(endpoint: Endpoint) -> ContainerUnavailableError:
    """Return the error for a runtime that has not greeted in `WELCOME_TIMEOUT` seconds."""
    # Whatever runs inside may have taken from the runtime what it needs to accept us.
    late = ContainerUnavailableError(
        endpoint.sandbox_id, f"it lets nobody in since {WELCOME_TIMEOUT:g} s"
    )
    late.hint = (
        f"If that stays so, 'jupyter sandbox stop {endpoint.sandbox_id}' ends it; the next "
        "operation starts it again, and files in its workspace are kept."
    )
    return late


def row_of(operation: str, kind: Kind) -> Operation:
    """Return an operation's row, which must be of this kind."""
    row = OPERATIONS[operation]
    if row.kind is not kind:
        raise TransportError(f"{operation} is a {row.kind.value}, not a {kind.value}.")
    return row
