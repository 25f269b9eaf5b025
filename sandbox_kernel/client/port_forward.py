"""A local address that leads to a port of a sandbox, for programs that know addresses only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox_kernel.errors import SandboxError

__all__ = ["PortForward", "Streams", "relay"]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_READ_BYTES = 256 << 10
_LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_PAUSE = 0.1
_LONGEST_BASE = 70
"""Bytes of a folder's path that leave room for what is made in it: a socket's has 107 (unix(7))."""
_AT_ONCE = struct.pack("ii", 1, 0)  # struct linger: on, for no time


async def relay(one: Streams, other: Streams) -> None:
    """Pass bytes and ends on both ways, until both have ended or one connection breaks."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_pass_on(one[0], other[1]))
            group.create_task(_pass_on(other[0], one[1]))
    except* (OSError, SandboxError):
        _reset(one[1])
        _reset(other[1])


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_READ_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


class PortForward:
    """Listens locally while it is entered; see `Sandbox.forward_port`, which makes it.

    Each connection to it is one to the sandbox's port.  Leaving the block closes them all.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Streams]],
        *,
        local_port: int,
        is_private: bool,
    ) -> None:
        self._connect = connect
        self._wanted_port = local_port
        self._is_private = is_private
        self._listener: socket.socket | None = None
        self._folder: str | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<PortForward {self.path or f'{_LOOPBACK}:{self._port}'}>"

    @property
    def path(self) -> Path | None:
        """The unix socket that leads to the port; None of a forward by TCP."""
        return None if self._folder is None else Path(self._folder, "socket")

    @property
    def port(self) -> int | None:
        """The local port at 127.0.0.1; None of a private forward."""
        return None if self._is_private else self._port

    @property
    def url(self) -> str | None:
        """``http://127.0.0.1:PORT``, for a program that speaks HTTP; None of a private forward."""
        return None if self._is_private else f"http://{_LOOPBACK}:{self._port}"

    async def __aenter__(self) -> Self:
        self._listener = self._listen()
        self._listener.setblocking(False)
        self._watch()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        listener, self._listener = self._listener, None
        assert listener is not None  # noqa: S101  it was entered
        asyncio.get_running_loop().remove_reader(listener.fileno())
        listener.close()
        try:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> socket.socket:
        if not self._is_private:
            listener = socket.create_server((_LOOPBACK, self._wanted_port), backlog=_BACKLOG)
            self._port = int(listener.getsockname()[1])
            return listener
        # Only its owner enters a folder that mkdtemp makes.
        self._folder = tempfile.mkdtemp(prefix="sandbox-port-", dir=_base_folder())
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(self.path))
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return listener

    # asyncio's own servers lose a connection that is accepted while they are being closed.

    def _watch(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        assert self._listener is not None  # noqa: S101  it is watched
        loop = asyncio.get_running_loop()
        try:
            accepted = self._listener.accept()[0]
        except BlockingIOError:
            return
        except OSError:
            # Out of descriptors: callers wait in the backlog; a busy loop helps nobody.
            loop.remove_reader(self._listener.fileno())
            loop.call_later(_PAUSE, self._watch)
            return
        task = loop.create_task(self._carry(accepted))
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            # One that was cancelled before its first step has not closed it.
            accepted.close()

        task.add_done_callback(done)

    async def _carry(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=accepted, limit=_READ_BYTES)
        try:
            async with self._connect() as streams:
                await relay((reader, writer), streams)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        except SandboxError:
            # Nobody listens inside: the caller sees a connection that breaks.
            _reset(writer)
        finally:
            writer.transport.abort()


def _base_folder() -> str:
    """Return where a folder can be made whose sockets' paths are short enough to be used."""
    for folder in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()):
        is_short = folder is not None and len(os.fsencode(folder)) <= _LONGEST_BASE
        if folder and is_short and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return "/tmp"  # noqa: S108  the folder made there is private


def _reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection, so that nobody takes it for one that has ended."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()
