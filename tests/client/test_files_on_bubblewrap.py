"""Files in real sandboxes: whose they are, what is out of reach, and what a kill leaves."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.errors import (
    FileSystemError,
    GitNetworkError,
    GitRepositoryNotFoundError,
    PathNotFoundError,
    PathTooLongError,
    PermissionDeniedError,
    ReadOnlyError,
    SandboxError,
    TooManyLinksError,
    ValidationFailedError,
)
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.small_disk import run_on_small_disk

MARKER = b"of the host, and nobody's business"


@pytest.fixture
def manager(data_dir):
    made = Manager(Settings(data_dir=data_dir, engine="bubblewrap"))
    yield made
    for info in made.list():
        made.destroy(info.sandbox_id)
    made.close()


@pytest.fixture
async def sandbox(manager):
    async with get_sandbox("demo", manager=manager) as made:
        yield made


async def shell(sandbox, text):
    done = await sandbox.exec(["sh", "-c", text])
    assert done.exit_code == 0, done.stderr_text
    return done.stdout_text


async def test_uploads_belong_to_the_user(sandbox):
    """Programs inside can change and delete them; 644 and 755."""
    await sandbox.write_file("u.txt", b"1")
    await sandbox.write_file("new/dir/u2.txt", b"1")
    said = await shell(
        sandbox,
        "id -un; stat -c '%U %a' u.txt new/dir; echo 2 >> u.txt; rm new/dir/u2.txt; cat u.txt",
    )
    assert said.split() == ["user", "user", "644", "user", "755", "12"]


async def test_hashes_are_equal_on_both_sides(sandbox):
    """Every byte, both ways."""
    data = bytes(range(256)) * 400 + b"\r\n\x00"
    await sandbox.write_file("b.bin", data)
    await sandbox.write_file("t.txt", "é\r\n")
    said = await shell(sandbox, "sha256sum b.bin; wc -c < t.txt")
    assert said.split()[0] == hashlib.sha256(data).hexdigest()
    assert said.split()[-1] == "4"
    assert hashlib.sha256(await sandbox.read_file("b.bin")).hexdigest() == said.split()[0]


async def test_links_lead_nowhere_outside(sandbox, manager, tmp_path):
    """An absolute target is a path of the sandbox; loops are typed; a download follows none."""
    marker = tmp_path / "marker"
    marker.write_bytes(MARKER)
    await sandbox.exec(["true"])
    workspace = manager.lookup("demo").layout.workspace
    (workspace.parent / "beside").write_bytes(MARKER)
    up = "../" * 12
    await shell(
        sandbox,
        f"mkdir t; ln -s {marker} t/abs; ln -s {up}{marker} t/rel; ln -s ../../beside t/beside;"
        f" ln -s abs t/again; ln -s loop t/loop; ln -s /proc/self/root{marker} t/self;"
        f" ln -s /proc/1/root{marker} t/init; ln -s {tmp_path} t/folder; echo fine > t/x;"
        " ln -s x t/good",
    )
    for name in ("abs", "rel", "beside", "again", "self", "init", "folder/marker"):
        for read in (sandbox.read_file, sandbox.stat):
            with pytest.raises((PathNotFoundError, PermissionDeniedError)):
                await read(f"t/{name}")
    for path in (f"/proc/self/root{marker}", f"/proc/1/root{marker}", f"{up}{marker}"):
        with pytest.raises((PathNotFoundError, PermissionDeniedError)):
            await sandbox.read_file(path)
    with pytest.raises(TooManyLinksError):
        await sandbox.stat("t/loop")
    with pytest.raises((PathNotFoundError, PermissionDeniedError)):
        await anext(sandbox.watch("t/folder"))
    await sandbox.download_folder("t", tmp_path / "safe")
    assert sorted(os.listdir(tmp_path / "safe")) == ["again", "good", "loop", "x"]
    await sandbox.download_folder("t", tmp_path / "all", symlinks="all")

    assert marker.read_bytes() == MARKER
    for folder in ("safe", "all"):
        for path in (tmp_path / folder).iterdir():
            assert path.is_symlink() or path.read_bytes() != MARKER
    # A write through a link ends in the sandbox, or nowhere.
    for name in ("abs", "folder/new"):
        with pytest.raises(SandboxError):
            await sandbox.write_file(f"t/{name}", b"theirs", parents=False)
    assert marker.read_bytes() == MARKER
    assert not (tmp_path / "new").exists()


async def test_dots_and_odd_paths(sandbox, data_dir):
    """Nothing outside the sandbox; what is no path is refused; each is decoded exactly never."""
    await sandbox.write_file("d/x", b"1")
    for path in ("../x", "d/../../x", "/abs/marker", "d/./../../x"):
        with pytest.raises((PathNotFoundError, PermissionDeniedError, ReadOnlyError)):
            await sandbox.read_file(path)
        with pytest.raises((PathNotFoundError, PermissionDeniedError, ReadOnlyError)):
            await sandbox.delete_file(path)
        with pytest.raises((PermissionDeniedError, ReadOnlyError)):
            await sandbox.write_file(path, b"2")
    for path in ("..%2fx", "%2e%2e/x", "..\\x", "./~/x", "file:x"):
        await sandbox.write_file(path, path)
        assert await sandbox.read_file(path, encoding="utf-8") == path
    for path in ("", "x\0y"):
        for work in (sandbox.read_file, sandbox.list_files, sandbox.delete_file):
            with pytest.raises(ValidationFailedError):
                await work(path)
    for path in ("x" * 5000, "y/" * 3000 + "z"):
        with pytest.raises(PathTooLongError):
            await sandbox.write_file(path, b"")
    await sandbox.write_file("n/" * 300 + "deep", b"deep")
    assert await sandbox.read_file("n/" * 300 + "deep") == b"deep"


async def test_what_the_sandbox_may_not_do(sandbox, tmp_path):
    """Read-only folders, files of others, mount points: typed, and nothing has changed."""
    with pytest.raises(ReadOnlyError):
        await sandbox.write_file("/usr/bin/new", b"")
    with pytest.raises(ReadOnlyError):
        await sandbox.delete_file("/usr/bin/env")
    with pytest.raises((ReadOnlyError, PermissionDeniedError)):
        await sandbox.mkdir("/new")
    await shell(sandbox, "echo old > f; chmod 400 f; mkdir closed; chmod 0 closed")
    with pytest.raises(PermissionDeniedError):
        await sandbox.write_file("f", b"new")
    assert await sandbox.read_file("f") == b"old\n"
    for work in (sandbox.list_files, sandbox.read_file):
        with pytest.raises((PermissionDeniedError, FileSystemError)):
            await work("closed")
    with pytest.raises(PermissionDeniedError):
        await sandbox.exists("closed/x")
    listed = await sandbox.list_files(".", recursive=True)
    assert {each.relative_path: each.permissions for each in listed} == {
        "closed": "---",
        "f": "r--",
    }
    with pytest.raises(PermissionDeniedError):
        await sandbox.download_folder(".", tmp_path / "back")


async def test_the_notebooks_folder(manager, tmp_path):
    """Through its overlay: the host's files are seen, and what is written stays in the sandbox."""
    folder = tmp_path / "notebooks"
    (folder / "sub").mkdir(parents=True)
    (folder / "data.csv").write_bytes(b"host")
    (folder / "sub" / "x").write_bytes(b"host")
    async with get_sandbox("demo", manager=manager, notebook_folder=folder) as sandbox:
        assert await sandbox.read_file("data.csv") == b"host"
        await sandbox.write_file("data.csv", b"sandbox")
        await sandbox.write_file("new/y", b"1")
        moved = await sandbox.move_file("sub", "moved")
        assert await sandbox.read_file("data.csv") == b"sandbox"
        assert await sandbox.read_file("moved/x") == b"host"
        assert not await sandbox.exists("sub")
        assert moved == f"{folder}/moved"
        await sandbox.delete_file("moved", recursive=True)
        listed = await sandbox.list_files(".", recursive=True)
        assert [each.relative_path for each in listed] == ["data.csv", "new", "new/y"]

    assert (folder / "data.csv").read_bytes() == b"host"
    assert sorted(os.listdir(folder)) == ["data.csv", "sub"]


