"""Commands with a time limit whose runtime says nothing any more, as in a paused container."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sandbox_kernel.errors import OperationInterruptedError, SandboxError
from sandbox_kernel.wire.operations import Empty

if TYPE_CHECKING:
    from sandbox_kernel.transports.base import Transport

__all__ = ["unless_silent"]

GRACE = 5.0
"""Seconds past a command's own limit until the runtime is asked whether it is there at all."""

PATIENCE = 10.0
"""Seconds that it gets to answer; on a busy machine it takes some."""


@asynccontextmanager
async def unless_silent(
    transport: Transport,
    operation: str,
    timeout: float | None,  # noqa: ASYNC109  it is the command's, which the runtime keeps
) -> AsyncIterator[None]:
    """End what is done within, if the runtime had to end it long ago and answers to nothing.

    Raises
    ------
    OperationInterruptedError
        It does not answer.  Without a limit, nothing is ever asked.
    """
    if timeout is None:
        yield
        return
    loop = asyncio.get_running_loop()

    async def ask() -> None:
        while await asyncio.sleep(timeout + GRACE, True):
            if not await _answers(transport):
                scope.reschedule(loop.time())
                return

    asking = asyncio.create_task(ask())
    try:
        async with asyncio.timeout(None) as scope:
            yield
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise OperationInterruptedError(operation, "the runtime does not answer") from error
    finally:
        asking.cancel()
        await asyncio.wait([asking])


async def _answers(transport: Transport) -> bool:
    try:
        async with asyncio.timeout(PATIENCE):
            await transport.call("runtime.health", Empty())
    except TimeoutError:
        return False
    except SandboxError:
        # Whoever waits is told what has become of the connection.
        return True
    return True
