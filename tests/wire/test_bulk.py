"""Large units: read in place, whole, into memory that is used again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.wire.bulk import BULK, BulkMemory
from sandbox_kernel.wire.kernel import Channel, RecordReader, encode_record
from sandbox_kernel.wire.rpc import FrameKind, FrameReader, encode_frame

BUFFER = bytes(range(256)) * (BULK // 256)


@settings(deadline=None, max_examples=40)
@given(in_place=st.booleans(), sizes=st.lists(st.integers(9000, BULK), min_size=1, max_size=4))
def test_a_large_record_is_whole_however_it_comes(*, in_place: bool, sizes: list[int]) -> None:
    """Read in place or fed, cut anywhere, with small records before and behind it."""
    small = encode_record(Channel.SHELL, [b"id"], [b"a", b"b"])
    stream = memoryview(small + encode_record(Channel.IOPUB, [], [b"head", BUFFER]) + small * 2)
    reader = RecordReader()
    records = []
    at = turn = 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        turn += 1
        space = reader.space
        if in_place and space is not None:
            piece = stream[at : at + min(size, len(space))]
            space[: len(piece)] = piece
            records += reader.filled(len(piece))
        else:
            piece = stream[at : at + size]
            records += reader.feed(piece)
        at += len(piece)

    assert [channel for channel, _, _ in records] == [
        Channel.SHELL,
        Channel.IOPUB,
        Channel.SHELL,
        Channel.SHELL,
    ]
    assert records[1][2] == [b"head", BUFFER]
    assert all(part.readonly for part in records[1][2])
    assert reader.offset == len(stream)
    assert reader.buffered == 0


def test_the_beginning_of_a_frame_can_be_had_before_its_end() -> None:
    """What is released is gone from the reader, which goes on with the next frame."""
    payload = BUFFER * 2
    frame = encode_frame(FrameKind.DATA, 0, payload)
    reader = FrameReader(8 << 20, released=FrameKind.DATA)
    assert list(reader.feed(frame[:1000])) == []
    assert reader.release(5000, 500) is None
    assert list(reader.feed(frame[1000:5000])) == []

    released = reader.release(8, 500)

    assert released is not None
    assert released[0] == payload[: 5000 - 9]
    assert released[1] == len(frame) - 5000
    assert [kind for kind, _, _ in reader.feed(frame)] == [FrameKind.DATA]


def test_a_frame_whose_beginning_is_taken_is_not_copied() -> None:
    """What is released is a view of the very bytes that were fed."""
    frame = encode_frame(FrameKind.DATA, 0, BUFFER * 2)
    fed = frame[: len(BUFFER)]
    reader = FrameReader(8 << 20, released=FrameKind.DATA)
    assert list(reader.feed(fed)) == []
    assert reader.space is None

    released = reader.release(8, 500)

    assert released is not None
    assert released[0].obj is fed
    assert reader.buffered == 0


def test_only_the_kind_that_is_taken_is_released() -> None:
    """A large frame of any other kind is collected in place, and comes whole."""
    frame = encode_frame(FrameKind.EVENT, 0, BUFFER * 2)
    reader = FrameReader(8 << 20, released=FrameKind.DATA)
    assert list(reader.feed(frame[:300_000])) == []

    assert reader.release(8, 500) is None
    assert reader.space is not None
    assert [bytes(payload) for _, _, payload in reader.feed(frame[300_000:])] == [BUFFER * 2]


def test_memory_is_used_again_once_nobody_looks_at_it() -> None:
    """A view that lives keeps its memory; one that is gone leaves it to the next taker."""
    memory = BulkMemory()
    first = memory.take(BULK)
    assert first is not None
    first[:4] = b"mine"
    part = first[:4].toreadonly()
    del first
    second = memory.take(BULK)
    assert second is not None
    second[:4] = b"next"

    assert bytes(part) == b"mine"
    del part, second
    third = memory.take(BULK)
    assert third is not None
    assert bytes(third[:4]) in {b"mine", b"next"}


def test_memory_is_given_back_when_units_stay_small() -> None:
    """After sixteen small units nothing is kept; fresh memory holds zeros."""
    memory = BulkMemory()
    taken = memory.take(BULK)
    assert taken is not None
    taken[:4] = b"mine"
    del taken
    for _ in range(16):
        memory.not_needed()

    again = memory.take(BULK)
    assert again is not None
    assert bytes(again[:4]) == bytes(4)
