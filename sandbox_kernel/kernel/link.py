"""The stream to one interpreter in a sandbox: a client of the runtime's frame door.

One connection starts the interpreter and then becomes its channel.  The stream is addressed by
absolute offsets, so a connection that breaks is replaced by another which goes on where this one
ended, and nothing is lost or read twice.

Nothing here blocks but `open` and `wait_until_started`: what the socket does not
take is queued, and one poll serves both directions, so a full pipe on one side cannot stop the
other.  The queue is bounded by the caller, who stops reading its clients while `queued` is above
its mark; signals overtake what is queued.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sandbox_kernel.errors import (
    ContainerUnavailableError,
    ProtocolViolationError,
    SandboxError,
)
from sandbox_kernel.transports.endpoint import Endpoint, connect
from sandbox_kernel.wire.codec import decode, dump_json, encode, load_json, unpack
from sandbox_kernel.wire.kernel import Channel, RecordReader, Records, record_buffers
from sandbox_kernel.wire.operations import (
    Empty,
    EndKernelRequest,
    KernelInfo,
    KernelList,
    KernelRequest,
    StartKernelRequest,
)
from sandbox_kernel.wire.record import Record as WireRecord
from sandbox_kernel.wire.rpc import (
    MAX_CHANNEL_FRAME,
    ClientConnection,
    Failed,
    FrameKind,
    FrameReader,
    Result,
    encode_frame,
    frame_header,
)

__all__ = ["Attached", "Ended", "Link", "Lost", "Record", "Started", "Superseded"]

_SMALL_READ = 64 << 10
_SMALL_RECORD = 64
"""Bytes; with smaller ones a large read would take long, since each costs time of its own."""
_LARGE_READ = 1 << 20
_OFFSET = 8
"""Bytes of the offset that a DATA frame begins with."""
_HEAD_READ = 34
"""Bytes behind a frame that are read with its end: the heads of an ACK and of a DATA frame."""
_JOIN_BELOW = 16 << 10
_MOST_BUFFERS = 64
_MOST_READS = 8
_SEND_BUFFER = 4 << 20
_START_CALL = 1
_CONNECT_CALL = 2
_MAX_STDERR = 4096


@dataclass(frozen=True, slots=True)
class Started:
    """The interpreter runs."""

    info: KernelInfo


@dataclass(frozen=True, slots=True)
class Attached:
    """The connection is the interpreter's channel now."""

    info: KernelInfo


class Record(NamedTuple):
    """One record of the interpreter; `end` is the stream's offset after it."""

    channel: Channel
    parts: list[memoryview]
    end: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The interpreter has ended and everything it wrote has been read."""

    exit_code: int
    signal: int | None
    reason: str | None
    stderr: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another relay has taken the interpreter over."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is of no use any more.

    Parameters
    ----------
    reason : str
        Why, in words.
    broken : bool
        Whether a new connection may go on where this one ended.
    """

    reason: str
    broken: bool
    error: SandboxError | None = None
    """What the runtime answered, where it did."""
    unreadable: bool = False
    """Whether what the interpreter wrote cannot be understood: no other connection could either."""


Event = Started | Attached | Record | Ended | Superseded | Lost


class _Frame:
    """A frame to be sent.

    Parameters
    ----------
    buffers : list of memoryview
        What is left to send of it.
    counts : bool
        Whether the runtime counts it, so that it can be sent again where it got lost.
    """

    __slots__ = ("buffers", "counts", "size")

    def __init__(self, buffers: list[memoryview], *, counts: bool = True) -> None:
        self.buffers = buffers
        self.counts = counts
        self.size = sum(map(len, buffers))


