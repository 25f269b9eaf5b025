"""diff, apply and discard on the folder of a real sandbox."""

from __future__ import annotations

import errno
import io
import json
import os

import pytest

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import load_settings


@pytest.fixture
def changed(home, sandbox):
    """Return the folder of sandbox "s", which has added, changed and removed files in it."""
    (home.work / "old.txt").write_text("old\n")
    (home.work / "gone.txt").write_text("gone\n")
    manager = Manager()
    manager.ensure("s", load_settings().spec(notebook_folder=home.work))
    manager.close()
    script = (
        f"cd {home.work}; echo new > old.txt; rm gone.txt; echo 1 > added.txt; ln -s /etc/passwd l"
    )
    assert sandbox("exec", "s", "--", "sh", "-c", script).code == 0
    return home.work


def listing(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if not path.is_symlink()}


def test_the_host_has_nothing_until_changes_are_applied(sandbox, changed):
    """diff shows what there is, apply takes it over while the sandbox runs, links stay."""
    before = listing(changed)
    assert before == {"old.txt": "old\n", "gone.txt": "gone\n"}

    shown = sandbox("diff", "s")
    assert shown.code == 0
    assert shown.out.splitlines() == [
        "added         added.txt  (2 bytes)",
        "deleted       gone.txt",
        "added         l -> /etc/passwd",
        "modified      old.txt  (4 bytes)",
    ]
    assert sandbox("diff", "s", "--exit-code").code == 1

    applied = sandbox("apply", "s", "--yes")
    assert applied.code == 0
    assert "deleted       gone.txt\n" in applied.out
    assert "skipped       l -> /etc/passwd" in applied.out
    assert listing(changed) == {"old.txt": "new\n", "added.txt": "1\n"}
    assert not (changed / "l").exists()
    assert [change["path"] for change in sandbox("diff", "s", "--json").json] == ["l"]


def test_nobody_to_ask_keeps_the_hosts_files(sandbox, changed):
    """Without paths and --yes the host's files are neither deleted nor replaced."""
    before = listing(changed)

    refused = sandbox("apply", "s")

    assert refused.code == 2
    assert refused.out == ""
    assert refused.err.splitlines() == [
        "to delete     gone.txt",
        "to replace    old.txt  (4 bytes)",
        "jupyter sandbox: There is nobody to ask whether this is meant; nothing was done.",
        "Name the paths to take over, or say --yes for all.",
    ]
    assert listing(changed) == before


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 2)])
def test_the_answer_decides(sandbox, changed, monkeypatch, answer, code):
    """All is taken over, or nothing."""
    before = listing(changed)
    typed = io.StringIO(answer)
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", typed)

    asked = sandbox("apply", "s")

    assert asked.code == code
    assert "Delete or replace these 2 on the host?" in asked.err
    assert (listing(changed) == before) is (code == 2)


def test_new_files_need_no_question(sandbox, changed):
    """Nothing of the host goes."""
    for name in ("old.txt", "gone.txt"):
        sandbox("apply", "s", name)

    assert sandbox("apply", "s").code == 0
    assert listing(changed)["added.txt"] == "1\n"


def test_named_paths_need_no_question(sandbox, changed):
    """Who names them means them; a deletion is called so."""
    assert sandbox("apply", "s", "gone.txt").out == "deleted       gone.txt\n"
    assert sandbox("apply", "s", "old.txt").code == 0
    assert listing(changed) == {"old.txt": "new\n"}


def test_nothing_is_left_to_see_after_discarding_all(sandbox, changed):
    """That is no error, also before the sandbox has a layer again."""
    sandbox("stop", "s")
    assert sandbox("discard", "s", "--all", "--yes").code == 0

    assert sandbox("diff", "s") == (0, f"No changes in {changed}.\n", "")
    assert sandbox("apply", "s") == (0, f"No changes in {changed}.\n", "")
    assert sandbox("discard", "s", "--all", "--yes").code == 0


def test_chosen_paths(sandbox, changed):
    """What is not named stays where it is; what does not exist is an error."""
    assert sandbox("apply", "s", "added.txt").out == "applied       added.txt  (2 bytes)\n"
    assert listing(changed)["old.txt"] == "old\n"
    assert sandbox("apply", "s", "nothing.txt").code == 2
    assert sandbox("diff", "s", "old.txt", "--json").json[0]["kind"] == "modified"


