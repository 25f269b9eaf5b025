"""The last bytes of a stream, kept in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox_runtime.kept_output import KeptOutput

STEPS = st.lists(
    st.tuples(
        st.integers(1, 6000),  # bytes that come
        st.integers(0, 9000),  # how far before the end a piece may be cut
        st.integers(0, 20000),  # how much is kept
    ),
    max_size=20,
)


@given(STEPS, st.data())
def test_any_part_is_what_came(steps: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """However it was cut and forgotten, what is kept between two offsets is what came there."""
    came, kept, dropped, unneeded = bytearray(), KeptOutput(), bytearray(), 0
    for size, back, most in steps:
        new = bytes((len(came) + n) % 251 for n in range(size))
        kept.append(new, max(0, len(came) - back))
        came += new
        dropped += b"".join(kept.forget(len(came) - most))
        unneeded = max(unneeded, len(came) - most)
        assert kept.end == len(came)
        assert len(dropped) == kept.start <= unneeded
        begin = data.draw(st.integers(kept.start, kept.end))
        end = data.draw(st.integers(begin, kept.end))
        assert kept.read(begin, end) == came[begin:end]
        assert b"".join(kept.pieces(begin, end)) == came[begin:end]
    assert dropped == came[: kept.start]


def test_a_piece_ends_where_it_should() -> None:
    """What came after the cut stands in the next piece, so that each can be understood alone."""
    kept = KeptOutput()
    kept.append(b"a" * 5000 + b"\x1b[3", 0)
    kept.append(b"1m" + b"b" * 5000, 5000)

    assert kept.pieces(0, kept.end) == [b"a" * 5000, b"\x1b[31m" + b"b" * 5000]


def test_small_pieces_are_joined() -> None:
    """Who gets single letters does not pay for an object for each."""
    kept = KeptOutput()
    for _ in range(10_000):
        kept.append(b"x", kept.end)

    assert len(kept.pieces(0, kept.end)) <= 3


def test_an_endless_sequence_is_not_copied_again_and_again() -> None:
    """Of a sequence that never ends, a piece takes over no more than 64 KiB."""
    kept = KeptOutput()
    for _ in range(40):
        kept.append(b"x" * (32 << 10), 0)

    assert max(map(len, kept.pieces(0, kept.end))) <= 128 << 10
