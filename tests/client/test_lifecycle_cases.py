"""Sandboxes that are destroyed, killed and left, with all kinds of clients at them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.engines.settings import DockerSettings
from sandbox_kernel.errors import (
    OperationInterruptedError,
    SandboxError,
    SessionNotFoundError,
    StaleProcessHandleError,
    StaleTerminalHandleError,
)
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support import docker
from tests.support.plain_engine import REFERENCE

ROUNDS = {REFERENCE: 20, "bubblewrap": 5, "docker": 3}


@pytest.fixture(params=ROUNDS)
def manager(request, data_dir):
    if request.param == "docker":
        docker.need_docker()
    settings = DockerSettings(host=docker.HOST, image=docker.IMAGE)
    made = Manager(Settings(data_dir=data_dir, engine=request.param, docker=settings))
    yield made
    for info in made.list():
        made.destroy(info.sandbox_id)
    made.gc()
    made.close()


async def until(condition, what, *, within=10.0):
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def test_a_destroyed_id_is_used_again_at_once(manager):
    """Files are gone, and no handle of before reaches anything of the same name that came after."""
    async with get_sandbox("x", manager=manager) as sandbox:
        for _ in range(ROUNDS[manager.settings.engine]):
            session = await sandbox.create_session("a")
            await session.exec("mine=1; touch mine")
            terminal = await sandbox.create_terminal(["sleep", "60"], terminal_id="t")
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(terminal.view())
                await sandbox.destroy()

            again = await sandbox.create_session("a")
            assert (await again.exec(["true"])).exit_code == 0
            assert (await sandbox.exec(["ls"])).stdout == b""
            other = await sandbox.create_terminal(["sleep", "60"], terminal_id="t")
            for use in (
                session.refresh,
                session.delete,
                session.create_terminal,
                lambda: session.exec("echo ${mine-nothing}"),  # noqa: B023  used in this round
                lambda: session.exec(["true"]),  # noqa: B023  likewise
                lambda: session.set_env({"A": "b"}),  # noqa: B023  likewise
                lambda: session.write_file("f", "x"),  # noqa: B023  likewise
            ):
                with pytest.raises(SessionNotFoundError):
                    await use()
            for use in (terminal.refresh, terminal.terminate, lambda: terminal.write(b"x")):  # noqa: B023
                with pytest.raises(StaleTerminalHandleError):
                    await use()
            with pytest.raises(StaleTerminalHandleError):
                await terminal.view().__aenter__()
            assert (await again.exec("echo ${A-unset}")).stdout == b"unset\n"
            assert (await other.refresh()).status == "running"
            await sandbox.destroy()


@pytest.mark.parametrize("is_folder_gone", [False, True], ids=["killed", "folder-gone"])
async def test_removed_behind_our_back(manager, is_folder_gone):
    """Whoever is attached is told, calls fail by type, and the next one finds a fresh sandbox."""
    async with get_sandbox("demo", manager=manager) as sandbox:
        await sandbox.start()
        before = (await sandbox.health()).incarnation
        process = await sandbox.start_process(["sleep", "600"])
        terminal = await sandbox.create_terminal(["sleep", "600"])
        async with asyncio.timeout(60), contextlib.AsyncExitStack() as stack:
            view = await stack.enter_async_context(terminal.view())
            attached = asyncio.create_task(told_by(view))
            running = asyncio.create_task(sandbox.exec(["sleep", "600"]))
            waiting = asyncio.create_task(process.wait_for_exit())
            await asyncio.sleep(0.5)
            remove(manager, is_folder_gone)

            await until(lambda: manager.lookup("demo").state == "stopped", "it is seen to be gone")
            for task in (running, waiting):
                with pytest.raises((OperationInterruptedError, StaleProcessHandleError)):
                    await task
            await attached

        assert [info.state for info in manager.list()] == ["stopped"]
        with pytest.raises(StaleProcessHandleError):
            await process.refresh()
        with pytest.raises(StaleTerminalHandleError):
            await terminal.refresh()
        assert (await sandbox.exec(["echo", "back"])).stdout == b"back\n"
        assert (await sandbox.health()).incarnation != before

        remove(manager, is_folder_gone)
        await sandbox.stop()
        await sandbox.destroy()
    assert manager.list() == []


async def told_by(view):
    """Read a terminal's view until it has told the end, in whichever way it does."""
    with contextlib.suppress(SandboxError):
        async for _ in view:
            pass


def remove(manager, is_folder_gone):
    """Do what only a stranger would: the manager knows nothing of it."""
    info = manager.lookup("demo")
    if info.instance.engine == "docker":
        with docker.client() as connected:
            connected.remove_container(info.instance.data["container"], force=True)
    else:
        os.kill(info.instance.data["pid"], signal.SIGKILL)
    if is_folder_gone:
        shutil.rmtree(info.layout.root, ignore_errors=True)


async def test_clients_that_leave_end_nothing(manager):
    """Neither the last view of a terminal, nor a shell that exits, nor the handle that started it."""
    async with get_sandbox("demo", manager=manager) as sandbox:
        await sandbox.start_process(["sleep", "600"])
        before = (await sandbox.health()).incarnation
        shell = await sandbox.create_terminal(["sh"])
        async with shell.view() as view:
            await view.write(b"sleep 601 &\r")
            deadline = time.monotonic() + 20
            while not any("601" in line for line in (await shell.get_snapshot()).lines):
                assert time.monotonic() < deadline
        async with shell.view():
            pass
        other = await sandbox.create_terminal(["sh"])
        await other.write(b"exit\r")
        await other.wait_for_exit(timeout=20)

    async with get_sandbox("demo", manager=manager) as sandbox:
        deadline = time.monotonic() + 20
        found = b""
        # The shell may read what was typed after its view has gone.
        while not (b"sleep 600" in found and b"sleep 601" in found):
            assert time.monotonic() < deadline, found
            listing = await sandbox.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
            found = listing.stdout
        assert (await sandbox.health()).incarnation == before
