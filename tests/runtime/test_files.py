"""Files through the runtime's door: bytes both ways, names, and what the system refuses."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from fcntl import F_SETLEASE, F_SETSIG, F_WRLCK, fcntl
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.errors import (
    FileSystemError,
    OperationInterruptedError,
    PathExistsError,
    PathIsDirectoryError,
    PathNotDirectoryError,
    PathNotFoundError,
    PathTooLongError,
    TooManyLinksError,
    UploadNotFoundError,
    ValidationFailedError,
)
from sandbox_runtime.drafts import DRAFT, Drafts, is_draft
from sandbox_runtime.file_errors import KINDS, explain
from tests.runtime.conftest import Start
from tests.support.runtime_child import DEADLINE, Client, RuntimeChild

EVERYTHING = bytes(range(256)) * 400 + b"\r\n\x00"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def runtime(start_runtime: Start, tmp_path: Path) -> RuntimeChild:
    home = tmp_path / "home"
    home.mkdir()
    return start_runtime(env={"PATH": os.environ["PATH"], "HOME": str(home)})


def read(client: Client, path: str, **fields: Any) -> bytes:
    items, end = client.call("file.read", path=path, **fields)
    data = b"".join(each.data for each in items)
    assert end.size == len(data)
    return data


def upload(client: Client, path: str, **fields: Any) -> str:
    return str(client.call("file.begin_write", path=path, **fields).upload_id)


def drafts(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(DRAFT)]


# --- bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\r\n", EVERYTHING], ids=["empty", "line end", "bytes"])
def test_bytes_come_back_as_they_were(client: Client, runtime: RuntimeChild, data: bytes) -> None:
    """Whatever they are, also none at all."""
    entry = client.call("file.write", path="a file", data=data)

    assert read(client, "a file") == data == (runtime.workspace / "a file").read_bytes()
    assert (entry.type, entry.size, entry.mode, entry.permissions) == (
        "file",
        len(data),
        0o644,
        "rw-",
    )


def test_a_part_of_a_file(client: Client) -> None:
    """From an offset on, and no more than a length; beyond the end there is nothing."""
    client.call("file.write", path="f", data=b"0123456789")

    assert read(client, "f", offset=3) == b"3456789"
    assert read(client, "f", offset=3, length=4) == b"3456"
    assert read(client, "f", offset=20) == b""
    assert read(client, "f", length=0) == b""
    with pytest.raises(ValidationFailedError):
        read(client, "f", offset=-1)


def test_an_upload_in_any_order(client: Client, runtime: RuntimeChild) -> None:
    """Parts may come in any order and again; the file is there when it is whole."""
    name = upload(client, "new/folder/big", mode=0o750)
    for offset, data in ((5, b"56789"), (0, b"01234"), (3, b"345")):
        client.call("file.write_part", upload_id=name, offset=offset, data=data)
    folder = runtime.workspace / "new" / "folder"
    assert not (folder / "big").exists()
    assert client.call("file.list", path="new", recursive=True, include_hidden=True)[1].count == 1

    entry = client.call("file.end_write", upload_id=name, size=10, fsync=True)

    assert entry.size == 10
    assert (folder / "big").read_bytes() == b"0123456789"
    assert stat.S_IMODE((folder / "big").stat().st_mode) == 0o750
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert drafts(folder) == []
    with pytest.raises(UploadNotFoundError):
        client.call("file.end_write", upload_id=name, size=10)


@pytest.mark.parametrize("size", [9, 11, 4])
def test_an_upload_that_lacks_a_part_changes_nothing(
    client: Client, runtime: RuntimeChild, size: int
) -> None:
    """The size that the client names must be what has come, without a gap."""
    (runtime.workspace / "f").write_bytes(b"old")
    name = upload(client, "f")
    client.call("file.write_part", upload_id=name, offset=0, data=b"01234")
    client.call("file.write_part", upload_id=name, offset=6, data=b"6789")

    with pytest.raises(ValidationFailedError):
        client.call("file.end_write", upload_id=name, size=size)
    assert (runtime.workspace / "f").read_bytes() == b"old"
    until(lambda: drafts(runtime.workspace) == [])


def test_parts_need_not_be_waited_for(client: Client) -> None:
    """The end waits for the parts that are being written."""
    name = upload(client, "f")
    calls = [
        client.begin("file.write_part", upload_id=name, offset=n << 20, data=bytes([n]) * (1 << 20))
        for n in range(100)
    ]
    end = client.begin("file.end_write", upload_id=name, size=100 << 20)

    for call in calls:
        client.finish(call)
    assert client.finish(end).size == 100 << 20
    assert read(client, "f") == b"".join(bytes([n]) * (1 << 20) for n in range(100))


def test_an_upload_that_is_given_up(client: Client, runtime: RuntimeChild) -> None:
    """Nothing is left of it, and giving it up twice is fine."""
    name = upload(client, "f")
    client.call("file.write_part", upload_id=name, offset=0, data=b"half")
    client.call("file.abort_write", upload_id=name)
    client.call("file.abort_write", upload_id=name)

    until(lambda: os.listdir(runtime.workspace) == [])
    with pytest.raises(UploadNotFoundError):
        client.call("file.write_part", upload_id=name, offset=4, data=b"more")


def test_an_upload_that_nobody_goes_on_with(client: Client, runtime: RuntimeChild) -> None:
    """It ends by itself after its idle time, and holds the sandbox awake until then."""
    upload(client, "f", idle_timeout=0.5)
    assert client.call("runtime.health").busy != []
    assert len(drafts(runtime.workspace)) == 1

    until(lambda: os.listdir(runtime.workspace) == [])
    assert client.call("runtime.health").busy == []
    with pytest.raises(ValidationFailedError):
        upload(client, "f", idle_timeout=0)


def test_a_killed_runtime_leaves_nothing_for_long(
    client: Client, runtime: RuntimeChild, start_runtime: Start
) -> None:
    """The next runtime of the same home removes the drafts of the last, and only those."""
    (runtime.workspace / "f").write_bytes(b"old")
    name = upload(client, "f")
    client.call("file.write_part", upload_id=name, offset=0, data=b"half")
    assert len(drafts(runtime.workspace)) == 1
    runtime.process.kill()
    runtime.wait_exit()
    assert (runtime.workspace / "f").read_bytes() == b"old"
    home = runtime.folder.parent / "home"
    with (home / ".sandbox-drafts").open("ab") as ledger:
        # What a program in the sandbox might write there.
        ledger.write(bytes(runtime.workspace / "f") + b"\0" + b"\xff" * 100)

    later = start_runtime(env={"PATH": os.environ["PATH"], "HOME": str(home)})
    with later.connect() as again:
        again.welcome()
        again.call("runtime.health")
        until(lambda: os.listdir(runtime.workspace) == ["f"])
        until(lambda: (home / ".sandbox-drafts").read_bytes() == b"")


def test_what_is_replaced_gives_its_mode(client: Client, runtime: RuntimeChild) -> None:
    """A script stays executable, unless another mode is asked for."""
    script = runtime.workspace / "script"
    script.write_bytes(b"old")
    script.chmod(0o751)
    client.call("file.write", path="script", data=b"new")
    assert (script.read_bytes(), stat.S_IMODE(script.stat().st_mode)) == (b"new", 0o751)

    client.call("file.write", path="script", data=b"new", mode=0o600)
    assert stat.S_IMODE(script.stat().st_mode) == 0o600
    with pytest.raises(ValidationFailedError):
        client.call("file.write", path="script", data=b"", mode=0o10000)


def test_links_are_followed_by_a_write(client: Client, runtime: RuntimeChild) -> None:
    """As a shell does: the link stays a link, also one that leads to nothing yet."""
    os.symlink("there/target", runtime.workspace / "link")
    os.symlink("link", runtime.workspace / "second")
    client.call("file.write", path="second", data=b"one")

    assert os.readlink(runtime.workspace / "link") == "there/target"
    assert (runtime.workspace / "there" / "target").read_bytes() == b"one"
    client.call("file.write", path="link", data=b"two")
    assert (runtime.workspace / "there" / "target").read_bytes() == b"two"


def test_nothing_is_overwritten_unasked(client: Client, runtime: RuntimeChild) -> None:
    """Without `overwrite` a file that exists is refused, from the beginning and at the end."""
    client.call("file.write", path="f", data=b"old", overwrite=False)
    with pytest.raises(PathExistsError):
        client.call("file.write", path="f", data=b"new", overwrite=False)
    with pytest.raises(PathExistsError):
        upload(client, "f", overwrite=False)
    name = upload(client, "g", overwrite=False)
    (runtime.workspace / "g").write_bytes(b"came meanwhile")
    with pytest.raises(PathExistsError):
        client.call("file.end_write", upload_id=name, size=0)

    assert (runtime.workspace / "g").read_bytes() == b"came meanwhile"
    until(lambda: sorted(os.listdir(runtime.workspace)) == ["f", "g"])


def test_too_many_uploads(client: Client) -> None:
    """A typed error, and room again when one has ended."""
    names = [upload(client, f"f{n}") for n in range(128)]
    with pytest.raises(FileSystemError) as refused:
        upload(client, "one more")
    assert refused.value.code == "TOO_MANY_FILES"

    client.call("file.abort_write", upload_id=names[0])
    upload(client, "one more")


# --- what is no file --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pipe", "socket", "/dev/zero", "/dev/full", "."])
def test_what_is_no_file_is_refused_at_once(
    client: Client, runtime: RuntimeChild, name: str
) -> None:
    """Neither reading nor writing waits for a pipe, or reads a device for ever."""
    os.mkfifo(runtime.workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as sock, contextlib.chdir(runtime.workspace):
        sock.bind("socket")
    code = "IS_DIRECTORY" if name == "." else "FILESYSTEM_ERROR"
    for operation in ("file.read", "file.write"):
        with pytest.raises(FileSystemError) as refused:
            client.call(operation, path=name)
        assert refused.value.code == code


def test_a_file_without_a_size(client: Client) -> None:
    """What the kernel makes up is read to its end."""
    assert read(client, "/proc/version").startswith(b"Linux")


def test_a_file_that_grows(client: Client, runtime: RuntimeChild) -> None:
    """It is read up to the size that it had: a fast writer keeps nobody for ever."""
    path = runtime.workspace / "log"
    path.write_bytes(b"x" * 1_000_000)
    call = client.begin("file.read", path="log", credit=1)
    first = client.event_of(call)
    with path.open("ab") as file:
        file.write(b"y" * 1_000_000)
    client.send(client.protocol.grant(call, 1 << 30))

    items, end = client.finish(call)
    assert end.size == 1_000_000
    assert len(first.body) + sum(len(each.data) for each in items) == 1_000_000


def test_a_reader_that_takes_nothing_is_not_read_for(client: Client, runtime: RuntimeChild) -> None:
    """Without credit the file waits on the disk, and other calls go on; then it can be left."""
    (runtime.workspace / "big").write_bytes(b"x" * 50_000_000)
    call = client.begin("file.read", path="big", credit=1)
    client.event_of(call)
    before = resource_of(runtime)
    client.call("file.stat", path="big")
    assert client.event_within(call, 0.2) is None
    assert resource_of(runtime) - before < 20_000_000

    client.send(client.protocol.cancel(call))
    with pytest.raises(OperationInterruptedError):
        client.finish(call)


def resource_of(runtime: RuntimeChild) -> int:
    """Return the memory a runtime holds."""
    with open(f"/proc/{runtime.pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


# --- names ------------------------------------------------------------------------------------


def test_folders(client: Client, runtime: RuntimeChild) -> None:
    """Made one at a time or with those above, listed, and refused as files."""
    client.call("file.mkdir", path="a")
    client.call("file.mkdir", path="b/c/d", parents=True, mode=0o700)
    client.call("file.mkdir", path="b/c/d", parents=True)
    with pytest.raises(PathExistsError):
        client.call("file.mkdir", path="a")
    with pytest.raises(PathNotFoundError):
        client.call("file.mkdir", path="x/y")
    client.call("file.write", path="f", data=b"")
    with pytest.raises(PathNotDirectoryError):
        client.call("file.mkdir", path="f/y", parents=True)
    with pytest.raises(PathExistsError):
        client.call("file.mkdir", path="f", parents=True)

    assert stat.S_IMODE((runtime.workspace / "b" / "c" / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((runtime.workspace / "b" / "c").stat().st_mode) == 0o755


def test_deleting(client: Client, runtime: RuntimeChild) -> None:
    """Files and links at once, folders only when asked, and never what a link leads to."""
    client.call("file.write", path="kept/f", data=b"1")
    client.call("file.write", path="d/e/f", data=b"1")
    client.call("file.symlink", path="d/link", target="../kept")
    client.call("file.symlink", path="link", target="kept")
    with pytest.raises(PathIsDirectoryError):
        client.call("file.delete", path="d")
    client.call("file.delete", path="d", recursive=True)
    client.call("file.delete", path="link", recursive=True)
    with pytest.raises(PathNotFoundError):
        client.call("file.delete", path="d", recursive=True)

    assert os.listdir(runtime.workspace) == ["kept"]
    assert read(client, "kept/f") == b"1"


def test_renaming_and_moving(client: Client, runtime: RuntimeChild) -> None:
    """A rename replaces, or refuses to; a move goes into a folder that exists."""
    client.call("file.write", path="a", data=b"a")
    client.call("file.write", path="b", data=b"b")
    with pytest.raises(PathExistsError):
        client.call("file.rename", path="a", new_path="b", overwrite=False)
    client.call("file.rename", path="a", new_path="b")
    assert read(client, "b") == b"a"
    client.call("file.mkdir", path="d")
    moved = client.call("file.move", path="b", new_path="d")
    assert moved.path == str(runtime.workspace / "d" / "b")
    with pytest.raises(PathNotFoundError):
        client.call("file.rename", path="none", new_path="x")


def test_moving_between_file_systems(client: Client, runtime: RuntimeChild) -> None:
    """Everything comes along; a rename says that it cannot."""
    folder = Path("/dev/shm") / f"test-{os.getpid()}"
    folder.mkdir()
    assert folder.stat().st_dev != runtime.workspace.stat().st_dev
    try:
        client.call("file.write", path="d/sub/f", data=EVERYTHING, mode=0o751)
        client.call("file.symlink", path="d/link", target="nowhere")
        os.utime(runtime.workspace / "d" / "sub" / "f", (1e9, 1e9))
        (runtime.workspace / "d" / "sub").chmod(0o500)
        with pytest.raises(FileSystemError) as refused:
            client.call("file.rename", path="d", new_path=str(folder / "d"))
        assert "move_file" in refused.value.hint

        moved = client.call("file.move", path="d", new_path=str(folder))

        there = folder / "d"
        assert moved.path == str(there)
        assert (there / "sub" / "f").read_bytes() == EVERYTHING
        assert stat.S_IMODE((there / "sub" / "f").stat().st_mode) == 0o751
        assert (there / "sub" / "f").stat().st_mtime == 1e9
        assert stat.S_IMODE((there / "sub").stat().st_mode) == 0o500
        assert os.readlink(there / "link") == "nowhere"
        assert os.listdir(runtime.workspace) == []
        assert os.listdir(folder) == ["d"]
    finally:
        client.call("file.delete", path=str(folder), recursive=True)


def test_what_there_is(client: Client, runtime: RuntimeChild) -> None:
    """Existing, and of what kind; a link as itself or as what it leads to."""
    client.call("file.write", path="f", data=b"123", mode=0o640)
    client.call("file.symlink", path="link", target="f")
    client.call("file.symlink", path="broken", target="none")
    os.utime(runtime.workspace / "f", (1e9, 1e9))

    assert client.call("file.exists", path="link").exists
    assert not client.call("file.exists", path="broken").exists
    assert client.call("file.exists", path="broken", follow_symlinks=False).exists
    assert not client.call("file.exists", path="f/x").exists
    entry = client.call("file.stat", path="link")
    assert (entry.type, entry.size, entry.mode, entry.modified_at) == ("file", 3, 0o640, 1e9)
    entry = client.call("file.stat", path="link", follow_symlinks=False)
    assert (entry.type, entry.target) == ("symlink", "f")
    client.call("file.chmod", path="link", mode=0o600)
    assert client.call("file.stat", path="f").mode == 0o600


def test_names_that_are_no_text(client: Client, runtime: RuntimeChild) -> None:
    """Bytes that are no UTF-8 go both ways as lone surrogates."""
    raw = b"odd \xff\n\x01 \xe9"
    name = os.fsdecode(raw)
    client.call("file.write", path=name, data=b"1")
    assert os.listdir(bytes(runtime.workspace)) == [raw]

    (listed,), _ = client.call("file.list", path=".")
    assert [each.path for each in listed.entries] == [name]
    assert read(client, name) == b"1"
    (first,), _ = client.call("file.pack", path=".")
    assert (first.entries[0].path, first.sizes, first.data) == (name, [1], b"1")
    with pytest.raises(ValidationFailedError):
        client.call("file.stat", path="\ud800")


@pytest.mark.parametrize("path", ["", "x\0y"])
def test_what_is_no_path(client: Client, path: str) -> None:
    """It is refused before anything is looked at."""
    with pytest.raises(ValidationFailedError):
        client.call("file.stat", path=path)
    with pytest.raises(ValidationFailedError):
        client.call("file.write", path=path)


@pytest.mark.parametrize("path", ["x" * 5000, "y" * 256, "d/" * 3000 + "f"])
def test_what_is_too_long(client: Client, path: str) -> None:
    """A name of more than 255 bytes, a path of more than 4095."""
    with pytest.raises(PathTooLongError):
        client.call("file.write", path=path)
    with pytest.raises(PathTooLongError):
        client.call("file.stat", path=path)


def test_paths_mean_what_they_say(client: Client, runtime: RuntimeChild) -> None:
    """Nothing in them is decoded, expanded or tidied but single dots at their beginning."""
    for name in ("~", "..%2fx", "%2e%2e", "..\\x", "file:x", "$HOME", " "):
        client.call("file.write", path=name, data=name.encode())
        assert (runtime.workspace / name).read_bytes() == name.encode()
    client.call("file.write", path="././dot", data=b"")
    assert (runtime.workspace / "dot").exists()
    os.makedirs(runtime.workspace / "real" / "sub")
    os.symlink("real/sub", runtime.workspace / "link")
    client.call("file.write", path="link/../x", data=b"as the system says")
    assert (runtime.workspace / "real" / "x").exists()


# --- listing ----------------------------------------------------------------------------------


def test_listing(client: Client, runtime: RuntimeChild) -> None:
    """One level or all; hidden names when asked; links as links; other kinds as other."""
    client.call("file.write", path="a/b/c", data=b"1")
    client.call("file.write", path=".hidden/x", data=b"1")
    client.call("file.symlink", path="a/loop", target="..")
    os.mkfifo(runtime.workspace / "pipe")

    def listed(**fields: Any) -> dict[str, str]:
        items, end = client.call("file.list", path=".", **fields)
        entries = [each for item in items for each in item.entries]
        assert end.count == len(entries)
        assert end.unreadable == []
        return {each.path: each.type for each in entries}

    assert listed() == {"a": "directory", "pipe": "other"}
    deep = {"a/b": "directory", "a/b/c": "file", "a/loop": "symlink"}
    assert listed(recursive=True) == {"a": "directory", "pipe": "other", **deep}
    assert listed(recursive=True, include_hidden=True) == {
        "a": "directory",
        "pipe": "other",
        **deep,
        ".hidden": "directory",
        ".hidden/x": "file",
    }
    with pytest.raises(PathNotDirectoryError):
        client.call("file.list", path="a/b/c")
    os.symlink("circle", runtime.workspace / "circle")
    for operation in ("file.list", "file.read", "file.write", "file.stat", "file.exists"):
        with pytest.raises(TooManyLinksError):
            client.call(operation, path="circle")


def test_a_folder_of_a_hundred_thousand(client: Client, runtime: RuntimeChild) -> None:
    """It neither keeps others waiting nor fills the memory, and can be left in the middle."""
    folder = runtime.workspace / "many"
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY)
    for number in range(100_000):
        os.close(os.open(f"entry number {number}", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    before = resource_of(runtime)
    call = client.begin("file.list", path="many", credit=1)
    assert client.event_of(call)
    begun = time.monotonic()
    client.call("runtime.health")
    assert time.monotonic() - begun < 1
    client.send(client.protocol.cancel(call))
    with pytest.raises(OperationInterruptedError):
        client.finish(call)

    items, end = client.call("file.list", path="many")

    assert end.count == 100_000
    assert len({each.path for item in items for each in item.entries}) == 100_000
    assert max(len(item.entries) for item in items) <= 256
    assert resource_of(runtime) - before < 50_000_000
    client.call("file.delete", path="many", recursive=True)
    assert not folder.exists()


def test_a_deep_tree(client: Client, runtime: RuntimeChild) -> None:
    """Deeper than a path may be long: listed, sent, copied and deleted all the same."""
    os.mkdir(runtime.workspace / "deep")
    fd = os.open(runtime.workspace / "deep", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("n" * 50, dir_fd=fd)
        below = os.open("n" * 50, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)

    items, end = client.call("file.list", path="deep", recursive=True)
    assert end.count == 301
    assert items[-1].entries[-1].path == "/".join(["n" * 50] * 300 + ["leaf"])
    assert client.call("file.pack", path="deep")[1].count == 301
    client.call("file.delete", path="deep", recursive=True)
    assert os.listdir(runtime.workspace) == []


def test_sending_a_folder(client: Client, runtime: RuntimeChild) -> None:
    """Each entry with its bytes; links are not followed; pipes do not keep it."""
    client.call("file.write", path="d/big", data=b"x" * 600_000)
    client.call("file.write", path="d/empty", data=b"")
    client.call("file.write", path="d/.hidden", data=b"h")
    client.call("file.symlink", path="d/etc", target="/etc")
    os.mkfifo(runtime.workspace / "d" / "pipe")
    items, end = client.call("file.pack", path="d")
    assert end.count == 5
    content: dict[str, bytes] = {}
    current = ""
    for item in items:
        data = item.data
        for path, size in [
            (current, item.more),
            *zip([each.path for each in item.entries], item.sizes, strict=True),
        ]:
            content[path] = content.get(path, b"") + data[:size]
            current, data = path, data[size:]
        assert data == b""

    assert content.pop("") == b""
    assert content == {
        "big": b"x" * 600_000,
        "empty": b"",
        ".hidden": b"h",
        "etc": b"",
        "pipe": b"",
    }


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, "FILE_NOT_FOUND"),
        (errno.EEXIST, "FILE_EXISTS"),
        (errno.ENOTEMPTY, "FILE_EXISTS"),
        (errno.EBUSY, "RESOURCE_BUSY"),
        (errno.EACCES, "PERMISSION_DENIED"),
        (errno.EPERM, "PERMISSION_DENIED"),
        (errno.EROFS, "READ_ONLY"),
        (errno.EISDIR, "IS_DIRECTORY"),
        (errno.ENOTDIR, "NOT_DIRECTORY"),
        (errno.ENAMETOOLONG, "NAME_TOO_LONG"),
        (errno.ENOSPC, "NO_SPACE"),
        (errno.EDQUOT, "NO_SPACE"),
        (errno.EMFILE, "TOO_MANY_FILES"),
        (errno.ENFILE, "TOO_MANY_FILES"),
        (errno.ELOOP, "TOO_MANY_LINKS"),
        (errno.EMLINK, "TOO_MANY_LINKS"),
        (errno.EFBIG, "FILE_TOO_LARGE"),
        (errno.EIO, "FILESYSTEM_ERROR"),
    ],
)
def test_each_number_has_its_code(number: int, code: str) -> None:
    """The table is the published one."""
    error = explain(OSError(number, os.strerror(number)), "/x", "read")

    assert error.code == code
    assert (KINDS.get(number) or FileSystemError) is type(error)
    assert error.context["path"] == "/x"


def test_the_limit_of_one_file(start_runtime: Start) -> None:
    """EFBIG: nothing is left of what was begun."""
    limited = start_runtime(rlimits={"fsize": 1_000_000}, spool_limit=1 << 16)
    with limited.connect() as client:
        client.welcome()
        with pytest.raises(FileSystemError) as refused:
            client.call("file.write", path="f", data=b"x" * 2_000_000)
    assert refused.value.code == "FILE_TOO_LARGE"
    assert os.listdir(limited.workspace) == []


def test_no_descriptors_left(start_runtime: Start) -> None:
    """EMFILE of the runtime's own limit is told, and the runtime lives."""
    limited = start_runtime(rlimits={"nofile": 48})
    with limited.connect() as client:
        client.welcome()

        def open_many() -> None:
            for number in range(64):
                upload(client, f"f{number}")

        with pytest.raises(FileSystemError) as refused:
            open_many()
        assert refused.value.code == "TOO_MANY_FILES"
        client.call("runtime.health")


