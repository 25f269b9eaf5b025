"""Files are the same over every transport: bytes, streams, folders, watches and errors."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.client.sandbox import Sandbox, get_sandbox
from sandbox_kernel.errors import (
    GitRepositoryNotFoundError,
    PathIsDirectoryError,
    PathNotFoundError,
    UploadNotFoundError,
)
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.transports.choice import TRANSPORTS, make_transport
from sandbox_kernel.wire.file_operations import WritePartRequest
from tests.support.managed import local_manager

pytestmark = [
    pytest.mark.filterwarnings("ignore:The WebSocket transport:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::sandbox_runtime.in_thread.NoIsolationWarning"),
]

BIG = os.urandom(1 << 20) * 4 + b"\r\n\x00"


@pytest.fixture(scope="module", params=TRANSPORTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def manager(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with local_manager(name, tmp_path_factory.mktemp("data") / "sandbox") as made:
        yield made


@pytest.fixture
async def sandbox(manager: Manager, name: str) -> AsyncIterator[Sandbox]:
    async with get_sandbox("shared", manager=manager, transport=name) as made:
        yield made
        for each in await made.list_files(include_hidden=True):
            await made.delete_file(each.relative_path, recursive=True)


async def test_bytes_of_every_size(sandbox: Sandbox) -> None:
    """In one call, in parts and from a generator; whole and as a stream."""

    async def pieces() -> AsyncIterator[bytes]:
        for begin in range(0, len(BIG), 500_000):
            yield BIG[begin : begin + 500_000]

    for content in (b"", b"\x00\xff\r\n", BIG, pieces()):
        await sandbox.write_file("d/f", content)
        expected = content if isinstance(content, bytes) else BIG
        assert await sandbox.read_file("d/f") == expected
        streamed = [data async for data in sandbox.read_file_stream("d/f")]
        assert b"".join(streamed) == expected


async def test_folders_both_ways(sandbox: Sandbox, tmp_path: Path) -> None:
    """With what has an odd name."""
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    for number in range(300):
        (source / f"f{number}").write_bytes(bytes([number % 256]) * number)
    (source / "big").write_bytes(BIG)
    (source / os.fsdecode(b"odd\xff\n")).write_bytes(b"odd")
    (source / "link").symlink_to("f1")
    up = await sandbox.upload_folder(source, "there")
    down = await sandbox.download_folder("there", tmp_path / "back")

    assert (up.files, up.folders, up.links) == (down.files, down.folders, down.links) == (302, 1, 1)
    for path in source.iterdir():
        if path.is_file():
            assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes()
    assert os.readlink(tmp_path / "back" / "link") == "f1"
    names = {each.name for each in await sandbox.list_files("there")}
    assert names == {path.name for path in source.iterdir()}


async def test_a_watch_tells_at_once_and_can_be_left(sandbox: Sandbox) -> None:
    """Its first events come while nothing has ended."""
    events = sandbox.watch(".")
    assert (await anext(events)).type == "watching"
    await sandbox.write_file("f", b"1")
    event = await anext(events)
    assert (event.event_type, Path(str(event.path)).name) == ("create", "f")
    await events.aclose()
    version = (await sandbox.check_changes(".")).version
    await sandbox.write_file("f", b"2")
    assert (await sandbox.check_changes(".", since=version)).status == "changed"


async def test_errors_are_the_same(sandbox: Sandbox, manager: Manager, name: str) -> None:
    """Class, code and facts."""
    await sandbox.mkdir("d")
    with pytest.raises(PathNotFoundError) as refused:
        await sandbox.read_file("none")
    assert refused.value.code == "FILE_NOT_FOUND"
    assert str(refused.value.context["path"]).endswith("/none")
    with pytest.raises(PathIsDirectoryError):
        await sandbox.delete_file("d")
    with pytest.raises(PathNotFoundError):
        await sandbox.list_files("none")
    with pytest.raises(PathNotFoundError):
        await anext(sandbox.watch("none"))
    with pytest.raises(GitRepositoryNotFoundError):
        await sandbox.git_checkout("file:///no/such/repository")
    async with make_transport(name, manager.ensure("shared").endpoint) as transport:
        with pytest.raises(UploadNotFoundError):
            await transport.call(
                "file.write_part", WritePartRequest(upload_id="none", offset=0, data=b"x")
            )