def test_a_conflict_is_exit_code_one(sandbox, changed):
    """The host's newer file stays, unless forced."""
    (changed / "old.txt").write_text("host\n")

    ended = sandbox("apply", "s", "old.txt", "--json")
    assert (ended.code, ended.json[0]["status"]) == (1, "conflict")
    assert listing(changed)["old.txt"] == "host\n"
    assert sandbox("apply", "s", "old.txt", "--force").code == 0
    assert listing(changed)["old.txt"] == "new\n"


def test_hidden_files_of_a_named_folder_are_listed_as_left_out(sandbox, changed):
    """Taken over only when named themselves, or with --hidden."""
    script = f"mkdir -p {changed}/d/.git/hooks; cd {changed}/d; echo 1 > x; echo 1 > .git/hooks/h"
    sandbox("exec", "s", "sh", "-c", script)

    applied = sandbox("apply", "s", "d")

    assert applied.code == 0
    assert "applied       d/x" in applied.out
    assert "skipped       d/.git/hooks/h" in applied.out
    assert "3 hidden left out" in applied.out
    assert not (changed / "d" / ".git").exists()
    assert sandbox("apply", "s", "d", "--hidden").code == 0
    assert (changed / "d" / ".git" / "hooks" / "h").read_text() == "1\n"


def test_a_full_disk_is_told_with_what_was_done(sandbox, changed, monkeypatch):
    """Line by line, then the error."""
    write = os.fsync
    calls = []

    def fill(descriptor):
        calls.append(descriptor)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(descriptor)

    monkeypatch.setattr(os, "fsync", fill)
    ended = sandbox("apply", "s", "--yes")

    assert ended.code == 6
    assert ended.out.splitlines() == [
        "applied       added.txt",
        "deleted       gone.txt",
        "not applied   old.txt",
    ]
    assert "no space is left" in ended.err


def test_discarding_needs_a_stopped_sandbox(sandbox, changed):
    """Then the sandbox sees the host's files again."""
    refused = sandbox("discard", "s", "--all", "--yes")
    assert refused.code == 4
    assert "jupyter sandbox stop s" in refused.err

    sandbox("stop", "s")
    assert "discarded     old.txt" in sandbox("discard", "s", "old.txt", "gone.txt", "--yes").out
    seen = sandbox("exec", "s", "--", "sh", "-c", f"cd {changed}; cat old.txt gone.txt added.txt")
    assert seen.out == "old\ngone\n1\n"


@pytest.mark.parametrize("order", [("stop", "apply"), ("apply", "stop")])
def test_what_was_applied_no_longer_hides_the_hosts_file_after_a_start(sandbox, changed, order):
    """The sandbox then follows the host's later edits."""
    words = {"apply": ("apply", "s", "--yes"), "stop": ("stop", "s")}
    for command in order:
        assert sandbox(*words[command]).code == 0
    (changed / "old.txt").write_text("edited\n")

    assert sandbox("exec", "s", "--", "cat", changed / "old.txt").out == "edited\n"


def test_a_sandbox_without_a_layer_says_so(sandbox):
    """Sandboxes that no notebook made have no folder to compare."""
    sandbox("exec", "plain", "--", "true")

    ended = sandbox("diff", "plain")
    assert ended.code == 2
    assert "no layer" in ended.err


def test_changes_stay_with_the_folder_they_were_made_in(sandbox, changed, home):
    """A sandbox used from a second folder never writes its changes to the first one there."""
    sandbox("stop", "s")
    second = home.root / "second"
    second.mkdir()
    manager = Manager()
    manager.ensure("s", load_settings().spec(notebook_folder=second))
    manager.close()

    assert sandbox("apply", "s", "added.txt").code == 0
    assert list(second.iterdir()) == []
    assert listing(changed)["added.txt"] == "1\n"


def test_notebooks_are_told_what_was_cleaned(sandbox, changed):
    """A notebook of the sandbox names no kernel of the host and loads nothing; a line for each."""
    notebook = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "cells": [
            {
                "cell_type": "markdown",
                "id": "a",
                "metadata": {},
                "source": "![x](https://example.com/x)",
            }
        ],
    }
    script = f"printf %s '{json.dumps(notebook)}' > {changed}/n.ipynb"
    assert sandbox("exec", "s", "--", "sh", "-c", script).code == 0

    applied = sandbox("apply", "s", "n.ipynb")

    assert applied.code == 0
    assert [line.strip() for line in applied.out.splitlines()[1:]] == [
        "the kernel is sandbox-python",
        "cell 1: markup that acts or loads shown as text",
    ]
    (taken,) = json.loads((changed / "n.ipynb").read_text())["cells"]
    assert taken["source"] == "[x](https://example.com/x)"
