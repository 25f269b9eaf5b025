"""terminal: a person at a terminal of this machine, attached to one in a sandbox."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest

from sandbox_kernel.cli.detach_keys import DetachKeys
from sandbox_kernel.cli.local_terminal import without_full_reset
from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_runtime.replay import TerminalLog

DEADLINE = 30
_LIBC = ctypes.CDLL(None, use_errno=True)
_PIDFD_GETFD = 438
DETACH = b"\x1d"
ATTRIBUTES = b"\x1b[c"


class Person:
    """A terminal emulator with the command in it, and somebody who types and reads."""

    def __init__(self, *words: str, cols: int = 80, rows: int = 24, answers: bool = True) -> None:
        self.master, self.slave = os.openpty()
        self.log = TerminalLog(cols, rows, size=1 << 24)
        self.raw = b""
        self.answers = answers
        self._answered = 0
        self._set_size(cols, rows)
        self.modes = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [
                *("setsid", "--ctty", sys.executable),
                *("-m", "sandbox_kernel.cli", "terminal", *words),
            ],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
        )

    def _set_size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def resize(self, cols: int, rows: int) -> None:
        self._set_size(cols, rows)
        self.log.resize(cols, rows)

    def type(self, text: str | bytes) -> None:
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    @property
    def lines(self) -> list[str]:
        return self.log.snapshot().lines

    @property
    def screen(self) -> str:
        return "\n".join(self.lines)

    def wait_until(self, is_so: Callable[[], object], what: str = "") -> None:
        deadline = time.monotonic() + DEADLINE
        while not is_so():
            left = deadline - time.monotonic()
            assert left > 0, f"{what or 'nothing'}\n{self.screen}\n{self.raw[-400:]!r}"
            self.read(min(left, 0.2))

    def read(self, timeout: float = 0.0) -> None:
        if not select.select([self.master], [], [], timeout)[0]:
            return
        data = os.read(self.master, 1 << 16)
        self.raw += data
        self.log.feed(data)
        if self.answers and self.raw.count(ATTRIBUTES) > self._answered:
            self._answered += 1
            self.type("\x1b[?62;c")

    def wait_until_attached(self) -> None:
        """Wait for the first thing that is said in raw mode."""
        self.wait_until(lambda: b"\x1b[22;0t" in self.raw, "not attached")

    def wait_for(self, pattern: str) -> None:
        self.wait_until(lambda: re.search(pattern, self.screen, re.MULTILINE), pattern)

    def end(self) -> int:
        """Return the exit code, once the command has ended by itself."""
        self.wait_until(lambda: self.process.poll() is not None, "no end")
        self.read()
        return self.process.returncode

    def has_modes_back(self) -> bool:
        return termios.tcgetattr(self.slave) == self.modes

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def person(home) -> Iterator[Callable[..., Person]]:
    with contextlib.ExitStack() as stack:

        def sit_down(*words: str, **how: int) -> Person:
            someone = Person(*words, **how)
            stack.callback(someone.close)
            return someone

        yield sit_down


def test_a_shell_is_typed_into_and_its_code_is_the_commands(person):
    """The way in and out, with the local modes as they were."""
    ada = person("one")
    ada.wait_for(r"\$ *$")
    assert not ada.has_modes_back()
    ada.type("echo $((6 * 7)) in $SANDBOX_ID\r")
    ada.wait_for("^42 in one$")
    ada.type("exit 7\r")

    assert ada.end() == 7
    assert ada.has_modes_back()
    assert "Ctrl-] detaches" in ada.screen


def test_detached_and_back_with_the_same_screen(person, sandbox):
    """A full-screen program is left by the key, and found as it was; so is the shell below."""
    ada = person("one")
    ada.wait_for(r"\$ *$")
    ada.type("seq 5; vim -u NONE -N /workspace/poem\r")
    ada.wait_for("poem.*New")
    ada.type("itwo\x1b:f\r")
    ada.wait_for("poem.*Modified.*col 3$")  # to its end, which may come later
    before = ada.lines
    ada.type(DETACH)
    assert ada.end() == 0
    assert ada.has_modes_back()
    assert "Come back by:\njupyter sandbox terminal one\n" in ada.screen
    assert not ada.log.snapshot().is_alternate

    again = person("one")
    again.wait_for("^two$")
    again.wait_until(lambda: again.lines == before, f"{before}")
    again.type(":q!\r")
    again.wait_for(r"^5$(.|\n)*\$ *$")
    again.type("exit\r")
    assert again.end() == 0
    listed = sandbox("terminal", "one", "--list", "--json").json
    assert [(each["status"], each["session"], each["exit_code"]) for each in listed] == [
        ("exited", "default", 0)
    ]


def test_what_was_on_the_local_screen_can_be_scrolled_to(person):
    """A replay begins with a full reset, which real terminals forget all by."""
    ada = person("one")
    ada.wait_for(r"\$ *$")
    ada.type(b"echo kept" + b"\r" + DETACH)
    ada.end()
    again = person("one")
    again.wait_for("^kept$")
    again.type(DETACH)
    again.end()

    assert b"\x1bc" not in again.raw
    assert again.raw.startswith(b"jupyter sandbox: terminal ")
    assert b"\x1b[999;1H" + b"\n" * 24 in again.raw.replace(b"\r\n", b"\n")


def test_sizes_follow_the_local_window(person):
    """At the start and at each change, as programs see it."""
    ada = person("one", cols=100, rows=30)
    ada.wait_for(r"\$ *$")
    ada.type("trap 'stty size' WINCH; stty size\r")
    ada.wait_for(r"^30 100\n.*\$ *$")
    ada.resize(60, 20)
    ada.wait_for("20 60$")


def test_a_killed_client_leaves_the_terminal(person):
    """kill -9: the program goes on, and the next one to attach finds it."""
    ada = person("one", "--", "sh", "-c", "echo begun; read x; echo got $x; exit 3")
    ada.wait_for("^begun$")
    terminal = re.search(r"terminal (t-\w+)", ada.screen)[1]
    ada.process.kill()
    ada.process.wait()
    bob = person("one", "--terminal", terminal)
    bob.wait_for("^begun$")
    bob.type("it\r")

    assert bob.end() == 3
    assert "got it" in bob.screen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_gives_the_local_terminal_back(person, number):
    """Whoever ends the command: no raw mode is left, and the code says what happened."""
    ada = person("one", "--", "cat")
    ada.wait_until_attached()
    ada.type("ready\r")
    ada.wait_for("^ready$")
    ada.process.send_signal(number)

    assert ada.end() == 128 + number
    assert ada.has_modes_back()


def test_a_program_that_is_killed_leaves_a_usable_terminal(person):
    """Modes that it set are undone: alternate page, mouse, hidden cursor, paste."""
    script = r"printf '\033[?1049h\033[?1000;1006;2004h\033[?25l\033[31mdead'; kill -9 $$"
    ada = person("one", "--", "sh", "-c", script)

    assert ada.end() == 128 + signal.SIGKILL
    shown = ada.log.snapshot()
    assert not shown.is_alternate
    assert shown.modes["cursor_visible"]
    assert not shown.modes["mouse"]
    assert not shown.modes["bracketed_paste"]


def test_a_sandbox_that_stops_is_told(person, sandbox):
    """Not tried for ever; the code is none of the program's."""
    ada = person("one", "--", "cat")
    ada.wait_until_attached()
    ada.type("ready\r")
    ada.wait_for("^ready$")
    assert sandbox("stop", "one", "--grace", "0").code == 0

    assert ada.end() == 125
    assert ada.has_modes_back()
    assert "one" in ada.screen


