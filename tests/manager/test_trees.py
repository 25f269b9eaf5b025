from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

from sandbox_kernel.manager.trees import remove_tree
from tests.support.small_disk import run_with_mount

NOBODY = 65534


@contextlib.contextmanager
def ordinary_user(folder: Path):
    """Act as a user whose permissions count, for the block; only root has to change."""
    if os.geteuid() != 0:
        yield
        return
    # The parents must be open to the other user; pytest makes them 0700.
    for parent in [folder, *folder.parents]:
        if parent.stat().st_uid == 0 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    os.chown(folder, NOBODY, NOBODY)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_a_tree_of_every_kind_of_file_goes(tmp_path):
    """Files, folders, sockets, pipes and links are removed, hidden ones too."""
    root = tmp_path / "root"
    (root / "a" / "b" / "c").mkdir(parents=True)
    (root / "a" / ".hidden").write_text("x")
    (root / "a" / "b" / "new\nline").write_text("x")
    os.mkfifo(root / "a" / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "s"))

    remove_tree(root)

    assert not root.exists()


def test_what_is_not_there_is_fine(tmp_path):
    """A second removal does nothing."""
    remove_tree(tmp_path / "nothing")


def test_links_are_removed_and_not_followed(tmp_path):
    """What a link points to stays, as do its permissions."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (tmp_path / "file").write_text("kept")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(tmp_path / "file")
    (root / "loop").symlink_to("loop")

    remove_tree(root)

    assert not root.exists()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500
    assert (tmp_path / "file").read_text() == "kept"


def test_a_root_that_is_a_link_loses_only_the_link(tmp_path):
    """If the root itself was replaced by a link, its target stays."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("kept")
    (tmp_path / "root").symlink_to(tmp_path / "outside")

    remove_tree(tmp_path / "root")

    assert not (tmp_path / "root").is_symlink()
    assert (tmp_path / "outside" / "file").exists()


def test_folders_without_permissions_are_opened_up(tmp_path):
    """Mode 000, as overlayfs leaves its work folder, is no obstacle to the owner."""
    base = tmp_path / "base"
    base.mkdir()
    with ordinary_user(base):
        root = base / "root"
        (root / "work" / "work" / "deeper" / "still").mkdir(parents=True)
        (root / "work" / "work" / "file").write_text("x")
        (root / "readonly").mkdir()
        (root / "readonly" / "file").write_text("x")
        for folder in ("work/work/deeper/still", "work/work/deeper", "work/work"):
            (root / folder).chmod(0o000)
        (root / "readonly").chmod(0o500)
        root.chmod(0o000)

        remove_tree(root)

        assert not root.exists()


def test_whiteouts_are_removed(tmp_path):
    """Character devices 0:0, which overlayfs writes for deleted files, go like files."""
    root = tmp_path / "root"
    root.mkdir()
    os.mknod(root / "gone.txt", stat.S_IFCHR | 0o600, os.makedev(0, 0))

    remove_tree(root)

    assert not root.exists()


def test_any_depth_goes(tmp_path):
    """A tree deeper than a path may be long, or a program may recurse, is removed."""
    root = tmp_path / "root"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d" * 20, dir_fd=here)
        with open(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here), "w"):
            pass
        deeper = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)

    remove_tree(root)

    assert not root.exists()


def test_many_files_and_names_like_our_own_go(tmp_path):
    """More names than one batch, and names that we use ourselves on the way."""
    root = tmp_path / "root"
    for folder in (root, root / ".removing-1", root / "sub" / ".removing-2"):
        folder.mkdir(parents=True, exist_ok=True)
    for number in range(9000):
        (root / f"f{number}").touch()
    for number in range(50):
        (root / "sub" / f"d{number}" / "e").mkdir(parents=True)

    remove_tree(root)

    assert not root.exists()


def test_what_cannot_be_removed_is_named_and_the_rest_goes(tmp_path):
    """The error names the first path that resisted; everything else is gone."""
    root = tmp_path / "root"
    (root / "free" / "deep").mkdir(parents=True)
    (root / "free" / "file").write_text("x")
    (root / "mounted" / "here").mkdir(parents=True)
    script = (
        "import sys, pathlib\n"
        "from sandbox_kernel.errors import StorageError\n"
        "from sandbox_kernel.manager.trees import remove_tree\n"
        "try:\n"
        "    remove_tree(pathlib.Path(sys.argv[1]))\n"
        "except StorageError as error:\n"
        "    print(error.context['path'], error.hint)\n"
    )
    # Another mount namespace is where a folder can be kept from going without being root.
    done = run_with_mount(root / "mounted" / "here", script, str(root))

    assert done.startswith(f"{root}/mounted/here ")
    assert "unmount" in done
    assert not (root / "free").exists()
    assert (root / "mounted" / "here").exists() or list(root.iterdir())


def test_no_descriptor_is_left(tmp_path):
    """A removal closes what it opens, also after a failure."""
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    before = os.listdir("/proc/self/fd")

    remove_tree(tmp_path / "root")

    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_two_processes_may_remove_one_tree(tmp_path):
    """Whoever finds that the other was first goes on with what is left; both succeed."""
    root = tmp_path / "root"
    for outer in range(30):
        for inner in range(10):
            (root / f"o{outer}" / f"i{inner}" / "deep" / "deeper").mkdir(parents=True)
            (root / f"o{outer}" / f"i{inner}" / "f").write_text("x")
    script = (
        "import sys; from pathlib import Path\n"
        "from sandbox_kernel.manager.trees import remove_tree\n"
        "print('ready', flush=True); sys.stdin.readline(); remove_tree(Path(sys.argv[1]))\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    argv = [sys.executable, "-c", script, root]
    with subprocess.Popen(argv, **pipes) as one, subprocess.Popen(argv, **pipes) as other:
        for process in (one, other):
            assert process.stdout.readline() == b"ready\n"
        for process in (one, other):
            process.stdin.write(b"go\n")
            process.stdin.flush()
        codes = one.wait(30), other.wait(30)

    assert codes == (0, 0)
    assert not root.exists()
