"""A connection to a program's port as a transport of asyncio, so that streams and protocols fit."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

from sandbox_kernel.errors import OperationInterruptedError, SandboxError
from sandbox_kernel.transports.base import Channel
from sandbox_kernel.wire.port_operations import (
    PIECE,
    PortConnection,
    PortEvent,
    PortOrder,
    port_event,
    told,
)
from sandbox_kernel.wire.rpc import ChannelFrame, FrameKind

__all__ = ["PortTransport", "closed", "open_streams"]

_OFFSET = 8
_PIECE = min(PIECE, 64 << 10)
"""What fits into a socket's buffer need not be put together again at the other end."""


class PortTransport(asyncio.Transport):
    """The client's end of a connection to a port; see `asyncio.Transport`.

    Both sides may end before the other (`write_eof`).  `close` returns at once; the protocol's
    ``connection_lost`` follows when the program's system has all that was written.

    Parameters
    ----------
    channel : Channel
        Just opened by ``port.connect``; closed here.
    protocol : asyncio.Protocol
        Told of everything from now on.
    """

    def __init__(self, channel: Channel, protocol: asyncio.BaseProtocol) -> None:
        opening = cast("PortConnection", channel.opening)
        super().__init__(extra={"peername": (opening.address, opening.port)})
        self._channel = channel
        self._port = opening.port
        self._protocol = cast("asyncio.Protocol", protocol)
        self._loop = asyncio.get_running_loop()
        self._is_closing = False
        self._is_lost = False
        self._is_paused = False
        self._has_written_eof = False
        self._has_read_eof = False
        self._draining: asyncio.Task[None] | None = None
        protocol.connection_made(self)
        channel.listen(self._take)

    def __repr__(self) -> str:
        state = "lost" if self._is_lost else "closing" if self._is_closing else "open"
        return f"<PortTransport port={self._port} {state}>"

    # --- reading ---

    def _take(self, frame: ChannelFrame | None) -> None:
        if self._is_lost:
            return
        if frame is None:
            self._ended()
            return
        payload = cast("memoryview", frame.payload)
        if frame.kind is FrameKind.EVENT:
            self._told(port_event(payload))
        elif frame.kind is FrameKind.DATA and not self._is_closing:
            # Protocols keep what they get, and may change it: it must be theirs.
            self._protocol.data_received(bytes(payload[_OFFSET:]))

    def _told(self, event: PortEvent | None) -> None:
        if event is PortEvent.RESET:
            self._lose(ConnectionResetError(f"Port {self._port} has broken the connection."))
        elif event is PortEvent.END and not self._is_closing:
            self._has_read_eof = True
            if not self._protocol.eof_received():
                self.close()

    def _ended(self) -> None:
        if self._is_closing or (self._has_read_eof and self._has_written_eof):
            self._lose(None)
            return
        what = f"the connection to port {self._port}"
        self._lose(OperationInterruptedError(what, "the sandbox has stopped"))

    def pause_reading(self) -> None:
        """Let the program wait once the buffers on the way are full."""
        if not self._is_closing and not self._is_paused:
            self._is_paused = True
            self._channel.pause()

    def resume_reading(self) -> None:
        """Go on reading."""
        if not self._is_closing and self._is_paused:
            self._is_paused = False
            self._channel.resume()

    def is_reading(self) -> bool:
        """Whether data is handed on."""
        return not self._is_closing and not self._is_paused

    # --- writing ---

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send bytes to the program; what cannot be sent at once is kept."""
        if self._has_written_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        rest = memoryview(data).cast("B")
        while len(rest) and not self._is_closing and not self._is_lost:
            self._post(FrameKind.INPUT, rest[:_PIECE])
            rest = rest[_PIECE:]

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def write_eof(self) -> None:
        """Let the program see the end of what is written, and go on reading from it."""
        if not self._has_written_eof and not self._is_closing:
            self._has_written_eof = True
            self._post(FrameKind.CONTROL, told(PortOrder.END))

    def get_write_buffer_size(self) -> int:
        """Return 0: how much waits is known below only, which pauses the protocol by itself."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Change nothing; 1 MiB may wait."""

    def _post(self, kind: FrameKind, *parts: bytes | memoryview) -> None:
        try:
            has_room = self._channel.post(kind, *parts)
        except SandboxError:
            return  # the channel's end tells
        if not has_room and self._draining is None and not self._is_closing:
            self._protocol.pause_writing()
            self._draining = self._loop.create_task(self._drain())

    async def _drain(self) -> None:
        await self._channel.drained()
        self._draining = None
        if not self._is_lost:
            self._protocol.resume_writing()

    # --- the end ---

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._is_closing

    def close(self) -> None:
        """Deliver what was written, then close; what comes from the program is dropped."""
        if self._is_closing:
            return
        self._is_closing = True
        self._post(FrameKind.CONTROL, told(PortOrder.CLOSE))
        # The end of the channel comes behind what is there to be read.
        self._channel.resume()

    def abort(self) -> None:
        """Close at once; what was not sent yet is dropped."""
        self._is_closing = True
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        if self._draining is not None:
            self._draining.cancel()
        self._channel.close()
        self._loop.call_soon(self._protocol.connection_lost, error)

    # --- the protocol ---

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Tell another protocol from now on."""
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that is told."""
        return self._protocol


async def open_streams(
    channel: Channel, *, limit: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return asyncio's own streams over a channel just opened, which is theirs from then on."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = PortTransport(channel, protocol)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def closed(writer: asyncio.StreamWriter, *, patience: float) -> None:
    """Close a stream and wait until all is delivered; after `patience` seconds it is given up."""
    writer.close()
    try:
        with contextlib.suppress(ConnectionError, SandboxError):
            async with asyncio.timeout(patience):
                await writer.wait_closed()
    except TimeoutError:
        pass
    finally:
        writer.transport.abort()
