"""What goes wrong with terminals elsewhere, end to end and in each protocol."""

from __future__ import annotations

import itertools
import re
import time
import uuid

import psutil
import pytest

from sandbox_kernel import sync
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.jupyter_home import JupyterHome
from tests.support.terminal_connection import TerminalConnection, terminal_url
from tests.support.ws_connection import JupyterServer
from tests.support.xterm_judge import XtermJudge

PROTOCOLS = ("stable", "preview", "acknowledged")

ANSWERS = {
    b"\x1b[c": b"\x1b[?1;2c",
    b"\x1b[>c": b"\x1b[>0;276;0c",
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b]11;?\x07": b"\x1b]11;rgb:0/0/0\x1b\\",
    b"\x1b[>q": b"\x1bP>|xterm\x1b\\",
    b"\x1b[?2004$p": b"\x1b[?2004;2$y",
}
"""What a terminal emulator answers to what it is asked."""


@pytest.fixture(scope="module")
def home(tmp_path_factory, warm_cache):
    home = JupyterHome(tmp_path_factory.mktemp("h"), warm_cache).create()
    yield home
    home.destroy_named_sandboxes()


@pytest.fixture(scope="module")
def server(home):
    with JupyterServer(home) as made:
        yield made
    assert "Traceback" not in made.log


@pytest.fixture(scope="module")
def manager(home):
    made = Manager(Settings(data_dir=home.sandboxes))
    yield made
    made.close()


@pytest.fixture(scope="module")
def sandbox(manager):
    with sync.get_sandbox("demo", manager=manager) as made:
        yield made


@pytest.fixture(scope="module")
def xterm():
    made = XtermJudge()
    yield made
    made.close()


class Case:
    """One terminal, and its viewers in one protocol."""

    def __init__(self, server, sandbox, protocol: str, *argv: str, **fields) -> None:
        self.session = uuid.uuid4().hex
        self.protocol = protocol
        self.terminal = sandbox.create_terminal(list(argv), session_id=self.session, **fields)
        self._server = server
        self.viewers: list[TerminalConnection] = []

    def view(self, **query) -> TerminalConnection:
        if self.protocol == "stable":
            url = terminal_url(self._server, "demo", session=self.session, **query)
        else:
            if self.protocol == "acknowledged":
                query["ack"] = 1
            url = terminal_url(self._server, "demo", self.terminal.id, **query)
        acknowledges = self.protocol == "acknowledged"
        self.viewers.append(TerminalConnection(url, self._server.token, acknowledges=acknowledges))
        return self.viewers[-1]

    def shown(self, xterm: XtermJudge, cols: int = 80, rows: int = 24, text: bytes = b"") -> dict:
        """Return what a viewer that comes now shows in the end."""
        viewer = self.view(cols=cols, rows=rows)
        viewer.until_type("ready")
        viewer.until(lambda c: text in c.data)
        viewer.is_quiet_for(0.3)
        viewer.close()
        return xterm.look(cols, rows, viewer.data)

    def close(self) -> None:
        for each in self.viewers:
            each.close()
        self.terminal.terminate(grace=0)


@pytest.fixture
def case(server, sandbox):
    """Return a function that starts a program in a terminal, for a protocol."""
    made = []

    def start(protocol, *argv, **fields):
        made.append(Case(server, sandbox, protocol, *argv, **fields))
        return made[-1]

    yield start
    for each in made:
        each.close()


def text_of(state: dict) -> str:
    """Return what an emulator shows, scrollback included, without blanks at its ends."""
    rows = state["normal"]["lines"]
    return "".join(run for row in rows for _, run in row["runs"]).strip("\0 ")


# --- replay -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_asked_is_answered_once(case, sandbox, protocol):
    """An emulator that answers all that it sees, live and in the replay, types nothing twice."""
    ask = (
        "import os,sys,tty,time\ntty.setraw(0)\n"
        r"os.write(1,b'\x1b[c\x1b[6n\x1b]11;?\x07\x1b[>c\x1b[>q\x1b[?2004$p')"
        "\n"
        "time.sleep(1);os.read(0,999)\nos.write(1,b'READY')\n"
        "open(sys.argv[1],'wb',0).write(os.read(0,99));os.write(1,b'DONE')"
    )
    name = f"in-{uuid.uuid4().hex}.bin"
    one = case(protocol, "python3", "-c", ask, name)

    def answer_until(viewer, text, seconds=15.0):
        answered = 0
        deadline = time.monotonic() + seconds
        while text not in viewer.data and time.monotonic() < deadline:
            viewer.step(0.1)
            # Our own addon says by itself which bytes are a replay.
            muted = protocol == "acknowledged" and not viewer.of_type("live")
            for found in re.finditer(b"|".join(map(re.escape, ANSWERS)), viewer.data[answered:]):
                if not muted:
                    viewer.type(ANSWERS[found[0]])
            answered = len(viewer.data)

    first = one.view(cols=80, rows=24)
    answer_until(first, b"READY")
    first.abort()
    second = one.view(cols=80, rows=24)
    second.until_type("ready")
    answer_until(second, b"DONE", 1.5)
    assert b"DONE" not in second.data
    second.type("z")
    second.read_until(b"DONE")

    assert sandbox.exec(["cat", name]).stdout == b"z"


