"""Commands whose runtime neither answers nor hangs up, as in a paused container."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from sandbox_kernel.client import silence
from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.errors import ContainerUnavailableError, OperationInterruptedError
from sandbox_kernel.transports import http
from tests.support.managed import plain_manager

TOLD = "does not answer|lets nobody in"


@pytest.fixture
def frozen(data_dir, monkeypatch):
    """Return a manager, and a function that stops or continues the runtime of its sandbox."""
    monkeypatch.setattr(silence, "GRACE", 0.3)
    monkeypatch.setattr(silence, "PATIENCE", 2.0)
    with plain_manager(data_dir) as manager:

        def send(number):
            os.kill(manager.lookup("x").instance.data["pid"], number)

        try:
            yield manager, send
        finally:
            send(signal.SIGCONT)


@pytest.mark.parametrize("transport", ["rpc", "http"])
async def test_a_limit_holds_also_if_nobody_keeps_it(frozen, transport, monkeypatch):
    """The caller is told by type, a cancelled one leaves at once, and all goes on afterwards."""
    monkeypatch.setattr(http, "WELCOME_TIMEOUT", 1.0)
    manager, send = frozen
    async with (
        asyncio.timeout(40),
        get_sandbox("x", manager=manager, transport=transport) as sandbox,
    ):
        await sandbox.exec(["true"])
        send(signal.SIGSTOP)

        with pytest.raises((OperationInterruptedError, ContainerUnavailableError), match=TOLD):
            await sandbox.exec(["true"], timeout=0.5)
        with pytest.raises((OperationInterruptedError, ContainerUnavailableError), match=TOLD):
            await anext(sandbox.exec_stream("true", timeout=0.5))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await sandbox.exec(["true"])

        send(signal.SIGCONT)
        assert (await sandbox.exec(["echo", "on"])).stdout == b"on\n"


async def test_a_command_that_is_merely_quiet_goes_on(frozen):
    """Whoever answers that it is there may take its time, as for a turn in a busy session."""
    manager, _ = frozen
    async with get_sandbox("x", manager=manager) as sandbox:
        first = asyncio.create_task(sandbox.exec("sleep 1.5", timeout=30))
        await asyncio.sleep(0.2)

        assert (await sandbox.exec("echo late", timeout=10)).stdout == b"late\n"
        assert (await first).exit_code == 0


@pytest.mark.parametrize("transport", ["rpc", "http"])
async def test_a_command_without_a_limit_waits_until_it_can_be_cancelled_or_goes_on(
    frozen, transport
):
    """A paused sandbox may go on: nobody but the caller gives such a command up, and may at once."""
    manager, send = frozen
    async with (
        asyncio.timeout(40),
        get_sandbox("x", manager=manager, transport=transport) as sandbox,
    ):
        await sandbox.exec("mine=1")
        going = asyncio.create_task(sandbox.exec("sleep 0.3; echo $mine"))
        leaving = asyncio.create_task(sandbox.exec(["sleep", "47119"]))
        await asyncio.sleep(0.1)
        send(signal.SIGSTOP)

        done, _ = await asyncio.wait([going, leaving], timeout=1.5)
        assert not done
        leaving.cancel()
        await asyncio.wait([leaving], timeout=5)
        assert leaving.cancelled()

        send(signal.SIGCONT)
        assert (await going).stdout == b"1\n"
        assert (await sandbox.exec("! pgrep -f '^sleep 47119$'")).success
