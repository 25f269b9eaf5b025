"""How live output comes to those who read it: whole characters and sequences, and at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox_kernel.wire import terminal as wire
from sandbox_kernel.wire.operations import TerminalInfo
from sandbox_runtime.screen_boundaries import Boundaries
from tests.support.runtime_child import Client, RuntimeChild
from tests.support.terminal_channel import TerminalChannel

View = Callable[..., TerminalChannel]

STEPS = (
    "import os, sys, tty; tty.setraw(0); os.write(1, b'READY')\n"
    "for step in sys.argv[1:]:\n"
    "    os.read(0, 1); os.write(1, os.fsencode(step).decode('unicode_escape').encode('latin-1'))"
)
"""Writes one argument after each key."""


@pytest.fixture
def view(runtime: RuntimeChild) -> Iterator[View]:
    opened: list[Client] = []

    def connect(info: TerminalInfo, **fields: Any) -> TerminalChannel:
        opened.append(runtime.connect())
        viewer = TerminalChannel(opened[-1], info.terminal_id, **fields)
        viewer.wait_for(wire.Live)
        viewer.data, viewer.events = b"", []
        return viewer

    yield connect
    for each in opened:
        each.close()


def stepper(client: Client, *steps: str) -> TerminalInfo:
    """Start a program that writes one piece per key; escapes are as in Python's bytes."""
    info = client.call("terminal.create", argv=[sys.executable, "-c", STEPS, *steps])
    assert isinstance(info, TerminalInfo)
    read_until(client, info, b"READY")
    return info


def read_until(client: Client, info: TerminalInfo, wanted: bytes) -> None:
    """Read what a terminal has said, as one that is no viewer."""
    follow = client.begin("terminal.output", terminal_id=info.terminal_id, follow=True)
    seen = b""
    while wanted not in seen:
        seen += client.event_of(follow).body
    client.send(client.protocol.cancel(follow))
    client.finish(follow)


def pieces(viewer: TerminalChannel) -> list[bytes]:
    return [each.data for each in viewer.seen(wire.Output)]


def is_whole(data: bytes) -> bool:
    boundaries = Boundaries()
    boundaries.feed(data)
    return boundaries.safe == len(data)


def test_a_character_written_in_two_halves_comes_whole(client: Client, view: View) -> None:
    """However long its second half takes; what is before it does not wait."""
    info = stepper(client, r"a\xe2\x80", r"\x93b", "end")
    viewer = view(info)
    viewer.type(b"k")
    viewer.read_until(b"a")
    viewer.quiet(0.1)
    viewer.type(b"k")
    viewer.read_until(b"b")

    assert pieces(viewer) == [b"a", b"\xe2\x80\x93b"]


def test_half_a_character_holds_nothing_up(client: Client, view: View) -> None:
    """Neither what follows though it does not fit, nor the end."""
    info = stepper(client, r"\xe2\x80", r"next", r"\xe2\x80")
    viewer = view(info)
    viewer.type(b"kk")
    assert viewer.read_until(b"next") == b"\xe2\x80next"
    viewer.type(b"k")
    exited = viewer.wait_for(wire.Exited)

    assert viewer.data == b"\xe2\x80"
    assert exited.offset == viewer.offset == len("READY") + 8


@pytest.mark.parametrize("begun", [r"\x1b", r"\x1b[3", r"\x1b]0;ti", r"\x1bP$q"])
def test_an_unfinished_sequence_is_waited_for_in_vain(
    client: Client, view: View, begun: str
) -> None:
    """For a moment; then it is passed on as it is."""
    info = stepper(client, "a" + begun, "rest")
    viewer = view(info)
    viewer.type(b"k")

    viewer.read_until(b"a" + begun.encode().decode("unicode_escape").encode())


def test_a_sequence_of_two_writes_comes_in_one_piece(client: Client, view: View) -> None:
    """So that it is drawn at once, and every cursor can be replayed from."""
    code = (
        "import os, tty; tty.setraw(0); os.write(1, b'READY'); os.read(0, 1)\n"
        "for _ in range(2000): os.write(1, b'x\\x1b[3'); os.write(1, b'1m')\n"
        "os.write(1, b'END'); os.read(0, 1)"
    )
    info = client.call("terminal.create", argv=[sys.executable, "-c", code])
    read_until(client, info, b"READY")
    viewer = view(info)
    viewer.type(b"k")
    data = viewer.read_until(b"END")

    assert data == b"x\x1b[31m" * 2000 + b"END"
    cut = [each for each in pieces(viewer) if not is_whole(each)]
    # The program may have been stopped for longer than a sequence waits.
    assert len(cut) <= 20, cut


def test_a_query_in_two_writes_is_asked_of_one_viewer(client: Client, view: View) -> None:
    """Even if its second half comes after it was waited for."""
    info = stepper(client, r"a\x1b[", r"cEND")
    first, second = view(info, cols=90, rows=30), view(info)
    third = view(info, strip_queries=True)
    first.type(b"k")
    first.read_until(b"a\x1b[")
    for each in (second, third):
        each.read_until(b"a")
    first.type(b"k")

    assert first.read_until(b"END") == b"cEND"
    assert second.read_until(b"END") == third.read_until(b"END") == b"END"
    assert first.offset == second.offset == third.offset


@pytest.mark.parametrize("query", [(r"\x05", ""), (r"\xc2", r"\x9bc"), (r"\xc2\x9b", "c")])
def test_queries_without_an_escape_are_asked_of_one_viewer(
    client: Client, view: View, query: tuple[str, str]
) -> None:
    """ENQ, and those that begin with a C1 control."""
    info = stepper(client, "a" + query[0], query[1] + "END")
    first, second = view(info, cols=90, rows=30), view(info)
    first.type(b"k")
    first.read_until(b"a")
    first.type(b"k")
    asked = "".join(query).encode().decode("unicode_escape").encode("latin-1")

    assert first.read_until(b"END") == asked + b"END"
    second.read_until(b"a")
    assert second.read_until(b"END") == b"END"


def test_a_query_in_two_writes_that_nobody_saw_is_asked_again(
    client: Client, runtime: RuntimeChild
) -> None:
    """Of the first viewer that comes."""
    info = stepper(client, r"a\x1b[", "cEND", "")
    for wanted in (b"a\x1b[", b"cEND"):
        client.call("terminal.write", terminal_id=info.terminal_id, data=b"k")
        read_until(client, info, wanted)
    viewer = TerminalChannel(runtime.connect(), info.terminal_id, strip_queries=True)

    viewer.wait_for(wire.Live)
    assert b"aEND" in viewer.data
    viewer.data = b""
    viewer.read_until(b"\x1b[c")
    viewer.client.close()


def test_what_lags_is_cut_between_characters_and_sequences(client: Client) -> None:
    """Pieces of the log end where they may, too."""
    code = "import os\nfor _ in range(16000): os.write(1, '─\\x1b[38;5;200m😀\\x1b[m'.encode())"
    info = client.call("terminal.create", argv=[sys.executable, "-c", code])
    client.call("terminal.wait", terminal_id=info.terminal_id)
    events, _ = client.call("terminal.output", terminal_id=info.terminal_id)
    data = [each.data for each in events if each.type == "data"]

    assert b"".join(data) == "─\x1b[38;5;200m😀\x1b[m".encode() * 16000
    assert len(data) > 4
    assert all(map(is_whole, data))
