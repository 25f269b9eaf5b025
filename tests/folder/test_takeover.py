"""Taking changes over: what reaches the host, and what never does."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from unittest.mock import ANY

import pytest

from sandbox_kernel.engines.base import StateLayout
from sandbox_kernel.errors import StorageFullError, ValidationFailedError
from sandbox_kernel.folder import Status, apply, diff, takeover
from tests.support.clock import tick
from tests.support.small_disk import run_on_small_disk


def statuses(layout: StateLayout, folder: Path, paths=None, **options) -> dict[str, str]:
    outcomes = apply(layout, folder, paths, **options)
    return {outcome.change.path: str(outcome.status) for outcome in outcomes}


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def test_all_changes_reach_the_host(layout, folder, inside):
    """After applying everything the host folder equals what the sandbox sees, and no diff is left."""
    (folder / "edit").write_text("1")
    (folder / "gone").write_text("1")
    (folder / "d").mkdir()
    (folder / "d" / "old").write_text("1")
    (folder / "became_folder").write_text("1")
    inside(
        "echo 2 > edit; rm gone; rm -r d; mkdir d; echo 2 > d/new; mkdir -p a/b; echo 2 > a/b/c;"
        "rm became_folder; mkdir became_folder; echo 2 > became_folder/x"
    )

    assert set(statuses(layout, folder).values()) == {"applied"}
    assert files(folder) == {
        "a/b/c": "2\n",
        "became_folder/x": "2\n",
        "d/new": "2\n",
        "edit": "2\n",
    }
    assert diff(layout, folder) == []


def test_chosen_paths_only(layout, folder, inside):
    """A path means itself and all below it; folders above it are made."""
    inside("mkdir -p a/b c; echo 1 > a/b/x; echo 1 > a/y; echo 1 > c/z")

    assert statuses(layout, folder, ["a/b/x"]) == {"a/b/x": "applied"}
    assert files(folder) == {"a/b/x": "1\n"}
    assert statuses(layout, folder, ["c"]) == {"c": "applied", "c/z": "applied"}


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", ".", "x\0y", "nothing"])
def test_paths_out_of_the_folder_or_without_a_change_are_refused(layout, folder, inside, path):
    """Nothing is taken over when one of the paths makes no sense."""
    inside("echo 1 > a")

    with pytest.raises(ValidationFailedError):
        apply(layout, folder, ["a", path])
    assert files(folder) == {}


def test_links_are_taken_over_only_when_asked_for_and_only_as_links(layout, folder, inside):
    """The target's content never arrives, whether it exists outside or not."""
    secret = folder.parent / "secret"
    secret.write_text("secret")
    inside("ln -s ../secret up; ln -s /etc/passwd pw")

    assert statuses(layout, folder) == {"pw": "skipped", "up": "skipped"}
    assert list(folder.iterdir()) == []
    assert statuses(layout, folder, links=True) == {"pw": "applied", "up": "applied"}
    assert os.readlink(folder / "up") == "../secret"
    assert os.readlink(folder / "pw") == "/etc/passwd"


def test_a_link_on_the_host_is_never_written_through(layout, folder, inside):
    """Neither as the file itself nor as a folder on the way."""
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "victim").write_text("safe")
    inside("mkdir way; echo evil > way/victim; echo evil > direct")
    (folder / "way").symlink_to(outside)
    (folder / "direct").symlink_to(outside / "victim")

    outcomes = {
        o.change.path: o for o in apply(layout, folder, ["way/victim", "direct"], force=True)
    }

    assert outcomes["way/victim"].status is Status.REFUSED
    assert outcomes["direct"].status is Status.APPLIED  # the link was replaced, not followed
    assert (outside / "victim").read_text() == "safe"
    assert (folder / "direct").read_text() == "evil\n"


def test_a_link_planted_in_the_layer_on_the_way_is_never_followed(layout, folder, monkeypatch):
    """A folder of the layer that turns into a link between diff and copy gives nothing away."""
    secret = folder.parent / "hidden"
    secret.mkdir()
    (secret / "f").write_text("secret")
    upper = layout.folder / "upper"
    (upper / "d").mkdir()
    (upper / "d" / "f").write_text("public")

    def diff_then_swap(*args):
        changes = diff(*args)
        os.rename(upper / "d", upper / "old")
        (upper / "d").symlink_to(secret)
        return changes

    monkeypatch.setattr(takeover, "diff", diff_then_swap)
    outcomes = apply(layout, folder)

    assert outcomes[-1].change.path == "d/f"
    assert outcomes[-1].status is Status.REFUSED
    assert files(folder) == {}


