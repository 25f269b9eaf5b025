"""Files from Python: content of every kind, folders both ways, and what fails half-way."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_kernel.client import files
from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.errors import (
    FileTooLargeError,
    OperationInterruptedError,
    PathIsDirectoryError,
    PathNotFoundError,
    SessionNotFoundError,
    StorageError,
    ValidationFailedError,
)
from sandbox_runtime.drafts import DRAFT
from tests.support.managed import plain_manager

BIG = os.urandom(1 << 20) * 5 + b"\r\n\x00"


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    with plain_manager(tmp_path_factory.mktemp("data") / "sandbox") as made:
        yield made


@pytest.fixture
async def sandbox(manager):
    """The sandbox of all tests, in which there are neither files nor sessions."""
    async with get_sandbox("demo", manager=manager) as made:
        yield made
        for session in await made.list_sessions():
            await session.delete()
        for each in await made.list_files(include_hidden=True):
            await made.delete_file(each.relative_path, recursive=True)


@pytest.fixture
def workspace(manager) -> Callable[[], Path]:
    """Where the sandbox's files are on this side, once it runs."""
    return lambda: manager.lookup("demo").layout.workspace


async def until(condition):
    async with asyncio.timeout(40):
        while not condition():  # noqa: ASYNC110  nobody tells of files
            await asyncio.sleep(0.01)


async def pieces(data, size):
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


async def test_text_and_bytes(sandbox):
    """Text is UTF-8 and keeps its line ends; what is no text is said to be none."""
    info = await sandbox.write_file("new/t.txt", "é\r\n")
    assert (info.size, info.name, info.relative_path) == (4, "t.txt", "t.txt")
    assert await sandbox.read_file("new/t.txt") == b"\xc3\xa9\r\n"
    assert await sandbox.read_file("new/t.txt", encoding="utf-8") == "é\r\n"
    await sandbox.write_file("b", b"\xff")
    with pytest.raises(UnicodeDecodeError):
        await sandbox.read_file("b", encoding="utf-8")
    await sandbox.write_file("empty", "")
    assert await sandbox.read_file("empty") == b""


@pytest.mark.parametrize("size", [0, 10, len(BIG)])
async def test_every_kind_of_content(sandbox, tmp_path, size):
    """Bytes, a path, an open file, a generator, small and large: the same file comes of it."""
    data = BIG[:size]
    path = tmp_path / "content"
    path.write_bytes(data)
    told = []
    with path.open("rb") as file:
        for content in (
            data,
            bytearray(data),
            memoryview(data),
            path,
            file,
            io.BytesIO(data),
            pieces(data, 700_001),
            pieces(data, 99_999),
        ):
            info = await sandbox.write_file("f", content, on_progress=told.append)
            assert info.size == size
            assert await sandbox.read_file("f") == data
            assert told[-1:] == [size] if told else size == 0
        assert not file.closed


async def test_content_that_is_none(sandbox):
    """What cannot be written is refused; text files are told from binary ones."""
    with pytest.raises(ValidationFailedError):
        await sandbox.write_file("f", 5)
    with pytest.raises(ValidationFailedError):
        await sandbox.write_file("f", io.StringIO("text"))
    with pytest.raises(FileNotFoundError):
        await sandbox.write_file("f", Path("/no/such/file"))
    assert not await sandbox.exists("f")


async def test_a_stream(sandbox):
    """Any size, in pieces, from any place; leaving early is fine."""
    await sandbox.write_file("f", BIG)
    assert b"".join([data async for data in sandbox.read_file_stream("f")]) == BIG
    data = [data async for data in sandbox.read_file_stream("f", offset=3, length=1_000_000)]
    assert b"".join(data) == BIG[3:1_000_003]
    async for data in sandbox.read_file_stream("f"):
        assert data
        break
    with pytest.raises(PathNotFoundError):
        await anext(sandbox.read_file_stream("none"))


