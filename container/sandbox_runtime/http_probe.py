"""One question to an HTTP server: the status with which it answers a path."""

from __future__ import annotations

from sandbox_runtime.dial import Dial
from sandbox_runtime.loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable

    from sandbox_runtime.loop import Loop

__all__ = ["PROBE_LIMIT", "HttpProbe", "read_status"]

PROBE_LIMIT = 5.0
"""Seconds in which an answer must begin."""

_MOST_HEAD = 64 << 10
_MOST_REST = 1 << 20
_REST_LIMIT = 1.0
_READ_BYTES = 64 << 10


def read_status(head: bytes) -> int | None:
    """Return the status that an answer begins with; None while it cannot be known.

    Interim answers (1xx) are passed over.

    Raises
    ------
    ValueError
        This is no answer of HTTP/1.
    """
    while True:
        line, newline, rest = head.partition(b"\n")
        if not newline:
            if not (line.startswith(b"HTTP/1.") or b"HTTP/1.".startswith(line)):
                raise ValueError("no HTTP answer")
            return None
        words = line.split(None, 2)
        if not words or not words[0].startswith(b"HTTP/1.") or len(words) < 2:
            raise ValueError("no HTTP answer")
        code = words[1]
        if len(code) != 3 or not code.isdigit():
            raise ValueError("no HTTP answer")
        status = int(code)
        if status >= 200 or status == 101:
            return status
        end = rest.find(b"\n\r\n")
        if end < 0:
            return None
        head = rest[end + 3 :]


class HttpProbe:
    """Asks once; what comes after the status is read, within bounds, so that the server may end.

    Parameters
    ----------
    done : callable
        Called once with the status, or with why there is none, as a sentence.
    """

    def __init__(self, loop: Loop, port: int, path: str, done: Callable[[int | str], None]) -> None:
        self._loop = loop
        self._done: Callable[[int | str], None] | None = done
        self._socket: socket | None = None
        self._head = b""
        self._rest = 0
        # Some servers answer to a name they know only, and localhost is what all know.
        self._question = (
            f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nAccept: */*\r\n"
            "User-Agent: sandbox-runtime\r\nConnection: close\r\n\r\n"
        ).encode("ascii")
        self._dial = Dial(loop, port, self._connected, self._finish, patience=PROBE_LIMIT)
        self._timer = loop.call_later(PROBE_LIMIT, self._late)

    def cancel(self) -> None:
        """Give it up; `done` is not called any more.  Twice is fine."""
        self._done = None
        self._close()

    def _late(self) -> None:
        self._finish(f"no answer came within {PROBE_LIMIT:g} s")
        self._close()

    def _connected(self, made: socket, _address: str) -> None:
        self._socket = made
        try:
            # A fresh connection has room for so much.
            made.send(self._question)
        except OSError as error:
            self._failed(error)
            return
        self._loop.add(made.fileno(), READ, self._ready)

    def _ready(self, _events: int) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._failed(error)
            return
        if self._done is None:
            self._rest += len(data)
            if not data or self._rest > _MOST_REST:
                self._close()
            return
        self._head += data
        try:
            status = read_status(self._head)
        except ValueError:
            self._finish("what answers there speaks no HTTP")
            self._close()
            return
        if status is not None:
            self._finish(status)
            self._timer.cancel()
            self._timer = self._loop.call_later(_REST_LIMIT, self._close)
        elif not data or len(self._head) > _MOST_HEAD:
            self._finish("the connection was closed without an answer")
            self._close()

    def _failed(self, error: OSError) -> None:
        self._finish(f"the connection broke: {error.strerror or 'it was reset'}")
        self._close()

    def _finish(self, outcome: int | str) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)
        if isinstance(outcome, str):
            self._close()

    def _close(self) -> None:
        self._dial.cancel()
        self._timer.cancel()
        made, self._socket = self._socket, None
        if made is not None:
            self._loop.remove_if_added(made.fileno())
            made.close()