def test_pipes_are_refused_and_do_not_block(layout, folder, inside):
    """A pipe has no content to take over; opening one would wait for ever."""
    inside("mkfifo p; echo 1 > f")

    assert statuses(layout, folder) == {"f": "applied", "p": "refused"}


def test_hidden_files_must_be_named(layout, folder, inside):
    """A planted git hook or editor task does not come along with everything else."""
    inside("mkdir -p .git/hooks sub/.vscode; echo evil > .git/hooks/pre-commit; echo 1 > sub/f")

    outcome = statuses(layout, folder)

    assert outcome["sub/f"] == "applied"
    assert outcome[".git/hooks/pre-commit"] == outcome["sub/.vscode"] == "skipped"
    assert statuses(layout, folder, [".git/hooks"])[".git/hooks/pre-commit"] == "applied"


@pytest.mark.parametrize("named", ["a", "a/b"])
def test_naming_a_folder_does_not_name_hidden_files_in_it(layout, folder, inside, named):
    """They are listed as left out; naming the hidden one, or its hidden folder, takes it."""
    inside("mkdir -p a/b/.git/hooks/.x; cd a/b; echo 1 > f; echo 1 > .envrc; echo 1 > .git/hooks/h")

    outcome = statuses(layout, folder, [named])

    assert outcome["a/b/f"] == "applied"
    assert outcome["a/b/.envrc"] == outcome["a/b/.git/hooks/h"] == "skipped"
    assert not (folder / "a/b/.git").exists()
    assert statuses(layout, folder, ["a/b/.envrc"]) == {"a/b/.envrc": "applied"}
    below = statuses(layout, folder, ["a/b/.git"])
    assert below["a/b/.git/hooks/h"] == "applied"
    assert below["a/b/.git/hooks/.x"] == "skipped"


def test_hidden_files_are_taken_over_when_asked_for(layout, folder, inside):
    """With or without paths; a host folder with hidden files must be named all the same."""
    (folder / "gone/.git").mkdir(parents=True)
    inside("mkdir -p a; echo 1 > a/.envrc; echo 1 > .hidden; rm -r gone")

    assert statuses(layout, folder, hidden=True) == {
        ".hidden": "applied",
        "a": "applied",
        "a/.envrc": "applied",
        "gone": "refused",
    }


def test_modes_lose_what_is_dangerous_and_keep_what_is_useful(layout, folder, inside):
    """No set-user-id, no writing by others; executable stays, and the host's group write too."""
    (folder / "shared").write_text("1")
    (folder / "shared").chmod(0o664)
    inside(
        "echo > suid; chmod 6755 suid; echo > open; chmod 666 open; echo > run; chmod 700 run;"
        "echo 2 > shared; mkdir wide; chmod 1777 wide"
    )
    apply(layout, folder)

    modes = {p.name: oct(stat.S_IMODE(p.stat().st_mode)) for p in folder.iterdir()}
    assert modes == {
        "suid": "0o755",
        "open": "0o644",
        "run": "0o700",
        "shared": "0o664",
        "wide": "0o755",
    }
    assert {p.stat().st_uid for p in folder.iterdir()} == {os.geteuid()}


def test_a_conflict_is_reported_and_left_alone_unless_forced(layout, folder, inside):
    """The host's newer file wins by default."""
    (folder / "f").write_text("1")
    inside("echo sandbox > f; echo 1 > other")
    tick()
    (folder / "f").write_text("host")

    assert statuses(layout, folder) == {"f": "conflict", "other": "applied"}
    assert (folder / "f").read_text() == "host"
    assert statuses(layout, folder, force=True) == {"f": "applied"}
    assert (folder / "f").read_text() == "sandbox\n"


def test_applying_again_after_more_work_is_no_conflict(layout, folder, inside):
    """What apply itself wrote on the host is not a change of the host's."""
    (folder / "f").write_text("1")
    inside("echo 2 > f")
    apply(layout, folder)
    tick()
    inside("echo 3 >> f")

    assert statuses(layout, folder) == {"f": "applied"}
    assert (folder / "f").read_text() == "2\n3\n"


