"""Kernel records: cut anywhere, never misread."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.errors import ProtocolViolationError
from sandbox_kernel.wire.kernel import (
    MAX_PARTS,
    Channel,
    RecordReader,
    encode_record,
    record_buffers,
)

PARTS = st.lists(st.binary(max_size=30), max_size=5)
RECORDS = st.lists(st.tuples(st.sampled_from(list(Channel)), PARTS, PARTS), max_size=8)


@given(RECORDS, st.lists(st.integers(0, 10_000), max_size=20), st.integers(0, 2**40))
def test_any_chunking_gives_the_same_records(
    records: list[tuple[Channel, list[bytes], list[bytes]]], places: list[int], start: int
) -> None:
    """The records are what was written, and the offset is that after the last whole one."""
    data = b"".join(encode_record(*record) for record in records)
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    reader = RecordReader(start)

    seen = []
    for left, right in pairwise(at):
        seen += reader.feed(data[left:right])
        assert reader.offset + reader.buffered == start + right

    assert [
        (channel, [bytes(each) for each in ids], [bytes(each) for each in parts])
        for channel, ids, parts in seen
    ] == records
    assert reader.offset == start + len(data)


@given(RECORDS, st.binary(min_size=8, max_size=60))
def test_garbage_is_a_violation_or_waits(
    records: list[tuple[Channel, list[bytes], list[bytes]]], garbage: bytes
) -> None:
    """A hostile kernel cannot raise anything else."""
    reader = RecordReader()
    with contextlib.suppress(ProtocolViolationError):
        reader.feed(b"".join(encode_record(*record) for record in records) + garbage)


@pytest.mark.parametrize(
    "header",
    [
        "00000000 00 00 0000",
        "00000000 07 00 0000",
        "ffffffff 01 00 0001",
        "00000004 01 02 0001",
        "00000003 01 00 0001",
        "00000004 01 00 0401",
        "00000008 01 00 0001 00000005 00000000",
    ],
)
def test_broken_headers_are_refused_at_once(header: str) -> None:
    """Channel, size, counts and lengths must fit together."""
    with pytest.raises(ProtocolViolationError):
        RecordReader().feed(bytes.fromhex(header))


def test_we_do_not_write_what_nobody_may_read() -> None:
    """Too many parts or identities are our own mistake."""
    with pytest.raises(ValueError, match="parts"):
        encode_record(Channel.SHELL, [], [b""] * (MAX_PARTS + 1))
    with pytest.raises(ValueError, match="parts"):
        encode_record(Channel.SHELL, [b""] * 256, [])


def test_large_parts_are_not_copied() -> None:
    """The buffers handed to the system are the caller's own."""
    part = bytes(100_000)

    buffers = record_buffers(Channel.IOPUB, [b"id"], [part])

    assert buffers[2] is part
    assert b"".join(buffers) == encode_record(Channel.IOPUB, [b"id"], [part])
