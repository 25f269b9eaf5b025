"""The screen model by itself, with pyte as a second opinion on what pyte knows."""

from __future__ import annotations

import sys
import time
from types import FrameType

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_runtime.screen import Screen
from sandbox_runtime.screen_looks import read_params
from sandbox_runtime.screen_serialize import serialize

# What pyte has right: it loses track of rows that are moved by inserting, deleting and margins.
_agreed = st.one_of(
    st.text("abc xyz", min_size=1, max_size=9),
    st.sampled_from(["\r\n", "\r", "\b", "\r\n\r\n"]),
    st.builds("\x1b[{};{}H".format, st.integers(1, 10), st.integers(1, 30)),
    st.builds("\x1b[{}{}".format, st.integers(1, 12), st.sampled_from("ABCDG@PX")),
    st.builds("\x1b[{}{}".format, st.sampled_from([0, 2]), st.sampled_from("JK")),
    st.sampled_from(["\x1b[0;1m", "\x1b[31m", "\x1b7", "\x1b[2;1H\x1b7"]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_agreed, max_size=40))
def test_pyte_sees_the_same(said: list[str]) -> None:
    """On what both know, an independent terminal emulator shows the same text and cursor."""
    output = "".join(said)
    other = pyte.Screen(200, 10)  # too wide for anything to wrap
    pyte.Stream(other).feed(output)
    screen = Screen(200, 10)
    screen.feed(output.encode())

    assert [screen.page.row(y).text() for y in range(10)] == [row.rstrip() for row in other.display]
    assert (screen.page.x, screen.page.y) == (other.cursor.x, other.cursor.y)


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=300),
    st.integers(1, 50),
    st.integers(1, 20),
    st.lists(st.integers(1, 60), max_size=4),
)
def test_sizes_hold_whatever_comes(data: bytes, cols: int, rows: int, later: list[int]) -> None:
    """Each page has all its rows, each row all its cells, and the cursor is among them."""
    screen = Screen(cols, rows, scrollback=5)
    for size in [*later, 3]:
        screen.feed(data)
        screen.resize(size, max(size // 2, 1))
        for page in (screen.normal, screen.alternate):
            assert (
                len(page.lines) in range(screen.rows, screen.rows + page.scrollback + 1)
                or not page.lines
            )
            assert all(len(line.chars) == len(line.looks) == screen.cols for line in page.lines)
        assert 0 <= screen.page.y < screen.rows
        assert 0 <= screen.page.x <= screen.cols


@pytest.mark.parametrize(
    ("text", "params", "subs"),
    [
        ("", [0], {}),
        ("1;;3", [1, 0, 3], {}),
        ("4:3", [4], {0: [3]}),
        ("38:2::1:2:3;1", [38, 1], {0: [2, -1, 1, 2, 3]}),
        ("999999999999999999999", [0x7FFFFFFF], {}),
        (";".join("1" * 40), [1] * 32, {}),
    ],
)
def test_parameters_are_read_as_terminals_read_them(
    text: str, params: list[int], subs: dict[int, list[int]]
) -> None:
    """What is left out is 0, or -1 behind a colon; numbers and counts have limits."""
    assert read_params(text) == (params, subs)


def test_titles_are_put_aside_and_taken_back() -> None:
    """A program may save the title and restore it; no more than ten are kept."""
    screen = Screen(20, 5)
    screen.feed(b"\x1b]2;shell\x07" + b"\x1b[22;0t" * 30 + b"\x1b]2;editor\x07\x1b[23;0t")

    assert screen.title == "shell"
    assert len(screen.titles) == 9


@pytest.mark.parametrize("name", [*"@PXABCDEFGHIZLMSTbade`", " @", " A", "'}", "'~"])
def test_a_short_sequence_costs_no_more_than_a_screenful(name: str) -> None:
    """Whatever its count is: its work grows with the rows of the screen, and nothing else."""
    rows = 10
    screen = Screen(2000, rows)
    screen.feed(b"x\x1bH" * 999 + b"\x1b[5;999Hx")
    calls = 0

    def count(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        screen.feed(b"\x1b[2147483647" + name.encode())
    finally:
        sys.setprofile(None)

    assert calls < 40 + 30 * rows


def test_tab_stops_are_gone_to_and_back_by_count() -> None:
    """To the one so many further on, else to the last column; back to the first one at most."""
    screen = Screen(40, 2)
    columns = []
    for said in (b"\x1b[2I", b"\x1b[1Z", b"\x1b[9I", b"\x1b[3Z", b"\x1b[9Z", b"\x1b[3G\x1bH\r\t"):
        screen.feed(said)
        columns.append(screen.page.x)
    screen.feed(b"\x1b[g\r\t")

    assert [*columns, screen.page.x] == [16, 8, 39, 16, 0, 2, 8]


class _Diligent(Screen):
    """Obeys each sequence, also one that changes nothing."""

    @property
    def _settled(self) -> None:
        return None

    @_settled.setter
    def _settled(self, _value: object) -> None:
        pass


_whole_screen = st.sampled_from(
    [
        *("\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[3J", "\x1b[?J", "\x1b[?1J", "\x1b[?2J"),
        *("\x1b[9999S", "\x1b[9999T", "\x1b[9L", "\x1b[9M", "\x1b[S", "\x1b[2L"),
        *("\x1b[99 @", "\x1b[99 A", "\x1b[99'}", "\x1b[99'~", "\x1bc", "\x1b#8"),
        *("\x1b[44m", "\x1b[m", '\x1b[1"q', "\x1b[2;4r", "\x1b[3;3H", "\x1b[?6h", "\x1b[2b"),
        *("word", "\u3042\u3042", "\u0301", "\r\n", "\x84", "\x1b]0;title\x07", "\x1b[?1049h"),
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_whole_screen, st.integers(1, 3)), max_size=20))
def test_sequences_that_change_nothing_are_left_out(said: list[tuple[str, int]]) -> None:
    """The screen is the same as if each of a row of them had been obeyed."""
    output = "".join(sequence * count for sequence, count in said).encode()
    screen, diligent = Screen(10, 5), _Diligent(10, 5)
    screen.feed(output)
    diligent.feed(output)

    assert serialize(screen, 1 << 20) == serialize(diligent, 1 << 20)


@pytest.mark.parametrize(
    "sequence", ["\x1b[2J", "\x1bc", "\x1b#8", "\x1b[9999S", "\x1b[99999999L", "\x1b[?J"]
)
def test_a_flood_for_the_whole_of_a_large_screen_is_cheap(sequence: str) -> None:
    """Only one of a row of such sequences costs a screenful of cells."""
    screen = Screen(1000, 500)
    start = time.process_time()
    screen.feed(sequence.encode() * 4000)

    assert time.process_time() - start < 3


def test_erasing_but_for_what_is_protected_goes_by_rows() -> None:
    """Where nothing is protected, it costs no look at each cell in Python."""
    screen = Screen(1000, 500)
    start = time.process_time()
    screen.feed(b"x\x1b[?2J" * 50)

    assert time.process_time() - start < 2.5
