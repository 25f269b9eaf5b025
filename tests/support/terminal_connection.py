"""A browser at a terminal of the Jupyter server, as far as its messages go."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.ws_connection import JupyterServer

__all__ = ["TerminalConnection", "terminal_url"]


def terminal_url(
    server: JupyterServer, sandbox_id: str, terminal_id: str | None = None, **query: Any
) -> str:
    """Return a WebSocket address: the terminal's, or without an id that of the session."""
    tail = "terminal" if terminal_id is None else f"terminals/{terminal_id}/connect"
    base = server.base.replace("http", "ws", 1)
    return f"{base}/sandbox/api/sandboxes/{sandbox_id}/{tail}?{urllib.parse.urlencode(query)}"


class TerminalConnection:
    """One WebSocket; what comes is kept in order.

    Parameters
    ----------
    url : str
        See `terminal_url`.
    token : str, optional
        Sent as a header.
    acknowledges : bool
        Say at once that all bytes are drawn.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        acknowledges: bool = False,
        **options: Any,
    ) -> None:
        headers = {"Authorization": f"token {token}"} if token else {}
        self.acknowledges = acknowledges
        self.messages: list[Any] = []
        """Everything received: decoded JSON, and bytes."""
        self.data = (
            bytearray()
        )  # bytes would be copied with each message, of which a flood has many
        """All binary messages joined."""
        self._read = 0
        self.close_code: int | None = None
        self.close_reason = ""
        self._stack = contextlib.ExitStack()
        self.socket = self._stack.enter_context(
            connect(
                url,
                additional_headers={**headers, **options.pop("headers", {})},
                compression=None,
                max_size=None,
                ping_interval=None,
                **options,
            )
        )

    # --- sending ---

    def type(self, data: bytes | str) -> None:
        self.socket.send(data.encode() if isinstance(data, str) else data)

    def say(self, **value: Any) -> None:
        self.socket.send(json.dumps(value))

    def raw_text(self, text: str) -> None:
        self.socket.send(text)

    # --- receiving ---

    def step(self, timeout: float) -> bool:
        """Take one message, or the end; False when nothing came in time."""
        if self.close_code is not None:
            return False
        try:
            message = self.socket.recv(timeout)
        except TimeoutError:
            return False
        except ConnectionClosed:
            self.close_code = self.socket.protocol.close_code
            self.close_reason = self.socket.protocol.close_reason or ""
            return True
        if isinstance(message, bytes):
            self.data += message
            self.messages.append(message)
            if self.acknowledges:
                with contextlib.suppress(ConnectionClosed):
                    self.say(type="ack", bytes=len(self.data))
        else:
            self.messages.append(json.loads(message))
        return True

    def until(self, condition: Callable[[Self], Any], timeout: float = 15.0) -> Self:
        """Receive until a condition holds."""
        deadline = time.monotonic() + timeout
        while not condition(self):
            left = deadline - time.monotonic()
            if left <= 0 or not self.step(left):
                tail = self.data[-500:]
                raise AssertionError(
                    f"not in {timeout} s; closed {self.close_code}; {self.events()[-5:]}; {tail!r}"
                )
        return self

    def read_until(self, text: bytes, timeout: float = 15.0) -> bytes:
        """Receive until the bytes that came since the last call hold a text; return them."""
        begin = at = self._read

        def is_there(each: TerminalConnection) -> bool:
            nonlocal at
            found = each.data.find(text, at)
            # What was searched is not searched again.
            at = max(begin, len(each.data) - len(text) + 1) if found < 0 else found
            return found >= 0

        self.until(is_there, timeout)
        self._read = at + len(text)
        return bytes(self.data[begin : self._read])

    def until_type(self, name: str, timeout: float = 15.0) -> dict[str, Any]:
        """Receive until a message of a type has come; return the last one."""
        self.until(lambda c: c.of_type(name), timeout)
        return self.of_type(name)[-1]

    def until_closed(self, timeout: float = 15.0) -> int:
        """Receive until the WebSocket is closed; return the code."""
        self.until(lambda c: c.close_code is not None, timeout)
        assert self.close_code is not None
        return self.close_code

    def is_quiet_for(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        return not self.step(seconds)

    def events(self) -> list[dict[str, Any]]:
        return [each for each in self.messages if not isinstance(each, bytes)]

    def of_type(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self.events() if each.get("type") == name]

    @property
    def cursor(self) -> str | None:
        """The last cursor that was announced."""
        found = [each["cursor"] for each in self.events() if "cursor" in each]
        return found[-1] if found else None

    # --- ending ---

    def abort(self) -> None:
        """Reset the TCP connection."""
        raw = self.socket.socket
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.shutdown(socket.SHUT_RDWR)
        self.close()

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
