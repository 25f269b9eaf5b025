"""Sans-IO terminal channel: its frames as events on both sides, and the cursors of terminals.

`terminal.connect` turns a connection into a channel between one viewer and one terminal.  Each
side hands its frames to `viewer_event` or `order`, and gets an event or order back; what it
wants to say, the other functions make a frame's kind and payload of.  `PROTOCOL.md` (section 4)
has the bytes.
"""

from __future__ import annotations

from binascii import Error as _NotBase64
from binascii import a2b_base64, b2a_base64

from sandbox_kernel.errors import (
    InvalidTerminalCursorError,
    ProtocolViolationError,
    ValidationFailedError,
)
from sandbox_kernel.wire.codec import decode, dump_json, encode, load_json
from sandbox_kernel.wire.record import Record
from sandbox_kernel.wire.rpc import FrameKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Frame = tuple[FrameKind, bytes]
    """Kind and payload of a frame of the channel, whose call id is 0."""

__all__ = [
    "MAX_CONTROL",
    "MOST_CELLS",
    "MOST_COLS",
    "MOST_GRACE",
    "MOST_ROWS",
    "Acknowledge",
    "ChannelFailed",
    "Exited",
    "Input",
    "Interrupt",
    "Live",
    "Output",
    "Replay",
    "Resize",
    "Screen",
    "Size",
    "Terminate",
    "View",
    "acknowledge",
    "check_size",
    "control",
    "cursor_owner",
    "decode_cursor",
    "encode_cursor",
    "event",
    "order",
    "output_head",
    "viewer_event",
]

MOST_COLS = 2000
MOST_ROWS = 1000
MOST_CELLS = 500_000
"""Most columns, rows, and cells in all; a browser zoomed out to a quarter on a large display stays
below them.

A screen costs memory for each cell, and time for each cell that a short sequence empties, in the
one process that serves the whole sandbox.
"""

MAX_CONTROL = 4096
"""Largest payload of CONTROL, in bytes."""

MOST_GRACE = 60
"""Longest time, in seconds, that what is ended may be given."""

_CURSOR_VERSION = b"\x01"
_CURSOR_HEAD = 1 + 8 + 8
_LONGEST_CURSOR = 1024
_OFFSET = 8


# --- what the viewer is told ------------------------------------------------------------------


class Output(Record):
    """Bytes to draw; `offset` is the position in the terminal's log after them."""

    offset: int
    data: bytes


class Replay(Record):
    """The next `Output` is what was missed: the bytes themselves, or a screen in their place.

    `kind` is ``exact`` (it follows what the viewer has drawn already) or ``screen`` (it begins with
    a full reset).  `truncated` says that output after the viewer's cursor is no longer held.
    """

    kind: str
    offset: int
    truncated: bool = False


class Live(Record):
    """The replay is over; what follows happens now."""


class Screen(Record):
    """The next `Output` is a screen, reset included: this viewer had fallen behind."""

    offset: int


class Size(Record):
    """The terminal has this size, which another viewer or a call decided."""

    cols: int
    rows: int


class Exited(Record):
    """The program has ended and all of its output was sent; nothing follows.

    `reason` is why it was ended, where that is known, as in `TerminalInfo`.
    """

    exit_code: int
    signal: int | None = None
    reason: str | None = None
    offset: int


class ChannelFailed(Record):
    """An order of this viewer was refused, or the terminal failed; the channel stays open."""

    code: str
    message: str


_EVENTS: dict[str, type[Record]] = {
    "replay": Replay,
    "live": Live,
    "screen": Screen,
    "size": Size,
    "exit": Exited,
    "error": ChannelFailed,
}
_EVENT_NAMES = {cls: name for name, cls in _EVENTS.items()}


def output_head(offset: int) -> bytes:
    """Return what stands before the bytes in a DATA payload: the offset after them."""
    return offset.to_bytes(_OFFSET, "big")


def event(record: Record) -> Frame:
    """Return the frame that tells a viewer anything but output."""
    value, _ = encode(record)
    return FrameKind.EVENT, dump_json({"type": _EVENT_NAMES[type(record)], **value})


def viewer_event(
    kind: FrameKind, payload: bytes | memoryview
) -> Output | Replay | Live | Screen | Size | Exited | ChannelFailed | None:
    """Return what the runtime says by a frame; None for an event of a newer one.

    Raises
    ------
    ProtocolViolationError
        The frame makes no sense; close the connection.
    """
    if kind is FrameKind.DATA and len(payload) >= _OFFSET:
        return Output(
            offset=int.from_bytes(payload[:_OFFSET], "big"), data=bytes(payload[_OFFSET:])
        )
    if kind is not FrameKind.EVENT:
        raise ProtocolViolationError(f"frame {kind.name} to a viewer")
    value = load_json(bytes(payload))
    name = value.get("type") if isinstance(value, dict) else None
    cls = _EVENTS.get(name) if isinstance(name, str) else None
    if cls is None:
        if isinstance(name, str):
            return None
        raise ProtocolViolationError("an EVENT without a type")
    try:
        found = decode(cls, value)
    except ValidationFailedError as error:
        raise ProtocolViolationError(f"an EVENT {name}: {error.message}") from error
    return found  # type: ignore[return-value]


# --- what the viewer says ---------------------------------------------------------------------


class Input(Record):
    """Bytes typed."""

    data: bytes


class Acknowledge(Record):
    """Everything before this offset is drawn."""

    offset: int


class Resize(Record):
    """The viewer has this size now."""

    cols: int
    rows: int


class Interrupt(Record):
    """Interrupt what runs in the foreground."""


class Terminate(Record):
    """End the terminal and all that was started in it."""

    grace: float = 1.0


class View(Record):
    """Whether the viewer can be seen, and has the focus; None leaves it as it was."""

    visible: bool | None = None
    focused: bool | None = None


