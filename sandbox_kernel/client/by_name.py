"""Operations by their names in the table, for who passes them on, such as a route of REST."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sandbox_kernel.client.files import stream
from sandbox_kernel.errors import ContainerUnavailableError, SandboxNotRunningError

if TYPE_CHECKING:
    from sandbox_kernel.client.files import Events
    from sandbox_kernel.client.sandbox import Sandbox
    from sandbox_kernel.transports.base import EventStream
    from sandbox_kernel.transports.choice import AnyTransport
    from sandbox_kernel.wire.record import Record

__all__ = ["call_by_name", "stream_by_name"]


async def call_by_name(
    sandbox: Sandbox, operation: str, request: Record, *, starts: bool
) -> Record:
    """Do an operation that answers once, and return its result.

    Parameters
    ----------
    starts : bool
        Start the sandbox if it does not run.

    Raises
    ------
    SandboxNotRunningError
        It does not run, and is not to be started.
    """
    if starts:
        return await sandbox._taken(lambda transport: transport.call(operation, request))  # noqa: SLF001  it is a part of it
    transport = await _found(sandbox)
    try:
        return await transport.call(operation, request)
    except ContainerUnavailableError as error:
        raise SandboxNotRunningError(sandbox.id) from error


@asynccontextmanager
async def stream_by_name(
    sandbox: Sandbox, operation: str, request: Record, *, starts: bool
) -> AsyncIterator[EventStream | Events]:
    """Do an operation that answers with events; leaving the block early ends it.

    Raises
    ------
    SandboxNotRunningError
        It does not run, and is not to be started.
    """
    if starts:
        async with stream(sandbox, operation, request) as events:
            yield events
        return
    transport = await _found(sandbox)
    try:
        async with transport.stream(operation, request) as begun:
            yield begun
    except ContainerUnavailableError as error:
        raise SandboxNotRunningError(sandbox.id) from error


async def _found(sandbox: Sandbox) -> AnyTransport:
    transport = await sandbox._found()  # noqa: SLF001  likewise
    if transport is None:
        raise SandboxNotRunningError(sandbox.id)
    return transport
