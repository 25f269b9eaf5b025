"""Programs on terminals: what they find, how they are controlled, how they end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.errors import (
    CommandNotFoundError,
    CommandPermissionDeniedError,
    InvalidCommandError,
    InvalidProcessEnvironmentError,
    InvalidTerminalCwdError,
    OperationInterruptedError,
    ProcessSpawnFailedError,
    StaleTerminalHandleError,
    TerminalControlError,
    TerminalNotFoundError,
    ValidationFailedError,
)
from sandbox_kernel.wire import terminal as wire
from sandbox_kernel.wire.operations import TerminalInfo
from sandbox_runtime.terminals import ENDED_KEPT
from tests.support.runtime_child import Client, RuntimeChild
from tests.support.terminal_channel import PROMPT, TerminalChannel, run_in_foreground

BASH = ["bash", "--norc", "--noprofile"]


@pytest.fixture
def terminal(runtime: RuntimeChild, client: Client) -> Any:
    """Create a terminal and view it from its first byte on."""
    opened: list[Client] = []

    def create(argv: list[str] | None = None, **fields: Any) -> TerminalChannel:
        info = client.call("terminal.create", argv=argv or BASH, **fields)
        opened.append(runtime.connect())
        return TerminalChannel(opened[-1], info.terminal_id, cursor=info.cursor)

    yield create
    for each in opened:
        each.close()


Create = Callable[..., TerminalChannel]


def ended(client: Client, terminal_id: str) -> TerminalInfo:
    info = client.call("terminal.wait", terminal_id=terminal_id)
    assert isinstance(info, TerminalInfo)
    return info


def wait_until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


# --- what a program finds -------------------------------------------------------------------------


def test_the_size_is_there_before_the_program(client: Client) -> None:
    """A program that reads its size once, at its start, reads the right one; 50 of them."""
    for _ in range(5):
        made = [
            client.call("terminal.create", argv=["stty", "size"], cols=133, rows=41)
            for _ in range(10)
        ]
        for each in made:
            ended(client, each.terminal_id)
            assert read(client, each.terminal_id)[0] == b"41 133\r\n"


def test_a_program_has_a_session_and_a_controlling_terminal(terminal: Create) -> None:
    """So there is job control, and no warning about the want of it."""
    view = terminal()
    view.type(b"set -o | grep monitor; ps -o tty=,tpgid=,sid= -p $$; echo $$ END$((1))\r")
    told = view.read_until(b"END1").decode()

    assert "no job control" not in told
    assert "monitor        \ton" in told
    tty, foreground, session = told.splitlines()[-2].split()
    shell = told.split()[-2]
    assert tty.startswith("pts/")
    assert int(foreground) > 0
    assert session == shell


def test_modes(terminal: Create) -> None:
    """Ctrl-S is the program's own, erase takes whole characters, the rest is as usual."""
    view = terminal(["sh", "-c", "stty -a"])
    told = view.read_until(b"cs8").decode() + str(view.wait_for(wire.Exited)) + view.data.decode()

    for mode in ("-ixon", "iutf8", "icanon", "isig", "echo", "icrnl", "onlcr"):
        assert f" {mode} " in told.replace("\r\n", " "), mode


def test_erase_takes_whole_characters(terminal: Create) -> None:
    """In line mode, where the system does the editing."""
    view = terminal(["sh", "-c", "stty -echo; echo up; head -n1 | od -An -tx1"])
    view.read_until(b"up")
    view.type("ab漢".encode() + b"\x7fc\n")

    view.read_until(b" 61 62 63 0a")


def test_letters_beyond_ascii_at_a_prompt(terminal: Create) -> None:
    """The shell knows that its locale is UTF-8."""
    view = terminal()
    view.type("echo ö漢😀".encode() + b"\x7f\x7f\r")

    view.read_until(b"\r\n")
    view.read_until("ö\r\n".encode())


def test_signals_are_as_programs_expect_them(terminal: Create) -> None:
    """Nothing is ignored or blocked, although the runtime ignores some."""
    view = terminal(["cat", "/proc/self/status"])
    view.wait_for(wire.Exited)
    status = dict(line.split(":\t") for line in view.data.decode().splitlines() if ":\t" in line)

    # The C library keeps 32 and 33 to itself; they are as the runtime's starter left them.
    kept = 1 << 31 | 1 << 32
    masks = [int(status[name], 16) & ~kept for name in ("SigBlk", "SigIgn", "SigCgt")]
    assert masks == [0, 0, 0]