_ORDERS: dict[str, type[Record]] = {
    "resize": Resize,
    "interrupt": Interrupt,
    "terminate": Terminate,
    "view": View,
}
_ORDER_NAMES = {cls: name for name, cls in _ORDERS.items()}


def acknowledge(offset: int) -> Frame:
    """Return the frame that says how far the viewer has drawn."""
    return FrameKind.ACK, offset.to_bytes(_OFFSET, "big")


def control(record: Record) -> Frame:
    """Return the frame for an order other than input and acknowledgements."""
    value, _ = encode(record)
    return FrameKind.CONTROL, dump_json({"type": _ORDER_NAMES[type(record)], **value})


def order(
    kind: FrameKind, payload: memoryview
) -> Input | Acknowledge | Resize | Interrupt | Terminate | View:
    """Return what a viewer asks for by a frame.

    Raises
    ------
    ValidationFailedError
        An order that cannot be carried out; tell the viewer, the channel stays open.
    ProtocolViolationError
        The frame makes no sense; close the connection.
    """
    if kind is FrameKind.INPUT:
        return Input(data=bytes(payload))
    if kind is FrameKind.ACK and len(payload) == _OFFSET:
        return Acknowledge(offset=int.from_bytes(payload, "big"))
    if kind is not FrameKind.CONTROL:
        raise ProtocolViolationError(f"frame {kind.name} of {len(payload)} bytes from a viewer")
    if len(payload) > MAX_CONTROL:
        raise ValidationFailedError("control", f"exceeds {MAX_CONTROL} bytes")
    try:
        value = load_json(bytes(payload))
    except ProtocolViolationError:
        raise ValidationFailedError("control", "is not valid JSON") from None
    name = value.get("type") if isinstance(value, dict) else None
    cls = _ORDERS.get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValidationFailedError("type", "must be resize, interrupt, terminate or view")
    found: Any = decode(cls, value)
    if cls is Resize:
        check_size(found.cols, found.rows)
    elif cls is Terminate and not 0 <= found.grace <= MOST_GRACE:
        raise ValidationFailedError("grace", f"must be 0 to {MOST_GRACE} seconds")
    return found  # type: ignore[no-any-return]


def check_size(cols: int, rows: int) -> None:
    """Make sure that a terminal can have a size.

    Raises
    ------
    ValidationFailedError
        It cannot.
    """
    for name, value, most in (("cols", cols, MOST_COLS), ("rows", rows, MOST_ROWS)):
        if not isinstance(value, int) or not 1 <= value <= most:
            raise ValidationFailedError(name, f"must be a whole number, 1 to {most}")
    if cols * rows > MOST_CELLS:
        raise ValidationFailedError("rows", f"times cols must be at most {MOST_CELLS}")


# --- cursors ----------------------------------------------------------------------------------


def encode_cursor(incarnation: str, terminal_id: str, offset: int) -> str:
    """Return the opaque text for a position in a terminal's output.

    Parameters
    ----------
    incarnation : str
        16 hexadecimal digits.
    terminal_id : str
        The terminal's id.
    offset : int
        Bytes of output before the position.
    """
    data = b"".join(
        (
            _CURSOR_VERSION,
            bytes.fromhex(incarnation),
            offset.to_bytes(_OFFSET, "big"),
            terminal_id.encode("utf-8", "surrogatepass"),
        )
    )
    text = b2a_base64(data, newline=False).rstrip(b"=").decode("ascii")
    return text.replace("+", "-").replace("/", "_")


def decode_cursor(cursor: str, incarnation: str, terminal_id: str, end: int) -> int:
    """Return the offset that a cursor of this terminal names.

    Parameters
    ----------
    cursor : str
        What `encode_cursor` made.
    incarnation, terminal_id : str
        Of the terminal.
    end : int
        Bytes of output so far; a cursor cannot lie after them.

    Raises
    ------
    InvalidTerminalCursorError
        It is malformed or not in its one spelling, belongs to another terminal or incarnation, or
        names output that does not exist yet.
    """
    try:
        owner, name, offset = _take_apart(cursor)
    except (_NotBase64, ValueError):
        raise InvalidTerminalCursorError(terminal_id, "is malformed") from None
    if (owner, name) != (incarnation, terminal_id):
        raise InvalidTerminalCursorError(terminal_id)
    if offset > end:
        raise InvalidTerminalCursorError(terminal_id, "lies after its present end")
    return offset


def cursor_owner(cursor: str) -> tuple[str, str]:
    """Return the incarnation and the id of the terminal that a cursor belongs to.

    Raises
    ------
    InvalidTerminalCursorError
        It is malformed.
    """
    try:
        owner, name, _ = _take_apart(cursor)
    except (_NotBase64, ValueError):
        raise InvalidTerminalCursorError("", "is malformed") from None
    return owner, name


def _take_apart(cursor: str) -> tuple[str, str, int]:
    """Return incarnation, terminal and offset of a cursor; `ValueError` if it is none."""
    if len(cursor) > _LONGEST_CURSOR:
        raise ValueError("too long")
    text = cursor.replace("-", "+").replace("_", "/")
    data = a2b_base64(text + "=" * (-len(text) % 4))
    owner = data[1 : _CURSOR_HEAD - _OFFSET].hex()
    offset = int.from_bytes(data[_CURSOR_HEAD - _OFFSET : _CURSOR_HEAD], "big")
    name = data[_CURSOR_HEAD:].decode("utf-8", "surrogatepass")
    # Comparing with the one spelling we make refuses foreign characters and spare bits as well.
    if data[:1] != _CURSOR_VERSION or encode_cursor(owner, name, offset) != cursor:
        raise ValueError("not in its one spelling")
    return owner, name, offset