def test_host_edits_after_a_takeover_are_not_shown_as_the_sandboxs(layout, folder, inside):
    """The sandbox has done nothing since; the host's later edit is not its change."""
    inside("echo 2 > f")
    apply(layout, folder)
    tick()
    (folder / "f").write_text("host")

    assert diff(layout, folder) == []


def test_notebooks_are_cleaned(layout, folder, inside):
    """What acts on opening stays behind, and so does a kernel of the host; text arrives as it was."""
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": "a",
                "metadata": {"trusted": True},
                "source": "print('é')",
                "outputs": [
                    {
                        "output_type": "display_data",
                        "data": {"application/javascript": "1", "text/plain": "é"},
                        "metadata": {},
                    }
                ],
                "execution_count": 1,
            }
        ],
        "metadata": {
            "widgets": {"application/vnd.jupyter.widget-state+json": {}},
            "title": "x",
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (layout.folder / "upper" / "a.ipynb").write_text(json.dumps(notebook))
    (layout.folder / "upper" / "b.ipynb").write_text("{not json")

    outcomes = {outcome.change.path: outcome for outcome in apply(layout, folder)}

    assert {path: str(each.status) for path, each in outcomes.items()} == {
        "a.ipynb": "applied",
        "b.ipynb": "refused",
    }
    text = (folder / "a.ipynb").read_text()
    arrived = json.loads(text)
    assert arrived["metadata"]["title"] == "x"
    assert arrived["metadata"]["kernelspec"]["name"] == "sandbox-python"
    assert "widgets" not in arrived["metadata"]
    assert arrived["cells"][0]["metadata"] == {}
    assert arrived["cells"][0]["outputs"][0]["data"] == {"text/plain": ANY}
    assert "'é'" in text
    assert outcomes["a.ipynb"].cleaned == (
        "metadata of the notebook: left out 'widgets'",
        "the kernel is sandbox-python",
        "cell 1: metadata: left out 'trusted'",
        "cell 1: an output drawn otherwise",
    )


def test_one_odd_notebook_keeps_no_other_file_back(layout, folder):
    """NaN is written as Python and Jupyter write it; what cannot be cleaned is refused alone."""
    upper = layout.folder / "upper"
    (upper / "nan.ipynb").write_text(
        '{"cells": [{"cell_type": "code", "outputs": [{"output_type": "display_data",'
        ' "data": {"application/json": {"x": NaN}}}]}], "metadata": {}, "nbformat": 4}'
    )
    (upper / "deep.ipynb").write_text("[" * 200_000)
    (upper / "huge.ipynb").touch()
    os.truncate(upper / "huge.ipynb", 1 << 40)
    (upper / "z").write_text("1")

    outcomes = {outcome.change.path: outcome for outcome in apply(layout, folder)}

    assert {path: str(outcome.status) for path, outcome in outcomes.items()} == {
        "deep.ipynb": "refused",
        "huge.ipynb": "refused",
        "nan.ipynb": "applied",
        "z": "applied",
    }
    assert "256 MiB" in outcomes["huge.ipynb"].reason
    assert '"x": NaN' in (folder / "nan.ipynb").read_text()


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), RecursionError()])
def test_a_cleaner_that_fails_refuses_one_file(layout, folder, error):
    """The files after it are taken over all the same, and no draft stays behind."""
    (layout.folder / "upper" / "a.ipynb").write_text("{}")
    (layout.folder / "upper" / "b").write_text("1")

    def fail(content):
        raise error

    assert statuses(layout, folder, clean=fail) == {"a.ipynb": "refused", "b": "applied"}
    assert os.listdir(folder) == ["b"]


def test_holes_of_a_file_take_no_space_on_the_host(layout, folder):
    """A file that says it is large fills the disk no more than it does in the sandbox."""
    size = 1 << 36
    with open(layout.folder / "upper" / "sparse", "wb") as file:
        file.write(b"begin")
        file.seek(1 << 30)
        file.write(b"middle")
        file.truncate(size)

    assert statuses(layout, folder) == {"sparse": "applied"}
    status = (folder / "sparse").stat()
    assert (status.st_size, status.st_blocks * 512 < 1 << 20) == (size, True)
    with open(folder / "sparse", "rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(1 << 30)
        assert file.read(7) == b"middle\0"


def test_a_full_disk_leaves_the_old_file(layout, folder, inside, monkeypatch):
    """The new content is complete before it takes the old one's place."""
    (folder / "f").write_text("old")
    inside("echo new > f")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFullError):
        apply(layout, folder)

    assert files(folder) == {"f": "old"}