def test_no_descriptor_of_the_runtime_leaks(terminal: Create) -> None:
    """A program has its terminal as 0, 1 and 2 and nothing else."""
    terminal(["sleep", "60"])
    view = terminal(["sh", "-c", "ls -l /proc/$$/fd"])
    view.wait_for(wire.Exited)
    links = [line.split(" -> ")[1] for line in view.data.decode().splitlines() if " -> " in line]

    assert len(links) == 3
    assert len(set(links)) == 1
    assert links[0].startswith("/dev/pts/")


def test_the_environment(start_runtime: Any) -> None:
    """The sandbox's, with TERM and colours; never the runtime's own, nor a size of another time."""
    runtime = start_runtime(
        env={"PATH": os.environ["PATH"], "TERM": "dumb", "COLUMNS": "10", "BASE": "b"}
    )
    with runtime.connect() as client:
        info = client.call("terminal.create", argv=["env"], env={"MINE": "m", "BASE": None})
        ended(client, info.terminal_id)
        items, _ = client.call("terminal.output", terminal_id=info.terminal_id)

    lines = b"".join(each.data for each in items if each.data).decode().split("\r\n")
    assert sorted(line for line in lines if line and not line.startswith("PATH=")) == [
        "COLORTERM=truecolor",
        "LANG=C.UTF-8",
        "MINE=m",
        f"SANDBOX_TERMINAL={info.terminal_id}",
        "TERM=xterm-256color",
    ]


def test_the_caller_decides_about_term(terminal: Create) -> None:
    """For that terminal only."""
    view = terminal(["sh", "-c", "echo [$TERM]"], env={"TERM": "vt100"})
    view.read_until(b"[vt100]")
    view = terminal(["sh", "-c", "echo [$TERM]"])
    view.read_until(b"[xterm-256color]")


def test_there_is_no_shell_in_between(terminal: Create) -> None:
    """Arguments arrive as they are."""
    view = terminal(["printf", "<%s>", "$HOME", "a b", "*", "'", "é"])
    view.wait_for(wire.Exited)

    assert view.data.decode() == "<$HOME><a b><*><'><é>"


def test_the_default_program_is_the_users_shell(client: Client) -> None:
    """That of SHELL, if there is one; else bash, or what is there."""
    info = client.call("terminal.create", env={"SHELL": "/bin/sh"})
    assert info.argv == ["/bin/sh"]

    for shell in (None, "", "no/path", "/no/such/shell"):
        info = client.call("terminal.create", env={"SHELL": shell})
        assert info.argv == ["/bin/bash"]


def test_bytes_are_bytes(terminal: Create) -> None:
    """What is no text passes unharmed in both directions."""
    code = "import os,tty; tty.setraw(0); os.write(1,b'up'); os.write(1, os.read(0,99)[::-1])"
    view = terminal([sys.executable, "-c", code])
    view.read_until(b"up")
    view.type(bytes([0, 255, 128, 3, 26, 4, 127, 17, 19]))
    view.wait_for(wire.Exited)

    assert view.data == bytes([19, 17, 127, 4, 26, 3, 128, 255, 0])


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"argv": []}, InvalidCommandError),
        ({"argv": [""]}, InvalidCommandError),
        ({"argv": ["a\0b"]}, InvalidCommandError),
        ({"argv": ["no-such-program"]}, CommandNotFoundError),
        ({"argv": ["/etc/passwd"]}, CommandPermissionDeniedError),
        ({"cwd": "/no/such/dir"}, InvalidTerminalCwdError),
        ({"cwd": "/etc/passwd"}, InvalidTerminalCwdError),
        ({"cwd": "no/such/dir"}, InvalidTerminalCwdError),
        ({"cwd": ""}, InvalidTerminalCwdError),
        ({"cwd": "/a\0b"}, InvalidTerminalCwdError),
        ({"env": {"A=B": "c"}}, InvalidProcessEnvironmentError),
        ({"env": {"A": "\0"}}, InvalidProcessEnvironmentError),
        ({"cols": 0}, ValidationFailedError),
        ({"rows": -1}, ValidationFailedError),
        ({"cols": 2001}, ValidationFailedError),
        ({"rows": 1001}, ValidationFailedError),
        ({"cols": 1000, "rows": 501}, ValidationFailedError),
        ({"buffer_size": 10}, ValidationFailedError),
        ({"buffer_size": 1 << 30}, ValidationFailedError),
        ({"terminal_id": ""}, ValidationFailedError),
        ({"terminal_id": "a\n"}, ValidationFailedError),
        ({"session": ""}, ValidationFailedError),
    ],
)
def test_what_cannot_be_started(
    client: Client, fields: dict[str, Any], error: type[Exception]
) -> None:
    """Is refused with a typed error, and leaves no terminal and no process behind."""
    before = client.call("runtime.health")
    with pytest.raises(error):
        client.call("terminal.create", **{"argv": ["true"], **fields})

    assert client.call("terminal.list").terminals == []
    assert client.call("runtime.health").terminals == before.terminals == 0


