"""Dropping changes: only of stopped sandboxes, and exactly what was named."""

from __future__ import annotations

import fcntl
import os

import pytest

from sandbox_kernel.errors import SandboxRunningError, ValidationFailedError
from sandbox_kernel.folder import apply, diff, discard, forget_taken_over
from tests.support.clock import tick


def test_everything_is_dropped(layout, folder, inside):
    """The sandbox sees the host's files again, whatever permissions its own had."""
    (folder / "f").write_text("1")
    inside("echo 2 > f; mkdir -p a/b; echo 1 > a/b/c; chmod 000 a/b; chmod 000 a")

    dropped = discard(layout, folder, sandbox_id="s")

    assert "f" in [change.path for change in dropped]
    assert not layout.folder.exists()
    assert diff(layout, folder) == []


@pytest.mark.parametrize("part", ["d", "."])
def test_what_cannot_be_read_is_dropped_too(layout, folder, inside, as_ordinary_user, part):
    """Neither a folder nor the whole layer stays because its permissions hide what is in it."""
    inside("mkdir d; echo 1 > d/f")
    (layout.folder / "upper" / part).chmod(0o400)

    as_ordinary_user(discard, layout, folder, sandbox_id="s")

    assert not layout.folder.exists()


def test_named_paths_are_dropped(layout, folder, inside):
    """A deletion is undone, an edit is undone, the rest stays."""
    for name in ("edit", "gone", "stay"):
        (folder / name).write_text("1")
    inside("echo 2 > edit; rm gone; echo 2 > stay; mkdir d; echo 1 > d/x")

    discard(layout, folder, ["edit", "gone", "d"], sandbox_id="s")
    inside("test $(cat edit) = 1; test $(cat gone) = 1; test $(cat stay) = 2; test ! -e d")

    assert {c.path: c.kind for c in diff(layout, folder)} == {"stay": "modified"}


def test_what_a_replaced_folder_hides_is_dropped_with_the_folder(layout, folder, inside):
    """There is no mark to remove for the single file; the message says what to name instead."""
    (folder / "d").mkdir()
    (folder / "d" / "x").write_text("1")
    inside("rm -r d; mkdir d")

    with pytest.raises(ValidationFailedError, match="discard that folder"):
        discard(layout, folder, ["d/x"], sandbox_id="s")
    discard(layout, folder, ["d"], sandbox_id="s")

    assert diff(layout, folder) == []


def test_a_running_sandbox_is_refused(layout, folder, inside):
    """The runtime's lock tells, whichever process started it."""
    inside("echo 1 > f")
    held = os.open(layout.lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(SandboxRunningError, match="stop s"):
            discard(layout, folder, sandbox_id="s")
        assert {c.path: c.kind for c in diff(layout, folder)} == {"f": "added"}
    finally:
        os.close(held)


def test_a_tree_of_any_depth_is_dropped(layout, folder, deep_tree):
    """Deeper than descriptors and stack frames reach."""
    discard(layout, folder, ["d"], sandbox_id="s")

    assert diff(layout, folder) == []


def test_links_in_the_layer_are_removed_and_not_followed(layout, folder, tmp_path):
    """What a link points to is nobody's to delete."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("1")
    (layout.folder / "upper" / "d").mkdir()
    (layout.folder / "upper" / "d" / "l").symlink_to(outside)

    discard(layout, folder, sandbox_id="s")

    assert (outside / "precious").read_text() == "1"


def test_what_was_taken_over_no_longer_hides_the_hosts_file(layout, folder, inside):
    """After the sandbox stopped, later edits on the host are seen in it; its newer work stays."""
    (folder / "gone").write_text("1")
    inside("echo 1 > f; echo 1 > again; rm gone; mkdir d; echo 1 > d/x")
    apply(layout, folder)
    tick()
    inside("echo 2 > again")
    forget_taken_over(layout)
    (folder / "f").write_text("host\n")
    (folder / "gone").write_text("back\n")

    inside("test $(cat f) = host; test $(cat gone) = back; test $(cat again) = 2")

    assert {c.path: c.kind for c in diff(layout, folder)} == {"again": "modified"}
