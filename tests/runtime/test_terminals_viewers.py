"""Several viewers of one terminal: their pace, their sizes, and what a slow one costs the others."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.errors import InvalidTerminalCursorError, ValidationFailedError
from sandbox_kernel.wire import terminal as wire
from sandbox_kernel.wire.operations import TerminalInfo
from sandbox_kernel.wire.rpc import FrameKind
from sandbox_runtime.viewers import MOST_LAG, WINDOW
from tests.support.runtime_child import Client, RuntimeChild
from tests.support.terminal_channel import TerminalChannel

View = Callable[..., TerminalChannel]

COUNTER = (
    "import os, sys, time, tty; tty.setraw(0)\n"
    "n = 0\n"
    "while n < int(sys.argv[1]):\n"
    "    os.write(1, b''.join(b'%08d\\r\\n' % i for i in range(n, n + 1000))); n += 1000\n"
    "    open('at', 'w').write(str(n))\n"
    "print('DONE', end='', flush=True); os.read(0, 1)"
)
"""Writes numbered lines of ten bytes, and notes in a file how far it is."""


@pytest.fixture
def view(runtime: RuntimeChild) -> Iterator[View]:
    opened: list[Client] = []

    def connect(info: TerminalInfo, **fields: Any) -> TerminalChannel:
        opened.append(runtime.connect())
        return TerminalChannel(opened[-1], info.terminal_id, **fields)

    yield connect
    for each in opened:
        each.close()


def counter(client: Client, lines: int, **fields: Any) -> TerminalInfo:
    info = client.call(
        "terminal.create", argv=[sys.executable, "-c", COUNTER, str(lines)], **fields
    )
    assert isinstance(info, TerminalInfo)
    return info


def progress(runtime: RuntimeChild) -> int:
    try:
        return int((runtime.workspace / "at").read_text() or 0)
    except FileNotFoundError:
        return 0


def settled(runtime: RuntimeChild, period: float = 0.3) -> int:
    """Return how far the counter is once it has stood still for a while."""
    last, since = progress(runtime), time.monotonic()
    while time.monotonic() - since < period:
        time.sleep(0.01)
        if progress(runtime) != last:
            last, since = progress(runtime), time.monotonic()
    return last


def memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


# --- pace -----------------------------------------------------------------------------------------


def test_a_program_waits_for_its_only_viewer(
    runtime: RuntimeChild, client: Client, view: View
) -> None:
    """While 256 KiB are not acknowledged; then it goes on, and every byte arrives."""
    info = counter(client, 200_000)
    viewer = view(info, cursor=info.cursor, acknowledging=False, acknowledges=True)
    began = time.monotonic()
    viewer.wait_for(wire.Live)
    while sum(len(each.data) for each in viewer.seen(wire.Output)) < WINDOW:
        viewer.step()
    stood = settled(runtime, 0.2) * 10
    if time.monotonic() - began < 0.9:
        assert WINDOW <= stood <= WINDOW + (200 << 10)

    viewer.acknowledge(viewer.offset)
    viewer.acknowledging = True
    data = viewer.read_until(b"DONE")

    assert data == b"".join(b"%08d\r\n" % number for number in range(200_000)) + b"DONE"
    assert not viewer.seen(wire.Screen)


def test_a_dead_viewer_holds_nothing_up(runtime: RuntimeChild, client: Client, view: View) -> None:
    """A program goes on without it after a second; when it comes back it gets a screen."""
    info = counter(client, 300_000)
    viewer = view(info, cursor=info.cursor, acknowledging=False, acknowledges=True)
    began = time.monotonic()
    while progress(runtime) < 300_000:
        assert time.monotonic() - began < 15
        time.sleep(0.01)
    assert time.monotonic() - began > 0.9

    viewer.quiet(0.2)
    assert sum(len(each.data) for each in viewer.seen(wire.Output)) < WINDOW + (128 << 10)
    viewer.acknowledging = True
    viewer.acknowledge(viewer.offset)
    screen = viewer.wait_for(wire.Screen)
    viewer.data = b""
    viewer.read_until(b"DONE")
    assert viewer.offset == screen.offset == 300_000 * 10 + 4


def test_a_program_nobody_looks_at_runs(runtime: RuntimeChild, client: Client) -> None:
    """It waits for the viewer of its creator for a second, at most, then for nobody."""
    counter(client, 300_000)
    began = time.monotonic()
    while progress(runtime) < 300_000:
        assert time.monotonic() - began < 15
        time.sleep(0.01)


def test_a_first_viewer_misses_nothing(client: Client, view: View) -> None:
    """Though it connects some time after the start of a flood, if with the cursor of the start."""
    info = client.call("terminal.create", argv=["bash", "-c", "seq 1 200000; echo LAST; exit 7"])
    time.sleep(0.3)
    viewer = view(info, cursor=info.cursor)
    exited = viewer.wait_for(wire.Exited)

    assert viewer.data == b"".join(b"%d\r\n" % n for n in range(1, 200001)) + b"LAST\r\n"
    assert exited.exit_code == 7


def test_a_slow_viewer_delays_nobody(client: Client, view: View) -> None:
    """The fast one gets every byte at its own pace; the slow one ends with the same screen."""
    info = counter(client, 400_000)
    fast = view(info, cursor=info.cursor)
    slow = view(info, cursor=info.cursor, acknowledging=False, acknowledges=True)
    began = time.monotonic()
    data = fast.read_until(b"DONE")
    took = time.monotonic() - began

    assert data == b"".join(b"%08d\r\n" % number for number in range(400_000)) + b"DONE"
    assert took < 8
    slow.acknowledging = True
    slow.acknowledge(0)
    slow.quiet(0.3)
    for each in list(slow.seen(wire.Output)):
        slow.acknowledge(each.offset)
    slow.data = slow.data[-1000:]
    slow.read_until(b"DONE")
    assert len(slow.seen(wire.Screen)) >= 1
    assert sum(len(each.data) for each in slow.seen(wire.Output)) < 4 * WINDOW


@pytest.mark.parametrize("acknowledges", [True, False])
def test_memory_stays_bounded_behind_a_viewer_that_never_reads(
    runtime: RuntimeChild,
    client: Client,
    view: View,
    acknowledges: bool,  # noqa: FBT001
) -> None:
    """Whatever flows past it; and another viewer's Ctrl-C works at once."""
    command = "head -c 200000000 /dev/zero | tr '\\0' x; echo over; sleep 60"
    info = client.call("terminal.create", argv=["bash", "-c", command])
    view(info, acknowledging=False, acknowledges=acknowledges)
    time.sleep(0.3)
    before = memory(runtime.pid)
    fast = view(info)
    for _ in range(1000):
        fast.step()
    began = time.monotonic()
    fast.type(b"\x03")
    fast.wait_for(wire.Exited)

    # Without it the program would go on for a minute.
    assert time.monotonic() - began < 15
    assert memory(runtime.pid) - before < 8 << 20


