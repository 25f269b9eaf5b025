"""The body of a request, as it comes: kept whole up to a limit, or handed on piece by piece."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from tornado import web

__all__ = ["IDLE", "RequestBody"]

IDLE = 60.0
"""Seconds without a byte after which a client that has not sent all is no longer waited for."""

_AHEAD = 1 << 20
"""Bytes that may wait to be taken; past it the connection is not read."""


class RequestBody:
    """Takes pieces from tornado, and gives them to one reader.

    Parameters
    ----------
    limit : int, optional
        Bytes to keep; what is longer is refused when it is read.  None has no limit, and then the
        connection is read only as fast as the reader takes.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._is_over = False
        self._is_broken = False
        self._is_unwanted = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, piece: bytes) -> asyncio.Future[None] | None:
        """Add a piece; what is returned is done when there is room for the next one."""
        if self._is_unwanted:
            return None
        self._pieces.append(piece)
        self._waiting += len(piece)
        self._news.set()
        if self._limit is not None:
            if self._waiting > self._limit:
                self._drop()
            return None
        if self._waiting < _AHEAD:
            return None
        self._room.clear()
        return asyncio.ensure_future(self._until_room())

    async def _until_room(self) -> None:
        await self._room.wait()

    def end(self) -> None:
        """Say that all has come."""
        self._is_over = True
        self._news.set()

    def break_off(self) -> None:
        """Say that nothing more comes although it has not ended."""
        self._is_broken = True
        self._news.set()
        self._drop()

    def _drop(self) -> None:
        self._is_unwanted = True
        self._pieces.clear()
        self._room.set()

    def discard(self) -> None:
        """Read and forget what still comes."""
        self._drop()

    async def all(self) -> bytes:
        """Return the whole body, once it has come.

        Raises
        ------
        tornado.web.HTTPError
            It is longer than the limit.
        """
        if self._is_unwanted:
            raise web.HTTPError(413, "The body is longer than %s bytes", self._limit)
        return b"".join(self._pieces)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it comes.

        Raises
        ------
        ConnectionError
            The client has gone.
        tornado.web.HTTPError
            It has sent nothing for `IDLE` seconds.
        """
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._waiting -= len(piece)
                if self._waiting < _AHEAD:
                    self._room.set()
                yield piece
            if self._is_broken:
                raise ConnectionError("the client has gone")
            if self._is_over:
                return
            self._news.clear()
            try:
                async with asyncio.timeout(IDLE):
                    await self._news.wait()
            except TimeoutError:
                raise web.HTTPError(408, "Nothing came for %s seconds", IDLE) from None
