"""What a sandbox sends is hostile: nothing of it is written or read outside the folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.client import host_folder
from sandbox_kernel.client.host_folder import FolderReader, FolderWriter, is_inside
from sandbox_kernel.errors import (
    FileTooLargeError,
    HostileNameError,
    PathExistsError,
    PathNotDirectoryError,
    StorageError,
    StorageFullError,
)
from sandbox_kernel.wire.file_operations import FileEntry
from tests.support.small_disk import run_on_small_disk


def entry(path, kind="file", size=0, mode=0o644, target=None):
    return FileEntry(
        path=path,
        type=kind,
        size=size,
        modified_at=0.0,
        mode=mode,
        permissions="rwx",
        target=target,
    )


def write(folder, *entries, finish=True, **options):
    """Write entries, each alone or with its bytes; return the writer."""
    options = {
        "overwrite": False,
        "max_bytes": 1 << 20,
        "max_entries": 100,
        "symlinks": "safe",
        **options,
    }
    with FolderWriter(path=folder, **options) as writer:
        for each in entries:
            writer.take(*(each if isinstance(each, tuple) else (each, b"")))
        if finish:
            writer.finish()
    return writer


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("nameless", [True, False])
def test_a_file_has_no_name_until_it_is_whole(tmp_path, monkeypatch, nameless):
    """So a kill leaves nothing; on file systems without such files it leaves a draft."""
    if not nameless:
        monkeypatch.setattr(host_folder, "_NAMELESS", 0)
    for content in (b"new", b"newer"):
        with FolderWriter(
            path=tmp_path, overwrite=True, max_bytes=99, max_entries=9, symlinks="safe"
        ) as writer:
            writer.take(entry("f", size=9, mode=0o640), content[:1])
            names = [name for name in everything(tmp_path) if name != "f"]
            writer.take(None, content[1:])
            writer.finish()

        assert len(names) == (0 if nameless else 1)
        assert everything(tmp_path) == ["f"]
        assert (tmp_path / "f").read_bytes() == content
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "../out",
        "d/../../out",
        "/out",
        "//out",
        "d//x",
        "d/",
        "./x",
        "x\0y",
        "\0",
        "\ud800",
        "d/..",
    ],
)
@pytest.mark.parametrize("kind", ["file", "directory", "symlink"])
def test_names_that_lead_out(tmp_path, path, kind):
    """They are refused, of whatever kind, and nothing is left outside or inside."""
    folder = tmp_path / "folder"
    with pytest.raises(HostileNameError):
        write(folder, entry("d", "directory"), entry(path, kind, target="x"))

    assert everything(tmp_path) == ["folder", "folder/d"]


def test_a_link_in_the_place_of_a_folder(tmp_path):
    """Neither one that the sandbox sent before nor one that is there already is passed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "folder"
    with pytest.raises(PathNotDirectoryError):
        write(folder, entry("d", "symlink", target=str(outside)), entry("d/x"), symlinks="all")
    (folder / "e").symlink_to(outside)
    with pytest.raises(PathExistsError):
        write(folder, entry("e", "directory"), overwrite=True)
    with pytest.raises(PathNotDirectoryError):
        write(folder, entry("e/x"), overwrite=True)

    assert everything(outside) == []


def test_a_folder_that_is_swapped_for_a_link(tmp_path):
    """Between two entries somebody puts a link where a folder was made."""
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "folder"
    options = {"overwrite": True, "max_bytes": 9, "max_entries": 9, "symlinks": "safe"}
    with FolderWriter(path=folder, **options) as writer:
        writer.take(entry("d", "directory"), b"")
        writer.take(entry("x"), b"")
        (folder / "d").rmdir()
        (folder / "d").symlink_to(outside)
        with pytest.raises(PathNotDirectoryError):
            writer.take(entry("d/x"), b"")

    assert everything(outside) == []


def test_a_link_in_the_place_of_a_file(tmp_path):
    """It is refused, or replaced itself; what it leads to stays as it is."""
    marker = tmp_path / "marker"
    marker.write_bytes(b"mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x").symlink_to(marker)
    with pytest.raises(PathExistsError):
        write(folder, (entry("x"), b"theirs"))
    assert (folder / "x").is_symlink()

    write(folder, (entry("x"), b"theirs"), overwrite=True)
    assert (folder / "x").read_bytes() == b"theirs"
    assert not (folder / "x").is_symlink()
    assert marker.read_bytes() == b"mine"


