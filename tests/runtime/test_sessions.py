"""Sessions: a shell that keeps its state, one command at a time, and never stays stuck."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import sandbox_runtime
from sandbox_kernel.errors import (
    CommandNotFoundError,
    OperationInterruptedError,
    ProcessAbortedError,
    SessionTerminatedError,
)
from sandbox_runtime.command_members import kill_members
from tests.runtime.conftest import Start
from tests.support.runtime_child import Client, RuntimeChild, join
from tests.support.small_disk import run_on_small_disk


def wait_until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_until_gone(word: str, timeout: float) -> None:
    """Wait until no living process has this word in its command line."""
    wait_until(
        lambda: (
            not any(
                word in (each.info["cmdline"] or [])
                for each in psutil.process_iter(["cmdline", "status"])
                if each.info["status"] != psutil.STATUS_ZOMBIE
            )
        ),
        timeout,
    )


def shell(client: Client, command: str, session: str = "default", **fields):
    """Run a text; return (stdout, stderr, exit code)."""
    items, end = client.call("exec", command=command, session=session, **fields)
    return join(items, "stdout"), join(items, "stderr"), end.exit_code


def test_state_persists(client: Client) -> None:
    """Folder, variables, functions, aliases, options and background jobs are there afterwards."""
    shell(
        client, "cd /usr; export A=1; B=2; f() { echo f $1; }; alias ll='echo aliased'; sleep 60 &"
    )

    out, err, code = shell(client, "pwd; echo $A$B; f x; ll y; jobs | grep -c sleep; kill %1")

    assert (out, err, code) == (b"/usr\n12\nf x\naliased y\n1\n", b"", 0)


@pytest.mark.parametrize(
    ("text", "stdout", "code"),
    [
        ("printf 'A\\377B\\0C'", b"A\xffB\0C", 0),
        ("echo hi", b"hi\n", 0),
        ("printf 'no newline'", b"no newline", 0),
        ("true", b"", 0),
        ("exit_code() { return 7; }; exit_code", b"", 7),
        ("(exit 3)", b"", 3),
        ("return 4", b"", 4),
        ("cat <<'E'\n$x \"q\"\n\nE", b'$x "q"\n\n', 0),
        ("cat <<E\nno end", b"no end\n", 0),
        ("echo $LINENO\necho $LINENO", b"1\n2\n", 0),
        ("echo é漢😀 | rev", "😀漢é\n".encode(), 0),
        ("head -c 300000 /dev/zero | tr '\\0' x", b"x" * 300000, 0),
        ("cat; read x || echo eof", b"eof\n", 0),
        ("f() { builtin echo $#; }; f 'a b' \"\" '*'", b"3\n", 0),
        ("exec 2>&1; echo o; echo e >&2", b"o\ne\n", 0),
        ("bash -c 'kill -9 $$'; echo $?", b"137\n", 0),
        ("for i in 1 2 3; do (exit $i) & done; wait; echo done", b"done\n", 0),
        ("ls /proc/self/fd | wc -l", b"4\n", 0),
    ],
)
def test_bytes_in_are_bytes_out(client: Client, text: str, stdout: bytes, code: int) -> None:
    """Output comes byte for byte, with the code of the last command, and no program has more
    than the three usual descriptors."""
    assert shell(client, text)[::2] == (stdout, code)


def test_the_last_code_is_known_to_the_next_command(client: Client) -> None:
    """As in a terminal; without troubling errexit."""
    shell(client, "(exit 9)")

    assert shell(client, "echo $?")[0] == b"9\n"
    assert shell(client, "echo $?")[0] == b"0\n"
    shell(client, "set -e")
    assert shell(client, "echo $?; set +e")[0] == b"0\n"


@pytest.mark.parametrize("text", ["echo 'open", 'echo "open', "echo $(", "if true", "echo )", "{"])
def test_a_syntax_error_is_of_that_command_alone(client: Client, text: str) -> None:
    """Code 2 and a message; what comes next is not swallowed."""
    shell(client, "A=kept")
    out, err, code = shell(client, text)

    assert (out, code) == (b"", 2)
    assert b"syntax error" in err or b"unexpected EOF" in err
    assert shell(client, "echo $A") == (b"kept\n", b"", 0)


@pytest.mark.parametrize(
    "text",
    [
        "exec >{file}; echo gone",
        "exec 0<&- 1>&- 2>&-",
        "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-",
        "PROMPT_COMMAND='echo prompt; exit 1'",
        "trap 'echo dbg' DEBUG; trap 'echo err' ERR; trap 'echo ret' RETURN",
        "trap 'echo $BASH_COMMAND' DEBUG",
        "printf() { echo mine; }; read() { return 1; }; eval() { :; }; source() { :; }; echo() { :; }",
        "alias builtin=false printf=false read=false",
        "set -u; echo $nowhere",
        "echo ${nowhere?must be set}",
        "set -f; IFS=x; set -C; set -a; set -k; set -x; set -v",
        "set -o posix",
        "shopt -s extglob nullglob failglob dotglob expand_aliases",
        "set -- a b c; shift 2",
        "TMOUT=1",
        "unset PATH HOME PWD OLDPWD",
        "readonly RO=1; RO=2",
        "kill -INT $$",
        "exec no-such-program",
        "unset __sandbox; declare -i __sandbox",
        "break",
        "continue",
        "break 9",
        "continue 9",
        "enable -n echo",
        "ulimit -n 64",
        "LC_ALL=xx_YY.broken",
        "rm -rf {spool}/session-*",
        "trap '' INT TERM HUP",
        "exec 255>&-",
        "enable -n . printf read :",
        "trap 'return 3' RETURN DEBUG",
    ],
)
def test_nothing_a_command_does_breaks_the_next_one(client, runtime, tmp_path, text) -> None:
    """Options, traps, redirections, names and descriptors of the shell are the user's to spoil."""
    text = text.replace("{file}", str(tmp_path / "file"))
    text = text.replace("{spool}", str(runtime.folder))
    shell(client, text)

    for _ in range(2):
        out, err, code = shell(client, "/bin/echo alive")

        assert b"alive" in out.splitlines(), err
        assert code == 0


