"""exec: bytes, ends, limits and errors of a command without a shell."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from sandbox_kernel.errors import (
    CommandNotFoundError,
    CommandPermissionDeniedError,
    InvalidCommandError,
    InvalidProcessCwdError,
    InvalidProcessEnvironmentError,
    ProcessSpawnFailedError,
    ValidationFailedError,
)
from sandbox_kernel.wire.rpc import End
from tests.support.runtime_child import Client, RuntimeChild, join

ODD_WORDS = ["a b", "", "*", "$HOME", "`id`", "'\"", "-n", "--", "x\ny", "é漢😀", "\\", "~"]
ODD_VALUES = [
    "a b",
    " lead",
    "trail ",
    "x\ny",
    "$HOME",
    "`id`",
    "'q'",
    '"d"',
    "\\n",
    "é漢😀",
    "",
    "a=b",
    "#c",
    "*",
]


def running(word: str) -> list[int]:
    """Pids of living processes whose command line holds a word."""
    return [
        each.pid
        for each in psutil.process_iter(["cmdline", "status"])
        if each.info["status"] != psutil.STATUS_ZOMBIE and word in (each.info["cmdline"] or [])
    ]


def wait_until_gone(word: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while left := running(word):
        assert time.monotonic() < deadline, f"{word} still runs: {left}"
        time.sleep(0.01)


def test_output_codes_and_streams_are_exact(client: Client) -> None:
    """Both streams arrive apart and byte for byte, and a failing code is no error."""
    out, err, end = client.run("sh", "-c", "printf 'A\\377B\\000'; printf e >&2; exit 6")

    assert (out, err) == (b"A\xffB\0", b"e")
    assert (end.exit_code, end.signal, end.timed_out, end.reason) == (6, None, False, None)


def test_merged_streams_keep_their_order(client: Client) -> None:
    """merge_stderr puts both streams into one, in the order they were written."""
    script = "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done"

    out, err, _ = client.run("sh", "-c", script, merge_stderr=True)

    assert out == b"".join(b"o%d\ne%d\n" % (i, i) for i in range(1, 6))
    assert err == b""


def test_death_by_signal_is_128_plus_its_number(client: Client) -> None:
    """A signal that ended the command is named, and the code is what shells report."""
    _, _, end = client.run("sh", "-c", "kill -9 $$")

    assert (end.exit_code, end.signal, end.reason) == (137, 9, None)


def test_short_output_is_never_lost(client: Client) -> None:
    """A command that ends at once still delivers what it wrote, every time."""
    calls = []
    for _ in range(30):
        calls += [client.begin("exec", argv=["echo", "running in sandbox"]) for _ in range(8)]
        calls += [client.begin("exec", argv=["sh", "-c", "echo e >&2; exit 6"]) for _ in range(2)]

    ends = [client.finish(call) for call in calls]

    for number, (items, end) in enumerate(ends):
        if number % 10 < 8:
            assert (join(items, "stdout"), end.exit_code) == (b"running in sandbox\n", 0)
        else:
            assert (join(items, "stderr"), end.exit_code) == (b"e\n", 6)


def test_without_stdin_there_is_the_null_device(client: Client) -> None:
    """A command that reads its input finds its end at once."""
    assert client.run("cat")[0] == b""
    assert client.run("sh", "-c", "read x || echo eof")[0] == b"eof\n"


def test_stdin_is_delivered_whole(client: Client) -> None:
    """Given input reaches the command, however long, and its end too."""
    assert client.run("cat", stdin=b"abc")[0] == b"abc"
    assert client.run("cat", stdin=b"")[0] == b""
    assert client.run("wc", "-c", stdin=b"z" * 10_000_000)[0].strip() == b"10000000"


def test_a_command_may_leave_its_input_unread(client: Client) -> None:
    """Input that the command does not want is no failure."""
    out, _, end = client.run("head", "-c1", stdin=b"z" * 10_000_000)

    assert (out, end.exit_code) == (b"z", 0)


def test_arguments_arrive_as_they_are(client: Client) -> None:
    """No word is split, joined or expanded."""
    script = "import sys, json; print(json.dumps(sys.argv[1:]))"

    out, _, _ = client.run(sys.executable, "-c", script, *ODD_WORDS)

    assert json.loads(out) == ODD_WORDS


def test_environment_is_the_configured_one_plus_the_overlay(client: Client) -> None:
    """Programs see the base environment and the overlay, None unsets, and nothing of ours leaks."""
    out, _, _ = client.run(
        "env", "-0", env={"ADDED": "a\nb", "PATH": os.environ["PATH"], "BASE": None}
    )

    names = {entry.split(b"=")[0] for entry in out.split(b"\0") if entry}
    assert names == {b"ADDED", b"PATH"}
    assert client.run("sh", "-c", "echo $BASE$ADDED")[0] == b"from the config\n"


def test_environment_values_survive(client: Client) -> None:
    """Every value comes back byte for byte."""
    script = "import os, sys; sys.stdout.buffer.write(os.environb[b'V'])"
    for value in ODD_VALUES:
        out, _, _ = client.run(sys.executable, "-I", "-S", "-c", script, env={"V": value})
        assert out == value.encode()


def test_words_that_are_no_text_keep_their_bytes(client: Client) -> None:
    """File names that are not UTF-8 travel in Python's own escaped form."""
    name = os.fsdecode(b"\xff\xfe")

    assert client.run("printf", "%s", name)[0] == b"\xff\xfe"
    assert client.run("sh", "-c", 'printf %s "$V"', env={"V": name})[0] == b"\xff\xfe"