def test_a_file_whose_folder_was_not_sent(tmp_path):
    """It is refused."""
    with pytest.raises(HostileNameError):
        write(tmp_path / "folder", entry("d/x"))


def test_special_files_and_bits(tmp_path):
    """Devices and pipes are never made; set-user-id does not cross."""
    done = write(
        tmp_path / "folder",
        entry("device", "other"),
        (entry("program", mode=0o6755), b"#!"),
        entry("d", "directory", mode=0o7777),
        entry("later kind", "door"),
    )

    assert [each.path for each in done.skipped] == ["device", "later kind"]
    assert stat.S_IMODE((tmp_path / "folder" / "program").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "folder" / "d").stat().st_mode) == 0o777


def test_giants(tmp_path):
    """A size that is announced, and bytes that were not; then nothing is left of the file."""
    folder = tmp_path / "folder"
    with pytest.raises(FileTooLargeError):
        write(folder, entry("sparse", size=8 << 60), max_bytes=1 << 40)
    with pytest.raises(FileTooLargeError):
        write(folder, (entry("liar", size=1), b"x" * 100), (None, b"x" * 100), max_bytes=150)
    with pytest.raises(FileTooLargeError):
        write(folder, (entry("a"), b"x" * 100), (entry("b"), b"x" * 100), max_bytes=150)
    with pytest.raises(FileTooLargeError):
        write(folder, *(entry(f"n{number}", "other") for number in range(5)), max_entries=4)

    assert everything(folder) == ["a"]


def test_nothing_is_overwritten_unasked(tmp_path):
    """Files are refused, folders filled."""
    folder = tmp_path / "folder"
    write(folder, entry("d", "directory"), (entry("d/x"), b"1"))
    write(folder, entry("d", "directory"), (entry("d/y"), b"2"))
    with pytest.raises(PathExistsError):
        write(folder, entry("d", "directory"), (entry("d/x"), b"3"))
    with pytest.raises(PathExistsError):
        write(folder, (entry("d"), b"3"), overwrite=True)
    assert (folder / "d" / "x").read_bytes() == b"1"

    write(folder, entry("d", "directory"), (entry("d/x"), b"3"), overwrite=True)
    assert (folder / "d" / "x").read_bytes() == b"3"


