"""The activity log: who did what, kept out of the sandbox's reach."""

from __future__ import annotations

import json
import os
import stat
import threading
import time

import pytest

from sandbox_kernel.errors import StorageError, ValidationFailedError
from sandbox_kernel.manager import activity
from sandbox_kernel.manager.activity import LONGEST_TEXT, ActivityLog, acting_as
from tests.support.managed import plain_manager


@pytest.fixture
def log(tmp_path):
    return ActivityLog(tmp_path / "activity")


def test_lines_come_back_in_order_with_a_cursor_for_the_next(log):
    """A reader that comes again gets what is new, once."""
    log.add("a", "life", "command", what=["ls", "-l"], exit_code=0)
    first = log.read("a", "life")
    log.add("a", "life", "cell", what="1 + 1", status="ok")
    second = log.read("a", "life", since=first.cursor)
    third = log.read("a", "life", since=second.cursor)

    assert [(each.kind, each.what, each.details) for each in first.items] == [
        ("command", ["ls", "-l"], {"exit_code": 0})
    ]
    assert [(each.kind, each.what) for each in second.items] == [("cell", "1 + 1")]
    assert third.items == []
    assert third.cursor == second.cursor


def test_a_page_holds_as_many_as_asked_for(log):
    for number in range(5):
        log.add("a", "life", "command", what=str(number))

    first = log.read("a", "life", limit=2)
    rest = log.read("a", "life", since=first.cursor)

    assert [each.what for each in first.items] == ["0", "1"]
    assert [each.what for each in rest.items] == ["2", "3", "4"]


def test_a_log_that_does_not_exist_is_empty(log):
    page = log.read("a", "life")
    log.add("a", "life", "command", what="first")

    assert page.items == []
    assert [each.what for each in log.read("a", "life", since=page.cursor).items] == ["first"]


def test_only_the_user_may_read_it(log, tmp_path):
    """Commands hold secrets more often than they should."""
    log.add("a", "life", "command", what="x")

    (file,) = (tmp_path / "activity").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_who_is_the_user_by_this_program_or_whom_a_block_acts_for(log):
    with acting_as("alice (rest)"):
        log.add("a", "life", "command", what="x")
    log.add("a", "life", "command", what="y")

    for_alice, own = log.read("a", "life").items
    assert for_alice.who == "alice (rest)"
    assert own.who.endswith(" (python)")


def test_long_and_unreadable_texts_are_cut_and_written_all_the_same(log):
    """A notebook may hold a picture as text, and file names need not be UTF-8."""
    log.add("a", "life", "cell", what="x" * 100_000)
    log.add("a", "life", "command", what=["cat", "bad\udcff", *["word"] * 10_000])

    cell, command = log.read("a", "life").items
    assert cell.what == "x" * LONGEST_TEXT + "…"
    assert command.what[:2] == ["cat", "bad\\udcff"]
    assert command.what[-1] == "…"
    assert sum(map(len, command.what)) <= LONGEST_TEXT + 10


def test_threads_and_processes_never_mix_their_lines(log, tmp_path):
    """Each line is one write to a file that is open for appending."""

    def write(name):
        for number in range(200):
            log.add("a", "life", "command", what=f"{name} {number} " + "x" * 500)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    children = []
    for name in "de":
        child = os.fork()
        if not child:
            try:
                write(name)
            finally:
                os._exit(0)
        children.append(child)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for child in children:
        os.waitpid(child, 0)

    what = [each.what.rsplit(" ", 1)[0] for each in log.read("a", "life", limit=10_000).items]
    assert sorted(what) == sorted(f"{name} {n}" for name in "abcde" for n in range(200))


