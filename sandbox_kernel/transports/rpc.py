"""The RPC transport: one persistent connection for any number of calls and streams.

Channels have connections of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from sandbox_kernel.errors import ContainerUnavailableError
from sandbox_kernel.transports.endpoint import Endpoint
from sandbox_kernel.transports.link import Events, FrameChannel, Link, row_of
from sandbox_kernel.wire.codec import decode
from sandbox_kernel.wire.operations import Kind
from sandbox_kernel.wire.record import Record

__all__ = ["RpcTransport"]


class RpcTransport:
    """Carries operations over one connection that is opened at the first of them.

    Parameters
    ----------
    endpoint : Endpoint
        The incarnation to talk to.

    Notes
    -----
    After the connection broke, the next operation opens a new one.  Use it within one event loop.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._link: Link | None = None
        self._ending: list[Link] = []
        self._opening = asyncio.Lock()
        self._is_closed = False
        self._was_admitted = False

    def __del__(self) -> None:
        # Handles that go out of use in a notebook are rarely closed; the connection must not stay.
        if self._link is not None:
            self._link.abandon()

    async def open(self) -> None:
        """Make sure there is a connection now; operations do it by themselves.

        Raises
        ------
        ContainerUnavailableError
            Nobody listens, or another incarnation than the one that had let us in.
        UnauthorizedError
            Another incarnation listens there by now.
        """
        await self._usable()

    async def call(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> Record:
        """Do an operation that answers once; see `Transport`."""
        row = row_of(operation, Kind.CALL)
        link = await self._usable()
        call = link.begin(row, request, incarnation)
        try:
            await link.drained()
            answer = await asyncio.shield(link.pending(call).answer)
        finally:
            link.finish(call)
        return decode(row.result, answer.value, answer.body)

    @contextlib.asynccontextmanager
    async def stream(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> AsyncIterator[Events]:
        """Do an operation that answers with events; see `Transport`."""
        row = row_of(operation, Kind.STREAM)
        link = await self._usable()
        call = link.begin(row, request, incarnation)
        try:
            await link.drained()
            yield Events(link, call)
        finally:
            link.finish(call)

    async def connect(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> FrameChannel:
        """Open a channel on a connection of its own; see `Transport`."""
        row = row_of(operation, Kind.CHANNEL)
        link = await Link.open(self.endpoint)
        try:
            call = link.begin(row, request, incarnation)
            # Before the answer comes: frames of the channel may come in the same chunk.
            link.become_channel()
            answer = await asyncio.shield(link.pending(call).answer)
            link.finish(call)
            return FrameChannel(link, decode(row.result, answer.value, answer.body))
        except BaseException:
            await link.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connection; calls under way are interrupted.  A second time is fine."""
        self._is_closed = True
        link, self._link = self._link, None
        ending, self._ending = self._ending, []
        for each in [*ending, *([link] if link is not None else [])]:
            await each.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _usable(self) -> Link:
        link = self._link
        if link is not None and link.is_usable:
            return link
        async with self._opening:
            if self._is_closed:
                raise ContainerUnavailableError(
                    self.endpoint.sandbox_id, "this connection was closed"
                )
            if self._link is not None and not self._link.is_usable:
                # It ends by itself once its last words are read, which streams may wait for.
                self._ending = [each for each in self._ending if not each.has_ended]
                self._ending.append(self._link)
                self._link = None
            if self._link is None:
                self._link = await self._new_link(was_admitted=self._was_admitted)
                self._was_admitted = True
            return self._link

    async def _new_link(self, *, was_admitted: bool) -> Link:
        return await Link.open(self.endpoint, was_admitted=was_admitted)