@pytest.mark.parametrize("kind", ["file", "directory", "symlink"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_names_that_the_file_system_does_not_tell_apart(tmp_path, kind, overwrite):
    """The second of them is refused, also where replacing is asked for.

    Where names are told apart, a name that comes twice is the same case.
    """
    folder = tmp_path / "folder"
    with pytest.raises(PathExistsError):
        write(
            folder,
            entry("name", kind, target="x"),
            entry("name", kind, target="y"),
            overwrite=overwrite,
        )


def test_what_was_begun_is_not_left(tmp_path):
    """A transfer that breaks off leaves whole files only."""
    folder = tmp_path / "folder"
    write(folder, (entry("a"), b"1"), (entry("b", size=10), b"half"), finish=False)

    assert everything(folder) == ["a"]


def test_modes_are_set_at_the_end(tmp_path):
    """So that a folder nobody may write to can be filled."""
    folder = tmp_path / "folder"
    write(
        folder, entry("d", "directory", mode=0o500), entry("d/e", "directory", mode=0), entry("d/x")
    )

    assert stat.S_IMODE((folder / "d").stat().st_mode) == 0o500
    assert stat.S_IMODE((folder / "d" / "e").stat().st_mode) == 0


def test_a_full_disk_on_this_side(tmp_path):
    """A typed error that names the folder; no half file."""
    said = run_on_small_disk(
        tmp_path,
        1 << 20,
        "import sys, os\n"
        "from pathlib import Path\n"
        "from sandbox_kernel.errors import StorageFullError\n"
        "from tests.client.test_host_folder import entry, write\n"
        "try:\n"
        "    write(Path(sys.argv[1]) / 'f', (entry('x'), b'x' * (2 << 20)), max_bytes=1 << 30)\n"
        "except StorageFullError as error:\n"
        "    print(error.code, os.listdir(Path(sys.argv[1]) / 'f'))\n",
        str(tmp_path),
    )
    assert said.strip() == "STORAGE_FULL []"
    assert StorageFullError.code == "STORAGE_FULL"


def test_a_folder_that_cannot_be_made(tmp_path):
    """What this machine refuses has an error of its own."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError) as refused:
        write(tmp_path / "file" / "folder")
    assert "file" in refused.value.context["path"]


# --- links ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "target", "inside"),
    [
        ((), "x", True),
        ((), "./x/y", True),
        ((), "..", False),
        ((), "../folder/x", False),
        ((), "x/..", False),
        ((), "/etc/passwd", False),
        ((), "", False),
        (("d",), "../x", True),
        (("d",), "../../x", False),
        (("d", "e"), ".././../x", True),
        (("d", "e"), "../x/../../y", False),
        (("d",), "..", True),
    ],
)
def test_links_that_stay_inside(folder, target, inside):
    """Up at the beginning only, through real folders, and no further than the top."""
    assert is_inside(folder, target) is inside


NAMES = st.sampled_from(["a", "b", "c"])
PARTS = st.sampled_from(["a", "b", "c", "..", "."])


@given(
    st.lists(
        st.one_of(
            st.tuples(st.lists(NAMES, min_size=1, max_size=3), st.none()),
            st.tuples(
                st.lists(NAMES, min_size=1, max_size=3), st.lists(PARTS, min_size=1, max_size=4)
            ),
        ),
        max_size=8,
    )
)
def test_no_safe_link_leads_out(tmp_path_factory, entries):
    """Whatever folders and links there are: each link that was made stays inside or nowhere."""
    folder = tmp_path_factory.mktemp("links") / "top"
    with FolderWriter(
        path=folder, overwrite=False, max_bytes=0, max_entries=99, symlinks="safe"
    ) as writer:
        for names, target in entries:
            each = (
                entry("/".join(names), "directory")
                if target is None
                else entry("/".join(names), "symlink", target="/".join(target))
            )
            try:
                writer.take(each, b"")
            except (HostileNameError, PathExistsError, PathNotDirectoryError):
                continue
        writer.finish()

    top = folder.resolve()
    for where, folders, files in os.walk(folder):
        for name in folders + files:
            try:
                real = (Path(where) / name).resolve(strict=True)
            except (OSError, RuntimeError):
                continue
            assert real == top or top in real.parents


@pytest.mark.parametrize(("rule", "made"), [("safe", ["in"]), ("all", ["in", "out"]), ("skip", [])])
def test_rules_for_links(tmp_path, rule, made):
    """Which are made, and that the others are told."""
    done = write(
        tmp_path / "folder",
        entry("in", "symlink", target="x"),
        entry("out", "symlink", target="/etc"),
        symlinks=rule,
    )
    assert everything(tmp_path / "folder") == made
    assert sorted([*made, *(each.path for each in done.skipped)]) == ["in", "out"]
    assert done.links == len(made)


# --- reading ----------------------------------------------------------------------------------


def read(folder, *, follow=False, small=100):
    with FolderReader(folder, follow_symlinks=follow, small=small) as reader:
        return {each.path: each for each in reader.entries()}


def test_links_are_not_followed_out_of_what_is_read(tmp_path):
    """Their targets come, as text; with following what they lead to comes, loops excepted."""
    (tmp_path / "secret").write_bytes(b"host")
    folder = tmp_path / "folder"
    (folder / "d").mkdir(parents=True)
    (folder / "out").symlink_to("../secret")
    (folder / "d" / "loop").symlink_to("..")
    (folder / "broken").symlink_to("none")
    os.mkfifo(folder / "pipe")
    entries = read(folder)
    assert {path: (each.type, each.target) for path, each in entries.items()} == {
        "d": ("directory", ""),
        "d/loop": ("symlink", ".."),
        "out": ("symlink", "../secret"),
        "broken": ("symlink", "none"),
        "pipe": ("other", "neither file, folder nor link"),
    }

    entries = read(folder, follow=True)
    assert entries["out"].data == b"host"
    assert entries["d/loop"].type == "other"
    assert entries["broken"].type == "symlink"


def test_a_file_that_becomes_a_link_is_not_read(tmp_path):
    """Between the listing and the reading."""
    (tmp_path / "secret").write_bytes(b"host" * 100)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x").write_bytes(b"x" * 200)
    with FolderReader(folder, follow_symlinks=False, small=100) as reader:
        assert [each.data for each in reader.entries()] == [None]
        (folder / "x").unlink()
        (folder / "x").symlink_to("../secret")
        with pytest.raises(StorageError):
            reader.open("x")