def test_a_broken_connection_is_taken_up_where_it_broke(person):
    """The screen goes on without a gap and without a doubled byte."""
    ada = person("one", "--", "sh", "-c", "read x; seq 3000; read x; exit 4")
    ada.wait_until_attached()
    ada.type("\r")
    ada.wait_for("^1$|^2000$|^3000$")
    break_connections(ada.process.pid)
    ada.wait_for("^3000$")

    def type_until_end() -> bool:
        # What is typed into a connection that breaks is lost.
        ada.type("\r")
        return ada.process.poll() is not None

    ada.wait_until(type_until_end)
    assert ada.end() == 4
    numbers = [int(each) for each in re.findall(rb"^(\d+)\r", ada.raw, re.MULTILINE)]
    assert numbers == list(range(1, 3001))


def break_connections(pid: int) -> None:
    """Shut the unix connections of a process down, as a network does that goes away."""
    pidfd = os.pidfd_open(pid)
    for name in os.listdir(f"/proc/{pid}/fd"):
        if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
            continue
        number = _LIBC.syscall(_PIDFD_GETFD, pidfd, int(name), 0)
        assert number >= 0, os.strerror(ctypes.get_errno())
        with socket.socket(fileno=number) as held:
            # Not the pair that the event loop wakes itself with, which has no name.
            if held.family == socket.AF_UNIX and held.getpeername():
                held.shutdown(socket.SHUT_RDWR)
    os.close(pidfd)