class Link:
    """A connection to the runtime that starts one kernel and carries its records.

    Parameters
    ----------
    endpoint : Endpoint
        Where the runtime listens.
    request : StartKernelRequest
        Which interpreter, and how it is started.
    """

    def __init__(self, endpoint: Endpoint, request: StartKernelRequest) -> None:
        self.endpoint = endpoint
        self.request = request
        self.info: KernelInfo | None = None
        self.queued = 0
        """Bytes that wait for the socket."""
        self._records = RecordReader()
        self._end = 0  # the stream's offset after the last record handed out
        self._position = 0
        self._acked = self._done = 0
        self._socket: socket.socket | None = None
        self._frames = FrameReader(MAX_CHANNEL_FRAME, released=FrameKind.DATA)
        self._head = bytearray(_HEAD_READ)
        self._data_left = 0  # bytes to come of a DATA frame that is read past `_frames`
        self._known = 0  # how many of them were read before, over another connection
        self._queue: deque[_Frame] = deque()
        self._begun: _Frame | None = None  # the whole of a frame sent in part
        self._sent: deque[_Frame] = deque()  # whole ones that may not have arrived
        self._taken = 0  # how many the runtime had got before those, as it counts
        self._is_channel = False
        self._takes_records = False
        self._read_size = _SMALL_READ
        self._most_read = _LARGE_READ

    def __repr__(self) -> str:
        return (
            f"<Link kernel={self.request.kernel_id!r} channel={self._is_channel}"
            f" position={self._position} acked={self._acked} queued={self.queued}>"
        )

    def fileno(self) -> int:
        """Return the socket's descriptor, or -1 without one."""
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the socket to take it."""
        return bool(self._queue) and self._takes_records

    @property
    def offset(self) -> int:
        """The stream's offset after the last record that was handed out."""
        return self._records.offset

    @property
    def unacked(self) -> bool:
        """Whether the owner is done with records that have not been acknowledged yet."""
        return self._done > self._acked

    def done_with(self, offset: int) -> None:
        """Let what lies before this offset be acknowledged, by `acknowledge` or the next `send`."""
        self._done = offset

    # --- opening ------------------------------------------------------------------------------

    def open(self, *, timeout: float = 10.0) -> None:
        """Connect, and ask for the interpreter without waiting for an answer.

        Raises
        ------
        ContainerUnavailableError
            Nobody listens there.
        """
        self._dial(timeout)
        protocol = ClientConnection()
        value, body = encode(self.request)
        self._write_now(
            protocol.hello(self.endpoint.token, "kernel relay")
            + protocol.call("kernel.start", value, body)[1]
        )

    def wait_until_started(self, *, timeout: float = 60.0) -> KernelInfo:
        """Wait for the answer to `open`.

        Raises
        ------
        ContainerUnavailableError
            The connection broke, or nothing came in time.
        SandboxError
            The runtime refused; the class says why.
        """
        connection = self._connected()
        connection.settimeout(timeout)
        try:
            while True:
                data = connection.recv(_SMALL_READ)
                if not data:
                    raise ContainerUnavailableError(self.endpoint.sandbox_id, "it hung up")
                for event in self._take(data):
                    if isinstance(event, Started):
                        connection.setblocking(False)
                        return event.info
                    if isinstance(event, Lost):
                        raise event.error or ContainerUnavailableError(
                            self.endpoint.sandbox_id, event.reason
                        )
        except TimeoutError:
            raise ContainerUnavailableError(
                self.endpoint.sandbox_id, f"it did not start an interpreter within {timeout:.0f} s"
            ) from None
        except OSError as error:
            raise ContainerUnavailableError(
                self.endpoint.sandbox_id, error.strerror or "it hung up"
            ) from error

    def attach(self, info: KernelInfo) -> None:
        """Ask to become the interpreter's channel, from the last acknowledged offset on."""
        self.info = info
        self._records = RecordReader(info.acked)
        self._end = info.acked
        self._position = self._acked = self._done = info.acked
        self._taken = info.taken
        self._sent.clear()
        self._is_channel = True
        value, body = encode(KernelRequest(kernel_id=self.request.kernel_id))
        protocol = ClientConnection()
        protocol.call("kernel.start", {})  # the id that `open` has used
        first = protocol.call("kernel.connect", value, body)[1]
        self._queue.appendleft(_Frame([memoryview(first)], counts=False))
        self.queued += len(first)
        self._takes_records = True
        self.flush()

    def reconnect(self) -> None:
        """Replace a broken connection; reading and writing go on where it ended.

        What the runtime has not got of what was sent is sent again, once it has said how much
        that is.

        Raises
        ------
        ContainerUnavailableError
            Nobody listens there.
        """
        self._dial(1.0)
        protocol = ClientConnection()
        value, body = encode(KernelRequest(kernel_id=self.request.kernel_id))
        hello = protocol.hello(self.endpoint.token, "kernel relay")
        protocol.call("kernel.start", {})
        call = protocol.call("kernel.connect", value, body)[1]
        self._write_now(hello + call)
        self._connected().setblocking(False)

    def _attached(self, info: KernelInfo) -> None:
        """Begin to send, behind what the runtime lacks of what was sent before."""
        self._is_channel = True
        if self._takes_records:
            # The first connection; only what it carries is counted from here.
            self._taken = info.taken
            return
        self._forget(info.taken)
        self._acked = info.acked
        self.queued += sum(frame.size for frame in self._sent)
        self._queue.extendleft(reversed(self._sent))
        self._sent.clear()
        self._takes_records = True
        self.flush()

    def _forget(self, taken: int) -> None:
        """Drop what has arrived; `taken` is the runtime's count of it."""
        while self._taken < taken and self._sent:
            self._sent.popleft()
            self._taken += 1

    def restart(self, request: StartKernelRequest) -> None:
        """Leave the interpreter and ask for another, on a connection of its own.

        Raises
        ------
        ContainerUnavailableError
            Nobody listens there.
        """
        self.close()
        self.request = request
        self._queue.clear()
        self._sent.clear()
        self.queued = 0
        self._begun = None
        self.open()
        self._connected().setblocking(False)

    def close(self) -> None:
        """Close the connection; the interpreter lives on.  Twice is fine."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _dial(self, timeout: float) -> None:
        self.close()
        self._socket = connect(self.endpoint, timeout=timeout)
        self._frames = FrameReader(MAX_CHANNEL_FRAME, released=FrameKind.DATA)
        self._data_left = self._known = 0
        self._is_channel = self._takes_records = False
        self._keep_counted()
        # As far as the system allows; a large message then takes fewer turns.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._socket.setblocking(False)

    def _keep_counted(self) -> None:
        """Leave in the queue what another connection is to carry, each frame whole."""
        if self._begun is not None:
            self._queue[0], self._begun = self._begun, None
        self._queue = deque(frame for frame in self._queue if frame.counts)
        self.queued = sum(frame.size for frame in self._queue)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise ContainerUnavailableError(self.endpoint.sandbox_id, "there is no connection")
        return self._socket

    def _write_now(self, data: bytes) -> None:
        connection = self._connected()
        connection.settimeout(10.0)
        try:
            connection.sendall(data)
        except OSError as error:
            raise ContainerUnavailableError(
                self.endpoint.sandbox_id, error.strerror or "it hung up"
            ) from error

    # --- sending ------------------------------------------------------------------------------

    def send(
        self, channel: Channel, identities: Sequence[bytes], parts: Sequence[bytes | memoryview]
    ) -> None:
        """Send one record to the interpreter.

        Raises
        ------
        ValueError
            The record is too large.
        """
        buffers = record_buffers(channel, identities, parts)
        size = sum(map(len, buffers))
        header = frame_header(FrameKind.INPUT, 0, size)
        if self.unacked and self._is_channel:
            header = self._ack_frame() + header
        if size < _JOIN_BELOW:
            self._enqueue(_Frame([memoryview(header + b"".join(buffers))]))
        else:
            self._enqueue(_Frame([memoryview(each) for each in (header, *buffers) if len(each)]))

    def signal(self, number: int) -> None:
        """Send a signal to the interpreter's process group, ahead of what is queued."""
        self._overtake(
            encode_frame(FrameKind.CONTROL, 0, dump_json({"type": "signal", "signal": number}))
        )

    def end(self, grace: float) -> None:
        """Have the interpreter and its process group ended: TERM, then KILL after `grace`."""
        self._overtake(
            encode_frame(FrameKind.CONTROL, 0, dump_json({"type": "end", "grace": grace}))
        )

    def acknowledge(self) -> None:
        """Let the runtime forget every record that the owner is done with."""
        if self.unacked and self._is_channel:
            self._overtake(self._ack_frame(), counts=False)

    def _ack_frame(self) -> bytes:
        self._acked = self._done
        return encode_frame(FrameKind.ACK, 0, self._acked.to_bytes(8, "big"))

    def _overtake(self, data: bytes, *, counts: bool = True) -> None:
        frame = _Frame([memoryview(data)], counts=counts)
        if not self._queue:
            self._enqueue(frame)
            return
        self._queue.insert(0 if self._begun is None else 1, frame)
        self.queued += frame.size

    def _enqueue(self, frame: _Frame) -> None:
        self._queue.append(frame)
        self.queued += frame.size
        if len(self._queue) == 1:
            self.flush()

    def flush(self) -> None:
        """Send what the socket takes now; a broken connection is told by `receive`."""
        if self._socket is None or not self._takes_records:
            return
        while self._queue:
            head = self._queue[0]
            try:
                sent = self._socket.sendmsg(head.buffers[:_MOST_BUFFERS])
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return
            self.queued -= sent
            rest = _after(head.buffers, sent)
            if not rest:
                self._queue.popleft()
                if head.counts:
                    self._sent.append(self._begun or head)
                self._begun = None
            elif sent:
                self._begun = self._begun or head
                self._queue[0] = _Frame(rest, counts=head.counts)

    # --- receiving ----------------------------------------------------------------------------

    def receive(self) -> list[Event]:
        """Read once and return what came; empty when there was nothing."""
        if self._socket is None:
            return []
        events: list[Event] = []
        # Of a large record as much is read at once as is there: each turn asks every socket.
        for _ in range(_MOST_READS):
            try:
                wanted, count = self._read(events)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                events.append(self._lose(error.strerror or "the connection broke", broken=True))
                break
            except SandboxError as error:
                events.append(self._unreadable(error))
                break
            if not count:
                events.append(self._lose("the connection was closed", broken=True))
                break
            if count < wanted or self._records.space is None or self._socket is None:
                break
        return events

    def _read(self, events: list[Event]) -> tuple[int, int]:
        """Read once and act on it; return how many bytes were wanted and how many came."""
        connection = self._connected()
        space = None if self._known else self._records.space
        if not self._data_left:
            wanted = self._read_size
            if space is not None:
                # Of the large record that is under way only a frame's head has to come this way.
                wanted = min(wanted, self._frames.missing + _HEAD_READ)
            data = connection.recv(wanted)
            if data:
                events += self._take(data)
            # Large reads cost page faults, so they are for floods only.
            self._read_size = self._most_read if len(data) == wanted else _SMALL_READ
            return wanted, len(data)
        if space is not None:
            return self._read_in_place(space, events)
        # The rest of a large DATA frame, of small records or of what was read before.
        wanted = min(self._data_left, self._known or self._most_read)
        data = connection.recv(wanted)
        self._data_left -= len(data)
        if self._known:
            self._known -= len(data)
        else:
            self._position += len(data)
            self._hand_out(self._records.feed(data), events)
        return wanted, len(data)

    def _read_in_place(self, space: memoryview, events: list[Event]) -> tuple[int, int]:
        """Read of a large DATA frame where its record will be, and the head of the next frame."""
        part = space[: self._data_left]
        size = len(part)
        buffers: list[memoryview | bytearray] = [part]
        if size == self._data_left:
            buffers.append(self._head)
        count = self._connected().recvmsg_into(buffers)[0]
        inside = min(count, size)
        self._data_left -= inside
        self._position += inside
        self._hand_out(self._records.filled(inside), events)
        if count > size:
            events += self._take(bytes(self._head[: count - size]))
        return sum(map(len, buffers)), count

    def _lose(self, reason: str, *, broken: bool) -> Lost:
        self.close()
        return Lost(reason, broken)

    def _take(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        try:
            for kind, call, payload in self._frames.feed(data):
                if kind is FrameKind.DATA:
                    self._data(payload, events)
                elif kind is FrameKind.EVENT:
                    events.append(_event(payload))
                elif kind is FrameKind.RESULT:
                    info = decode(KernelInfo, unpack(payload)[0])
                    if call == _START_CALL:
                        events.append(Started(info))
                    else:
                        self._attached(info)
                        events.append(Attached(info))
                elif kind is FrameKind.ACK:
                    self._forget(int.from_bytes(payload, "big"))
                elif kind is FrameKind.ERROR:
                    error = SandboxError.from_wire(unpack(payload)[0])
                    self.close()
                    events.append(Lost(str(error), broken=False, error=error))
                elif kind is not FrameKind.WELCOME:
                    raise ProtocolViolationError(f"frame {kind.name} from the runtime")
            begun = self._frames.release(_OFFSET, _SMALL_READ)
            if begun is not None:
                payload, self._data_left = begun
                self._data(payload, events, self._data_left)
        except SandboxError as error:
            events.append(self._unreadable(error))
        return events

    def _unreadable(self, error: SandboxError) -> Lost:
        self.close()
        return Lost(error.message, broken=False, unreadable=True)

    def _data(self, payload: memoryview, events: list[Event], rest: int = 0) -> None:
        """Take a DATA frame, of which `rest` bytes have yet to come."""
        if len(payload) < _OFFSET:
            raise ProtocolViolationError("DATA without an offset")
        offset = int.from_bytes(payload[:_OFFSET], "big")
        known = self._position - offset
        if known < 0:
            raise ProtocolViolationError("a gap in the interpreter's output")
        fresh = payload[_OFFSET + known :]
        self._known = min(rest, max(0, _OFFSET + known - len(payload)))
        if not len(fresh):
            return
        self._position += len(fresh)
        self._hand_out(self._records.feed(fresh), events)

    def _hand_out(self, records: Records, events: list[Event]) -> None:
        begin = self._end
        for channel, identities, parts in records:
            count = len(identities) + len(parts)
            self._end += 8 + 4 * count + sum(map(len, identities)) + sum(map(len, parts))
            events.append(Record(channel, parts, self._end))
        is_small = self._end - begin < _SMALL_RECORD * len(records)
        self._most_read = _SMALL_READ if is_small else _LARGE_READ


def _after(buffers: Sequence[memoryview], sent: int) -> list[memoryview]:
    """Return what is left of the buffers once `sent` bytes of them are gone."""
    rest: list[memoryview] = []
    for each in buffers:
        if sent >= len(each):
            sent -= len(each)
        else:
            rest.append(each[sent:] if sent else each)
            sent = 0
    return rest


def _event(payload: memoryview) -> Event:
    value = load_json(bytes(payload))
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "superseded":
        return Superseded()
    if kind != "exit":
        raise ProtocolViolationError("an EVENT of unknown type")
    code, number, reason = value.get("exit_code"), value.get("signal"), value.get("reason")
    return Ended(
        exit_code=code if isinstance(code, int) else -1,
        signal=number if isinstance(number, int) else None,
        reason=reason if isinstance(reason, str) else None,
        stderr=str(value.get("stderr") or "")[-_MAX_STDERR:],
    )


def has_relay(endpoint: Endpoint) -> bool:
    """Whether a relay is attached to any kernel of a sandbox.

    Raises
    ------
    SandboxError
        The runtime does not answer, or refused.
    """
    kernels = decode(KernelList, _call(endpoint, "kernel.list", Empty()).value).kernels
    return any(kernel.attached for kernel in kernels)


def end_kernel(endpoint: Endpoint, kernel_id: str, *, grace: float) -> None:
    """End a kernel, and wait until it has ended.

    Raises
    ------
    SandboxError
        The runtime does not answer, or refused.
    """
    _call(endpoint, "kernel.end", EndKernelRequest(kernel_id=kernel_id, grace=grace))


def _call(endpoint: Endpoint, operation: str, request: WireRecord) -> Result:
    """Call an operation over a connection of its own."""
    protocol = ClientConnection()
    with connect(endpoint, timeout=2.0) as connection:
        connection.settimeout(5.0)
        try:
            connection.sendall(
                protocol.hello(endpoint.token, "kernel relay")
                + protocol.call(operation, *encode(request))[1]
            )
            while data := connection.recv(_SMALL_READ):
                for event in protocol.receive(data):
                    if isinstance(event, Failed) and isinstance(event.error, SandboxError):
                        raise event.error
                    if isinstance(event, Result):
                        return event
        except OSError as error:
            reason = error.strerror or "it did not answer in time"
            raise ContainerUnavailableError(endpoint.sandbox_id, reason) from error
    raise ContainerUnavailableError(endpoint.sandbox_id, "it hung up")