@pytest.mark.parametrize("letters", [4095, 16383, 32767, 65534, 65535, 1_048_575])
def test_no_emoji_is_split(case, xterm, letters):
    """Live and replayed bytes are the same, and each is announced with its length in bytes."""
    code = f"print('a'*{letters} + '\U0001f600'*50); input()"
    one = case("preview", "python3", "-c", code, buffer_size=2 << 20)
    live = one.view(cursor=one.terminal.cursor)
    live.read_until("\U0001f600".encode() * 50 + b"\r\n", 30)
    again = one.view(cursor=one.terminal.cursor)
    again.until(lambda c: len(c.data) >= len(live.data), 30)

    assert again.data == live.data == b"a" * letters + "\U0001f600".encode() * 50 + b"\r\n"
    for each in (live, again):
        announced = [each["byteLength"] for each in each.of_type("chunk")]
        assert announced == [len(data) for data in each.messages if isinstance(data, bytes)]
    # Who has no cursor sees the same.
    for protocol in PROTOCOLS:
        one.protocol = protocol
        shown = text_of(one.shown(xterm, text="\U0001f600".encode()))
        assert shown == "a" * (len(shown) - 50) + "\U0001f600" * 50


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_full_screen_program_comes_back_in_its_modes(case, xterm, protocol):
    """Modes set long ago are in force, and after the program none of them is."""
    code = (
        "import sys\nw=sys.stdout.write\nw('\\x1b[?1049h\\x1b[?25l\\x1b[?2004h\\x1b[?1h')\n"
        "for i in range(60000): w('\\x1b[H\\x1b[2Kframe %06d'%i+'.'*40)\n"
        "sys.stdout.flush(); input()\nw('\\x1b[?1049l\\x1b[?25h\\x1b[?2004l\\x1b[?1lover')\n"
        "sys.stdout.flush(); input()"
    )
    one = case(protocol, "sh", "-c", 'echo be""fore; python3 -c "$0"', code)
    first = one.view(cols=80, rows=24)
    first.read_until(b"frame 059999", 60)
    state = one.shown(xterm, text=b"frame 059999")
    assert state["alternate"]
    assert state["modes"]["hidden"]
    assert state["modes"]["bracketedPasteMode"]
    assert state["modes"]["applicationCursorKeys"]
    assert state["alt"]["lines"][0]["runs"][0][1].startswith("frame 059999....")
    assert text_of(state).startswith("before")
    first.type("\r")
    first.read_until(b"over")

    state = one.shown(xterm, text=b"over")
    assert not state["alternate"]
    assert not any(
        state["modes"][each] for each in ("hidden", "bracketedPasteMode", "applicationCursorKeys")
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_replay_without_line_ends_is_bounded(case, xterm, server, manager, protocol):
    """Of 10 MB that redraw one line each reconnect gets little, at a clean point, and is cheap."""
    code = (
        "import sys\nfor i in range(100000): sys.stdout.write('\\x1b[H'+'x'*100)\n"
        "print('END');sys.stdout.flush();input()"
    )
    one = case(protocol, "python3", "-c", code, buffer_size=262_144)
    first = one.view(cols=80, rows=24)
    first.until(lambda c: b"END" in c.data[-9999:], 120)
    cursor = next(iter(each["cursor"] for each in first.events() if "cursor" in each), None)
    runtime = psutil.Process(manager.lookup("demo").instance.data["pid"])
    watched = [psutil.Process(server.process.pid), runtime, *runtime.children(recursive=True)]

    def spent():
        return sum(sum(each.cpu_times()[:2]) for each in watched if each.is_running())

    before, begin = sum(each.memory_info().rss for each in watched), spent()
    for number in range(20):
        # Every other one with a place that is long gone.
        lost = {"cursor": cursor} if number % 2 and cursor else {}
        viewer = one.view(cols=80, rows=24, **lost)
        viewer.until(lambda c: b"END" in c.data)
        assert len(viewer.data) <= 262_144 + 4096
        assert viewer.data.startswith((b"\x18\x1bc", b"\x1b[H")), viewer.data[:40]
        assert not lost or viewer.of_type("truncated") or protocol == "stable"
        viewer.abort()

    assert spent() - begin < 2
    assert sum(each.memory_info().rss for each in watched) - before < 16 << 20
    assert "END" in text_of(one.shown(xterm, text=b"END"))


# --- input, output, size ------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_characters_are_whole_however_they_are_read(case, protocol):
    """Every byte of a flood of three-byte characters, in order."""
    code = "import sys\ninput()\nb='─'*200\nfor _ in range(2000): sys.stdout.write('┌'+b+'┐\\n')"
    one = case(protocol, "python3", "-c", code, cols=250)
    viewer = one.view(cols=250, rows=24)
    viewer.until_type("ready")
    viewer.type("\r")
    viewer.until_type("exit", 60)
    text = viewer.data.decode()

    if not viewer.of_type("screen") and not viewer.of_type("truncated"):
        assert (text.count("─"), text.count("┌"), text.count("┐")) == (400_000, 2000, 2000)
    assert "\ufffd" not in text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_keys_and_sizes_reach_the_shell(case, protocol):
    """Job control, a resize, letters beyond ASCII, a paste, long lines, and the end."""
    one = case(protocol, "bash", "--norc", "-i", env={"PS1": "> "}, cols=80, rows=24)
    view = one.view(cols=80, rows=24)
    view.read_until(b"> ")
    assert b"no job control" not in view.data
    view.type("stty -a | grep -o iut''f8\r")
    view.read_until(b"iutf8\r\n")
    view.type("sleep 100\r")
    time.sleep(0.3)
    view.type("\x1a")
    view.read_until(b"Stopped")
    view.type("kill %1; fg\r")
    view.read_until(b"Terminated")
    view.type("echo ö漢😀\x7f\x7f; echo en''d\r")
    assert "ö\r\n".encode() in view.read_until(b"end\r\n")
    for piece in ("\x1b[20", "0~echo one''1\necho two", "''2\x1b[2", "01~"):
        view.type(piece)
    view.is_quiet_for(0.3)
    assert b"one1" not in view.data
    view.type("\r")
    view.read_until(b"two2")
    view.type("echo " + "y" * 5000 + " | wc -c\r")
    view.read_until(b"5001\r\n")
    view.type("stty -echo; cat | wc -c\r")
    time.sleep(0.3)
    view.type(b"x" * 5000 + b"\nafter\n\x04")
    view.read_until(b"4102\r\n")
    view.type("sleep 300 & (exit 3)\r")
    view.type("exit\r")
    begin = time.monotonic()
    said = view.until_type("exit")

    assert time.monotonic() - begin < 4
    assert (said.get("code"), said.get("exit", {}).get("code")) in ((3, None), (None, 3))
    assert view.until_closed() == 1000


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_resize_is_told_to_the_program(case, protocol):
    """By SIGWINCH, within a second."""
    code = "trap 'echo WINCH $(stty size)' WINCH; echo up; while :; do sleep .1; done"
    view = case(protocol, "bash", "-c", code, cols=80, rows=24).view(cols=80, rows=24)
    view.until_type("ready")
    view.until(lambda c: b"up" in c.data)
    view.say(type="resize", cols=101, rows=37)

    view.read_until(b"WINCH 37 101", 2)


def test_a_size_from_afar_does_not_stay(case):
    """A hidden viewer has no say, and a size goes with the viewer whose it was."""
    one = case("acknowledged", "bash", "--norc", env={"PS1": "> "}, cols=80, rows=24)
    first = one.view(cols=120, rows=40)
    first.read_until(b"> ")
    second = one.view(cols=60, rows=20)
    second.until_type("live")
    second.say(type="view", visible=False, focused=False)
    sizes = first.until(lambda c: len(c.of_type("size")) == 2).of_type("size")

    assert [each["cols"] for each in sizes] == [60, 120]
    second.close()
    first.type("stty size\r")
    first.read_until(b"40 120\r\n")


def test_a_long_control_message_is_refused(case):
    """With the limit, and nothing else happens; beyond that of all messages, 1009."""
    one = case("preview", "bash", "--norc", env={"PS1": "> "})
    view = one.view()
    view.read_until(b"> ")
    view.raw_text('{"type":"resize",' + " " * 12_000_000 + '"cols":80,"rows":24}')
    assert "65536" in view.until_type("error")["message"]
    view.type("echo al''ive\r")
    view.read_until(b"alive\r\n")
    view.raw_text('{"type":"resize",' + " " * (16 << 20) + '"cols":80,"rows":24}')
    assert view.until_closed() == 1009
    again = one.view()
    again.type("echo al''so\r")
    again.read_until(b"also\r\n")


def test_a_slow_reader_gets_all_before_the_exit(case):
    """In the stable protocol too: the last line, one exit, nothing after it."""
    for protocol in PROTOCOLS:
        one = case(protocol, "bash", "-c", "read x; seq 1 20000; echo LAST; exit 7")
        view = one.view(cols=80, rows=24)
        view.until_type("ready")
        view.type("\r")
        while view.close_code is None:
            assert view.step(20)
            time.sleep(0.01)

        numbers = [int(each) for each in re.findall(rb"^(\d+)\r$", view.data, re.MULTILINE)]
        assert [b - a for a, b in itertools.pairwise(numbers)] == [1] * (len(numbers) - 1)
        assert numbers[-1] == 20000
        assert view.data.endswith(b"LAST\r\n")
        assert view.messages[-1]["type"] == "exit"
        assert len(view.of_type("exit")) == 1