def test_a_hidden_viewer_does_not_count(runtime: RuntimeChild, client: Client, view: View) -> None:
    """Its program runs freely from the moment it is hidden."""
    info = counter(client, 300_000)
    viewer = view(info, cursor=info.cursor, acknowledging=False, acknowledges=True)
    viewer.order(wire.View(visible=False))
    began = time.monotonic()
    while progress(runtime) < 300_000:
        assert time.monotonic() - began < 15
        time.sleep(0.01)


def test_a_viewer_without_acknowledgements_is_held_by_its_socket(
    runtime: RuntimeChild, client: Client, view: View
) -> None:
    """It gets every byte as long as it reads; one that does not, gets a screen later."""
    info = counter(client, 200_000)
    viewer = view(info, cursor=info.cursor, acknowledging=False)
    data = viewer.read_until(b"DONE")
    assert data == b"".join(b"%08d\r\n" % number for number in range(200_000)) + b"DONE"

    (runtime.workspace / "at").unlink()
    info = counter(client, 300_000)
    viewer = view(info, cursor=info.cursor, acknowledging=False)
    while progress(runtime) < 300_000:
        time.sleep(0.01)
    viewer.wait_for(wire.Screen)
    viewer.data = b""
    viewer.read_until(b"DONE")


def test_a_flood_does_not_delay_other_work(client: Client, view: View) -> None:
    """Commands and another terminal answer at once beside it."""
    flood = client.call("terminal.create", argv=["yes", "z" * 60])
    viewer = view(flood)
    other = view(client.call("terminal.create", argv=["cat"]))
    other.wait_for(wire.Live)
    slowest = 0.0
    for number in range(50):
        for _ in range(20):
            viewer.step()
        began = time.monotonic()
        other.type(b"%d\r" % number)
        other.read_until(b"\r\n%d\r\n" % number)
        slowest = max(slowest, time.monotonic() - began)
    began = time.monotonic()
    client.run("true")

    assert time.monotonic() - began < 1
    assert slowest < 0.5


