"""What `diff` says about layers that real overlays wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel.engines.base import StateLayout
from sandbox_kernel.errors import StorageError
from sandbox_kernel.folder import ChangeKind, FileType, apply, diff
from tests.support.clock import tick


def summary(layout: StateLayout, folder: Path) -> dict[str, str]:
    return {change.path: str(change.kind) for change in diff(layout, folder)}


def test_an_untouched_folder_has_no_changes(layout, folder, inside):
    """Reading, and opening for writing without writing, change nothing."""
    (folder / "data.csv").write_text("a,b\n1,2\n")

    inside("cat data.csv; : >> data.csv; touch data.csv")

    assert diff(layout, folder) == []


def test_a_sandbox_that_never_ran_has_no_changes(tmp_path, folder):
    """No layer is an empty layer."""
    assert diff(StateLayout(tmp_path / "nothing"), folder) == []


def test_added_modified_and_deleted_files(layout, folder, inside):
    """Each kind is named, with type and size; a folder comes before what is in it."""
    (folder / "keep.txt").write_text("same")
    (folder / "edit.txt").write_text("old")
    (folder / "gone.txt").write_text("gone")
    (folder / "old").mkdir()
    (folder / "old" / "x").write_text("x")

    inside(
        "echo new > edit.txt; rm gone.txt; rm -r old; mkdir -p out/deep; echo 1 > out/deep/r.txt"
    )
    changes = {change.path: change for change in diff(layout, folder)}

    assert list(changes) == ["edit.txt", "gone.txt", "old", "out", "out/deep", "out/deep/r.txt"]
    assert changes["edit.txt"].kind is ChangeKind.MODIFIED
    assert changes["edit.txt"].size == 4
    assert changes["gone.txt"].kind is ChangeKind.DELETED
    assert changes["old"].kind is ChangeKind.DELETED
    assert changes["old"].type is FileType.FOLDER
    assert changes["out"].kind is ChangeKind.ADDED
    assert changes["out/deep/r.txt"].kind is ChangeKind.ADDED
    assert not any(change.conflict or change.problem for change in changes.values())


def test_a_folder_made_anew_shows_what_it_hides(layout, folder, inside):
    """An opaque folder deletes what the host has in it and the sandbox has not."""
    (folder / "d").mkdir()
    for name in ("a", "b", "same"):
        (folder / "d" / name).write_text(name)

    inside("rm -r d; mkdir d; echo other > d/b; printf same > d/same; echo n > d/n")

    assert summary(layout, folder) == {"d/a": "deleted", "d/b": "modified", "d/n": "added"}


def test_a_changed_type_is_named_and_its_contents_too(layout, folder, inside):
    """A file that became a folder, and a folder that became a file or a link."""
    (folder / "f").write_text("file")
    (folder / "d").mkdir()
    (folder / "l").mkdir()

    inside("rm f; mkdir f; echo 1 > f/in; rm -r d; echo 2 > d; rm -r l; ln -s f l")

    assert summary(layout, folder) == {
        "d": "type-changed",
        "f": "type-changed",
        "f/in": "added",
        "l": "type-changed",
    }


def test_permission_bits_count_and_times_do_not(layout, folder, inside):
    """chmod +x on a script is a change; touch is none."""
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "same").write_text("1")

    inside("chmod 755 run.sh; touch -d @0 same")

    assert summary(layout, folder) == {"run.sh": "modified"}


def test_links_are_shown_with_their_targets_and_never_followed(layout, folder, inside):
    """A link to a folder outside is one entry; nothing behind it is listed."""
    inside("ln -s /etc etc; ln -s ../../x up; ln -s loop loop")
    changes = {change.path: change for change in diff(layout, folder)}

    assert {path: change.target for path, change in changes.items()} == {
        "etc": "/etc",
        "loop": "loop",
        "up": "../../x",
    }
    assert all(change.type is FileType.LINK for change in changes.values())


def test_pipes_are_shown_with_the_reason_they_stay(layout, folder, inside):
    """A special file is listed and marked as not to be taken over."""
    inside("mkfifo pipe")

    (change,) = diff(layout, folder)
    assert change.type is FileType.SPECIAL
    assert "not taken over" in change.problem


def test_a_host_file_changed_since_is_a_conflict(layout, folder, inside):
    """Whatever the host did after the sandbox made its own version: edit, replace, or delete."""
    for name in ("edited", "replaced", "deleted", "calm", "dropped"):
        (folder / name).write_text("1")
    os.mkdir(folder / "tree")
    (folder / "tree" / "leaf").write_text("1")
    inside("for f in edited replaced deleted calm; do echo 2 > $f; done; rm -r dropped tree")
    tick()
    (folder / "edited").write_text("3")
    (folder / "new").write_text("3")
    os.utime(folder / "new", (0, 0))
    os.replace(folder / "new", folder / "replaced")
    (folder / "deleted").unlink()
    (folder / "tree" / "leaf").write_text("3")

    conflicts = {change.path: change.conflict for change in diff(layout, folder)}

    assert conflicts == {
        "calm": "",
        "deleted": "deleted on the host since",
        "dropped": "",
        "edited": "changed on the host since",
        "replaced": "changed on the host since",
        "tree": "changed on the host since",
    }


def test_a_host_file_changed_between_copy_and_last_write_is_a_conflict(layout, folder, inside):
    """The moment that counts is when the sandbox's version began, not when it was last written."""
    (folder / "log").write_text("1\n")
    inside("echo 2 >> log")
    tick()
    (folder / "log").write_text("host\n")
    tick()
    inside("echo 3 >> log")

    (change,) = diff(layout, folder)
    assert change.conflict == "changed on the host since"


def test_a_tree_of_absurd_depth_is_shown_as_what_it_is(layout, folder, deep_tree):
    """Thousands of nested folders neither stop the comparison nor make it crawl."""
    *fine, deepest = diff(layout, folder)
    assert not any(change.problem for change in fine)
    assert "deep" in deepest.problem


def test_a_missing_host_folder_is_an_error_that_names_it(layout, tmp_path):
    """The folder may have been moved since the sandbox was made."""
    with pytest.raises(StorageError, match="moved-away"):
        diff(layout, tmp_path / "moved-away")


@pytest.mark.parametrize("mode", ["400", "000"])
def test_a_folder_closed_from_inside_is_compared_all_the_same(
    layout, folder, inside, as_ordinary_user, mode
):
    """The top folder's permissions are the sandbox's to change, and bar nobody on the host."""
    inside(f"echo 1 > f; mkdir d; echo 1 > d/g; chmod {mode} .")

    found = as_ordinary_user(diff, layout, folder)

    assert [change.path for change in found] == ["d", "d/g", "f"]
    inside(f"chmod {mode} .")
    assert len(as_ordinary_user(apply, layout, folder)) == 3
    assert (folder / "f").read_text() == "1\n"


def test_a_link_in_the_layers_place_is_not_followed(layout, folder, tmp_path, as_ordinary_user):
    """Whatever it points to keeps its permissions."""
    closed = tmp_path / "closed"
    closed.mkdir(0o000)
    (layout.folder / "upper").rmdir()
    (layout.folder / "upper").symlink_to(closed)

    with pytest.raises(StorageError):
        as_ordinary_user(diff, layout, folder)

    assert closed.stat().st_mode & 0o777 == 0
