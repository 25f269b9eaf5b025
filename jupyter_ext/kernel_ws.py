"""The kernel's WebSocket: without Nagle's delay, without repeats, and several messages at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import Any

import orjson
import zmq
from jupyter_client.session import DELIM
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketProtocol13

from sandbox_kernel.client.terminal_socket import frames_of

__all__ = ["SandboxKernelWebsocketConnection"]

_REMEMBERED = 4096
"""Message ids kept for comparison: more than a relay has in flight when it is killed."""

_MOST_AT_ONCE = 16
"""Messages of one socket that are passed on before anything else of the server has its turn."""

_LARGE = 64 << 10
"""Bytes of a message from which on it is not worth to be copied for company."""


class SandboxKernelWebsocketConnection(ZMQChannelsWebsocketConnection):
    """jupyter_server's own connection, with TCP_NODELAY set on its socket and repeats dropped.

    A cell is answered by several small messages.  With Nagle's algorithm on, the second waits for
    the client's delayed acknowledgement of the first, some 40 ms.

    They come together, too.  So those that are there are passed on in one turn of the server's
    loop and one write, where the base class has a turn, a task and a write for each.

    A relay that is killed may have passed on messages it had not yet acknowledged to the sandbox;
    its successor sends them again, under the same ids, so that nothing is lost.  Here is where the
    second copy ends.

    Everything else, settings of `ZMQChannelsWebsocketConnection` in configuration files included,
    is as in the base class.
    """

    _together: list[str | bytes] | None = None
    """What one write is to carry; None where each message goes by itself."""

    # The base class's base declares a coroutine; the handler awaits either.
    def connect(self) -> asyncio.Future[None] | None:  # type: ignore[override]
        """Set the option, then connect to the kernel as the base class does.

        The handler calls this from ``open``: the upgrade is done and the socket is the WebSocket's.
        """
        self._seen: OrderedDict[str, None] = OrderedDict()
        # None when the client has gone between the upgrade and this call.
        if self.websocket_handler.ws_connection is not None:
            self.websocket_handler.set_nodelay(True)
        connected = super().connect()
        if connected is not None:
            # Behind what the base class does then: it passes on what was kept, and listens.
            connected.add_done_callback(self._listen)
        return connected

    def _listen(self, _connected: asyncio.Future[None]) -> None:
        for stream in self.channels.values():
            stream.on_recv_stream(self._take)

    def _take(self, stream: Any, message: list[Any]) -> None:
        """Pass on a message of a kernel, and those behind it that are there already."""
        self._together = []
        try:
            self.handle_outgoing_message(stream, message)
            for _ in range(_MOST_AT_ONCE - 1):
                following = None if stream.closed() else _next(stream.socket)
                if following is None:
                    break
                self.handle_outgoing_message(stream, following)
        finally:
            self._write_together()
            self._together = None

    def handle_outgoing_message(self, stream: str, outgoing_msg: list[Any]) -> None:
        """Pass a kernel's message to the client, unless it is a repeat of one passed before."""
        if not self._is_repeat(outgoing_msg):
            super().handle_outgoing_message(stream, outgoing_msg)

    def _is_repeat(self, frames: list[Any]) -> bool:
        try:
            header = orjson.loads(frames[frames.index(DELIM) + 2])
            msg_id = header["msg_id"]
        except (ValueError, LookupError, TypeError):
            # Not ours to judge: the base class says what is wrong with it.
            return False
        if msg_id in self._seen:
            return True
        self._seen[msg_id] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return False

    @property
    def write_message(self) -> Any:
        """What the base class writes with: at once, or with others at the end of a turn."""
        return self.websocket_handler.write_message if self._together is None else self._add

    def _add(self, message: str | bytes, binary: bool = False) -> None:  # noqa: FBT001, FBT002 - tornado's
        assert self._together is not None  # noqa: S101  see `write_message`
        if len(message) < _LARGE and binary == isinstance(message, bytes):
            self._together.append(message)
        else:
            self._write_together()
            self.websocket_handler.write_message(message, binary)

    def _write_together(self) -> None:
        messages, self._together = self._together, []
        if not messages:
            return
        connection = self.websocket_handler.ws_connection
        if (
            type(connection) is WebSocketProtocol13
            and connection.params.compression_options is None
            and not connection.is_closing()
        ):
            parts, _ = frames_of(messages)
            with contextlib.suppress(StreamClosedError):  # the handler is about to hear of it
                connection.stream.write(b"".join(parts))
            return
        for message in messages:
            self.websocket_handler.write_message(message, isinstance(message, bytes))


def _next(socket: Any) -> list[bytes] | None:
    """Return the next message of a ZMQ socket, if there is one now."""
    try:
        frame = socket.recv(zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return None
    frames = [frame.bytes]
    while frame.more:
        frame = socket.recv(copy=False)
        frames.append(frame.bytes)
    return frames