@pytest.mark.parametrize(
    ("before", "text", "stdout", "stderr"),
    [
        ("set -x", "echo hi", b"hi\n", b"++ echo hi\n"),
        ("set -x", "f() { echo $1; }; f hi", b"hi\n", b"++ f hi\n++ echo hi\n"),
        ("set -v", "echo hi", b"hi\n", b"echo hi\n"),
        ("trap 'echo $BASH_COMMAND' DEBUG", "echo hi", b"hi\n", b""),
        ("set -T; trap 'echo $BASH_COMMAND' DEBUG", "echo hi", b"echo hi\nhi\n", b""),
        ("trap 'echo $BASH_COMMAND' ERR", "false", b"false\n", b""),
        ("trap 'return 3' DEBUG", "echo hi", b"hi\n", b""),
        ("set -a", "env | grep -c sandbox", b"0\n", b""),
    ],
)
def test_our_own_words_are_not_seen(client, before, text, stdout, stderr) -> None:
    """Traces, traps and exported names tell of the user's text alone."""
    shell(client, before)

    for _ in range(2):
        assert shell(client, text)[:2] == (stdout, stderr)


@pytest.mark.parametrize("text", ["ulimit -n 3", "readonly __sandbox=1", "set -r"])
def test_a_shell_that_runs_nothing_any_more_is_replaced(client: Client, text: str) -> None:
    """A text that was not run is never told as one that failed by itself."""
    shell(client, text)
    with pytest.raises(SessionTerminatedError, match="ran nothing any more and was replaced"):
        shell(client, "/bin/echo alive", timeout=5)

    assert shell(client, "/bin/echo alive", timeout=5)[0] == b"alive\n"


def test_a_shell_that_memory_ended_says_so(start_runtime: Start, tmp_path: Path) -> None:
    """A KILL with a risen counter is the limit's doing; any other is not."""
    events = tmp_path / "events"
    events.write_text("oom_kill 0\n")
    with start_runtime(memory_events=str(events)).connect() as client:
        with pytest.raises(SessionTerminatedError, match="memory limit was reached"):
            shell(client, f"echo oom_kill 1 > {events}; kill -9 $$")
        with pytest.raises(SessionTerminatedError) as other:
            shell(client, "kill -9 $$")

    assert "memory" not in str(other.value)


