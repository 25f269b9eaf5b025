"""Jupyter messages as records on a byte stream: (channel, identities, parts) to and from bytes.

A record is ``u32 body length | u8 channel | u8 identities | u16 parts | u32 length of each |
bytes of each``, big-endian; `parts` counts the identities too.  The parts after the identities are
header, parent header, metadata and content as JSON, then raw buffers.  There is no signature:
whatever comes out of a sandbox is checked, not trusted.

A `STREAM` record is cheaper for its most frequent message: the parts are the stream's name, the
parent header as JSON, and the text as UTF-8.  A `META` record has one part, a JSON object with
``op``; the sandbox sends ``{"op": "ready"}`` once the interpreter takes messages, and the runtime
sends ``{"op": "environment"}`` to one that was started before its ``variables`` were known.
"""

from __future__ import annotations

import struct

from sandbox_kernel.errors import ProtocolViolationError
from sandbox_kernel.wire.assembler import Assembler
from sandbox_kernel.wire.names import Number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_PARTS",
    "MAX_RECORD",
    "Channel",
    "RecordReader",
    "Records",
    "encode_record",
    "record_buffers",
]

MAX_RECORD = 256 << 20
"""Largest body of a record, in bytes."""

MAX_PARTS = 1024
"""Most parts of a record, identities included."""

_HEADER = struct.Struct(">IBBH")


Records = list[tuple["Channel", list[memoryview], list[memoryview]]]
"""What a reader returns: channel, identities and parts of each."""


class Channel(Number):
    """Where a record belongs."""

    SHELL = 1
    CONTROL = 2
    STDIN = 3
    IOPUB = 4
    META = 5
    STREAM = 6


_CHANNELS = {int(channel): channel for channel in Channel}


def record_buffers(
    channel: int, identities: Sequence[bytes], parts: Sequence[bytes | memoryview]
) -> list[bytes | memoryview]:
    """Return a record as buffers for ``writev``; large parts are not copied.

    Raises
    ------
    ValueError
        The record has too many parts or too many bytes.
    """
    every = [*identities, *parts]
    lengths = [len(part) for part in every]
    size = 4 * len(every) + sum(lengths)
    if len(every) > MAX_PARTS or len(identities) > 255 or size > MAX_RECORD:
        raise ValueError(f"a record of {len(every)} parts and {size} bytes")
    head = _HEADER.pack(size, channel, len(identities), len(every))
    return [head + struct.pack(f">{len(every)}I", *lengths), *every]


def encode_record(
    channel: int, identities: Sequence[bytes], parts: Sequence[bytes | memoryview]
) -> bytes:
    """Return a record as one byte string."""
    return b"".join(record_buffers(channel, identities, parts))


class RecordReader:
    """Cuts a byte stream into records.

    Parameters
    ----------
    offset : int
        The stream's absolute offset at the first byte that will be fed.
    """

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        """Absolute offset after the last complete record; what to acknowledge."""
        self._assembler = Assembler()

    @property
    def missing(self) -> int:
        """How many bytes to read, at least, before the next record can be complete."""
        return self._assembler.missing

    @property
    def buffered(self) -> int:
        """Bytes of an incomplete record held back."""
        return self._assembler.buffered

    @property
    def space(self) -> memoryview | None:
        """Where the rest of a large record may be put, to be told with `filled`; None if none."""
        return self._assembler.space

    def filled(self, count: int) -> Records:
        """Take the first `count` bytes of `space`; return and raise as `feed` does."""
        return self._cut(self._assembler.filled(count))

    def feed(self, data: bytes | memoryview) -> Records:
        """Return the records that are complete now as (channel, identities, parts).

        Raises
        ------
        ProtocolViolationError
            The framing is broken; nothing after this can be understood.
        """
        return self._cut(self._assembler.feed(data))

    def _cut(self, view: memoryview | None) -> Records:
        if view is None:
            return []
        records: Records = []
        position, end, need = 0, len(view), _HEADER.size
        while end - position >= _HEADER.size:
            size, number, identities, count = _HEADER.unpack_from(view, position)
            channel = _CHANNELS.get(number)
            if (
                channel is None
                or size > MAX_RECORD
                or count > MAX_PARTS
                or identities > count
                or size < 4 * count
            ):
                raise ProtocolViolationError("a kernel record with a broken header")
            after = position + _HEADER.size + size
            if after > end:
                need = _HEADER.size + size
                break
            lengths = struct.unpack_from(f">{count}I", view, position + _HEADER.size)
            at = position + _HEADER.size + 4 * count
            if at + sum(lengths) != after:
                raise ProtocolViolationError("a kernel record whose lengths do not add up")
            parts = []
            for length in lengths:
                parts.append(view[at : at + length])
                at += length
            records.append((channel, parts[:identities], parts[identities:]))
            position = after
        self.offset += position
        self._assembler.keep(view[position:], need)
        return records