# --- input ----------------------------------------------------------------------------------------


def test_a_flood_that_is_dear_to_draw_slows_its_own_program_only(
    client: Client, view: View
) -> None:
    """Others are echoed to meanwhile, none of its output is lost, and its screen is right."""
    flood = (
        "import os, tty; tty.setraw(0); os.write(1, b'up'); os.read(0, 1)\n"
        "for n in range(40):\n"
        "    os.write(1, b'\\x1b[2J\\x1b#8\\x1b[31mx\\x1b[H\\x1b[499L\\x1b[ @y\\x1b[9T' * 20)\n"
        "os.write(1, b'\\x1b[m\\x1b[2J\\x1b[HDONE'); os.read(0, 1)"
    )
    echo = "import os, tty; tty.setraw(0)\nos.write(1, b'up')\nwhile 1: os.write(1, os.read(0, 9))"
    dear = client.call("terminal.create", argv=[sys.executable, "-c", flood], cols=1000, rows=500)
    other = view(client.call("terminal.create", argv=[sys.executable, "-c", echo]))
    other.read_until(b"up")
    first = view(dear, cursor=dear.cursor)
    first.read_until(b"up")
    client.call("terminal.write", terminal_id=dear.terminal_id, data=b"x")
    for _ in range(30):
        other.type(b"k")
        other.read_until(b"k")
    late = view(dear, acknowledges=True)
    late.wait_for(wire.Live)
    one = b"\x1b[2J\x1b#8\x1b[31mx\x1b[H\x1b[499L\x1b[ @y\x1b[9T"

    first.read_until(b"DONE", 60)
    late.read_until(b"DONE", 60)
    assert first.offset == late.offset == len(one) * 800 + len(b"up\x1b[m\x1b[2J\x1b[HDONE")
    deadline = time.monotonic() + 20
    while client.call("terminal.snapshot", terminal_id=dear.terminal_id).lines[0] != "DONE":
        assert time.monotonic() < deadline


def test_input_waits_and_is_never_dropped(
    runtime: RuntimeChild, client: Client, view: View
) -> None:
    """Of a program that does not read; others may type meanwhile, and nothing is mixed up."""
    code = (
        "import os, sys, time, tty; tty.setraw(0); os.write(1, b'up')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "f = open('in', 'wb')\n"
        "while b'E' not in (d := os.read(0, 65536)): f.write(d)\n"
        "f.write(d); f.close(); os.write(1, b'took')"
    )
    info = client.call("terminal.create", argv=[sys.executable, "-c", code])
    one, two = view(info), view(info)
    one.read_until(b"up")
    block = bytes(range(97, 123)) * 1000
    one.client.socket.setblocking(False)
    waiting = b"".join(
        one.client.protocol.channel_frame(FrameKind.INPUT, block) for _ in range(1600)
    )
    sent = 0
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and sent < len(waiting):
        try:
            sent += one.client.socket.send(waiting[sent : sent + 65536])
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < len(waiting), "the viewer had to wait"
    assert client.call("terminal.get", terminal_id=info.terminal_id).status == "running"
    two.type(b"2" * 100)
    client.run("touch", "go")

    one.client.socket.setblocking(True)
    one.client.send(waiting[sent:])
    one.type(b"E")
    one.read_until(b"took")
    written = (runtime.workspace / "in").read_bytes()
    assert written.replace(b"2", b"") == block * 1600 + b"E"
    assert b"2" * 100 in written