def test_commands_start_in_the_configured_folder(client: Client, runtime: RuntimeChild) -> None:
    """cwd of None is the configured one; a given one is used."""
    assert client.run("pwd")[0].decode().strip() == str(runtime.workspace)
    assert client.run("pwd", cwd="/usr")[0] == b"/usr\n"


def test_a_program_is_found_relative_to_its_folder(client: Client, runtime: RuntimeChild) -> None:
    """A program named with a slash is looked up from cwd."""
    script = runtime.workspace / "tool"
    script.write_text("#!/bin/sh\necho here\n")
    script.chmod(0o755)

    assert client.run("./tool")[0] == b"here\n"


@pytest.mark.parametrize(
    ("cwd", "words"),
    [
        ("/no/such", "does not exist"),
        ("/etc/passwd", "not a directory"),
        ("rel", "/rel' does not exist"),
        ("/" + "\1" * 2_000_000, "cannot be entered"),
        ("a\0b", "no path"),
    ],
)
def test_a_bad_folder_is_named(client: Client, cwd: str, words: str) -> None:
    """A working directory that cannot be used is an error of its own class."""
    with pytest.raises(InvalidProcessCwdError, match=words):
        client.run("true", cwd=cwd)


@pytest.mark.parametrize(
    "env", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0y"}, {"A": "\ud800"}]
)
def test_a_bad_environment_is_refused(client: Client, env: dict[str, str]) -> None:
    """Names and values that no program can get are refused by name."""
    with pytest.raises(InvalidProcessEnvironmentError):
        client.run("true", env=env)


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"], ["true", "a\0b"]])
def test_a_command_that_is_none_is_refused(client: Client, argv: list[str]) -> None:
    """An empty list, an empty name and a NUL are mistakes of the caller."""
    with pytest.raises(InvalidCommandError):
        client.call("exec", argv=argv)


def test_an_unknown_program_is_not_found(client: Client) -> None:
    """The missing program is named, for exec and for processes alike."""
    with pytest.raises(CommandNotFoundError, match="no-such-cmd"):
        client.run("no-such-cmd")
    with pytest.raises(CommandNotFoundError, match="no-such-cmd"):
        client.call("process.start", argv=["no-such-cmd"])
    with pytest.raises(CommandNotFoundError):
        client.run("./no-such-cmd")
    assert client.run("sh", "-c", "no-such-cmd")[2].exit_code == 127


def test_a_file_that_may_not_run_is_denied(client: Client, runtime: RuntimeChild) -> None:
    """Without the mode bit, without a first line, or being a folder: permission denied."""
    (runtime.workspace / "data.txt").write_text("x")
    plain = runtime.workspace / "plain"
    plain.write_text("echo no first line\n")
    plain.chmod(0o755)

    for name in ("./data.txt", "./plain", "/usr"):
        with pytest.raises(CommandPermissionDeniedError, match=name):
            client.run(name)


def test_a_missing_interpreter_is_named(client: Client, runtime: RuntimeChild) -> None:
    """A script whose first line names nothing tells what it names."""
    script = runtime.workspace / "script"
    script.write_text("#!/opt/none/python9\n")
    script.chmod(0o755)

    with pytest.raises(CommandNotFoundError, match="/opt/none/python9"):
        client.run("./script")


