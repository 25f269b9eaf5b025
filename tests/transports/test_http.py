"""The HTTP transport's connections: used again, and not kept for nobody."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.transports import http
from sandbox_kernel.transports.http import HttpTransport
from sandbox_kernel.transports.link import Link
from sandbox_kernel.wire.operations import Empty, ExecRequest


@pytest.fixture
def opened(monkeypatch) -> list[Link]:
    """Every connection that is made."""
    made: list[Link] = []
    really = Link.open.__func__

    async def open_link(cls, *args, **options):
        made.append(await really(cls, *args, **options))
        return made[-1]

    monkeypatch.setattr(Link, "open", classmethod(open_link))
    return made


@pytest.fixture
async def transport(manager):
    async with HttpTransport(manager.ensure("demo").endpoint) as made:
        yield made


async def until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def held(transport, count: int) -> None:
    """Have streams under way at the same time, and end them."""
    all_run = asyncio.Barrier(count)

    async def one() -> None:
        request = ExecRequest(argv=["sh", "-c", "echo begun; cat"], stdin=b"")
        async with transport.stream("exec", request) as events:
            await anext(events)
            await all_run.wait()
            async for _ in events:
                pass

    await asyncio.gather(*(one() for _ in range(count)))


async def test_a_folder_and_files_in_parts_go_over_a_few_connections(manager, opened, tmp_path):
    """However many requests that takes."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(600):
        (folder / f"small{number}").write_bytes(b"x")
    for number in range(4):
        (folder / f"large{number}").write_bytes(os.urandom(6 << 20))
    async with get_sandbox("demo", manager=manager, transport="http") as sandbox:
        await sandbox.upload_folder(folder, "there")
        await sandbox.download_folder("there", tmp_path / "back")
        for _ in range(5):
            await sandbox.write_file("f", os.urandom(3 << 20))
            await sandbox.read_file("f")

    # As many as there are parts on the way at a time, and one more for what is asked meanwhile.
    assert len(opened) <= 5


async def test_as_many_as_were_used_at_once_are_used_again(transport, opened):
    """A crowd that comes again makes no new connections."""
    await held(transport, 40)
    assert len(opened) == 40
    await held(transport, 40)
    await asyncio.gather(*(transport.call("runtime.health", Empty()) for _ in range(40)))

    assert len(opened) == 40


async def test_a_crowd_s_connections_are_closed_when_nobody_comes(transport, opened, monkeypatch):
    """A few stay, those that were used last; the transport goes on with them."""
    monkeypatch.setattr(http, "_IDLE", 0.3)
    await held(transport, 20)

    await until(lambda: sum(not each.has_ended for each in opened) == 8)

    await transport.call("runtime.health", Empty())
    assert len(opened) == 20
