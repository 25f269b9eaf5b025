"""A relay that waits for its kernel: the server's end of the line to it, and its own.

``python -m sandbox_kernel.kernel.launch --standby N`` imports all it needs and reads one order from
descriptor N, a socket whose other end only the server has.  It answers with one byte once clients
can connect, or with the reason why they cannot.  When the server ends, so does who waits for it.
"""

from __future__ import annotations

import pickle
import select
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox_kernel.kernel.lifecycle import Signals
    from sandbox_kernel.kernel.started import Started

__all__ = ["OPTION", "Order", "Post"]

OPTION = "--standby"

DONE = b"\0"
"""The answer that all is well; a refusal is text."""

_TERM, _HUP = 15, 1


@dataclass(frozen=True, kw_only=True)
class Order:
    """Which kernel to serve.

    Parameters
    ----------
    connection_file : str
        Its path.
    environ : dict of str to str
        The whole environment that a relay started for this kernel would have.
    cwd : str
        Its working directory.
    started : Started
        The sandbox.
    """

    connection_file: str
    environ: dict[str, str]
    cwd: str
    started: Started


class Post:
    """The waiting relay's end of the line.

    Parameters
    ----------
    descriptor : int
        Its socket.
    """

    def __init__(self, descriptor: int) -> None:
        self._line = socket.socket(fileno=descriptor)
        self._line.set_inheritable(False)
        self.is_done = False
        """Whether the server was told that clients can connect."""

    def wait(self, signals: Signals) -> Order | None:
        """Wait for the order; None if the server has gone, or we are to go."""
        data = bytearray()
        self._line.sendall(DONE)
        line, bell = self._line.fileno(), signals.fileno()
        while True:
            ready, _, _ = select.select([line, bell], [], [])
            if bell in ready and {_TERM, _HUP} & set(signals.take()):
                return None
            if line not in ready:
                continue
            piece = self._line.recv(1 << 16)
            if not piece:
                break
            data += piece
        if not data:
            return None
        order = pickle.loads(data)  # noqa: S301  our parent wrote it, of the same installation
        assert isinstance(order, Order)  # noqa: S101
        return order

    def done(self) -> None:
        """Tell the server that clients can connect, and hang up."""
        self.is_done = True
        self._say(DONE)

    def refuse(self, reason: str) -> None:
        """Tell the server why it has to start another relay, and hang up."""
        if not self.is_done:
            self._say(reason.encode("utf-8", "replace") or b"?")

    def _say(self, answer: bytes) -> None:
        try:
            self._line.sendall(answer)
        except OSError:
            return  # the server has gone; the relay's own watch tells it what to do
        finally:
            self._line.close()
