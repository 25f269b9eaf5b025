"""The runtime's end of the fork server: asks for kernels that start without imports."""

from __future__ import annotations

import os
import struct
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socketpair

from sandbox_kernel.errors import OperationError, ProtocolViolationError
from sandbox_kernel.wire.codec import dump_json, load_json
from sandbox_runtime.loop import READ
from sandbox_runtime.quick import deque
from sandbox_runtime.spawn import spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Mapping
    from typing import Any

    from sandbox_runtime.children import Children
    from sandbox_runtime.loop import Loop, Timer

    # Gets the new kernel's pid, or None if there is none.
    Answer = Callable[[int | None], None]

__all__ = ["ForkClient"]

PATIENCE = 10.0
"""Seconds a fork may take before the server is given up."""

LONGEST_REQUEST = 48 << 10
"""Bytes of a request that the socket surely takes at once; larger ones are not asked."""

_LONGEST_ANSWER = 64 << 10


class ForkClient:
    """One fork server process and the requests it has not answered.

    It is asked for nothing first: once it refuses that, it has done its imports and is `ready`.
    When it ends or falls silent every request under way is answered with None and `is_alive` is
    false; the caller then starts kernels itself.
    """

    def __init__(self, loop: Loop, children: Children, log: Callable[[str], None]) -> None:
        self.ready = False
        self._loop = loop
        self._children = children
        self._log = log
        self._pid = 0
        self._socket: socket | None = None
        self._received = b""
        self._pending: deque[Answer] = deque()
        self._timer: Timer | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it takes requests."""
        return self._socket is not None

    def start(self, argv: list[str], *, cwd: str, env: Mapping[str, str]) -> None:
        """Start the server; its connection becomes its descriptor 3.

        Where that fails the log says why and the server is not alive.
        """
        ours, theirs = socketpair(AF_UNIX, SOCK_STREAM)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._pid = spawn(argv, cwd=cwd, env=env, stdio=(null, null, 2), extra=theirs.fileno())
        except OperationError as error:
            ours.close()
            self._log(f"no fork server: {error}")
            return
        finally:
            theirs.close()
            os.close(null)
        ours.setblocking(False)
        self._socket = ours
        self._loop.add(ours.fileno(), READ, self._readable)
        self._children.watch(self._pid, self._exited)
        ours.send(b"{}\n")

    def ask(self, request: Mapping[str, Any], stdio: tuple[int, int, int], answer: Answer) -> bool:
        """Ask for a kernel on these descriptors; False if it cannot even be asked."""
        line = dump_json(request) + b"\n"
        if self._socket is None or len(line) > LONGEST_REQUEST:
            return False
        try:
            sent = self._socket.sendmsg(
                [line], [(SOL_SOCKET, SCM_RIGHTS, struct.pack("3i", *stdio))]
            )
        except OSError:
            sent = 0
        if sent < len(line):
            self.close()
            return False
        self._pending.append(answer)
        if self._timer is None:
            self._timer = self._loop.call_later(PATIENCE, self._too_late)
        return True

    def _too_late(self) -> None:
        self._timer = None
        self._log("the fork server does not answer")
        self.close()

    def _readable(self, _events: int) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_LONGEST_ANSWER)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._received) > _LONGEST_ANSWER:
            self.close()

    def _take(self, line: bytes) -> None:
        try:
            said = load_json(line)
        except ProtocolViolationError:
            said = None
        if not isinstance(said, dict):
            self.close()
        elif not self.ready:
            self.ready = True
        elif self._pending:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            answer = self._pending.popleft()
            if self._pending:
                self._timer = self._loop.call_later(PATIENCE, self._too_late)
            pid = said.get("pid")
            answer(pid if isinstance(pid, int) and pid > 1 else None)

    def _exited(self, status: int) -> None:
        self._pid = 0
        if self._socket is not None:
            code = os.waitstatus_to_exitcode(status)
            self._log(f"the fork server ended with code {code}")
        self.close()

    def close(self) -> None:
        """End the server; kernels it has made live on.  Twice is fine."""
        connection, self._socket = self._socket, None
        if connection is None:
            return
        self._loop.remove(connection.fileno())
        connection.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pid:
            self._children.end_group(self._pid, 1.0)
        pending, self._pending = self._pending, deque()
        for answer in pending:
            answer(None)
