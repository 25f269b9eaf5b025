"""The SDK on real sandboxes: what the engine without isolation cannot show."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import time

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.errors import (
    OperationInterruptedError,
    ProcessAbortedError,
    SessionTerminatedError,
    StaleProcessHandleError,
    UnauthorizedError,
)
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from sandbox_kernel.transports.endpoint import Endpoint
from sandbox_kernel.transports.rpc import RpcTransport
from sandbox_kernel.wire.operations import Empty


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


async def test_a_command_runs_inside(sandbox):
    """The command sees the sandbox: its id, its folders, no process of the host."""
    result = await sandbox.exec(
        ["sh", "-c", "echo $SANDBOX_ID; pwd; echo $HOME; ls /proc | grep -c '^[0-9]'"]
    )

    sandbox_id, folder, home, processes = result.stdout_text.split()
    assert (sandbox_id, folder, home) == ("demo", "/workspace", "/home/user")
    assert int(processes) < 10


async def test_files_and_stale_handles_over_stop_and_destroy(sandbox):
    """A stop keeps files, a destroy does not, and both make handles stale."""
    process = await sandbox.start_process(["sleep", "60"])
    await sandbox.exec(["sh", "-c", "echo kept > /workspace/file"])
    await sandbox.stop()
    assert (await sandbox.exec(["cat", "/workspace/file"])).stdout == b"kept\n"
    with pytest.raises(StaleProcessHandleError):
        await process.refresh()
    process = await sandbox.start_process(["sleep", "60"])
    await sandbox.destroy()
    assert (await sandbox.exec(["ls", "/workspace"])).stdout == b""
    with pytest.raises(StaleProcessHandleError):
        await process.refresh()


async def test_the_secret_of_one_sandbox_does_not_open_another(manager):
    """The token is per incarnation, and the socket's folder is closed to other users."""
    one = await asyncio.to_thread(manager.ensure, "one")
    two = await asyncio.to_thread(manager.ensure, "two")
    crossed = Endpoint(sandbox_id="two", socket=two.endpoint.socket, token=one.endpoint.token)

    async with RpcTransport(crossed) as transport:
        with pytest.raises(UnauthorizedError):
            await transport.call("runtime.health", Empty())
    assert os.stat(two.layout.run).st_mode & 0o077 == 0
    assert os.stat(two.endpoint.socket).st_mode & 0o077 == 0


async def test_the_token_is_out_of_reach_inside(sandbox, manager):
    """No environment, command line or readable file inside holds the token."""
    await sandbox.start()
    running = await asyncio.to_thread(manager.find_running, "demo")
    assert running is not None
    search = "cat /proc/*/environ /proc/*/cmdline 2>/dev/null; env; ls -laR /run /opt/sandbox"

    result = await sandbox.exec(["sh", "-c", search])

    assert running.endpoint.token.encode() not in result.stdout
    assert b"runtime.sock" not in result.stdout


async def test_what_runs_at_a_stop_is_told(sandbox):
    """A command under way when the sandbox is stopped ends with a typed error or a signal."""
    await sandbox.start()
    task = asyncio.create_task(sandbox.exec(["sleep", "100"]))
    instance = (await sandbox.info()).instance
    await until(lambda: children_of(instance.data["pid"]))
    begin = time.monotonic()
    await sandbox.stop(grace=2.0)

    assert time.monotonic() - begin < 10
    try:
        result = await task
    except (ProcessAbortedError, OperationInterruptedError):
        return
    assert result.signal in (signal.SIGTERM, signal.SIGKILL)


async def test_a_killed_runtime_is_noticed_and_replaced(sandbox, manager):
    """kill -9 of the sandbox's first process: the next operation starts another incarnation."""
    info = await sandbox.start()
    assert info.instance is not None
    before = (await sandbox.health()).incarnation
    os.kill(info.instance.data["pid"], signal.SIGKILL)
    # What is sent while the system tears it down is interrupted, not repeated; wait for the end.
    await until(lambda: manager.lookup("demo").state == "stopped")

    assert (await sandbox.exec(["echo", "back"])).stdout == b"back\n"
    assert (await sandbox.health()).incarnation != before


RT_SIGQUEUEINFO = 129 if platform.machine() == "x86_64" else 138
FORGE = f"""
import ctypes, struct
lie = ctypes.create_string_buffer(struct.pack("iiiiii", 15, 0, -1, 0, 0, 0), 128)
ctypes.CDLL(None).syscall({RT_SIGQUEUEINFO}, 1, 15, lie)
"""


async def test_signals_from_inside_do_not_end_the_sandbox(sandbox):
    """Its first process heeds none of them, whoever they claim to be from; all else may be killed."""
    process = await sandbox.start_process(["sleep", "60"])
    before = (await sandbox.health()).incarnation
    for text in (
        "kill -TERM 1; kill -INT 1; kill -HUP 1; kill -KILL 1; kill -STOP 1",
        "for n in $(seq 64); do kill -$n 1; done",
        f"python3 -c '{FORGE}'",
    ):
        assert (await sandbox.exec(text)).exit_code is not None
    with contextlib.suppress(SessionTerminatedError):
        await sandbox.exec("kill -9 -1")
    await process.wait_for_exit()

    with contextlib.suppress(SessionTerminatedError):
        await sandbox.exec("true")
    assert (await sandbox.exec("echo on")).stdout == b"on\n"
    assert (await sandbox.health()).incarnation == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_from_outside_ends_the_sandbox(sandbox, manager, number):
    """As an administrator, or a container's engine, would send it; programs get their grace."""
    info = await sandbox.start()
    await sandbox.exec(["sh", "-c", "kill -TERM 1; kill -INT 1"])
    text = "trap 'touch asked; exit' TERM; echo ready; while :; do sleep 0.05; done"
    process = await sandbox.start_process(["sh", "-c", text])
    await process.wait_for_log("ready", timeout=10)
    os.kill(info.instance.data["pid"], number)
    await until(lambda: manager.lookup("demo").state == "stopped")

    assert await sandbox.exists("asked")
    with pytest.raises(StaleProcessHandleError):
        await process.refresh()


async def test_isolation_is_reported(sandbox):
    """What the engine reached can be read off the sandbox."""
    info = await sandbox.start()

    assert info.engine == "bubblewrap"
    assert info.instance is not None
    assert info.instance.isolation["network"] == "off"
    assert set(info.instance.limits) == {"memory_bytes", "cpus", "processes", "file_bytes"}


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(each) for each in file.read().split()]


async def until(condition, *, timeout: float = 10.0) -> None:  # noqa: ASYNC109
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.01)