def test_a_paste_larger_than_every_buffer_passes_an_echoing_program(
    client: Client, view: View
) -> None:
    """Although what it echoes must be acknowledged over the very connection that waits."""
    code = (
        "import os, tty; tty.setraw(0); os.write(1, b'up'); n = 0\n"
        "while n < 3000000:\n"
        "    d = os.read(0, 4096); n += len(d); os.write(1, d)\n"
        "os.write(1, b'END')"
    )
    info = client.call("terminal.create", argv=[sys.executable, "-c", code])
    viewer = view(info)
    viewer.read_until(b"up")
    viewer.type(b"x" * 3_000_000)

    viewer.read_until(b"END", timeout=30)


@pytest.mark.parametrize("size", [200_000, 8_000_000])
def test_ctrl_c_overtakes_input_that_waits(client: Client, view: View, size: int) -> None:
    """As in a terminal's own queue, what waits is forgotten, also if it is a large paste."""
    info = client.call("terminal.create", argv=["bash", "-c", "stty -icanon; echo up; sleep 60"])
    viewer = view(info)
    viewer.read_until(b"up")
    for _ in range(size // 50_000):
        viewer.type(b"line\n" * 10_000)
    viewer.quiet(0.3)
    viewer.type(b"\x03")

    assert viewer.wait_for(wire.Exited, timeout=5).signal == 2


# --- size -----------------------------------------------------------------------------------------


def test_sizes_of_two_viewers(client: Client, view: View) -> None:
    """Who typed last decides; who leaves gives the size back; both see the same bytes."""
    info = client.call("terminal.create", argv=["bash", "--norc"])
    a = view(info, cols=120, rows=40)
    a.type(b"stty size\r")
    a.read_until(b"40 120")
    b = view(info, cols=60, rows=20)
    assert a.wait_for(wire.Size) == wire.Size(cols=60, rows=20)
    b.resize(61, 21)
    b.type(b"stty size\r")
    b.read_until(b"21 61")

    a.type(b"stty size\r")
    a.read_until(b"40 120")
    b.read_until(b"40 120")
    assert wire.Size(cols=120, rows=40) in b.events
    b.order(wire.View(focused=True))
    b.read_until(b"")
    b.wait_for(wire.Output)
    b.client.close()
    a.wait_for(wire.Size)
    while a.events[-1] != wire.Size(cols=120, rows=40):
        a.step()
    found = client.call("terminal.get", terminal_id=info.terminal_id)
    assert (found.cols, found.rows, found.viewers) == (120, 40, 1)


def test_a_new_viewer_gets_its_size_before_the_replay(client: Client, view: View) -> None:
    """So that the screen it gets is one of its own size."""
    info = client.call("terminal.create", argv=["cat"])
    viewer = view(info, cols=100, rows=30)
    viewer.wait_for(wire.Live)

    assert not viewer.seen(wire.Size)
    found = client.call("terminal.get", terminal_id=info.terminal_id)
    assert (found.cols, found.rows) == (100, 30)


def test_bad_orders_are_told_and_harm_nobody(client: Client, view: View) -> None:
    """One error for each, the size stays, typing goes on."""
    info = client.call("terminal.create", argv=["bash", "--norc"], cols=90, rows=30)
    viewer = view(info)
    other = view(info)
    for payload in (
        b'{"type":"resize","cols":0,"rows":24}',
        b'{"type":"resize","cols":80,"rows":NaN}',
        b"{}",
        b"",
        b"\xff",
        b"{" * 5000,
    ):
        viewer.client.send(viewer.client.protocol.channel_frame(FrameKind.CONTROL, payload))
        assert viewer.wait_for(wire.ChannelFailed).code == "VALIDATION_FAILED"

    viewer.type(b"stty size\r")
    viewer.read_until(b"30 90")
    other.read_until(b"30 90")
    assert not other.seen(wire.ChannelFailed)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cols": 0, "rows": 24}, ValidationFailedError),
        ({"cols": 80}, ValidationFailedError),
        ({"rows": 24}, ValidationFailedError),
        ({"cols": 2001, "rows": 24}, ValidationFailedError),
        ({"cols": 1000, "rows": 501}, ValidationFailedError),
        ({"cursor": "nonsense"}, InvalidTerminalCursorError),
        ({"cursor": ""}, InvalidTerminalCursorError),
    ],
)
def test_a_bad_connect_is_refused(
    client: Client, view: View, fields: dict[str, Any], error: type[Exception]
) -> None:
    """With a typed error, before anything is changed."""
    info = client.call("terminal.create", argv=["cat"])
    with pytest.raises(error):
        view(info, **fields)

    found = client.call("terminal.get", terminal_id=info.terminal_id)
    assert (found.cols, found.rows, found.viewers) == (80, 24, 0)


