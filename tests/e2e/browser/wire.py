"""The network between a browser and a server: a TCP relay on loopback that can fail."""

from __future__ import annotations

import socket

from tests.support.middleman import Middleman

__all__ = ["Wire"]


class Wire(Middleman):
    """Relays connections to a server's port; a browser takes the wire for the server.

    Parameters
    ----------
    target : int
        The server's port on loopback; may be set anew when the server is another.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        super().__init__(socket.create_server(("127.0.0.1", 0)), self._connect)

    @property
    def base(self) -> str:
        """The server's address, as the browser knows it."""
        return f"http://127.0.0.1:{self.port}"

    def down(self) -> None:
        """Cut, and let no connection through until `up`."""
        self.is_up = False
        self.cut()

    def up(self) -> None:
        """Let connections through again."""
        self.is_up = True

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.target))
