"""A TCP server that sends back what comes, for any number of connections."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import Self

__all__ = ["EchoServer"]


class EchoServer:
    """Listens at 127.0.0.1 while it is entered; every socket of it is closed at the end."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = int(self._listener.getsockname()[1])
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._thread.join(20)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stopped, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    if sock is self._stopped:
                        for each in list(selector.get_map().values()):
                            each.fileobj.close()  # type: ignore[union-attr]
                        return
                    if sock is self._listener:
                        selector.register(self._listener.accept()[0], selectors.EVENT_READ)
                    elif not self._echo(sock):
                        selector.unregister(sock)
                        sock.close()

    @staticmethod
    def _echo(sock: socket.socket) -> bool:
        with contextlib.suppress(OSError):
            data = sock.recv(1 << 16)
            sock.sendall(data)
            return bool(data)
        return False