def test_a_disk_that_fills_up_says_what_was_done_and_what_was_not(layout, folder, inside):
    """On a real small disk: no draft and no half file; applying again goes on from there."""
    inside("for n in a c d; do echo $n > $n; done; head -c 3000000 /dev/urandom > b")
    script = (
        "import json, os, sys\n"
        "from pathlib import Path\n"
        "from sandbox_kernel.engines.base import StateLayout\n"
        "from sandbox_kernel.errors import StorageFullError\n"
        "from sandbox_kernel.folder import apply, diff\n"
        "layout, folder = StateLayout(Path(sys.argv[1])), Path(sys.argv[2])\n"
        "try:\n    apply(layout, folder)\nexcept StorageFullError as error:\n"
        "    told = {**error.context, 'hint': error.hint}\n"
        "print(json.dumps([told, sorted(os.listdir(folder)),"
        " [c.path for c in diff(layout, folder)]]))\n"
    )

    output = run_on_small_disk(folder, 1 << 20, script, str(layout.root), str(folder))

    told, listed, left = json.loads(output)
    assert told["path"] == str(folder / "b")
    assert (told["applied"], told["not_applied"]) == (["a"], ["b", "c", "d"])
    assert "1 of the changes were taken over before it, 3 were not" in told["hint"]
    assert listed == ["a"]
    assert left == ["b", "c", "d"]


def test_names_with_any_character_arrive(layout, folder):
    """Line feeds, escapes and bytes that are no UTF-8 are names like others."""
    upper = os.fsencode(layout.folder / "upper")
    names = [b"a\nb", b"\x1b[31m", b"\xff\xfe", "é".encode(), b" ", b"-rf"]
    for name in names:
        with open(upper + b"/" + name, "wb") as file:
            file.write(name)

    apply(layout, folder)

    assert sorted(os.listdir(os.fsencode(folder))) == sorted(names)
    assert diff(layout, folder) == []


@pytest.mark.parametrize("mode", [0o400, 0o100, 0o000])
def test_a_folder_that_may_not_be_read_is_refused_alone(
    layout, folder, inside, as_ordinary_user, mode
):
    """It is shown with its reason, new or not, and what comes after it is taken over."""
    (folder / "both").mkdir()
    (folder / "closed").mkdir()
    inside("mkdir new; for d in both closed new; do echo 1 > $d/f; done; echo 1 > z")
    for path in (
        layout.folder / "upper" / "both",
        layout.folder / "upper" / "new",
        folder / "closed",
    ):
        path.chmod(mode)

    found = as_ordinary_user(diff, layout, folder)
    assert {c.path: bool(c.problem) for c in found} == {
        "both": True,
        "closed": True,
        "new": True,
        "z": False,
    }
    assert as_ordinary_user(statuses, layout, folder) == {
        "both": "refused",
        "closed": "refused",
        "new": "refused",
        "z": "applied",
    }


@pytest.mark.parametrize("replace", ["", "; echo 1 > a/sub"])
def test_hidden_files_of_the_host_go_only_with_a_folder_that_is_named(
    layout, folder, inside, replace
):
    """Deleting or replacing a folder takes no repository along unless the user names the folder."""
    for name in ("a/sub/.git/config", "a/sub/x", "plain/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1")
    inside(f"rm -r a/sub plain{replace}")

    assert {c.path: c.host_entries for c in diff(layout, folder)} == {"a/sub": 3, "plain": 1}
    assert statuses(layout, folder, force=True) == {"a/sub": "refused", "plain": "applied"}
    assert statuses(layout, folder, ["a"], force=True) == {"a/sub": "refused"}
    assert (folder / "a/sub/.git/config").exists()
    assert statuses(layout, folder, ["a/sub"]) == {"a/sub": "applied"}
    assert not (folder / "a/sub").is_dir()
