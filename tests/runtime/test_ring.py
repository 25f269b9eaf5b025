"""The ring: a window of a stream by absolute offsets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_runtime.ring import Ring


@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 30)), max_size=40))
def test_a_ring_is_a_window_of_the_stream(steps: list[tuple[bytes, int]]) -> None:
    """Whatever is appended and released, what is held equals the stream there."""
    ring, stream = Ring(64), b""
    for data, released in steps:
        if len(data) <= ring.room:
            ring.append(data)
            stream += data
        else:
            with pytest.raises(ValueError, match="room"):
                ring.append(data)
        ring.release(min(ring.end, ring.start + released))

        assert ring.end == len(stream)
        assert ring.read(ring.start, 1000) == stream[ring.start :]
        assert len(ring) + ring.room == 64


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 700_000), st.integers(0, 900_000)),
        max_size=20,
    )
)
def test_bytes_put_into_the_ring_in_place_are_as_good_as_appended(
    steps: list[tuple[bool, int, int]],
) -> None:
    """Whichever way bytes come, reads from the start give the stream, piece by piece."""
    ring, stream = Ring(2 << 20), b""
    for number, (in_place, size, released) in enumerate(steps):
        data = bytes([number]) * min(size, ring.room)
        if in_place and data:
            space = ring.space(len(data))
            assert space is not None
            data = data[: len(space)]
            space[: len(data)] = data
            ring.filled(len(data))
        else:
            ring.append(data)
        stream += data
        ring.release(min(ring.end, ring.start + released))

        assert ring.end == len(stream)
        found, at = b"", ring.start
        while piece := ring.read(at, 300_000):
            found += piece
            at += len(piece)
        assert found == stream[ring.start :]


def test_no_read_is_spent_on_the_last_bytes_of_a_block() -> None:
    """A flood is read in large pieces wherever they end: what is left of a block is left."""
    ring = Ring(64 << 20)
    total = 0
    for most in (1_000_000, 1 << 20, 1 << 20, 900_000, 1 << 20):
        space = ring.space(1 << 20)
        assert space is not None
        assert len(space) >= 256 << 10
        count = min(most, len(space))
        space[:count] = bytes(count)
        ring.filled(count)
        total += count

    assert ring.end == total
    at = 0
    while piece := ring.read(at, 1 << 20):
        at += len(piece)
    assert at == total


def test_offsets_outside_are_refused() -> None:
    """What is not held cannot be read or released."""
    ring = Ring(10, start=5)
    ring.append(b"abc")
    ring.release(6)

    assert ring.read(6, 1) == b"b"
    for offset in (5, 9):
        with pytest.raises(ValueError, match="offset"):
            ring.read(offset, 1)
    with pytest.raises(ValueError, match="offset"):
        ring.release(9)
    ring.release(0)
    assert ring.start == 6
