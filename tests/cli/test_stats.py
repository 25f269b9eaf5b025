"""info and stats on real sandboxes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys


def test_stats_tell_what_runs_and_start_nothing(sandbox):
    """Counts of a sandbox that runs; dashes of one that does not, which stays as it is."""
    assert sandbox("stats").out == "There are no sandboxes.\n"
    sandbox("exec", "one", "true")

    head, row = sandbox("stats").out.splitlines()
    assert head.startswith("SANDBOX  STATE")
    assert row.startswith("one      running")
    (found,) = sandbox("stats", "one", "--json", "--disk").json
    assert found["processes"] >= 1
    assert found["memory_bytes"] > 0
    assert found["disk"]["total_bytes"] > 0

    sandbox("stop", "one")
    assert sandbox("stats").out.splitlines()[1].split() == ["one", "stopped", *["-"] * 7]
    assert sandbox("list", "--json").json[0]["state"] == "stopped"
    assert sandbox("stats", "nothing").code == 3


def test_a_watch_answers_line_by_line_until_it_is_interrupted(sandbox):
    """One JSON value in a line, at once, and the code of Ctrl-C at the end."""
    sandbox("exec", "one", "true")
    words = [sys.executable, "-m", "sandbox_kernel.cli", "stats", "--watch", "--json"]
    with subprocess.Popen([*words, "--interval", "100ms"], stdout=subprocess.PIPE) as watching:
        lines = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        watching.stdout.read()
        code = watching.wait(timeout=30)

    assert [line["sandbox_id"] for line in lines] == ["one"] * 3
    assert lines[0]["taken_at"] < lines[2]["taken_at"]
    assert code == 130


def test_info_tells_what_list_does_of_one(sandbox):
    """For people and for programs; --quiet leaves only the ids."""
    sandbox("exec", "one", "true")

    assert "network:         no\n" in sandbox("info", "one").out
    assert sandbox("info", "one", "--json").json == sandbox("list", "--json").json[0]
    assert sandbox("info", "two").code == 3
    assert sandbox("list", "-q").out == "one\n"