# --- replay ---------------------------------------------------------------------------------------


def test_the_first_output_is_seen_exactly_once(client: Client, view: View) -> None:
    """As replay or live, whenever the viewer comes."""
    for number in range(30):
        info = client.call("terminal.create", argv=["sh", "-c", "printf READY; sleep 5"])
        time.sleep((0, 0.002, 0.01)[number % 3])
        viewer = view(info)
        viewer.read_until(b"READY")
        viewer.quiet(0.03)
        assert b"READY" not in viewer.data
        client.call("terminal.terminate", terminal_id=info.terminal_id, grace=0.0)


def test_reconnecting_during_a_flood_leaves_no_gap_and_no_double(
    client: Client, view: View
) -> None:
    """Ten times, each from the cursor of the last byte it has."""
    info = counter(client, 100_000)
    whole, cursor = b"", info.cursor
    while b"DONE" not in whole:
        viewer = view(info, cursor=cursor)
        while len(viewer.data) < 120_000 and b"DONE" not in viewer.data:
            viewer.step()
        assert viewer.seen(wire.Replay)[0].kind == "exact"
        viewer.client.close()
        whole += viewer.data
        cursor = wire.encode_cursor(info.incarnation, info.terminal_id, viewer.offset)

    assert whole == b"".join(b"%08d\r\n" % number for number in range(100_000)) + b"DONE"


def test_what_is_replayed_from_a_lost_cursor_is_a_screen(client: Client, view: View) -> None:
    """And the viewer is told that something is missing."""
    info = client.call("terminal.create", argv=["seq", "1", "300000"], buffer_size=65536)
    client.call("terminal.wait", terminal_id=info.terminal_id)
    viewer = view(info, cursor=info.cursor)
    viewer.wait_for(wire.Exited)
    (replay,) = viewer.seen(wire.Replay)

    assert (replay.kind, replay.truncated) == ("screen", True)
    assert len(viewer.data) <= MOST_LAG
    assert viewer.data.endswith(b"300000\r\n") or b"300000" in viewer.data


def test_an_acknowledgement_of_what_was_not_sent_is_a_violation(client: Client, view: View) -> None:
    """It closes that viewer's channel, and nothing else."""
    info = client.call("terminal.create", argv=["cat"])
    # What it is sent before the end is not acknowledged: that would be written to nobody.
    viewer = view(info, acknowledging=False, acknowledges=True)
    viewer.acknowledge(1 << 40)
    with pytest.raises(EOFError):
        viewer.quiet(5)

    assert client.call("terminal.get", terminal_id=info.terminal_id).status == "running"


def test_characters_survive_the_cuts_of_reads(client: Client, view: View) -> None:
    """Every byte of a flood of three-byte characters arrives, joined as it was."""
    code = "import sys\nb='─'*200\nfor _ in range(2000): sys.stdout.write('┌'+b+'┐\\n')"
    info = client.call("terminal.create", argv=[sys.executable, "-c", code], cols=250)
    viewer = view(info, cursor=info.cursor)
    viewer.wait_for(wire.Exited)
    text = viewer.data.decode()

    assert (text.count("─"), text.count("┌"), text.count("┐")) == (400_000, 2000, 2000)


def test_a_viewer_that_leaves_ends_nothing(client: Client, view: View) -> None:
    """Neither by closing nor by vanishing in the middle of a frame."""
    info = client.call("terminal.create", argv=["cat"])
    viewer = view(info)
    viewer.client.send(b"\0\0\1\0\x10")
    viewer.client.close()
    again = view(info)
    again.type(b"alive\r")
    again.read_until(b"alive\r\nalive")

    assert os.path.exists(f"/proc/{info.pid}")


# --- questions ------------------------------------------------------------------------------------

ASKS = (
    "import os, time, tty; tty.setraw(0); os.write(1, b'\\x1b[c\\x1b[6nASKED')\n"
    "got = os.read(0, 99); os.write(1, b'GOT ' + got.hex().encode()); os.read(0, 9)"
)