def test_long_arguments_run_or_fail_plainly(client: Client) -> None:
    """130 kB in one argument run; beyond the kernel's limit the reason is said."""
    assert client.run("sh", "-c", "echo ${#1}", "sh", "y" * 130_000)[0] == b"130000\n"
    with pytest.raises(ProcessSpawnFailedError, match="argument list is too long"):
        client.run("echo", "y" * 200_000)
    with pytest.raises(ProcessSpawnFailedError, match=rf"{os.sysconf('SC_ARG_MAX')} in all"):
        client.run("true", *["y" * 100_000] * (os.sysconf("SC_ARG_MAX") // 100_000 + 1))


def test_programs_get_clean_signals_and_descriptors(client: Client) -> None:
    """No signal is ignored or blocked, no descriptor of ours is open, and the session is its own."""
    fields = dict(
        line.split(":\t", 1)
        for line in client.run("cat", "/proc/self/status")[0].decode().splitlines()
    )
    # The C library keeps 32 and 33 for itself; nobody can set them.
    assert int(fields["SigIgn"], 16) & ~(1 << 31 | 1 << 32) == 0
    assert int(fields["SigBlk"], 16) == 0
    # The fourth is the folder that ls reads.
    assert client.run("ls", "/proc/self/fd")[0].split() == [b"0", b"1", b"2", b"3"]
    out = client.run("sh", "-c", "cut -d' ' -f1,5,6 /proc/$$/stat")[0].split()
    assert len(set(out)) == 1, "pid, group and session are one"


def test_sigpipe_ends_a_program_as_in_a_shell(client: Client) -> None:
    """SIGPIPE has its default effect, though this runtime's Python ignores it."""
    _, _, end = client.run("bash", "-c", "yes | head -1 >/dev/null; exit ${PIPESTATUS[0]}")

    assert end.exit_code == 141


def test_a_background_child_does_not_delay_the_end(client: Client) -> None:
    """The end comes with the direct child's, though a grandchild holds the pipe."""
    began = time.monotonic()

    out, _, end = client.run("sh", "-c", "sleep 61.25 & echo hi")

    assert (out, end.exit_code) == (b"hi\n", 0)
    assert time.monotonic() - began < 15
    for pid in running("61.25"):
        psutil.Process(pid).kill()


def test_what_was_written_before_the_end_is_all_there(client: Client) -> None:
    """All that the child had put into the pipe is delivered although a grandchild holds it open."""
    script = "sleep 61.5 & head -c 60000 /dev/zero; head -c 3 /dev/zero"

    out, _, _ = client.run("sh", "-c", script)

    assert len(out) == 60003
    for pid in running("61.5"):
        psutil.Process(pid).kill()


def test_a_background_child_may_write_on(client: Client, runtime: RuntimeChild) -> None:
    """What it writes after the end is thrown away, and does not end it by SIGPIPE."""
    mark = runtime.workspace / "mark"

    client.run("sh", "-c", "(sleep 0.2; echo late; echo later; touch mark) &")

    deadline = time.monotonic() + 10
    while not mark.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_time_limit_ends_the_whole_group(client: Client) -> None:
    """After the limit nothing of the command is left, grandchildren included."""
    began = time.monotonic()

    out, _, end = client.run("sh", "-c", "echo before; sleep 62.25 & sleep 62.5", timeout=1.0)

    assert 1 <= time.monotonic() - began < 3
    assert out == b"before\n"
    assert end.timed_out
    assert end.reason == "timeout"
    wait_until_gone("62.25", 3)
    wait_until_gone("62.5", 3)


def test_the_time_limit_kills_what_ignores_term(client: Client) -> None:
    """TERM comes first; KILL follows after the grace."""
    script = "trap '' TERM; sleep 63.25 & while :; do sleep 63.5; done"

    _, _, end = client.run("sh", "-c", script, timeout=0.2)

    assert (end.signal, end.timed_out) == (9, True)
    wait_until_gone("63.25", 3)
    wait_until_gone("63.5", 3)


def test_a_time_limit_does_not_outlast_its_command(client: Client) -> None:
    """A command that ends in time has not timed out, whatever its grandchildren do."""
    _, _, end = client.run("sh", "-c", "(sleep 1.75 &) ; exit 0", timeout=1)

    assert (end.exit_code, end.timed_out) == (0, False)


@pytest.mark.parametrize("timeout", [0.0, -1.0])
def test_a_time_limit_must_be_positive(client: Client, timeout: float) -> None:
    """A limit of no time is a mistake of the caller."""
    with pytest.raises(ValidationFailedError, match="timeout"):
        client.run("true", timeout=timeout)


def test_cancel_ends_the_group_and_the_stream(client: Client) -> None:
    """A cancelled command is killed and its stream ends, with the reason, without further output."""
    call = client.begin("exec", argv=["sh", "-c", "echo begun; sleep 64.25 & sleep 64.5"])
    client.event_of(call)

    client.send(client.protocol.cancel(call))

    event = client.event_of(call, 5)
    assert isinstance(event, End)
    assert event.value["reason"] == "cancelled"
    wait_until_gone("64.25", 3)
    wait_until_gone("64.5", 3)


def test_cancel_of_an_ended_command_drops_its_output(client: Client) -> None:
    """A command that has ended, but whose output waits for credit, ends at cancel, and says so."""
    call = client.begin("exec", argv=["head", "-c", "100000", "/dev/zero"], credit=1000)
    client.event_of(call)
    while client.call("runtime.health").processes:
        time.sleep(0.01)

    client.send(client.protocol.cancel(call))

    event = client.event_of(call, 5)
    assert isinstance(event, End)
    assert (event.value["exit_code"], event.value["reason"]) == (0, "cancelled")
    assert client.call("process.list").processes == []


def test_cancel_ends_a_flood_that_nobody_reads(client: Client) -> None:
    """A command blocked on its unread output ends at cancel."""
    call = client.begin("exec", argv=["yes", "64.75"], credit=1000)
    client.event_of(call)

    client.send(client.protocol.cancel(call))
    while not isinstance(client.event_of(call, 5), End):
        pass

    wait_until_gone("64.75", 3)


def test_a_lost_connection_ends_its_commands(runtime: RuntimeChild) -> None:
    """exec belongs to its connection."""
    lost = runtime.connect()
    lost.welcome()
    call = lost.begin("exec", argv=["sh", "-c", "echo begun; sleep 65.25 & sleep 65.5"])
    lost.event_of(call)

    lost.close()

    wait_until_gone("65.25", 5)
    wait_until_gone("65.5", 5)
    with runtime.connect() as other:
        assert other.call("process.list").processes == []


def test_sixty_four_commands_at_once(client: Client) -> None:
    """Commands of one connection run side by side, each with its own output."""
    began = time.monotonic()
    calls = [client.begin("exec", argv=["sh", "-c", f"sleep 0.3; echo {n}"]) for n in range(64)]

    for number, call in enumerate(calls):
        items, end = client.finish(call)
        assert (join(items, "stdout"), end.exit_code) == (b"%d\n" % number, 0)
    assert time.monotonic() - began < 10


def test_fifty_megabytes_arrive_whole(client: Client, tmp_path: Path) -> None:
    """Bulk output is neither cut nor changed."""
    source = tmp_path / "random"
    block = os.urandom(1_000_000)
    source.write_bytes(block * 50)

    out, _, _ = client.run("cat", str(source))

    assert hashlib.sha256(out).digest() == hashlib.sha256(block * 50).digest()


def test_both_streams_are_read(client: Client) -> None:
    """A full stderr does not block a command whose stdout is awaited, nor the other way round."""
    script = "import sys; sys.stderr.write('e' * 5_000_000); print('done')"

    out, err, _ = client.run(sys.executable, "-c", script)

    assert (out, len(err)) == (b"done\n", 5_000_000)


def test_output_waits_for_credit(client: Client) -> None:
    """Without credit nothing more is sent; granted credit brings all the rest."""
    client.granting = False
    call = client.begin("exec", argv=["head", "-c", "3000000", "/dev/zero"], credit=100_000)
    received = 0
    while (event := client.event_within(call, 0.5)) is not None:
        received += len(event.body)
    assert 90_000 < received < 110_000

    client.send(client.protocol.grant(call, 1 << 30))
    items, end = client.finish(call)

    assert received + len(join(items, "stdout")) == 3_000_000
    assert end.exit_code == 0


def test_unread_output_spills_into_a_file_and_comes_back(client: Client) -> None:
    """Output far beyond memory's share is kept exactly while its reader is slow."""
    client.granting = False
    script = "import sys\nfor i in range(500_000): sys.stdout.write(f'{i:9}\\n')"
    call = client.begin("exec", argv=[sys.executable, "-c", script], credit=1000)
    time.sleep(1.0)

    client.send(client.protocol.grant(call, 1 << 30))
    items, _ = client.finish(call)

    assert join(items, "stdout") == b"".join(b"%9d\n" % i for i in range(500_000))
