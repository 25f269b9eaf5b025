"""A WebSocket client that costs less than the server it times: blocking, one thread, no copies."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from tests.support.ws_connection import JupyterServer

__all__ = ["BINARY", "TEXT", "LeanWebSocket"]

TEXT, BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10


class LeanWebSocket:
    """A WebSocket of a server on loopback.

    The handshake is that of the websockets library; frames are taken apart here, since whole
    messages without extensions are all that servers send to this client.

    Parameters
    ----------
    server : JupyterServer or int
        The server, or the port of another one.
    path : str
        Path and query.
    subprotocol : str, optional
        The one to ask for.
    """

    def __init__(
        self, server: JupyterServer | int, path: str, *, subprotocol: str | None = None
    ) -> None:
        port = server if isinstance(server, int) else server.port
        self.protocol = ClientProtocol(
            parse_uri(f"ws://127.0.0.1:{port}{path}"),
            subprotocols=None if subprotocol is None else [Subprotocol(subprotocol)],
            max_size=None,
        )
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poller = select.poll()
        self._poller.register(self.socket, select.POLLIN)
        self._buffer = bytearray()
        self.received = 0
        """Bytes that came, headers included."""
        request = self.protocol.connect()
        if not isinstance(server, int):
            request.headers["Authorization"] = f"token {server.token}"
        self.protocol.send_request(request)
        for data in self.protocol.data_to_send():
            self.socket.sendall(data)
        while b"\r\n\r\n" not in self._buffer:
            self._fill()
        end = self._buffer.index(b"\r\n\r\n") + 4
        self.protocol.receive_data(bytes(self._buffer[:end]))
        assert self.protocol.state is State.OPEN, self.protocol.handshake_exc
        del self._buffer[:end]

    def fileno(self) -> int:
        return self.socket.fileno()

    def _fill(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise EOFError("the server has hung up")
        self.received += len(data)
        self._buffer += data

    def read(self, timeout: float | None = None) -> list[tuple[int, bytes]]:
        """Wait for data; return kind and content of the messages that are complete."""
        if timeout is not None and not self._poller.poll(max(0.0, timeout) * 1000):
            return []
        self._fill()
        return list(self._frames())

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        buffer, at = self._buffer, 0
        while len(buffer) - at >= 2:
            size, head = buffer[at + 1], 2
            if size == 126:
                size, head = int.from_bytes(buffer[at + 2 : at + 4], "big"), 4
            elif size == 127:
                size, head = int.from_bytes(buffer[at + 2 : at + 10], "big"), 10
            if len(buffer) - at < head + size:
                break
            kind, content = buffer[at], bytes(buffer[at + head : at + head + size])
            at += head + size
            assert kind & 0xF0 == 0x80, "a part of a message, or an extension"
            kind &= 0x0F
            if kind == _PING:
                self.send(_PONG, content)
            elif kind == _CLOSE:
                raise EOFError(f"closed: {content!r}")
            elif kind != _PONG:
                yield kind, content
        del buffer[:at]

    def send(self, kind: int, content: bytes) -> None:
        """Send one message, masked with zeros."""
        size = len(content)
        if size < 126:
            head = bytes((0x80 | kind, 0x80 | size))
        elif size < 1 << 16:
            head = bytes((0x80 | kind, 0x80 | 126)) + size.to_bytes(2, "big")
        else:
            head = bytes((0x80 | kind, 0x80 | 127)) + size.to_bytes(8, "big")
        self.socket.sendall(head + bytes(4) + content)

    def close(self) -> None:
        self.socket.close()