def test_what_nobody_could_answer_is_asked_again_once(client: Client, view: View) -> None:
    """After the replay, of the first viewer; the next one is not asked."""
    info = client.call("terminal.create", argv=[sys.executable, "-c", ASKS])
    follow = client.begin("terminal.output", terminal_id=info.terminal_id, follow=True)
    client.event_of(follow)
    viewer = view(info, strip_queries=True)
    viewer.wait_for(wire.Live)
    assert b"\x1b[c" not in viewer.data
    assert b"ASKED" in viewer.data

    viewer.read_until(b"\x1b[c\x1b[6n")
    viewer.type(b"\x1b[?1;2c")
    viewer.read_until(b"GOT 1b5b3f313b3263")
    viewer.client.close()
    again = view(info, strip_queries=True)
    again.read_until(b"GOT 1b5b3f313b3263")
    again.quiet(0.1)
    assert b"\x1b[c" not in again.data


def test_too_many_questions_are_left_out_as_a_whole(client: Client, view: View) -> None:
    """What is asked again ends with a sequence, so that the output after it is drawn."""
    program = (
        "import os, time, tty; tty.setraw(0)\n"
        "os.write(1, b'\\x1bP$qm\\x1b\\\\' * 300 + b'ASKED'); os.read(0, 9)\n"
        "os.write(1, b'MORE'); os.read(0, 9)"
    )
    info = client.call("terminal.create", argv=[sys.executable, "-c", program])
    follow = client.begin("terminal.output", terminal_id=info.terminal_id, follow=True)
    seen = b""
    while b"ASKED" not in seen:
        seen += client.event_of(follow).body
    viewer = view(info, strip_queries=True)
    viewer.wait_for(wire.Live)
    viewer.type(b"x")
    data = viewer.read_until(b"MORE")

    again = data.rpartition(b"ASKED")[2].removesuffix(b"MORE")
    assert again.endswith(b"\x1bP$qm\x1b\\" * 100)
    assert again.replace(b"\x1bP$qm\x1b\\", b"").count(b"\x1bP") == 0


def test_what_an_ended_program_asked_is_not_asked_again(client: Client, view: View) -> None:
    """The shell has not asked, and would take the answer for keys."""
    info = client.call("terminal.create", argv=["bash", "--norc"])
    line = b"sh -c 'printf \"\\033[cASK%s\" ED'\r"
    client.call("terminal.write", terminal_id=info.terminal_id, data=line)
    call = client.begin("terminal.output", terminal_id=info.terminal_id, follow=True)
    seen = b""
    while b"ASKED" not in seen or b"\x1b[?2004h" not in seen.partition(b"ASKED")[2]:
        seen += client.event_of(call).body
    viewer = view(info, strip_queries=True)
    viewer.wait_for(wire.Live)
    viewer.quiet(0.1)

    assert b"\x1b[c" not in viewer.data


def test_what_a_script_asks_after_a_command_of_its_own_is_asked_again(
    client: Client, view: View
) -> None:
    """The command has gone, the script waits for the answer."""
    script = "stty raw -echo; printf '\\033[cASKED'; exec cat >/dev/null"
    info = client.call("terminal.create", argv=["sh", "-c", script])
    follow = client.begin("terminal.output", terminal_id=info.terminal_id, follow=True)
    seen = b""
    while b"ASKED" not in seen:
        seen += client.event_of(follow).body
    viewer = view(info, strip_queries=True)
    data = viewer.read_until(b"\x1b[c")

    assert b"ASKED" in data


def test_one_of_several_viewers_is_asked(client: Client, view: View) -> None:
    """The one that decides the size; so no question is answered twice."""
    info = client.call(
        "terminal.create", argv=["sh", "-c", "read x; printf '\\033[cEN%s' D; read x"]
    )
    first, second = view(info, cols=80, rows=24), view(info, cols=90, rows=30)
    third = view(info)
    for each in (first, second, third):
        each.wait_for(wire.Live)
    first.type(b"\n")

    assert b"\x1b[c" in first.read_until(b"END")
    assert b"\x1b[c" not in second.read_until(b"END")
    assert b"\x1b[c" not in third.read_until(b"END")
