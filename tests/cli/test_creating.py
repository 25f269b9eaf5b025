"""create, ports and gc on real sandboxes."""

from __future__ import annotations

import os
import signal
import time

from sandbox_kernel import sync
from sandbox_kernel.manager.manager import Manager


def test_create_makes_a_sandbox_with_its_settings_once(sandbox, tmp_path):
    """The id is the answer; a second time it is there already."""
    folder = tmp_path / "shown"
    folder.mkdir()
    (folder / "f").write_text("shown")
    words = ("one", "--folder", folder, "--env", "A=b", "--sleep-after", "10m")

    assert sandbox("create", *words).out == "one\n"
    again = sandbox("create", "one", "--json").json
    assert (again["sandbox_id"], again["created"]) == ("one", False)
    assert 500 < sandbox("stats", "one", "--json").json[0]["sleeps_in"] <= 600
    assert sandbox("exec", "one", "sh", "-c", f"echo $A; cat {folder}/f").out == "b\nshown"
    named = sandbox("create", "--json").json
    assert named["created"]
    assert sandbox("info", named["sandbox_id"]).code == 0
    assert sandbox("create", "Not-an-id").code == 2
    assert sandbox("create", "two", "--sleep-after", "soon").code == 2


def test_ports_are_listed_exposed_and_revoked(sandbox):
    """What listens, what is exposed, and the token, which opens nothing afterwards."""
    sandbox("create", "one")
    assert sandbox("ports", "listen", "one").out == "No program listens.\n"
    with sync.get_sandbox("one") as held:
        held.start_process(["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"])
        held.wait_for_port(8000, timeout=30)
    assert sandbox("ports", "listen", "one", "--json").json == [
        {"port": 8000, "addresses": ["127.0.0.1"]}
    ]

    made = sandbox("ports", "expose", "one", "8000", "--name", "web", "--json").json
    assert made["path"].startswith("sandbox/preview/8000-one-")
    assert sandbox("ports", "list", "one", "--json").json == [made]
    assert "  web  " in sandbox("ports", "list", "one").out
    assert sandbox("ports", "unexpose", "one", "8000").code == 0
    assert sandbox("ports", "list", "one").out == "No port is exposed.\n"
    assert sandbox("ports", "expose", "one", "80").code != 0
    assert sandbox("ports", "expose", "two", "8000").code == 3
    assert sandbox("list", "-q").out == "one\n"


def test_gc_tells_what_would_go_and_then_removes_it(sandbox):
    """An ephemeral one that ended, and old activity; others stay."""
    sandbox("create", "one")
    manager = Manager()
    running = manager.ensure("gone", ephemeral=True)
    assert sandbox("gc", "--dry-run").out == "There is nothing to clean up.\n"
    os.kill(running.instance.data["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 20
    while manager.find_running("gone") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    old = manager.settings.data_dir / "activity" / "old.0123456789abcdef.jsonl"
    old.write_text("{}\n")
    os.utime(old, (0, 0))
    manager.close()

    planned = sandbox("gc", "--dry-run", "--json").json
    assert planned == {
        "dry_run": True,
        "sandboxes": ["gone"],
        "ended": [],
        "files": [],
        "activity": [old.name],
        "left": {},
    }
    assert old.exists()
    assert running.layout.root.exists()
    ended = sandbox("gc")
    assert (ended.code, ended.err) == (0, "")
    assert "sandbox gone: removed\n" in ended.out
    assert not old.exists()
    assert not running.layout.root.exists()
    assert sandbox("list", "-q").out == "one\n"
