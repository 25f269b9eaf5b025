"""Every kind of operation, cancelled wherever it waits: nothing of it stays, and all goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from contextlib import aclosing

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from tests.support.cancelling import CancelledAt
from tests.support.managed import plain_manager
from tests.support.plain_engine import processes_of

MOST_WAITS = 40
LONG = "300"
BIG = b"x" * (3 << 20)

ECHO = """
import asyncio, os
async def serve(reader, writer):
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    with open("port.new", "w") as file:
        file.write(str(server.sockets[0].getsockname()[1]))
    os.rename("port.new", "port")
    await server.serve_forever()
asyncio.run(main())
"""


async def run(sandbox, _host):
    await sandbox.exec(["sh", "-c", f"echo a; sleep {LONG} & sleep {LONG}"], timeout=200)


async def run_in_session(sandbox, _host):
    await sandbox.exec(f"echo a; sleep {LONG}")


async def run_with_input(sandbox, _host):
    async def pieces():
        yield b"a\n"
        await asyncio.sleep(float(LONG))

    await sandbox.exec(["sh", "-c", "read a; echo $a; cat"], stdin=pieces())


async def stream_output(sandbox, _host):
    command = ["sh", "-c", f"echo a; sleep 0.01; echo b; exec sleep {LONG}"]
    async with aclosing(sandbox.exec_stream(command)) as events:
        async for _ in events:
            pass


async def start_process(sandbox, _host):
    await sandbox.start_process(["sleep", LONG])


async def create_terminal(sandbox, _host):
    await sandbox.create_terminal(["sleep", LONG])


async def create_session(sandbox, _host):
    await sandbox.create_session("made")


async def write_file(sandbox, host):
    await sandbox.write_file("dest/big", host / "folder" / "big")


async def read_file(sandbox, _host):
    async with aclosing(sandbox.read_file_stream("source/big")) as chunks:
        async for _ in chunks:
            pass


async def upload_folder(sandbox, host):
    await sandbox.upload_folder(host / "folder", "dest/up")


async def download_folder(sandbox, host):
    await sandbox.download_folder("source", host / "down", overwrite=True)


async def view_terminal(sandbox, _host):
    terminal = await sandbox.get_terminal("cat")
    async with terminal.view() as view:
        await view.write(b"x")
        async for _ in view:
            pass


async def forward_port(sandbox, _host):
    port = int(await sandbox.read_file("port"))
    async with sandbox.forward_port(port, private=True) as forward:
        reader, writer = await asyncio.open_unix_connection(forward.path)
        try:
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
            await asyncio.sleep(float(LONG))
        finally:
            writer.transport.abort()


async def git_checkout(sandbox, host):
    await sandbox.git_checkout(f"file://{host}/repo", target_dir=f"dest/{os.urandom(4).hex()}")


CASES = [
    *((each, "rpc") for each in (run, run_in_session, run_with_input, stream_output)),
    *((each, "rpc") for each in (start_process, create_terminal, create_session, write_file)),
    *((each, "rpc") for each in (read_file, upload_folder, download_folder, view_terminal)),
    *((each, "rpc") for each in (forward_port, git_checkout)),
    *((each, "http") for each in (run, start_process, create_session, write_file)),
]


@pytest.mark.parametrize(
    ("operation", "transport"), CASES, ids=[f"{each.__name__}-{name}" for each, name in CASES]
)
async def test_nothing_stays_of_what_is_cancelled(operation, transport, data_dir, tmp_path):
    """No process, descriptor, task, session or half file; the session's shell is as it was."""
    prepare(tmp_path)
    with plain_manager(data_dir) as manager:
        async with get_sandbox("x", manager=manager, transport=transport) as keeper:
            await keeper.exec("MARK=kept; mkdir dest")
            await keeper.upload_folder(tmp_path / "folder", "source")
            await keeper.create_terminal(["cat"], terminal_id="cat")
            await keeper.start_process(["python3", "-c", ECHO])
            await keeper.exec("until test -e port; do sleep 0.02; done", timeout=20)
            info = await keeper.info()
            dest = info.layout.workspace / "dest"

            def counted():
                # Of ours, and of the runtime.
                return {
                    "processes": len(processes_of(info.lifetime)),
                    "tasks": len(asyncio.all_tasks()),
                    "descriptors": len(os.listdir("/proc/self/fd")),
                    "runtime's": len(os.listdir(f"/proc/{info.instance.data['pid']}/fd")),
                }

            async def cancelled_at(at, *, late):
                """Whether there was anything to be cancelled so late."""
                sandbox = get_sandbox("x", manager=manager, transport=transport)
                work = CancelledAt(operation(sandbox, tmp_path), at, late=late)
                with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                    async with asyncio.timeout(1.0):
                        await asyncio.create_task(awaited(work))
                await sandbox.aclose()
                return work.waits >= at

            # What is loaded or opened once and stays is there after these.
            for late in (False, True):
                await cancelled_at(2, late=late)
            await keeper.exec(["true"])
            with contextlib.suppress(TimeoutError):
                await settled(counted, {}, within=0.5)
            before = counted()

            for late in (False, True):
                at = 1
                while await cancelled_at(at, late=late):
                    where = f"{operation.__name__} at {at}, late: {late}"
                    await settled(counted, before, where=where)
                    assert (await keeper.exec("echo $MARK")).stdout == b"kept\n", where
                    assert [each.id for each in await keeper.list_sessions()] == ["default"], where
                    for path in dest.rglob("big"):
                        assert path.stat().st_size == len(BIG), where
                    at += 1
                    assert at < MOST_WAITS
                await cleared(keeper)
                await settled(counted, before, where=f"{operation.__name__} after its end")


async def awaited(work):
    return await work


async def cleared(keeper):
    """Take away what an operation leaves that was not cancelled."""
    for process in await keeper.list_processes():
        if process.status == "running" and process.argv[-1:] == [LONG]:
            await process.kill()
    for terminal in await keeper.list_terminals():
        if terminal.exit is None and terminal.argv[-1:] == [LONG]:
            await terminal.terminate()
    if await keeper.get_session("made") is not None:
        await keeper.delete_session("made")


async def settled(count, before, *, within=10.0, where=""):
    deadline = time.monotonic() + within
    while True:
        now = count()
        # Fewer are fine: of connections kept for the next request, some are closed after a while.
        if all(number <= before.get(what, 0) for what, number in now.items()):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{where}: {before} became {now}")
        await asyncio.sleep(0.01)


def prepare(host):
    folder = host / "folder"
    folder.mkdir()
    (folder / "big").write_bytes(BIG)
    for name in ("a", "b", "c"):
        (folder / name).write_text(name * 1000)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for argv in (
        ["init", "-q", "repo"],
        ["-C", "repo", *author, "commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *argv], cwd=host, check=True, capture_output=True)