async def test_git_by_file_and_without_a_network(sandbox, manager):
    """A repository inside; outside there is no network, and the error says what to do."""
    await shell(
        sandbox,
        "git init -q -b main r; cd r; echo 1 > f; git add f;"
        " git -c user.name=x -c user.email=x@y commit -qm 1",
    )
    told = []
    done = await sandbox.git_checkout(
        "file:///workspace/r", target_dir="c", on_progress=told.append
    )
    assert (done.branch, done.path) == ("main", "/workspace/c")
    assert await sandbox.read_file("c/f") == b"1\n"
    with pytest.raises(GitNetworkError) as refused:
        await sandbox.git_checkout("https://example.org/x.git")
    assert "network=True" in str(refused.value)
    with pytest.raises(GitRepositoryNotFoundError):
        await sandbox.git_checkout("file:///none")
    async with get_sandbox("net", manager=manager, network=True) as other:
        await shell(
            other,
            "git init -q -b main r; cd r; echo 1 > f; git add f;"
            " git -c user.name=x -c user.email=x@y commit -qm 1; git update-server-info",
        )
        server = await other.start_process(
            ["python3", "-um", "http.server", "0", "--bind", "127.0.0.1"], merge_stderr=True
        )
        async for event in server.output(follow=True):
            port = event.data.decode().split(" port ")[1].split(" ")[0]
            break
        done = await other.git_checkout(f"http://127.0.0.1:{port}/r/.git", target_dir="c")
        assert await other.read_file("c/f") == b"1\n"
        await server.kill()