def test_questions_in_a_replay_are_not_asked_again(person):
    """Else the answers are typed into the program, a second time."""
    ask = r"printf 'a\033[6n\033]11;?\007\033[c\n'; read x; cat"
    ada = person("one", "--", "sh", "-c", ask, answers=False)
    ada.wait_for("^a$")
    assert b"\x1b[6n" in ada.raw
    terminal = re.search(r"terminal (t-\w+)", ada.screen)[1]
    ada.type(b"\r" + DETACH)
    ada.end()
    again = person("one", "--terminal", terminal, answers=False)
    again.wait_for("^a$")
    again.type("live\r")
    again.wait_for("^live$")

    assert b"\x1b[6n" not in again.raw
    assert b"\x1b]11;?" not in again.raw
    assert ATTRIBUTES not in again.raw


def test_late_answers_are_not_left_to_the_users_shell(person):
    """What the program asked just before its end is answered when it has gone."""
    ada = person("one", "--", "sh", "-c", r"printf 'x\033[6n'", answers=False)
    ada.wait_until(lambda: ATTRIBUTES in ada.raw)
    ada.type("\x1b[1;2R\x1b[?62;c")

    assert ada.end() == 0
    os.set_blocking(ada.slave, False)
    with pytest.raises(BlockingIOError):
        os.read(ada.slave, 100)


def test_without_a_terminal_nothing_is_started(sandbox):
    """A pipe has no modes and no size; the hint names what works without."""
    ended = sandbox("terminal", "one")

    assert ended.code == 2
    assert "jupyter sandbox exec" in ended.err
    assert sandbox("list", "--json").json == []


def test_what_is_not_there(person, sandbox):
    """A terminal, a sandbox, a program: each with its code."""
    assert sandbox("terminal", "one", "--list").code == 3
    missing = person("one", "--terminal", "t-none")
    missing.wait_for("jupyter sandbox terminal one --list")
    assert missing.end() == 125
    assert person("one", "--", "no-such-program").end() == 127
    assert sandbox("terminal", "one", "--list").out == "There are no terminals in sandbox one.\n"
    assert person("one", "--detach-keys", "ctrl-", "--", "true").end() == 2
    assert person("one", "--terminal", "t-1", "--session", "a").end() == 2
    unlisted = person("one", "--json")
    unlisted.wait_for("Add --list")
    assert unlisted.end() == 2
    nowhere = person("one", "--cwd", "/nope", "--", "true")
    nowhere.wait_for("leave --cwd out")
    assert nowhere.end() == 2


def test_sessions_have_a_terminal_each(person, sandbox):
    """Its program is started once; who comes later joins."""
    ada = person("one", "--session", "a", "--", "cat")
    ada.wait_until_attached()
    ada.type("from ada\r")
    ada.wait_for("^from ada$")
    bob = person("one", "--session", "a", "--", "true")
    bob.wait_for("^from ada$")
    ada.type(DETACH)
    ada.end()

    assert "--session a" in ada.screen
    assert re.search(r"t-\w+ +running +a +80x24 .* cat$", sandbox("terminal", "one", "--list").out)


@pytest.mark.parametrize(
    ("keys", "typed", "passed", "detached"),
    [
        ("ctrl-]", [b"ab\x1dc"], [b"ab"], True),
        ("ctrl-]", [b"\x1b[93;5u"], [b""], True),
        ("ctrl-]", [b"\x1b[27;5;93~"], [b""], True),
        ("ctrl-p,ctrl-q", [b"\x10", b"\x11"], [b"", b""], True),
        ("ctrl-p,ctrl-q", [b"a\x10", b"b"], [b"a", b"\x10b"], False),
        ("ctrl-p,ctrl-q", [b"\x10\x10\x11"], [b"\x10"], True),
        ("ctrl-a,d", [b"\x01", b"x", b"\x01d"], [b"", b"\x01x", b""], True),
        ("none", [b"\x1d\x10\x11"], [b"\x1d\x10\x11"], False),
    ],
)
def test_the_keys_that_detach(keys, typed, passed, detached):
    """All else goes to the program, also what only began like them."""
    detach_keys = DetachKeys(keys)

    found = [detach_keys.feed(each) for each in typed]

    assert [each for each, _ in found] == passed
    assert found[-1][1] is detached


@pytest.mark.parametrize("keys", ["", "ctrl-", "ctrl-ab", "ctrl-1", "abc", "ctrl-],"])
def test_keys_that_are_none(keys):
    """Told before anything is started."""
    with pytest.raises(SandboxConfigurationError):
        DetachKeys(keys)


def test_only_a_full_reset_is_softened():
    """A replay of bytes stays as it is."""
    assert without_full_reset(b"abc\x1bc") == b"abc\x1bc"
    assert b"\x1bc" not in without_full_reset(b"\x18\x1bcabc")