def test_members_that_multiply_are_stopped_before_the_first_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else those that are killed make room for those that the others start meanwhile."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    found = iter([[1, 2], [1, 2, 3], [2, 3]])

    kill_members(lambda: next(found))

    assert sent[:3] == [(1, signal.SIGSTOP), (2, signal.SIGSTOP), (3, signal.SIGSTOP)]
    assert sorted(sent[3:]) == [(1, signal.SIGKILL), (2, signal.SIGKILL), (3, signal.SIGKILL)]


def test_a_removed_folder_is_survived(client: Client, tmp_path) -> None:
    """A shell whose folder is gone goes on, and can leave."""
    place = tmp_path / "place"
    place.mkdir()
    shell(client, f"cd {place}; rmdir {place}")

    assert shell(client, "echo alive; cd /; pwd") == (b"alive\n/\n", b"", 0)


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "number"),
    [
        ("echo out; exit 3", 3, None),
        ("f() { echo out; { exit 4; }; }; f", 4, None),
        ("set -e; echo out; false; echo no", 1, None),
        ("echo out; exec sh -c 'exit 6'", 6, None),
        ("echo out; kill -9 $$", 137, 9),
        ("trap 'echo out' EXIT; exit 7", 7, None),
    ],
)
def test_the_end_of_the_shell_is_told_once(client: Client, text, code, number) -> None:
    """The command that ends it gets SESSION_TERMINATED and what it wrote; the next one a new shell
    in the last known folder."""
    shell(client, "cd /usr; A=1")
    call = client.begin("exec", command=text, session="default")
    assert b"out" in bytes(client.event_of(call).body)
    with pytest.raises(SessionTerminatedError) as caught:
        client.finish(call)

    assert caught.value.context["exit_code"] == code
    assert caught.value.context["signal"] == number
    assert shell(client, "pwd; echo ${A-unset}") == (b"/usr\nunset\n", b"", 0)


def test_a_shell_that_ends_between_commands_is_told_once(client: Client) -> None:
    """As is one that was killed while nobody looked."""
    pid = int(shell(client, "echo $$")[0])
    os.kill(pid, 9)
    wait_until(lambda: client.call("session.get", session_id="default").status == "terminated")
    with pytest.raises(SessionTerminatedError):
        shell(client, "true")

    assert shell(client, "echo new") == (b"new\n", b"", 0)


STUCK = [
    "while :; do :; done",
    "while :; do sleep 1000; done",
    "sleep 1000; echo no",
    "f() { while :; do :; done; }; f",
    "x=$(sleep 1000); echo no",
    "sleep 1000 | cat | cat; echo no",
    "( while :; do :; done ); sleep 1000",
    "sleep 1000 & wait; sleep 1000",
    "read x < <(sleep 1000); sleep 1000",
    "setsid sleep 1000 & sleep 1000",
    "(setsid sleep 1000 &) ; sleep 1000",
    "python3 -c 'import signal, time; signal.signal(2, lambda *_: None); time.sleep(1000)'",
    "bash -c 'trap : INT TERM; sleep 1000 & wait; wait'",
    "cat <(sleep 1000)",
    "coproc sleep 1000; wait",
    "while :; do sleep 0.01; done",
    "while :; do /bin/true | /bin/true; done",
    "while :; do (:); done",
]


@pytest.mark.parametrize("text", STUCK)
def test_a_time_limit_ends_everything_and_keeps_the_shell(client: Client, text: str) -> None:
    """The caller is told, no process is left, and the session has its state and is free."""
    shell(client, "cd /usr; A=kept; sleep 4000 & J=$!")
    begin = time.monotonic()
    items, end = client.call("exec", command=text, session="default", timeout=0.3)

    assert end.timed_out
    assert end.reason == "timeout"
    assert 0.3 <= time.monotonic() - begin < 3
    assert join(items, "stdout") == b""
    wait_until_gone("1000", 3)
    assert shell(client, "pwd; echo $A; kill $J && echo job") == (b"/usr\nkept\njob\n", b"", 0)