async def test_downloads_of_a_folder_that_fights_back(sandbox, tmp_path):
    """A program swaps folders for links and back while it is sent: nothing of the host comes."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(MARKER)
    await shell(sandbox, "mkdir -p t/d e; for n in $(seq 200); do echo $n > t/d/f$n; done")
    fighter = await sandbox.start_process(
        [
            "sh",
            "-c",
            "while :; do mv t/d t/o; ln -s /etc t/d; rm t/d; mv t/o t/d; done 2>/dev/null",
        ]
    )
    try:
        for number in range(20):
            target = tmp_path / f"back{number}"
            try:
                await sandbox.download_folder("t", target, symlinks="all")
            except FileSystemError:
                continue
            for folder, _, files in os.walk(target):
                for name in files:
                    path = Path(folder) / name
                    assert path.is_symlink() or path.name.startswith("f")
    finally:
        await fighter.kill()


def test_a_mount_point_is_busy(tmp_path):
    """EBUSY has its own code."""
    (tmp_path / "mount").mkdir()
    said = run_on_small_disk(
        tmp_path / "mount",
        1 << 20,
        "import atexit\n"
        "import sys\n"
        "from pathlib import Path\n"
        "from sandbox_kernel.errors import PathBusyError\n"
        "from tests.support.runtime_child import RuntimeChild\n"
        "runtime = RuntimeChild(Path(sys.argv[1]))\n"
        "atexit.register(runtime.stop)\n"
        "with runtime.connect() as client:\n"
        "    client.welcome()\n"
        "    mount = sys.argv[1] + '/mount'\n"
        "    for operation, fields in (('rename', {'new_path': 'x'}), ('delete', {'recursive': True})):\n"
        "        try:\n"
        "            client.call(f'file.{operation}', path=mount, **fields)\n"
        "        except PathBusyError as error:\n"
        "            print(error.code)\n",
        str(tmp_path),
    )
    assert said.split() == ["RESOURCE_BUSY", "RESOURCE_BUSY"]


def test_a_full_disk_keeps_what_was_there(tmp_path):
    """NO_SPACE: the old content stays whole, and after freeing all is as usual."""
    said = run_on_small_disk(
        tmp_path,
        5 << 20,
        "import atexit\n"
        "import sys\n"
        "from pathlib import Path\n"
        "from sandbox_kernel.errors import NoSpaceError\n"
        "from tests.support.runtime_child import RuntimeChild\n"
        "runtime = RuntimeChild(Path(sys.argv[1]))\n"
        "atexit.register(runtime.stop)\n"
        "with runtime.connect() as client:\n"
        "    client.welcome()\n"
        "    client.call('file.write', path='keep.txt', data=b'old' * 100)\n"
        "    client.call('file.write', path='fill', data=b'x' * (3 << 20))\n"
        "    for size in (1_400_000, 100):\n"
        "        try:\n"
        "            client.call('file.write', path='keep.txt', data=b'new' * size)\n"
        "        except NoSpaceError as error:\n"
        "            print(error.code)\n"
        "        data = client.call('file.read', path='keep.txt')[0][0].data\n"
        "        print(data[:3], len(data))\n"
        "        listed, end = client.call('file.list', path='.', include_hidden=True)\n"
        "        print(sorted(each.path for each in listed[0].entries))\n"
        "        client.call('file.delete', path='fill') if size > 100 else None\n",
        str(tmp_path),
    )
    assert said.splitlines() == [
        "NO_SPACE",
        "b'old' 300",
        "['fill', 'keep.txt']",
        "b'new' 300",
        "['keep.txt']",
    ]


# --- kills ------------------------------------------------------------------------------------
