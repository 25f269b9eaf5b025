"""Somebody else's server: it keeps what it was asked for, over HTTP and by datagrams."""

from __future__ import annotations

import http.server
import socket
import threading
from typing import Self

__all__ = ["Canary"]

# What it answers with, by a word in the path.
_KINDS = {
    "image": "image/gif",
    "style": "text/css",
    "script": "text/javascript",
    "event": "text/event-stream",
}
_PICTURE = bytes.fromhex("47494638396101000100800000000000ffffff2c00000000010001000002024401003b")


class Canary:
    """Listens at 127.0.0.1 while it is entered.

    Attributes
    ----------
    base : str
        Its address.
    udp_port : int
        Where it takes datagrams.
    asked : list of str
        The paths it was asked for.
    datagrams : int
        How many came.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.datagrams = 0
        canary = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                canary.asked.append(self.path.lstrip("/").partition("?")[0])
                self.send_response(200)
                kind = next(
                    (kind for word, kind in _KINDS.items() if word in self.path), "text/html"
                )
                body = _PICTURE if kind == "image/gif" else b" "
                self.send_header("Content-Type", kind)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_HEAD = do_OPTIONS = answer  # noqa: N815  names of http.server

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self._server.server_port}"
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 0))
        self.udp_port = int(self._udp.getsockname()[1])
        self._threads = [
            threading.Thread(target=self._server.serve_forever),
            threading.Thread(target=self._count),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", self.udp_port))
        for thread in self._threads:
            thread.join(20)
        self._udp.close()

    def _count(self) -> None:
        while self._udp.recv(2000):
            self.datagrams += 1