def test_a_file_that_has_grown_large_makes_place_and_readers_follow(log, monkeypatch):
    """Two parts are kept; a reader between them misses nothing, and a late one is told."""
    monkeypatch.setattr(activity, "_LARGEST_FILE", 2000)
    start = log.read("a", "life").cursor
    log.add("a", "life", "command", what="first")
    early = log.read("a", "life")
    seen, cursor = [], early.cursor
    for number in range(100):
        log.add("a", "life", "command", what=f"{number} " + "x" * 100)
        page = log.read("a", "life", since=cursor)
        assert not page.missed
        seen += [each.what.split()[0] for each in page.items]
        cursor = page.cursor
    late = log.read("a", "life", since=early.cursor)

    assert seen == [str(number) for number in range(100)]
    assert late.missed
    assert 0 < len(late.items) < 60
    assert not log.read("a", "life", since=start).missed


def test_a_line_that_was_cut_by_a_full_disk_hides_no_other(log, tmp_path):
    log.add("a", "life", "command", what="one")
    (file,) = (tmp_path / "activity").iterdir()
    with file.open("ab") as out:
        out.write(b'{"at": 1, "kind\n[]\n')
    log.add("a", "life", "command", what="two")

    assert [each.what for each in log.read("a", "life").items] == ["one", "two"]


@pytest.mark.parametrize("cursor", ["", "1", "x-1", "1-2-3", "-1-2", "1" * 40 + "-1", 7])
def test_what_is_no_cursor_is_refused(log, cursor):
    with pytest.raises(ValidationFailedError):
        log.read("a", "life", since=cursor)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "activity").write_text("in the way")

    with pytest.raises(StorageError, match="activity"):
        ActivityLog(tmp_path / "activity").add("a", "life", "command", what="x")


def test_old_lifetimes_are_forgotten_and_living_ones_are_not(log, tmp_path):
    for lifetime in ("old", "living", "new"):
        log.add("a", lifetime, "command", what="x")
    long_ago = time.time() - 40 * 86400
    for path in (tmp_path / "activity").iterdir():
        if ".new." not in path.name:
            os.utime(path, (long_ago, long_ago))

    log.forget(frozenset({"living"}), now=time.time())

    assert sorted(log.lifetimes("a")) == ["living", "new"]


# --- what the manager notes -----------------------------------------------------------------------


def test_a_lifetime_is_noted_from_start_to_end(manager):
    manager.ensure("a")
    lifetime = manager.lookup("a").lifetime
    manager.stop("a")
    manager.ensure("a")
    manager.destroy("a")

    kinds = [each.kind for each in manager.activity.read("a", lifetime).items]
    assert kinds == ["started", "stopped", "started", "destroyed"]
    assert manager.activity.lifetimes("a") == [lifetime]


def test_what_ended_by_itself_is_noted_with_the_reason(manager):
    """Sleep is no crash, and a crash is no sleep."""
    manager.ensure("slept", changes={"sleep_after": 0.2})
    killed = manager.ensure("killed")
    os.kill(killed.instance.data["pid"], 9)
    deadline = time.monotonic() + 20
    while any(info.state == "running" for info in manager.list()):
        assert time.monotonic() < deadline
        time.sleep(0.02)

    for name, reason in (("slept", "idle"), ("killed", "unexpected")):
        lifetime = manager.lookup(name).lifetime
        assert manager.stats(name).end_reason == reason
        manager.stop(name)
        last = manager.activity.read(name, lifetime).items[-1]
        assert (last.kind, last.details) == ("ended", {"reason": reason})


def test_no_log_is_kept_where_none_is_wanted(data_dir):
    with plain_manager(data_dir, activity_log=False) as manager:
        manager.ensure("a")

        assert manager.activity is None
        assert not (data_dir / "activity").exists()


def test_a_log_that_cannot_be_written_keeps_nobody_from_working(data_dir, caplog):
    data_dir.mkdir(mode=0o700)
    (data_dir / "activity").write_text("in the way")

    with plain_manager(data_dir) as manager:
        assert manager.ensure("a").started
        manager.stop("a")

    assert "activity is not noted" in caplog.text


def test_lines_are_json_objects_that_name_their_sandbox(manager, data_dir):
    """Other programs read the files as they are."""
    manager.ensure("a")

    (file,) = (data_dir / "activity").iterdir()
    line = json.loads(file.read_text().splitlines()[0])
    assert {"at", "sandbox_id", "kind", "who"} <= line.keys()
    assert line["sandbox_id"] == "a"
