"""logs of real sandboxes: activity, a process, the runtime."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

from sandbox_kernel import sync

_COMMAND = [sys.executable, "-m", "sandbox_kernel.cli"]


def test_the_log_names_the_command_line_and_shows_hostile_words_escaped(sandbox):
    """Who, by what, and which command; an escape sequence in it does nothing to the terminal."""
    sandbox("exec", "one", "echo", "\x1b[2Jx\ny")

    out = sandbox("logs", "one").out
    started, command, *_ = out.splitlines()
    assert "(command line)  started" in started
    assert "(command line)  process  echo \\x1b[2Jx\\ny  (" in command
    assert sandbox("logs", "one", "--tail", "1").out.splitlines() == [command]
    assert [line["kind"] for line in sandbox("logs", "one", "--json").json] == [
        "started",
        "process",
    ]
    sandbox("destroy", "one", "-y")
    assert "destroyed" in sandbox("logs", "one").out
    assert sandbox("logs", "two").code == 3


def test_a_followed_log_brings_what_comes(sandbox):
    """Each line by itself, at once."""
    sandbox("exec", "one", "true")
    words = [*_COMMAND, "logs", "one", "-f", "--json", "-n", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as following:
        assert json.loads(following.stdout.readline())["what"] == ["true"]
        sandbox("exec", "one", "false")
        assert json.loads(following.stdout.readline())["what"] == ["false"]
        following.terminate()


def test_output_of_a_process_is_passed_on_as_it_is_but_to_a_terminal(sandbox):
    """Bytes for pipes, escapes for terminals, base64 for JSON where it is no text."""
    with sync.get_sandbox("one") as held:
        process = held.start_process(["printf", r"\033[2J\377a\n"])
        process.wait_for_exit()
        words = [*_COMMAND, "logs", "one", "--process", process.id]

        assert subprocess.run(words, capture_output=True, check=True).stdout == b"\x1b[2J\xffa\n"
        ours, theirs = pty.openpty()
        subprocess.run(words, stdout=theirs, check=True)
        os.close(theirs)
        assert os.read(ours, 1000) == "\\x1b[2J\ufffda\r\n".encode()
        os.close(ours)
        first, last = sandbox("logs", "one", "--process", process.id, "--json").json

    assert (first["data"], first["encoding"]) == ("G1sySv9hCg==", "base64")
    assert (last["type"], last["exit_code"]) == ("exit", 0)
    assert sandbox("logs", "one", "--process", "p-none").code == 1
    assert sandbox("logs", "one", "--process", process.id, "--tail", "1").code == 2


def test_the_runtimes_own_log_is_read_line_by_line(sandbox):
    """With what is in it escaped; of a sandbox that was never started there is none."""
    sandbox("exec", "one", "true")
    folder = sandbox("info", "one", "--json").json["workspace"]
    log = os.path.join(os.path.dirname(folder), "run", "runtime.log")
    with open(log, "w") as file:
        file.write("first\n\x1b[2Jsecond\n")

    assert sandbox("logs", "one", "--runtime").out == "first\n\\x1b[2Jsecond\n"
    assert sandbox("logs", "one", "--runtime", "--tail", "1", "--json").json == ["\x1b[2Jsecond"]


def test_a_terminal_that_is_not_utf_8_gets_escapes(sandbox):
    """Characters that its encoding lacks end nothing."""
    sandbox("exec", "one", "echo", "\u00e9")
    ended = subprocess.run(
        [*_COMMAND, "logs", "one"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )

    assert b"echo \\xe9" in ended.stdout
