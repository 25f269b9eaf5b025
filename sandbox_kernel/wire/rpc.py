"""Sans-IO multiplexer: frames on one byte stream, many calls and streams in them.

A frame is ``u32 length | u8 kind | u32 call id | payload``, big-endian; the length counts what
follows it.  `ClientConnection` and `ServerConnection` turn bytes into events and intentions into
bytes; they hold no socket, clock or task.  `PROTOCOL.md` describes every byte.
"""

from __future__ import annotations

import struct

from sandbox_kernel.errors import ProtocolViolationError, SandboxError
from sandbox_kernel.wire.assembler import Assembler
from sandbox_kernel.wire.bulk import BULK
from sandbox_kernel.wire.codec import dump_json, unpack
from sandbox_kernel.wire.names import Name, Number
from sandbox_kernel.wire.record import Record
from sandbox_kernel.wire.version import PROTOCOL_VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sandbox_kernel.wire.record import JSON

__all__ = [
    "INITIAL_CREDIT",
    "MAX_CHANNEL_FRAME",
    "MAX_FIRST_FRAME",
    "MAX_FRAME",
    "Call",
    "Cancel",
    "ChannelFrame",
    "ClientConnection",
    "Credit",
    "End",
    "Failed",
    "FrameKind",
    "FrameReader",
    "Hello",
    "Item",
    "Reply",
    "Result",
    "ServerConnection",
    "Switch",
    "Welcome",
    "encode_frame",
]

MAX_FRAME = 16 << 20
"""Largest frame, in bytes, on a connection that carries calls."""

MAX_FIRST_FRAME = 64 << 10
"""Largest frame, in bytes, that a server takes from a client it has not welcomed."""

MAX_CHANNEL_FRAME = (256 << 20) + (1 << 16)
"""Largest frame, in bytes, once a connection has become a channel."""

INITIAL_CREDIT = 256 << 10
"""Bytes of stream payload the server may send before the client grants more."""

_EVENT_BULK = 128 << 10
"""Bytes from which on a frame with events has memory of its own at the client."""

_WORTH_A_PART = 16 << 10
"""Bytes of a body that are rather sent by themselves than copied behind their head."""

_HEADER = struct.Struct(">IBI")
_LENGTH = 4
_AFTER_LENGTH = 5


class FrameKind(Number):
    """The second field of a frame."""

    HELLO = 1
    WELCOME = 2
    CALL = 3
    RESULT = 4
    ITEM = 5
    END = 6
    ERROR = 7
    CANCEL = 8
    CREDIT = 9
    INPUT = 16
    DATA = 17
    ACK = 18
    CONTROL = 19
    EVENT = 20


_KINDS = {int(kind): kind for kind in FrameKind}
_FIRST_CHANNEL_KIND = 16


def encode_frame(kind: int, call: int, *parts: bytes | memoryview) -> bytes:
    """Return one frame whose payload is the parts in order."""
    size = sum(map(len, parts))
    return b"".join((_HEADER.pack(_AFTER_LENGTH + size, kind, call), *parts))