def test_a_lease_keeps_nobody_waiting(client: Client, runtime: RuntimeChild) -> None:
    """A program that holds a lease on a file would keep an open for 45 s: it is busy instead."""
    path = runtime.workspace / "f"
    path.write_bytes(b"1")
    with path.open("rb+") as held:
        fcntl(held, F_SETSIG, 23)
        before = signal.signal(23, signal.SIG_IGN)
        try:
            fcntl(held, F_SETLEASE, F_WRLCK)
            begun = time.monotonic()
            with pytest.raises(FileSystemError) as refused:
                read(client, "f")
            assert time.monotonic() - begun < 5
        finally:
            signal.signal(23, before)
    assert refused.value.code == "RESOURCE_BUSY"


# --- drafts -----------------------------------------------------------------------------------


def test_names_of_drafts() -> None:
    """Only what we have made ourselves is taken for one."""
    assert is_draft(DRAFT + "0123456789abcdef")
    for name in ("", DRAFT, DRAFT + "x" * 16, DRAFT + "0" * 15, DRAFT + "0" * 17, "x" + DRAFT):
        assert not is_draft(name)


def test_a_list_that_grows_for_long(tmp_path: Path) -> None:
    """While one upload takes all day, others come and go: what is open at a kill is found."""
    ledger = tmp_path / "ledger"
    drafts = Drafts(str(ledger))
    first = drafts.begin(str(tmp_path))
    for _ in range(30_000):
        drafts.end(drafts.begin(str(tmp_path)))
    last = drafts.begin(str(tmp_path))
    for path in (first, last):
        Path(path).touch()

    assert ledger.stat().st_size < 1 << 20
    (tmp_path / "ledger.new").touch()  # of one that was killed over it
    Drafts(str(ledger)).sweep()
    assert os.listdir(tmp_path) == ["ledger"]
    assert ledger.read_bytes() == b""


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    """Drafts are made all the same; only those of a killed runtime would stay."""
    drafts = Drafts(str(tmp_path / "missing" / "ledger"))
    drafts.sweep()
    path = drafts.begin(str(tmp_path))
    Path(path).write_bytes(b"")
    drafts.drop(path)
    assert os.listdir(tmp_path) == []


def test_a_ledger_that_is_a_trap(tmp_path: Path) -> None:
    """A pipe or link in the place of the list of drafts neither blocks nor leads anywhere."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"kept")
    os.symlink("file", tmp_path / "link")
    for name in ("pipe", "link"):
        drafts = Drafts(str(tmp_path / name))
        drafts.sweep()
        drafts.end(drafts.begin(str(tmp_path)))
    assert (tmp_path / "file").read_bytes() == b"kept"


@pytest.fixture
def slow_reader(runtime: RuntimeChild) -> Iterator[Client]:
    with runtime.connect() as connected:
        connected.welcome()
        yield connected


def test_many_readers_share_the_runtime(
    client: Client, slow_reader: Client, runtime: RuntimeChild
) -> None:
    """A client that takes nothing of its files delays nobody else."""
    (runtime.workspace / "big").write_bytes(b"x" * 3_000_000)
    for _ in range(20):
        slow_reader.begin("file.read", path="big", credit=1 << 30)
    assert select.select([slow_reader.socket], [], [], DEADLINE)[0]

    assert len(read(client, "big")) == 3_000_000
    assert client.call("file.write", path="f", data=b"1").size == 1