@pytest.mark.parametrize("descriptors", [40, 41, 42, 43])
def test_terminals_run_out_with_a_typed_error(start_runtime: Any, descriptors: int) -> None:
    """Where descriptors do; what lives is not harmed, and there is room again later."""
    runtime = start_runtime(rlimits={"nofile": descriptors})
    with runtime.connect() as client:
        made: list[TerminalInfo] = []

        def fill() -> None:
            while len(made) < 100:
                made.append(client.call("terminal.create", argv=["cat"]))

        with pytest.raises(ProcessSpawnFailedError):
            fill()
        assert len(made) > 5
        assert all(each.status == "running" for each in client.call("terminal.list").terminals)

        client.call("terminal.terminate", terminal_id=made[0].terminal_id)

        client.call("terminal.create", argv=["cat"])


def test_unknown_and_stale_terminals(client: Client) -> None:
    """Each operation that names one says which it is."""
    known = client.call("terminal.create", argv=["cat"])
    for operation, fields in (
        ("terminal.get", {}),
        ("terminal.snapshot", {}),
        ("terminal.write", {"data": b"x"}),
        ("terminal.resize", {"cols": 1, "rows": 1}),
        ("terminal.interrupt", {}),
        ("terminal.terminate", {}),
        ("terminal.wait", {}),
        ("terminal.output", {}),
        ("terminal.connect", {}),
    ):
        with pytest.raises(TerminalNotFoundError):
            client.call(operation, terminal_id="t-none", **fields)
        call = client.begin(
            operation, terminal_id=known.terminal_id, incarnation="0" * 16, **fields
        )
        with pytest.raises(StaleTerminalHandleError):
            client.finish(call)
    assert client.call("terminal.get", terminal_id=known.terminal_id).status == "running"


# --- control --------------------------------------------------------------------------------------


def test_ctrl_c_ctrl_z_fg_and_bg(terminal: Create) -> None:
    """The keys reach the job in the foreground, not the shell."""
    view = terminal()
    run_in_foreground(view, b"sleep 100")
    view.type(b"\x03")
    view.read_until(PROMPT)
    view.type(b"echo code $?\r")
    view.read_until(b"code 130")

    run_in_foreground(view, b"sleep 101")
    view.type(b"\x1a")
    view.read_until(b"Stopped")
    view.read_until(PROMPT)
    view.type(b"bg\r")
    view.read_until(b"&")
    view.type(b"jobs\r")
    view.read_until(b"Running")
    view.type(b"kill %1; fg; echo over$((1))\r")
    view.read_until(b"over1")


def test_resize_is_told_to_programs(client: Client, terminal: Create) -> None:
    """By SIGWINCH; the same size again is none."""
    code = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH]); print('up', flush=True)\n"
        "while signal.sigwait([signal.SIGWINCH]):\n"
        "    size = os.get_terminal_size(); print('WINCH', size.lines, size.columns, flush=True)"
    )
    view = terminal([sys.executable, "-c", code])
    view.read_until(b"up")
    view.resize(101, 37)
    view.read_until(b"WINCH 37 101")

    view.resize(101, 37)
    view.resize(0, 0)
    view.wait_for(wire.ChannelFailed)  # so all that came before it was taken
    client.call("terminal.resize", terminal_id=view.info.terminal_id, cols=90, rows=30)
    assert b"WINCH 37 101" not in view.read_until(b"WINCH 30 90")
    info = client.call("terminal.get", terminal_id=view.info.terminal_id)
    assert (info.cols, info.rows) == (90, 30)