def _message(kind: int, call: int, head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a frame that carries a message; the body is copied once."""
    text = dump_json(head)
    return encode_frame(kind, call, len(text).to_bytes(4, "big"), text, body)


def frame_header(kind: int, call: int, size: int) -> bytes:
    """Return the header of a frame whose payload of `size` bytes is written separately."""
    return _HEADER.pack(_AFTER_LENGTH + size, kind, call)


class FrameReader:
    """Cuts a byte stream into frames.

    Parameters
    ----------
    max_frame : int
        Bytes of the largest frame that is taken.
    released : FrameKind, optional
        The kind whose large frames the owner takes by `release`, in the beginning and the rest.
    bulk : int
        Bytes from which on a frame is large, so that it gets memory of its own.
    """

    def __init__(
        self,
        max_frame: int = MAX_FRAME,
        *,
        released: FrameKind | None = None,
        bulk: int = BULK,
    ) -> None:
        self.max_frame = max_frame
        self._released = released
        self._assembler = Assembler(bulk)
        self._may_release = False

    @property
    def missing(self) -> int:
        """How many bytes to read, at least, before the next frame can be complete."""
        return self._assembler.missing

    def expect_views(self) -> None:
        """Give memory of its own to very large frames only, since the owner keeps views of it."""
        self._assembler.least_bulk = BULK

    @property
    def buffered(self) -> int:
        """Bytes of an incomplete frame held back; zero at a frame boundary."""
        return self._assembler.buffered

    @property
    def space(self) -> memoryview | None:
        """Where the rest of a large frame may be put, to be told with `filled`; None if none."""
        return self._assembler.space

    def filled(self, count: int) -> Iterator[tuple[FrameKind, int, memoryview]]:
        """Take the first `count` bytes of `space`; yield and raise as `feed` does."""
        return self._cut(self._assembler.filled(count))

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[FrameKind, int, memoryview]]:
        """Yield the frames that are complete now as (kind, call id, payload).

        Each frame is checked when it is asked for, so that what the owner makes of one holds for
        the next.  The iterator must be used up before the next `feed`, unless reading ends here.

        Raises
        ------
        ProtocolViolationError
            A frame is too long, too short or of an unknown kind; the stream cannot be used further.
        """
        return self._cut(self._assembler.feed(data))

    def release(self, head: int, least: int) -> tuple[memoryview, int] | None:
        """Hand out the beginning of an incomplete frame, so that the rest need not come this way.

        Parameters
        ----------
        head : int
            How many bytes of its payload must be there.
        least : int
            How many bytes must lack for it to be worth while.

        Returns
        -------
        tuple of memoryview and int, or None
            The payload's beginning, and how many bytes follow that belong to it.
        """
        missing = self._assembler.missing
        if not self._may_release or self.buffered < _HEADER.size + head or missing < least:
            return None
        return self._assembler.give_up()[_HEADER.size :], missing

    def _cut(self, view: memoryview | None) -> Iterator[tuple[FrameKind, int, memoryview]]:
        if view is None:
            return
        position, end, need = 0, len(view), _LENGTH
        self._may_release = False
        while end - position >= _HEADER.size:
            length, number, call = _HEADER.unpack_from(view, position)
            self._check(length)
            kind = _KINDS.get(number)
            if kind is None:
                raise ProtocolViolationError(f"a frame of unknown kind {number}")
            after = position + 4 + length
            if after > end:
                need = 4 + length
                self._may_release = kind is self._released
                break
            yield kind, call, view[position + _HEADER.size : after]
            position = after
        if _LENGTH <= end - position < _HEADER.size:
            # A length that cannot be is refused as it comes: nothing need ever follow it.
            self._check(int.from_bytes(view[position : position + _LENGTH], "big"))
            need = _HEADER.size
        self._assembler.keep(view[position:], need, in_place=not self._may_release)

    def _check(self, length: int) -> None:
        if length < _AFTER_LENGTH or length > self.max_frame:
            raise ProtocolViolationError(f"a frame of {length} bytes")


class Hello(Record):
    """A client introduces itself; always the first frame."""

    versions: list[int]
    token: str
    client: str = ""


class Welcome(Record):
    """The server accepts the client."""

    version: int
    sandbox_id: str
    incarnation: str


class Call(Record):
    """A client asks for an operation."""

    call: int
    operation: str
    incarnation: str | None
    credit: int
    params: JSON
    body: bytes


class Cancel(Record):
    """A client gives a call up; unknown and finished calls are ignored."""

    call: int


class Credit(Record):
    """A client grants `amount` more bytes to a stream."""

    call: int
    amount: int


class Reply(Record):
    """Bytes that the protocol itself has to say; the owner sends them."""

    data: bytes


class Switch(Record):
    """A client goes on in another protocol, from `rest` on."""

    rest: bytes


class Result(Record):
    """The answer of a call that answers once, or the opening of a channel."""

    call: int
    value: JSON
    body: bytes


class Item(Record):
    """One event of a stream."""

    call: int
    value: JSON
    body: bytes
    size: int


class End(Record):
    """The last word of a stream."""

    call: int
    value: JSON
    body: bytes


class Failed(Record):
    """A call failed; call 0 means the whole connection."""

    call: int
    error: object


class ChannelFrame(Record):
    """A frame of a connection that has become a channel."""

    kind: FrameKind
    payload: object


class _State(Name):
    NEW = "new"
    OPEN = "open"
    CHANNEL = "channel"


class _Connection:
    """What both ends share: the reader and the three states, which only move forward."""

    def __init__(self, *, bulk: int = BULK) -> None:
        self._reader = FrameReader(bulk=bulk)
        self._state = _State.NEW

    @property
    def missing(self) -> int:
        """How many bytes to read, at least, before the next frame can be complete."""
        return self._reader.missing

    @property
    def is_channel(self) -> bool:
        """Whether the connection carries one channel from now on."""
        return self._state is _State.CHANNEL

    def become_channel(self) -> None:
        """Leave calls behind: from the next frame on only channel frames are legal.

        A client does this once it has sent the call that opens the channel, since the answer and
        the channel's first frames may arrive together; the answer is still understood.
        """
        if self._state is not _State.OPEN:
            raise RuntimeError("only an open connection can become a channel")
        self._state = _State.CHANNEL
        self._reader.max_frame = MAX_CHANNEL_FRAME
        self._reader.expect_views()

    def channel_frame(self, kind: FrameKind, *parts: bytes | memoryview) -> bytes:
        """Encode one channel frame."""
        if self._state is not _State.CHANNEL:
            raise RuntimeError("the connection is no channel")
        return encode_frame(kind, 0, *parts)


class ServerConnection(_Connection):
    """The runtime's end of a connection.

    Feed received bytes to `receive`; it returns `Hello`, `Call`, `Cancel`, `Credit` or
    `ChannelFrame` events.  After `Hello` the owner checks token and versions, then sends what
    `welcome` returns (or `failed` with call 0, and closes).
    """

    is_over = False
    """Whether the connection is to be closed once every call is answered."""

    can_become_channel = True

    def __init__(self) -> None:
        super().__init__()
        self._reader.max_frame = MAX_FIRST_FRAME
        self._credit: dict[int, int] = {}
        self._greeted = False

    @property
    def space(self) -> memoryview | None:
        """Where the rest of a large frame may be put, to be told with `received`; None if none."""
        return self._reader.space

    def received(self, count: int) -> Iterator[Hello | Call | Cancel | Credit | ChannelFrame]:
        """Take the first `count` bytes of `space`; yield and raise as `receive` does."""
        return self._events(self._reader.filled(count))

    def receive(
        self, data: bytes | memoryview
    ) -> Iterator[Hello | Call | Cancel | Credit | ChannelFrame]:
        """Yield the events in `data`, each to be acted on before the next is asked for.

        So a client may send what belongs to a channel right behind the call that opens it.

        Raises
        ------
        ProtocolViolationError
            The client broke the protocol; send `failed(0, error)` and close.
        """
        return self._events(self._reader.feed(data))

    def _events(
        self, frames: Iterator[tuple[FrameKind, int, memoryview]]
    ) -> Iterator[Hello | Call | Cancel | Credit | ChannelFrame]:
        for kind, call, payload in frames:
            if self._state is _State.CHANNEL:
                if kind < _FIRST_CHANNEL_KIND:
                    raise ProtocolViolationError(f"frame {kind.name} on a channel")
                yield ChannelFrame(kind=kind, payload=payload)
            elif not self._greeted:
                yield self._hello(kind, payload)
            else:
                yield self._event(kind, call, payload)

    def _hello(self, kind: FrameKind, payload: memoryview) -> Hello:
        if kind is not FrameKind.HELLO:
            raise ProtocolViolationError("the first frame is not HELLO")
        head, _ = unpack(payload)
        versions, token = head.get("versions"), head.get("token")
        if (
            not isinstance(versions, list)
            or not all(isinstance(each, int) for each in versions)
            or not isinstance(token, str)
        ):
            raise ProtocolViolationError("HELLO lacks versions or token")
        self._greeted = True
        return Hello(versions=versions, token=token, client=str(head.get("client", ""))[:200])

    def _event(self, kind: FrameKind, call: int, payload: memoryview) -> Call | Cancel | Credit:
        if kind is FrameKind.CALL:
            return self._call(call, payload)
        if kind is FrameKind.CANCEL:
            return Cancel(call=call)
        if kind is FrameKind.CREDIT and len(payload) == 4:
            amount = int.from_bytes(payload, "big")
            if call in self._credit:
                self._credit[call] += amount
            return Credit(call=call, amount=amount)
        raise ProtocolViolationError(f"frame {kind.name} from a client")

    def _call(self, call: int, payload: memoryview) -> Call:
        if call == 0 or call in self._credit:
            raise ProtocolViolationError(f"call id {call} is zero or in use")
        head, body = unpack(payload)
        operation, incarnation = head.get("op"), head.get("incarnation")
        credit = head.get("credit", INITIAL_CREDIT)
        if not isinstance(operation, str) or not (
            incarnation is None or isinstance(incarnation, str)
        ):
            raise ProtocolViolationError("CALL lacks op, or its incarnation is no string")
        if not isinstance(credit, int) or not 0 <= credit < 2**32:
            raise ProtocolViolationError("CALL has a bad credit")
        self._credit[call] = credit
        return Call(
            call=call,
            operation=operation,
            incarnation=incarnation,
            credit=credit,
            params=head.get("params", {}),
            body=body,
        )

    def welcome(self, version: int, sandbox_id: str, incarnation: str) -> bytes:
        """Accept the client."""
        self._state = _State.OPEN
        self._reader.max_frame = MAX_FRAME
        head = {"version": version, "sandbox_id": sandbox_id, "incarnation": incarnation}
        return _message(FrameKind.WELCOME, 0, head)

    def credit(self, call: int) -> int:
        """Bytes the stream may send now; one item may overdraw it, so that any size passes."""
        return self._credit.get(call, 0)

    def result(self, call: int, value: dict[str, Any], body: bytes = b"") -> bytes:
        """Answer a call."""
        self._credit.pop(call, None)
        return _message(FrameKind.RESULT, call, value, body)

    def item(self, call: int, value: dict[str, Any], body: bytes = b"") -> bytes:
        """Send one event of a stream and charge its credit."""
        return b"".join(self.item_parts(call, value, body))

    def item_parts(self, call: int, value: dict[str, Any], body: bytes = b"") -> tuple[bytes, ...]:
        """Do as `item`, and return what is to be sent in parts, so that the body is not copied."""
        text = dump_json(value)
        size = 4 + len(text) + len(body)
        if call in self._credit:
            self._credit[call] -= size
        head = frame_header(FrameKind.ITEM, call, size) + len(text).to_bytes(4, "big") + text
        return (head, body) if len(body) >= _WORTH_A_PART else (head + body,)

    def end(self, call: int, value: dict[str, Any], body: bytes = b"") -> bytes:
        """End a stream."""
        self._credit.pop(call, None)
        return _message(FrameKind.END, call, value, body)

    def failed(self, call: int, error: SandboxError) -> bytes:
        """End a call, or with call 0 the connection, with an error."""
        self._credit.pop(call, None)
        return _message(FrameKind.ERROR, call, error.to_wire())


class ClientConnection(_Connection):
    """The client's end of a connection.

    `hello` may be followed by calls at once, without waiting for the `Welcome`.
    """

    needs_welcome = True
    """Whether the server says `Welcome` before calls are known to have a taker."""

    has_credit = True
    """Whether the server keeps streams within what `grant` allows."""

    def __init__(self) -> None:
        # Output comes in frames of 256 KiB, of which nothing is kept but copies.
        super().__init__(bulk=_EVENT_BULK)
        self._last_call = 0

    @property
    def space(self) -> memoryview | None:
        """Where the rest of a large frame may be put, to be told with `received`; None if none."""
        return self._reader.space

    def received(self, count: int) -> list[Welcome | Result | Item | End | Failed | ChannelFrame]:
        """Take the first `count` bytes of `space`; return and raise as `receive` does."""
        return self._events(self._reader.filled(count))

    def hello(self, token: str, client: str) -> bytes:
        """Introduce this client; must be the first bytes sent."""
        self._state = _State.OPEN
        head = {"versions": list(PROTOCOL_VERSIONS), "token": token, "client": client}
        return _message(FrameKind.HELLO, 0, head)

    def call(
        self,
        operation: str,
        params: dict[str, Any],
        body: bytes = b"",
        *,
        incarnation: str | None = None,
        credit: int = INITIAL_CREDIT,
    ) -> tuple[int, bytes]:
        """Return the new call's id and the bytes that ask for it."""
        self._last_call = self._last_call % 0xFFFFFFFF + 1
        head: dict[str, Any] = {"op": operation, "params": params}
        if incarnation is not None:
            head["incarnation"] = incarnation
        if credit != INITIAL_CREDIT:
            head["credit"] = credit
        return self._last_call, _message(FrameKind.CALL, self._last_call, head, body)

    def cancel(self, call: int) -> bytes:
        """Give a call up."""
        return encode_frame(FrameKind.CANCEL, call)

    def grant(self, call: int, amount: int) -> bytes:
        """Let a stream send `amount` more bytes."""
        return encode_frame(FrameKind.CREDIT, call, amount.to_bytes(4, "big"))

    def receive(
        self, data: bytes | memoryview
    ) -> list[Welcome | Result | Item | End | Failed | ChannelFrame]:
        """Return the events in `data`.

        Raises
        ------
        ProtocolViolationError
            The server broke the protocol; close the connection.
        """
        return self._events(self._reader.feed(data))

    def _events(
        self, frames: Iterator[tuple[FrameKind, int, memoryview]]
    ) -> list[Welcome | Result | Item | End | Failed | ChannelFrame]:
        events: list[Welcome | Result | Item | End | Failed | ChannelFrame] = []
        for kind, call, payload in frames:
            if kind >= _FIRST_CHANNEL_KIND:
                if self._state is not _State.CHANNEL:
                    raise ProtocolViolationError(f"frame {kind.name} outside a channel")
                events.append(ChannelFrame(kind=kind, payload=payload))
                continue
            value, body = unpack(payload)
            if kind is FrameKind.RESULT:
                events.append(Result(call=call, value=value, body=body))
            elif kind is FrameKind.ITEM:
                events.append(Item(call=call, value=value, body=body, size=len(payload)))
            elif kind is FrameKind.END:
                events.append(End(call=call, value=value, body=body))
            elif kind is FrameKind.ERROR:
                events.append(Failed(call=call, error=SandboxError.from_wire(value)))
            elif kind is FrameKind.WELCOME:
                events.append(self._welcome(value))
            else:
                raise ProtocolViolationError(f"frame {kind.name} from a server")
        return events

    @staticmethod
    def _welcome(value: dict[str, Any]) -> Welcome:
        version = value.get("version")
        if version not in PROTOCOL_VERSIONS:
            raise ProtocolViolationError("WELCOME with a version that was not offered")
        return Welcome(
            version=version,
            sandbox_id=str(value.get("sandbox_id", "")),
            incarnation=str(value.get("incarnation", "")),
        )