async def test_more_than_memory_shall_hold(sandbox):
    """A limit, which is looked at before the bytes come."""
    await sandbox.write_file("f", b"x" * 100)
    assert await sandbox.read_file("f", max_bytes=100) == b"x" * 100
    assert await sandbox.read_file("f", offset=50, max_bytes=50) == b"x" * 50
    assert await sandbox.read_file("f", length=50, max_bytes=50) == b"x" * 50
    with pytest.raises(FileTooLargeError):
        await sandbox.read_file("f", max_bytes=99)
    with pytest.raises(FileTooLargeError):
        await sandbox.read_file("/proc/version", max_bytes=5)


async def test_a_source_that_breaks(sandbox, workspace):
    """The caller's own error comes, the old content stays, and no draft is left."""
    await sandbox.write_file("f", b"old")

    async def broken():
        yield b"x" * 3_000_000
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        await sandbox.write_file("f", broken())
    assert await sandbox.read_file("f") == b"old"
    await until(lambda: os.listdir(workspace()) == ["f"])


async def test_a_write_that_is_cancelled(sandbox, workspace):
    """Likewise."""
    await sandbox.write_file("f", b"old")
    begun = asyncio.Event()

    async def endless():
        yield b"x" * 3_000_000
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(sandbox.write_file("f", endless()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await sandbox.read_file("f") == b"old"
    await until(lambda: os.listdir(workspace()) == ["f"])


async def test_a_write_that_is_cancelled_at_its_beginning(sandbox, workspace):
    """At any moment of it: no draft is left for minutes."""
    await sandbox.write_file("f", b"old")
    for turns in range(40):
        task = asyncio.create_task(sandbox.write_file("g", b"x" * 1_500_000))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await until(lambda: not any(name.startswith(DRAFT) for name in os.listdir(workspace())))


async def test_a_source_that_takes_its_time(sandbox, monkeypatch):
    """The upload is not given up although nothing comes for longer than its idle time."""
    monkeypatch.setattr(files, "_TOUCH_EVERY", 0.1)
    begin = partial(files.BeginWriteRequest, idle_timeout=0.8)
    monkeypatch.setattr(files, "BeginWriteRequest", begin)

    async def slow():
        yield b"x" * 2_000_000
        await asyncio.sleep(2.2)  # it is looked for once a second
        async with asyncio.timeout(10):  # minds in which task it runs
            yield b"y"

    assert (await sandbox.write_file("f", slow())).size == 2_000_001


async def test_a_sandbox_that_stops_meanwhile(sandbox):
    """It is said, and nothing is begun anew with half the content."""
    await sandbox.write_file("f", b"old")

    async def stopping():
        yield b"x" * 3_000_000
        await sandbox.stop(grace=0)
        yield b"x" * 3_000_000

    with pytest.raises(OperationInterruptedError):
        await sandbox.write_file("f", stopping())
    assert await sandbox.read_file("f") == b"old"


async def test_names(sandbox):
    """Folders, deletion, renaming, moving, links and modes."""
    await sandbox.mkdir("a/b", parents=True)
    with pytest.raises(PathIsDirectoryError):
        await sandbox.delete_file("a")
    await sandbox.write_file("a/x", b"1", mode=0o600)
    await sandbox.rename_file("a/x", "a/y")
    assert (await sandbox.move_file("a/y", "a/b")).endswith("/a/b/y")
    await sandbox.symlink("link", "a/b/y")
    await sandbox.chmod("link", 0o640)
    info = await sandbox.stat("link")
    assert (info.type, info.mode, info.mode_string) == ("file", 0o640, "rw-r-----")
    info = await sandbox.stat("link", follow_symlinks=False)
    assert (info.is_symlink, info.target) == (True, "a/b/y")

    listed = await sandbox.list_files(".", recursive=True)
    assert [each.relative_path for each in listed] == ["a", "a/b", "a/b/y", "link"]
    assert listed[2].absolute_path == listed[0].absolute_path + "/b/y"
    streamed = [each async for each in sandbox.list_files_stream(recursive=True)]
    assert sorted(streamed, key=lambda each: each.relative_path) == listed
    await sandbox.delete_file("a", recursive=True)
    assert [each.name for each in await sandbox.list_files()] == ["link"]


# --- folders ----------------------------------------------------------------------------------

NAME = st.one_of(
    st.sampled_from(
        [b"a", b"B", b".hidden", b" ", b"\n", b"-rf", b"\xff\xfe", b"a\\b", "é".encode()]
    ),
    st.binary(min_size=1, max_size=8).filter(
        lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
    ),
)
CONTENT = st.one_of(st.binary(max_size=50), st.sampled_from([0, 300_000, 1_100_000]))
FILE = st.tuples(CONTENT, st.sampled_from([0o644, 0o755, 0o600, 0o400, 0o777]))
LINK = st.sampled_from([b"a", b"sub/x", b"\xff"])
TREE = st.recursive(
    st.dictionaries(NAME, st.one_of(FILE, LINK), max_size=4),
    lambda below: st.dictionaries(NAME, st.one_of(FILE, LINK, below), max_size=4),
    max_leaves=12,
)


def grow(folder: bytes, tree: dict) -> None:
    os.mkdir(folder)
    for name, what in tree.items():
        path = os.path.join(folder, name)
        if isinstance(what, dict):
            grow(path, what)
            os.chmod(path, 0o750 if len(what) % 2 else 0o555)
        elif isinstance(what, bytes):
            os.symlink(what, path)
        else:
            with open(path, "wb") as file:
                file.write(b"x" * what[0] if isinstance(what[0], int) else what[0])
            os.chmod(path, what[1])


def grown(folder: bytes) -> dict:
    found = {}
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            found[name] = os.readlink(path)
        elif stat.S_ISDIR(status.st_mode):
            found[name] = grown(path), stat.S_IMODE(status.st_mode)
        else:
            with open(path, "rb") as file:
                found[name] = file.read(), stat.S_IMODE(status.st_mode)
    return found


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(TREE)
def test_any_tree_comes_back_as_it_was(manager, tmp_path_factory, tree):
    """Up and down: names, bytes, modes, links, empty folders."""
    folder = tmp_path_factory.mktemp("tree")
    grow(os.fsencode(folder / "source"), tree)

    async def there_and_back():
        async with get_sandbox("demo", manager=manager) as sandbox:
            up = await sandbox.upload_folder(folder / "source", "tree")
            inside = grown(os.fsencode(manager.lookup("demo").layout.workspace / "tree"))
            down = await sandbox.download_folder("tree", folder / "back")
            await sandbox.delete_file("tree", recursive=True)
            return up, inside, down

    up, inside, down = asyncio.run(there_and_back())

    wanted = grown(os.fsencode(folder / "source"))
    assert inside == wanted
    assert grown(os.fsencode(folder / "back")) == wanted
    assert (up.files, up.folders, up.links, up.bytes) == (
        down.files,
        down.folders,
        down.links,
        down.bytes,
    )
    assert up.skipped == down.skipped == []


async def test_progress_of_folders(sandbox, tmp_path):
    """It ends with what the result says."""
    (tmp_path / "source").mkdir()
    for number in range(20):
        (tmp_path / "source" / f"f{number}").write_bytes(b"x" * 100_000)
    told = []
    done = await sandbox.upload_folder(tmp_path / "source", "d", on_progress=told.append)
    assert (told[-1].files, told[-1].bytes) == (done.files, done.bytes) == (20, 2_000_000)
    done = await sandbox.download_folder("d", tmp_path / "back", on_progress=told.append)
    assert (told[-1].files, told[-1].bytes) == (done.files, done.bytes) == (20, 2_000_000)


async def test_what_a_folder_has_that_cannot_come(sandbox, tmp_path):
    """Pipes are left out, and so are links that lead out; both are told."""
    await sandbox.exec(
        ["sh", "-c", "mkdir d; mkfifo d/pipe; ln -s /etc/passwd d/out; echo 1 > d/x"]
    )
    done = await sandbox.download_folder("d", tmp_path / "back")

    assert os.listdir(tmp_path / "back") == ["x"]
    assert sorted(each.path for each in done.skipped) == ["out", "pipe"]
    with pytest.raises(PathNotFoundError):
        await sandbox.download_folder("none", tmp_path / "none")
    with pytest.raises(StorageError):
        await sandbox.upload_folder(tmp_path / "missing", "d")
    with pytest.raises(FileTooLargeError):
        await sandbox.download_folder("d", tmp_path / "small", max_bytes=1)


async def test_a_giant_with_holes(sandbox, tmp_path):
    """A file of a terabyte that takes no room in the sandbox takes none here: it is refused."""
    await sandbox.exec(["sh", "-c", "mkdir d; truncate -s 1T d/giant"])
    with pytest.raises(FileTooLargeError):
        await sandbox.download_folder("d", tmp_path / "back")
    assert os.listdir(tmp_path / "back") == []


async def test_a_download_that_is_cancelled(sandbox, tmp_path):
    """Only whole files are left."""
    await sandbox.write_file("d/big", b"x" * 30_000_000)
    begun = asyncio.Event()
    task = asyncio.create_task(
        sandbox.download_folder("d", tmp_path / "back", on_progress=lambda _: begun.set())
    )
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    left = os.listdir(tmp_path / "back")
    assert not any(name.startswith(DRAFT) for name in left)
    assert left in ([], ["big"])


async def test_a_session_s_paths_begin_where_its_shell_is(sandbox, workspace, tmp_path):
    """After every `cd`, also for two paths, listings, folders, watches; absolute ones as ever."""
    session = await sandbox.create_session("s")
    await session.exec("mkdir -p d/e; cd d")
    await session.write_file("a.txt", "one")
    assert await session.read_file("a.txt") == b"one"
    assert (workspace() / "d/a.txt").read_text() == "one"
    await session.exec("cd e")
    await session.write_file("big", BIG)
    await session.mkdir("f")
    await session.rename_file("big", "f/big")
    assert await session.move_file("f/big", "..") == f"{workspace()}/d/e/../big"
    await session.symlink("link", "../a.txt")
    assert await session.read_file("link", encoding="utf-8") == "one"
    await session.chmod("link", 0o600)
    assert (await session.stat("../a.txt")).mode == 0o600
    assert [each.relative_path for each in await session.list_files()] == ["f", "link"]
    assert [each.relative_path async for each in session.list_files_stream("f")] == []
    assert b"".join([data async for data in session.read_file_stream("../a.txt")]) == b"one"
    assert (await session.check_changes("..")).status == "unchanged"
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "x").write_bytes(b"x")
    assert (await session.upload_folder(tmp_path / "up", "new")).files == 1
    assert (await session.download_folder("new", tmp_path / "down")).files == 1
    events = session.watch("new")
    await anext(events)
    await session.delete_file("new/x")
    assert (await anext(events)).path == f"{workspace()}/d/e/new/x"
    await events.aclose()
    assert await session.exists("new")
    assert await session.read_file(f"{workspace()}/d/a.txt") == b"one"

    assert not await sandbox.exists("a.txt"), "the sandbox's own begin where they did"
    with pytest.raises(ValidationFailedError, match="is empty"):
        await session.read_file("")


async def test_a_session_clones_into_its_folder(sandbox, workspace):
    """Under the repository's name, or a relative one."""
    session = await sandbox.create_session("s")
    await session.exec(
        "git init -q -b main r && git -C r -c user.name=x -c user.email=x@y "
        "commit -q --allow-empty -m 1; mkdir d; cd d"
    )
    url = f"file://{workspace()}/r"

    assert (await session.git_checkout(url)).path == f"{workspace()}/d/r"
    assert (await session.git_checkout(url, target_dir="c")).path == f"{workspace()}/d/c"
    assert (await sandbox.git_checkout(url, target_dir="c")).path == f"{workspace()}/c"


async def test_files_of_a_session_that_is_gone(sandbox):
    """There is no folder to begin at; an absolute path needs none."""
    session = await sandbox.create_session("s")
    await session.delete()

    with pytest.raises(SessionNotFoundError):
        await session.write_file("a", b"")
    await session.write_file("/tmp/of-no-session", b"")
    await session.delete_file("/tmp/of-no-session")
