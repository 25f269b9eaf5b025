"""The HTTP transport: one request per call, over connections that are kept for the next one."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from sandbox_kernel.errors import ContainerUnavailableError
from sandbox_kernel.transports.endpoint import Endpoint
from sandbox_kernel.transports.link import (
    WELCOME_TIMEOUT,
    Events,
    FrameChannel,
    Link,
    ended_since,
    lets_nobody_in,
    row_of,
)
from sandbox_kernel.transports.rpc import RpcTransport
from sandbox_kernel.wire.codec import decode
from sandbox_kernel.wire.http import HttpClient
from sandbox_kernel.wire.operations import Empty, Kind, Operation
from sandbox_kernel.wire.record import Record

__all__ = ["HttpTransport"]

_MOST_KEPT = 64
"""Connections that wait for the next request; each costs both ends a descriptor."""

_FEW_KEPT = 8
_IDLE = 10.0
"""Seconds after which only a few of those that nobody used are kept."""


class _Line:
    """A connection and what it speaks."""

    def __init__(self, link: Link, protocol: HttpClient) -> None:
        self.link = link
        self.free_since = 0.0
        self._protocol = protocol

    @property
    def is_free(self) -> bool:
        """Whether the next request may go out on it."""
        return self._protocol.is_free and self.link.is_usable


class HttpTransport:
    """Carries each call and stream as a request of its own; channels go by the frame door.

    Parameters
    ----------
    endpoint : Endpoint
        The incarnation to talk to.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._free: list[_Line] = []
        self._busy: set[_Line] = set()
        self._channels = RpcTransport(endpoint)
        self._is_closed = False
        self._was_admitted = False
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def __del__(self) -> None:
        # Handles that go out of use in a notebook are rarely closed; connections must not stay.
        for line in [*self._free, *self._busy]:
            line.link.abandon()

    async def open(self) -> None:
        """Make sure that somebody listens, and knows our token.

        Raises
        ------
        ContainerUnavailableError
            Nobody listens or answers, or another incarnation than the one that had let us in.
        UnauthorizedError
            Another incarnation listens there by now.
        """
        # A connection that is kept leads to the runtime that it was made to; a new one to whoever
        # listens now.
        if not self._was_admitted or not any(line.is_free for line in self._free):
            try:
                async with asyncio.timeout(WELCOME_TIMEOUT):
                    await self.call("runtime.health", Empty())
            except TimeoutError as error:
                raise lets_nobody_in(self.endpoint) from error
            self._was_admitted = True

    async def call(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> Record:
        """Do an operation that answers once; see `Transport`."""
        row = row_of(operation, Kind.CALL)
        async with self._asked(row, request, incarnation) as (link, call):
            answer = await asyncio.shield(link.pending(call).answer)
        return decode(row.result, answer.value, answer.body)

    @contextlib.asynccontextmanager
    async def stream(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> AsyncIterator[Events]:
        """Do an operation that answers with events; see `Transport`."""
        row = row_of(operation, Kind.STREAM)
        async with self._asked(row, request, incarnation) as (link, call):
            yield Events(link, call)

    async def connect(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> FrameChannel:
        """Open a channel on a connection of its own; see `Transport`."""
        return await self._channels.connect(operation, request, incarnation=incarnation)

    async def aclose(self) -> None:
        """Close the connections; calls under way are interrupted.  A second time is fine."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        lines = [*self._free, *self._busy]
        self._free.clear()
        self._busy.clear()
        for line in lines:
            await line.link.aclose()
        await self._channels.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    @contextlib.asynccontextmanager
    async def _asked(
        self, row: Operation, request: Record, incarnation: str | None
    ) -> AsyncIterator[tuple[Link, int]]:
        """Send a request; one that is left unanswered ends with its connection."""
        line = await self._line()
        link = line.link
        try:
            call = link.begin(row, request, incarnation)
            try:
                await link.drained()
                yield link, call
            finally:
                link.finish(call)
        finally:
            self._is_over = self._is_over or link.is_foreign
            self._give_back(line)

    async def _line(self) -> _Line:
        if self._is_closed:
            raise ContainerUnavailableError(self.endpoint.sandbox_id, "this connection was closed")
        if self._is_over:
            raise ended_since(self.endpoint)
        while self._free:
            line = self._free.pop()
            if line.is_free:
                break
            line.link.abandon()
        else:
            protocol = HttpClient()
            link = await Link.open(self.endpoint, protocol, was_admitted=self._was_admitted)
            line = _Line(link, protocol)
        self._busy.add(line)
        return line

    def _give_back(self, line: _Line) -> None:
        self._busy.discard(line)
        is_over = self._is_closed or self._is_over
        if line.is_free and len(self._free) < _MOST_KEPT and not is_over:
            line.free_since = asyncio.get_running_loop().time()
            self._free.append(line)
            self._look_later()
        else:
            line.link.abandon()

    def _look_later(self) -> None:
        if self._timer is None and len(self._free) > _FEW_KEPT:
            loop = asyncio.get_running_loop()
            # Weakly: a handle that goes out of use is not to live for a timer.
            self._timer = loop.call_later(_IDLE, _close_unused, weakref.ref(self))

    def close_unused(self) -> None:
        """Close connections that nobody has used for a while, the longest unused first."""
        self._timer = None
        # The last one that was given back is the next to be taken, so the first are the oldest.
        oldest = asyncio.get_running_loop().time() - _IDLE
        while len(self._free) > _FEW_KEPT and self._free[0].free_since <= oldest:
            self._free.pop(0).link.abandon()
        self._look_later()


def _close_unused(transport: weakref.ref[HttpTransport]) -> None:
    living = transport()
    if living is not None:
        living.close_unused()
