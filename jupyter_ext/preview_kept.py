"""Connections to programs that are kept for a moment, since a page asks for many things in a row.

A kept connection is used again only for who has a token that is right at that time.  One on which
anything comes that nobody has asked for is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from jupyter_ext.preview_exchange import Exchange
from sandbox_kernel.client.sandbox import Sandbox
from sandbox_kernel.manager.preview_label import PreviewLabel

__all__ = ["Connection", "KeptConnections"]

_KEPT_TIME = 1.0
"""Seconds; a kept connection holds its sandbox awake."""
_MOST = 4
"""Kept of one port."""
_MOST_OF_ALL = 32
_PIECE = 256 << 10


class Connection:
    """A connection to a program, for one request after the other; its user closes or keeps it."""

    def __init__(
        self,
        port: int,
        stack: AsyncExitStack,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._stack = stack
        self.reader = reader
        self.writer = writer
        self.exchange = Exchange(port, reader, writer)
        self._watching: asyncio.Task[bytes] | None = None
        self._ending: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, sandbox: Sandbox, target: PreviewLabel) -> Connection:
        """Connect anew; the errors are those of `Sandbox.connect_exposed_port`."""
        stack = AsyncExitStack()
        reader, writer = await stack.enter_async_context(
            sandbox.connect_exposed_port(target.port, target.token, limit=_PIECE)
        )
        return cls(target.port, stack, reader, writer)

    async def aclose(self) -> None:
        """Deliver what was written, and close."""
        await self._stack.aclose()

    async def give_up(self, error: BaseException) -> None:
        """Close at once, because of an error."""
        await self._stack.__aexit__(type(error), error, error.__traceback__)

    def watch(self, ended: Callable[[], None]) -> None:
        """Be told when anything comes, the end included, or the time is over."""
        self._watching = asyncio.create_task(self.reader.read(1))

        def come(task: asyncio.Task[bytes]) -> None:
            if not task.cancelled():
                ended()

        self._watching.add_done_callback(come)
        self._ending = asyncio.get_running_loop().call_later(_KEPT_TIME, ended)

    def unwatch(self) -> bool:
        """Stop that; False if something had come."""
        assert self._watching is not None  # noqa: S101  it is watched
        assert self._ending is not None  # noqa: S101  likewise
        self._ending.cancel()
        has_come = self._watching.done()
        if has_come:
            self._watching.exception()  # seen
        else:
            self._watching.cancel()
        return not has_come


class KeptConnections:
    """The connections that are kept in one server."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], list[Connection]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def take(self, sandbox: Sandbox, target: PreviewLabel) -> Connection | None:
        """Return a connection that is kept, if there is one and the token is right."""
        if not self._kept.get((target.sandbox_id, target.port)):
            return None
        if not await sandbox.validate_port_token(target.port, target.token):
            return None
        connections = self._kept.get((target.sandbox_id, target.port), [])
        while connections:
            connection = connections.pop()
            if connection.unwatch():
                connection.exchange.begin_again()
                return connection
            self._close(connection)
        return None

    def keep(self, target: PreviewLabel, connection: Connection) -> bool:
        """Keep a connection whose exchange is over; False if it cannot be."""
        kept = self._kept.setdefault((target.sandbox_id, target.port), [])
        count = sum(map(len, self._kept.values()))
        if not connection.exchange.is_over or len(kept) >= _MOST or count >= _MOST_OF_ALL:
            return False

        def ended() -> None:
            if connection in kept:
                kept.remove(connection)
                connection.unwatch()
                self._close(connection)

        kept.append(connection)
        connection.watch(ended)
        return True

    def _close(self, connection: Connection) -> None:
        task = asyncio.create_task(connection.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