@pytest.mark.parametrize(
    "program", ["sh -c 'kill -STOP $$; sleep 1000'", "(kill -STOP $BASHPID; sleep 1000; echo no)"]
)
def test_what_is_killed_goes_no_step_further(client: Client, program: str) -> None:
    """Nor where the program could not run in the moment of the end, as on a busy machine."""
    call = client.begin("exec", command=f"{program}; echo no", session="default")
    child: list[psutil.Process] = []

    def is_stopped() -> bool:
        (info,) = client.call("process.list").processes
        child[:] = psutil.Process(info.pid).children() if info.pid else []
        return [each.status() for each in child] == [psutil.STATUS_STOPPED]

    wait_until(is_stopped)
    (info,) = client.call("process.list").processes
    client.call("process.signal", process_id=info.process_id, signal=9)
    items, end = client.finish(call)

    assert join(items, "stdout") == b""
    assert end.exit_code > 128


@pytest.mark.parametrize(
    "text", ["trap '' INT; while :; do :; done", "trap : INT; while :; do :; done", "kill -STOP $$"]
)
def test_a_shell_that_does_not_come_back_is_replaced(client: Client, text: str) -> None:
    """The caller gets the time limit, the next command the news, the one after that a new shell."""
    shell(client, "cd /usr; A=1")
    _, end = client.call("exec", command=text, session="default", timeout=0.2)

    assert end.timed_out
    with pytest.raises(SessionTerminatedError, match="replaced"):
        shell(client, "true")
    assert shell(client, "pwd; echo ${A-unset}") == (b"/usr\nunset\n", b"", 0)


def test_a_shell_that_can_not_report_is_replaced(client: Client) -> None:
    """Without a time limit, too: who takes `builtin` away does not wait for ever."""
    with pytest.raises(SessionTerminatedError, match="replaced"):
        shell(client, "builtin() { :; }")

    assert shell(client, "echo new") == (b"new\n", b"", 0)


@pytest.mark.parametrize("number", [10, 11, 12, 13])
def test_a_shell_whose_own_descriptors_are_closed_holds_nobody_up(client, number) -> None:
    """Bash keeps there what it was started with; without a time limit, too, the session goes on."""
    begin = time.monotonic()
    for text in (f"exec {number}>&-", "/bin/echo alive"):
        with contextlib.suppress(SessionTerminatedError):
            shell(client, text)

    assert shell(client, "/bin/echo alive")[0] == b"alive\n"
    assert time.monotonic() - begin < 10


def test_cancelling_ends_the_command_and_keeps_the_shell(client: Client, runtime) -> None:
    """Also when the client is gone."""
    shell(client, "A=kept")
    call = client.begin("exec", command="echo begun; sleep 1000; echo no", session="default")
    assert bytes(client.event_of(call).body) == b"begun\n"
    client.send(client.protocol.cancel(call))
    items, end = client.finish(call)

    assert (items, end.reason) == ([], "cancelled")
    wait_until_gone("1000", 3)
    with runtime.connect() as other:
        other.welcome()
        lost = other.begin("exec", command="echo begun; sleep 1000", session="default")
        assert bytes(other.event_of(lost).body) == b"begun\n"
    wait_until_gone("1000", 3)
    assert shell(client, "echo $A") == (b"kept\n", b"", 0)


def test_interrupts_at_any_moment_lose_no_command(client: Client) -> None:
    """Cancelled again and again at all moments: what comes next runs, once, whole."""
    for number in range(150):
        call = client.begin("exec", command="sleep 0.00$((RANDOM % 5))", session="default")
        if number % 3:
            time.sleep(0.0005 * (number % 13))
        client.send(client.protocol.cancel(call))
        with contextlib.suppress(OperationInterruptedError):
            client.finish(call)
        assert shell(client, f"N=$((N + 1)); echo {number}") == (b"%d\n" % number, b"", 0)

    assert shell(client, "echo $N") == (b"150\n", b"", 0)


def test_what_a_command_leaves_behind_does_not_hold_its_result(client: Client) -> None:
    """Background programs with the command's pipes: the result is there, and later bytes of theirs
    come in no other command's output."""
    begin = time.monotonic()
    out = shell(client, "(sleep 0.5; echo late; sleep 60) & echo hi")

    assert out == (b"hi\n", b"", 0)
    assert time.monotonic() - begin < 2
    assert shell(client, "sleep 0.8; echo next; kill %1") == (b"next\n", b"", 0)


