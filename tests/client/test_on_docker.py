"""The SDK on Docker, over each of the two doors."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.client.terminal import TerminalOutput
from sandbox_kernel.engines.settings import DockerSettings
from sandbox_kernel.errors import CommandNotFoundError, StaleProcessHandleError
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.docker import HOST, IMAGE, need_docker


@pytest.fixture(params=["auto", "tcp"])
def manager(request, data_dir):
    need_docker()
    docker = DockerSettings(host=HOST, image=IMAGE, door=request.param)
    made = Manager(Settings(data_dir=data_dir, docker=docker))
    yield made
    for info in made.list():
        made.destroy(info.sandbox_id)
    made.close()


async def test_commands_processes_and_terminals(manager):
    """As on every engine; files outlive a stop, handles do not, a destroy removes all."""
    async with get_sandbox("demo", engine="docker", manager=manager) as sandbox:
        told = await sandbox.exec(["sh", "-c", "echo $SANDBOX_ID; pwd; echo kept > kept"])
        assert told.stdout_text.split() == ["demo", "/workspace"]
        info = await sandbox.info()
        assert info.engine == "docker"
        many = await asyncio.gather(
            *(sandbox.exec(["sh", "-c", f"cat; exit {code}"], stdin=b"x") for code in range(8))
        )
        assert [(each.exit_code, each.stdout) for each in many] == [(n, b"x") for n in range(8)]
        big = await sandbox.exec(["head", "-c", "20000000", "/dev/zero"])
        assert len(big.stdout) == 20_000_000
        with pytest.raises(CommandNotFoundError):
            await sandbox.exec(["no-such-program"])

        terminal = await sandbox.create_terminal(["sh", "-c", "stty size; tty"], cols=40, rows=5)
        data = b""
        async with asyncio.timeout(20), contextlib.aclosing(terminal.output(follow=True)) as output:
            async for event in output:
                data += event.data if isinstance(event, TerminalOutput) else b""
        assert data.split() == [b"5", b"40", b"/dev/pts/0"]

        process = await sandbox.start_process(["sleep", "60"])
        await sandbox.stop(grace=0.5)
        assert (await sandbox.info()).state == "stopped"
        assert (await sandbox.exec(["cat", "kept"])).stdout == b"kept\n"
        with pytest.raises(StaleProcessHandleError):
            await process.refresh()
        await sandbox.destroy()
        assert await sandbox.info() is None
