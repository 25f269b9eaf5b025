"""The network between a browser and a server: a TCP relay on loopback that can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Self

__all__ = ["Wire"]

_PIECE = 64 << 10


class Wire:
    """Relays connections to a server's port; a browser takes the wire for the server.

    Parameters
    ----------
    target : int
        The server's port on loopback; may be set anew when the server is another.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.is_up = True
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def base(self) -> str:
        """The server's address, as the browser knows it."""
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End all connections in the middle, without a word of the protocols on them."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def down(self) -> None:
        """Cut, and let no connection through until `up`."""
        self.is_up = False
        self.cut()

    def up(self) -> None:
        """Let connections through again."""
        self.is_up = True

    def close(self) -> None:
        """Cut, and take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                browser, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(browser,), daemon=True).start()

    def _relay(self, browser: socket.socket) -> None:
        with browser:
            if not self.is_up:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            with server, self._counted(browser, server):
                back = threading.Thread(target=_pump, args=(server, browser), daemon=True)
                back.start()
                _pump(browser, server)
                back.join()

    @contextlib.contextmanager
    def _counted(self, *ends: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.update(ends)
        try:
            for end in ends:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield
        finally:
            with self._lock:
                self._open.difference_update(ends)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass bytes on until one end goes; then the other one goes, too."""
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
