"""Real programs on terminals: long pastes, long lines, redraws, and a screen after much output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.wire import terminal as wire
from sandbox_kernel.wire.operations import TerminalInfo
from sandbox_runtime.replay import LARGEST_SCREEN
from tests.support.runtime_child import DEADLINE, Client, RuntimeChild
from tests.support.terminal_channel import PROMPT, TerminalChannel
from tests.support.xterm_judge import XtermJudge, difference

View = Callable[..., TerminalChannel]


@pytest.fixture
def view(runtime: RuntimeChild) -> Iterator[View]:
    opened: list[Client] = []

    def connect(info: TerminalInfo, **fields: Any) -> TerminalChannel:
        opened.append(runtime.connect())
        return TerminalChannel(opened[-1], info.terminal_id, **fields)

    yield connect
    for each in opened:
        each.close()


def create(client: Client, *argv: str, **fields: Any) -> TerminalInfo:
    info = client.call("terminal.create", argv=list(argv), **fields)
    assert isinstance(info, TerminalInfo)
    return info


def wait_for_lines(file: Path, count: int) -> list[str]:
    """Wait until a file has so many lines; return them."""
    deadline = time.monotonic() + DEADLINE
    while not file.exists() or file.read_text().count("\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return file.read_text().splitlines()


# --- pastes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1 << 20, 1 << 10])
def test_much_text_pasted_into_vi(
    runtime: RuntimeChild, client: Client, view: View, piece: int
) -> None:
    """All of it arrives, in one frame or many, and other terminals answer meanwhile."""
    text = "\n".join(["0123456789 äöü 漢字 😀"] * (100_000 // 32))
    info = create(client, "vi", "-u", "NONE", "-N", "big.txt")
    other = view(create(client, "cat"))
    vi = view(info, cursor=info.cursor)
    vi.read_until(b"~")
    vi.type(b"i")
    paste = b"\x1b[200~" + text.encode() + b"\x1b[201~\x1b:wq\r"
    for at in range(0, len(paste), piece):
        vi.type(paste[at : at + piece])
    other.type(b"meanwhile\r")
    other.read_until(b"meanwhile\r\nmeanwhile\r\n")

    assert vi.wait_for(wire.Exited).exit_code == 0
    assert (runtime.workspace / "big.txt").read_text() == text + "\n"


def test_a_paste_of_lines_waits_for_enter(
    runtime: RuntimeChild, client: Client, view: View
) -> None:
    """As the shell has asked for the marks of a paste, also where they come in pieces."""
    info = create(client, "bash", "--norc")
    shell = view(info, cursor=info.cursor)
    shell.read_until(PROMPT)
    for piece in (b"\x1b[20", b"0~echo one >>ran\necho two >>", b"ran #end\n\x1b[2", b"01~"):
        shell.type(piece)
    shell.read_until(b"#end")
    assert not (runtime.workspace / "ran").exists()

    shell.type(b"\r")
    assert wait_for_lines(runtime.workspace / "ran", 2) == ["one", "two"]


def test_the_marks_of_a_paste_pass_unchanged(client: Client, view: View) -> None:
    """Every byte, in both directions."""
    paste = b"\x1b[200~a\tb\nc\x7f\xff\x00\x1b[201~"
    code = (
        "import os, sys, tty; tty.setraw(0); os.write(1, b'\\x1b[?2004h'); got = b''\n"
        f"while len(got) < {len(paste)}: got += os.read(0, 99)\n"
        "os.write(1, got + b'\\x1b[?2004l' + got.hex().encode())"
    )
    info = create(client, sys.executable, "-c", code)
    viewer = view(info, cursor=info.cursor)
    viewer.read_until(PROMPT)
    for byte in paste:
        viewer.type(bytes([byte]))

    viewer.wait_for(wire.Exited)
    assert viewer.data == paste + b"\x1b[?2004l" + paste.hex().encode()


# --- long lines -----------------------------------------------------------------------------------


def test_a_line_longer_than_the_system_keeps(client: Client, view: View) -> None:
    """It is cut to 4095 bytes and its end, the next one is whole, and nothing hangs."""
    info = create(client, "sh", "-c", "stty -echo; echo begun; wc -c")
    viewer = view(info, cursor=info.cursor)
    viewer.read_until(b"begun\r\n")
    viewer.type(b"x" * 5000 + b"\nafter\n\x04")

    viewer.wait_for(wire.Exited)
    assert viewer.data == b"4102\r\n"


def test_a_long_line_at_a_prompt(client: Client, view: View) -> None:
    """A shell that edits lines has no such limit."""
    info = create(client, "bash", "--norc")
    shell = view(info, cursor=info.cursor)
    shell.read_until(PROMPT)
    shell.type(b"echo " + b"y" * 5000 + b" | wc -c\r")

    shell.read_until(b"\r5001\r\n")


# --- screens --------------------------------------------------------------------------------------

BOX = (
    "import os, signal, tty; tty.setraw(0)\n"
    "def draw(*_):\n"
    "    cols, rows = os.get_terminal_size(0)\n"
    "    out = '\\x1b[2J\\x1b[1;1H+' + '-' * (cols - 2) + '+'\n"
    "    for y in range(2, rows): out += f'\\x1b[{y};1H|\\x1b[{y};{cols}H|'\n"
    "    out += f'\\x1b[{rows};1H+' + '-' * (cols - 2) + '+'\n"
    "    os.write(1, (out + f'\\x1b[3;3H{cols}x{rows}').encode())\n"
    "signal.signal(signal.SIGWINCH, draw); draw()\n"
    "while True: os.read(0, 1)"
)
"""Draws a frame around the whole window, and its size into it, whenever that changes."""


def shown(xterm: XtermJudge, size: tuple[int, int], drawn: bytes) -> list[str]:
    """Return the rows that the terminal of the browser shows."""
    page = xterm.look(*size, drawn)["normal"]
    rows = ["".join(text for _, text in line["runs"]) for line in page["lines"][page["base"] :]]
    return [row.replace("\0", " ").replace("\x01", "") for row in rows]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 10)])
def test_a_program_draws_for_the_size_of_a_new_viewer(
    client: Client, view: View, xterm: XtermJudge, size: tuple[int, int]
) -> None:
    """What was painted for another width does not stay, and a viewer of the same has it whole."""
    cols, rows = size
    info = create(client, sys.executable, "-c", BOX, cols=80, rows=24)
    first = view(info, cols=80, rows=24)
    first.read_until(b"80x24")
    second = view(info, cols=cols, rows=rows)
    second.read_until(b"%dx%d" % size)
    second.quiet(0.1)
    drawn = b"".join(each.data for each in second.seen(wire.Output))

    edge, name = "+" + "-" * (cols - 2) + "+", f" {cols}x{rows}".ljust(cols - 2)
    inside = ["|" + " " * (cols - 2) + "|"] * (rows - 2)
    inside[1] = f"|{name}|"
    assert shown(xterm, size, drawn) == [edge, *inside, edge]


def test_a_screen_after_much_output_is_right_and_small(
    client: Client, view: View, xterm: XtermJudge
) -> None:
    """Of 4 MiB no more than 256 KiB are sent to who comes later, scrollback included."""
    line = "\x1b[01;34mfolder %05d\x1b[0m  \x1b[01;32mprogram.sh\x1b[0m  notes, 漢字 and 😀\r\n"
    count = (4 << 20) // len((line % 0).encode()) + 1
    code = (
        "import os, sys, tty; tty.setraw(0)\n"
        f"line = {line!r}\n"
        f"for n in range({count}): sys.stdout.write(line % n)\n"
        "sys.stdout.write('DONE'); sys.stdout.flush(); os.read(0, 1)"
    )
    info = create(client, sys.executable, "-c", code, cols=80, rows=24)
    first = view(info, cursor=info.cursor, cols=80, rows=24)
    first.read_until(b"DONE")
    second = view(info, cols=80, rows=24)
    second.wait_for(wire.Live)
    (replay,) = second.seen(wire.Replay)
    sent = b"".join(each.data for each in second.seen(wire.Output))

    assert replay.kind == "screen"
    assert len(sent) <= LARGEST_SCREEN
    seen = xterm.look(80, 24, "".join(line % n for n in range(count)).encode() + b"DONE")
    told = xterm.look(80, 24, sent)
    seen.pop("serialized")  # of what it says of empty cells, the judge's own state says more
    assert difference(seen, told) == ""
