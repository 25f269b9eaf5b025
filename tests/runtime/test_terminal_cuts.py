"""Live output is cut between characters and sequences, and nothing is held back that can be seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_runtime.screen_boundaries import Boundaries
from sandbox_runtime.terminal_cuts import MOST_HELD, Cutter, cut_at
from tests.support.terminal_output import pieces


@pytest.mark.parametrize(
    "held",
    ["\xe2\x80", "\xf0\x9f\x98", "\xc2", "\x1b", "\x1b[", "\x1b[3;1", "\x1b]0;title", "\x1bP$q"],
)
def test_what_is_begun_waits_for_its_rest(held: str) -> None:
    """Half a character or sequence goes with what ends it; what comes before it does not wait."""
    cutter = Cutter()
    begun = held.encode("latin-1")
    rest = {"\xe2": b"\x93", "\xf0": b"\x80", "\xc2": b"\x9b"}.get(held[0], b"m\x07\x1b\\")

    assert cutter.feed(b"text" + begun) == b"text"
    assert cutter.feed(rest) == begun + rest or held == "\xc2"
    cutter.finish()
    assert cutter.end == 4 + len(begun) + len(rest)


@given(st.lists(st.one_of(pieces, st.binary(max_size=6)), max_size=12), st.data())
def test_pieces_end_where_they_may_be_cut(output: list[bytes], data: st.DataObject) -> None:
    """Whatever is written, in whatever reads it comes; and joined it is what was written."""
    stream = b"".join(output)
    cutter, passed, at = Cutter(), b"", 0
    while at < len(stream):
        size = data.draw(st.integers(1, 40))
        passed += cutter.feed(stream[at : at + size])
        at += size
        probe = Boundaries()
        probe.feed(stream[:at])
        assert probe.safe == len(passed) == cutter.end == cutter.whole_end
        assert not cutter.parted

    assert passed + cutter.finish() == stream


@given(st.lists(st.one_of(pieces, st.binary(max_size=6)), max_size=12), st.data())
def test_what_has_waited_is_let_go(output: list[bytes], data: st.DataObject) -> None:
    """All but half a character, and what was let go is known until its end has come."""
    stream = b"".join(output)
    cutter, passed, at = Cutter(), b"", 0
    while at < len(stream):
        size = data.draw(st.integers(1, 40))
        passed += cutter.feed(stream[at : at + size])
        at += size
        if data.draw(st.booleans()):
            passed += cutter.release()
            assert not cutter.is_holding
            assert len(stream[:at]) - len(passed) < 4
        probe = Boundaries()
        probe.feed(stream[:at])
        assert cutter.whole_end == min(probe.safe, len(passed))
        assert cutter.parted == passed[cutter.whole_end :]

    assert passed + cutter.finish() == stream


def test_a_long_sequence_is_not_waited_for() -> None:
    """A picture passes as it comes; only half a character of it stays."""
    cutter = Cutter()
    assert cutter.feed(b"\x1bP" + b"q" * MOST_HELD) == b"\x1bP" + b"q" * MOST_HELD
    assert cutter.feed("é".encode()[:1]) == b""
    assert not cutter.is_holding
    assert cutter.feed("é".encode()[1:]) == "é".encode()
    assert cutter.feed(b"\x1b\\after\x1b[") == b"\x1b\\after"


def test_a_slow_sequence_cannot_grow_for_ever() -> None:
    """Byte by byte it is held up to the bound, and no further."""
    cutter = Cutter()
    assert cutter.feed(b"\x1b]" + b"t" * (MOST_HELD - 2)) == b""
    assert len(cutter.feed(b"t")) == MOST_HELD + 1
    assert cutter.feed(b"t") == b"t"


@pytest.mark.parametrize(
    ("data", "at"),
    [
        (b"plain", 5),
        (b"text\x1b[3", 4),
        ("a─".encode()[:-1], 1),
        (b"\x1b]0;never ends", 14),
        (b"\x1b]0;never ends \xe2\x80", 15),
    ],
)
def test_where_a_long_piece_is_cut(data: bytes, at: int) -> None:
    """At the last place for it, else anywhere but in a character."""
    assert cut_at(data) == at