_FULL = """
import sys
from pathlib import Path
from tests.support.runtime_child import RuntimeChild, join

folder = Path(sys.argv[1])
runtime = RuntimeChild(folder)
with runtime.connect() as client:
    client.welcome()

    def shell(command):
        items, end = client.call("exec", command=command, session="default")
        return join(items, "stdout").decode().strip(), end.exit_code

    shell("A=kept; true & cd /")
    print(shell(f"head -c 9000000 /dev/zero > {folder}/big; echo x >> {folder}/more")[1] != 0)
    print(shell("echo $A"))
    print(shell("sleep 9 & echo $A"))
    print(shell(f"kill %2; rm {folder}/big; echo $A"))
runtime.stop()
"""


def test_a_full_disk_keeps_no_text_from_running(tmp_path) -> None:
    """So that a text can make room; the disk is the one where the runtime has its pipes."""
    printed = run_on_small_disk(tmp_path, 2 << 20, _FULL, str(tmp_path))

    assert printed.splitlines() == ["True", *["('kept', 0)"] * 3]


@pytest.mark.parametrize(
    "text", [None, "echo begun; sleep 1000; echo no", "sleep 1000 & echo begun"]
)
def test_a_stop_ends_shells_at_once(client: Client, runtime, text) -> None:
    """Idle or busy, long before the grace is over; the caller hears why."""
    shell(client, "trap 'echo bye' EXIT; sleep 1000 & :")
    call = None
    if text is not None:
        call = client.begin("exec", command=text, session="default")
        assert bytes(client.event_of(call).body) == b"begun\n"
    begin = time.monotonic()
    stop = client.begin("runtime.shutdown", grace=15.0)
    if call is not None and "no" in text:
        with pytest.raises(ProcessAbortedError):
            client.finish(call)
    client.finish(stop)

    assert runtime.wait_exit() == 0
    assert time.monotonic() - begin < 8
    wait_until_gone("1000", 3)
    assert not list(runtime.folder.glob("session-*"))


def test_without_bash_sessions_say_so(tmp_path) -> None:
    """By type; a text of its own goes to sh instead, and lists of words need neither."""
    copy = tmp_path / "packages" / "sandbox_runtime"
    shutil.copytree(Path(sandbox_runtime.__file__).parent, copy)
    source = copy / "shell.py"
    text = source.read_text()
    assert '_PLACES = ("bash",' in text
    source.write_text(text.replace('_PLACES = ("bash",', '_PLACES = ("no-bash",)\n_OTHERS = ("x",'))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    runtime = RuntimeChild(tmp_path, env={"PATH": str(programs)})
    try:
        with runtime.connect() as client:
            client.welcome()
            with pytest.raises(CommandNotFoundError, match="bash"):
                shell(client, "true")
            items, end = client.call("exec", command="echo $0; exit 3")

            assert join(items, "stdout") == b"sh\n"
            assert end.exit_code == 3
            assert client.run("sh", "-c", "exit 4")[2].exit_code == 4
    finally:
        runtime.stop()


def test_where_no_process_can_be_had_builtins_still_run(client: Client) -> None:
    """After a failure, too: so that a text can end what has taken all the room."""
    shell(client, "sleep 1000 & (exit 5)")
    out, _, code = shell(client, "echo $?; ulimit -u 0; kill %1; cd /usr; false")

    assert (out, code) == (b"5\n", 1)
    assert shell(client, "echo $? $PWD")[0] == b"1 /usr\n"


def test_a_session_of_the_same_name_in_another_runtime_is_left_alone(start_runtime) -> None:
    """Where both see each other's processes, ending the one's command ends nothing of the other."""
    with start_runtime().connect() as client, start_runtime().connect() as other:
        ending = client.begin("exec", command="echo begun; sleep 1000", session="default")
        client.event_of(ending)
        living = other.begin("exec", command="echo begun; sleep 1001", session="default")
        other.event_of(living)

        client.send(client.protocol.cancel(ending))

        assert client.finish(ending)[1].reason == "cancelled"
        assert other.event_within(living, 0.2) is None
        other.send(other.protocol.cancel(living))
        assert other.finish(living)[1].reason == "cancelled"
