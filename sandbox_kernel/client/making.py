"""Calls that make something in a sandbox, of which nothing may stay once nobody awaits it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sandbox_kernel.errors import SandboxError

if TYPE_CHECKING:
    from sandbox_kernel.transports.base import Transport
    from sandbox_kernel.wire.record import Record

__all__ = ["made"]

_LAST_WORD = 5.0
"""Seconds that a call which is cancelled waits for its answer, and then for the undoing."""


async def made(
    transport: Transport,
    operation: str,
    request: Record,
    undo: Callable[[Record], Awaitable[object]],
) -> Record:
    """Do a call that makes something; cancelled, it leaves nothing of it.

    The answer may be on its way: what nobody knows the name of would stay for as long as the
    sandbox runs.

    Parameters
    ----------
    undo : callable
        Removes what an answer tells of.
    """
    making = asyncio.ensure_future(transport.call(operation, request))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        try:
            await asyncio.wait([making], timeout=_LAST_WORD)
            if making.done() and not making.cancelled() and making.exception() is None:
                with contextlib.suppress(SandboxError, TimeoutError):
                    async with asyncio.timeout(_LAST_WORD):
                        await undo(making.result())
        finally:
            making.cancel()
        raise