def test_interrupt_reaches_the_foreground(client: Client, terminal: Create) -> None:
    """The job's group under job control; the shell goes on with its prompt."""
    view = terminal()
    run_in_foreground(view, b"sleep 100", then=b"; echo not reached$((1))")
    began = time.monotonic()

    client.call("terminal.interrupt", terminal_id=view.info.terminal_id)

    view.type(b"echo code $?\r")
    told = view.read_until(b"code 130")
    assert time.monotonic() - began < 5
    assert b"reached1" not in told


def test_interrupt_reaches_a_program_in_raw_mode(client: Client, terminal: Create) -> None:
    """Which has switched the interrupt character off."""
    code = (
        "import time, tty; tty.setraw(0)\n"
        "try: print('up', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    view = terminal([sys.executable, "-c", code])
    view.read_until(b"up")
    client.call("terminal.interrupt", terminal_id=view.info.terminal_id)

    view.read_until(b"interrupted")


def test_interrupt_by_a_viewer(terminal: Create) -> None:
    """The channel's order does the same."""
    view = terminal(["sleep", "60"])
    view.order(wire.Interrupt())

    assert view.wait_for(wire.Exited).signal == 2


# --- ends -----------------------------------------------------------------------------------------


def test_exit_comes_after_the_last_output(terminal: Create) -> None:
    """All of it, then one exit, then nothing."""
    view = terminal(["bash", "-c", "seq 1 200000; echo LAST; exit 7"])
    exited = view.wait_for(wire.Exited)

    expected = b"".join(b"%d\r\n" % number for number in range(1, 200001)) + b"LAST\r\n"
    assert view.data == expected
    assert (exited.exit_code, exited.signal, exited.offset) == (7, None, len(expected))
    view.quiet(0.2)
    assert view.events[-1] == exited


def test_output_of_an_exit_trap_comes_before_the_exit(client: Client, terminal: Create) -> None:
    """And the end by a signal is told as one."""
    view = terminal(["bash", "-c", "trap 'echo trapped' EXIT; echo up; kill -9 $BASHPID"])
    assert view.wait_for(wire.Exited).signal == 9
    view = terminal(["bash", "-c", "trap 'echo trapped' EXIT; exit 3"])
    assert view.wait_for(wire.Exited).exit_code == 3
    assert view.data == b"trapped\r\n"
    info = ended(client, view.info.terminal_id)
    assert (info.status, info.exit_code, info.signal) == ("exited", 3, None)


def test_a_background_job_does_not_delay_the_exit(terminal: Create) -> None:
    """Although it keeps the terminal open; it lives on, and may write."""
    view = terminal()
    view.type(b"(sleep 1; echo late >&2 && touch written) & sleep 300 & exit\r")
    began = time.monotonic()
    exited = view.wait_for(wire.Exited)

    assert exited.exit_code == 0
    assert time.monotonic() - began < 15


def test_what_is_left_in_the_background_lives_on(runtime: RuntimeChild, terminal: Create) -> None:
    """Its output goes nowhere, and does not harm it."""
    view = terminal(["sh", "-c", "trap '' HUP; (sleep 0.3; seq 1 100000; touch done) & exit 0"])
    view.wait_for(wire.Exited)

    wait_until((runtime.workspace / "done").exists)
    assert view.events[-1] == view.seen(wire.Exited)[0]


def test_a_background_flood_does_not_delay_the_exit(terminal: Create) -> None:
    """The output of others is waited for half a second, at most."""
    view = terminal(["sh", "-c", "trap '' HUP; (timeout 5 yes) & exit 5"])
    began = time.monotonic()

    assert view.wait_for(wire.Exited).exit_code == 5
    assert time.monotonic() - began < 3


def test_a_program_that_closes_its_terminal_has_not_ended(terminal: Create) -> None:
    """It may open it again."""
    script = "exec <&- >&- 2>&-; sleep 0.3; echo again >/dev/tty"
    view = terminal(["sh", "-c", script])

    view.wait_for(wire.Exited)
    assert view.data == b"again\r\n"


def test_ctrl_d_ends_what_reads(client: Client, terminal: Create) -> None:
    """First the program, then the shell; nothing defunct is left."""
    view = terminal()
    view.read_until(PROMPT)
    view.type(b"true\r")
    run_in_foreground(view, b"cat")
    view.type(b"abc\n")
    view.read_until(b"abc\r\nabc")
    view.type(b"\x04")
    view.read_until(PROMPT)
    view.type(b"(exit 3)\r")
    view.read_until(PROMPT)
    view.type(b"\x04")

    assert view.wait_for(wire.Exited).exit_code == 3
    info = ended(client, view.info.terminal_id)
    assert not Path(f"/proc/{info.pid}").exists()


def test_ended_terminals_are_kept_for_reading(client: Client) -> None:
    """The last 25; living ones are never dropped, and come first."""
    living = client.call("terminal.create", argv=["cat"])
    made = []
    for number in range(ENDED_KEPT + 3):
        made.append(client.call("terminal.create", argv=["echo", str(number)]))
        ended(client, made[-1].terminal_id)

    known = [each.terminal_id for each in client.call("terminal.list").terminals]
    assert known == [living.terminal_id, *(each.terminal_id for each in made[3:])]
    with pytest.raises(TerminalNotFoundError):
        client.call("terminal.get", terminal_id=made[0].terminal_id)
    items, _ = client.call("terminal.output", terminal_id=made[-1].terminal_id)
    assert [each.type for each in items] == ["data", "terminal"]


def test_an_ended_terminal_takes_no_more_orders(client: Client, runtime: RuntimeChild) -> None:
    """Calls are refused with a typed error; a viewer sees it as it ended, and does no harm."""
    info = client.call("terminal.create", argv=["echo", "word"])
    ended(client, info.terminal_id)
    for operation, fields in (
        ("terminal.write", {"data": b"x"}),
        ("terminal.resize", {"cols": 1, "rows": 1}),
        ("terminal.interrupt", {}),
    ):
        with pytest.raises(TerminalControlError):
            client.call(operation, terminal_id=info.terminal_id, **fields)
    assert client.call("terminal.terminate", terminal_id=info.terminal_id).status == "exited"

    with runtime.connect() as other:
        view = TerminalChannel(other, info.terminal_id, cols=90, rows=30)
        exited = view.wait_for(wire.Exited)
        assert exited.exit_code == 0
        assert b"word" in view.data
        view.type(b"\x03hello\r")
        view.resize(70, 20)
        view.order(wire.Interrupt())
        assert view.wait_for(wire.ChannelFailed).code == "TERMINAL_CONTROL_ERROR"


def test_waiting_may_be_given_up(client: Client) -> None:
    """Without any effect on the terminal."""
    info = client.call("terminal.create", argv=["cat"])
    call = client.begin("terminal.wait", terminal_id=info.terminal_id)
    client.send(client.protocol.cancel(call))
    with pytest.raises(OperationInterruptedError):
        client.finish(call)

    client.call("terminal.write", terminal_id=info.terminal_id, data=b"\x04")
    assert ended(client, info.terminal_id).exit_code == 0


def test_the_folder_may_vanish(runtime: RuntimeChild, client: Client) -> None:
    """A terminal whose folder is gone still accepts viewers."""
    folder = runtime.workspace / "d"
    folder.mkdir()
    info = client.call("terminal.create", argv=["cat"], cwd=str(folder))
    folder.rmdir()

    with runtime.connect() as other:
        view = TerminalChannel(other, info.terminal_id)
        view.type(b"word\r")
        view.read_until(b"word\r\nword")


# --- sessions -------------------------------------------------------------------------------------


def test_a_session_has_one_living_terminal(client: Client) -> None:
    """It is found again, and made anew once it has ended, unless the ended one is wanted."""
    first = client.call("terminal.create", argv=["cat"], session="s")
    again = client.call("terminal.create", argv=["false"], session="s")
    other = client.call("terminal.create", argv=["cat"], session="o")
    assert (first.existing, again.existing, other.existing) == (False, True, False)
    assert again.terminal_id == first.terminal_id != other.terminal_id

    client.call("terminal.terminate", terminal_id=first.terminal_id)

    found = client.call("terminal.create", argv=["cat"], session="s", find_ended=True)
    assert (found.terminal_id, found.existing, found.status) == (
        first.terminal_id,
        True,
        "exited",
    )
    anew = client.call("terminal.create", argv=["cat"], session="s")
    assert not anew.existing
    assert anew.terminal_id != first.terminal_id


# --- reading --------------------------------------------------------------------------------------


def test_output_is_read_from_cursors(client: Client) -> None:
    """From the start, from any event, from now; followed to the end or not."""
    info = client.call("terminal.create", argv=["cat"])
    tid = info.terminal_id
    following = client.begin("terminal.output", terminal_id=tid, follow=True)
    client.call("terminal.write", terminal_id=tid, data=b"one\n")
    wait_until(lambda: len(read(client, tid)[0]) == len(b"one\r\none\r\n"))
    whole, cursor = read(client, tid)
    assert whole == b"one\r\none\r\n"
    assert read(client, tid, replay=False)[0] == b""

    from_now = client.begin("terminal.output", terminal_id=tid, replay=False, follow=True)
    client.call("terminal.write", terminal_id=tid, data=b"two\n\x04")
    ended(client, tid)

    assert read(client, tid, since=cursor)[0] == b"two\r\ntwo\r\n"
    for call, expected in ((following, whole + b"two\r\ntwo\r\n"), (from_now, b"two\r\ntwo\r\n")):
        items, end = client.finish(call)
        assert b"".join(each.data or b"" for each in items) == expected
        assert items[-1].type == "terminal"
        assert (items[-1].state, items[-1].exit_code) == ("exited", 0)
        assert end.cursor == items[-1].cursor
        assert end.info.status == "exited"


def read(client: Client, terminal_id: str, **fields: Any) -> tuple[bytes, str]:
    items, end = client.call("terminal.output", terminal_id=terminal_id, **fields)
    return b"".join(each.data or b"" for each in items), end.cursor


def test_a_stream_may_be_cancelled(client: Client) -> None:
    """It ends at once; the terminal lives."""
    info = client.call("terminal.create", argv=["cat"])
    call = client.begin("terminal.output", terminal_id=info.terminal_id, follow=True)
    client.send(client.protocol.cancel(call))
    client.finish(call)

    assert client.call("terminal.get", terminal_id=info.terminal_id).status == "running"


def test_a_late_reader_is_told_what_it_missed(client: Client) -> None:
    """Truncated once, with a cursor, then all that is kept."""
    info = client.call("terminal.create", argv=["seq", "1", "100000"], buffer_size=65536)
    ended(client, info.terminal_id)
    items, _ = client.call("terminal.output", terminal_id=info.terminal_id)
    first = wire.encode_cursor(info.incarnation, info.terminal_id, 0)
    again, _ = client.call("terminal.output", terminal_id=info.terminal_id, since=first)

    assert again[0].type == "truncated"
    assert again[0].cursor
    for each in (items, again[1:]):
        data = b"".join(item.data or b"" for item in each)
        assert data.endswith(b"99999\r\n100000\r\n")
        assert 65536 <= len(data) <= 3 * 65536


def test_writing_waits_for_the_program(client: Client) -> None:
    """The call is answered when all is in the terminal; it may be given up."""
    code = (
        "import os, tty, time; tty.setraw(0); os.write(1, b'up')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "n = 0\nwhile n < 1000000: n += len(os.read(0, 65536))\nos.write(1, b'%d' % n)"
    )
    info = client.call("terminal.create", argv=[sys.executable, "-c", code])
    tid = info.terminal_id
    wait_until(lambda: read(client, tid)[0] == b"up")
    long = client.begin("terminal.write", terminal_id=tid, data=b"x" * 1000000)
    given_up = client.begin("terminal.write", terminal_id=tid, data=b"y" * 1000000)
    client.send(client.protocol.cancel(given_up))
    with pytest.raises(OperationInterruptedError):
        client.finish(given_up)
    assert client.event_within(long, 0.2) is None
    client.run("touch", "go")

    client.finish(long)
    ended(client, tid)
    assert read(client, tid)[0] == b"up1000000"
