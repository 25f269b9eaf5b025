"""Connecting to a program of the sandbox at a port of the loopback interface."""

from __future__ import annotations

import os
from _socket import (
    AF_INET,
    AF_INET6,
    IPPROTO_TCP,
    SO_ERROR,
    SOCK_CLOEXEC,
    SOCK_STREAM,
    SOL_SOCKET,
    TCP_NODELAY,
    socket,
)

from sandbox_runtime.listeners import LOOPBACK
from sandbox_runtime.loop import WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_runtime.loop import Loop, Timer

__all__ = ["PATIENCE", "Dial"]

PATIENCE = 10.0
"""Seconds in which a program must take a connection; one whose backlog is full may not."""

_REFUSED = f"nothing listens at {' or '.join(LOOPBACK)}"
_EINPROGRESS = 115
_ECONNREFUSED = 111
_UNUSABLE = frozenset((97, 99, 101, 111, 113))
"""EAFNOSUPPORT, EADDRNOTAVAIL, ENETUNREACH, ECONNREFUSED, EHOSTUNREACH: not at this address."""


class Dial:
    """One attempt, at one loopback address after the other; begins at once.

    One of both is called, once, and not before the constructor has returned.

    Parameters
    ----------
    port : int
        Where to connect to.
    on_connected : callable
        Called with the socket, which does not block and is the callee's from then on, and the
        address.
    on_failed : callable
        Called with the reason, as a sentence.
    patience : float
        Seconds in all.
    """

    def __init__(
        self,
        loop: Loop,
        port: int,
        on_connected: Callable[[socket, str], None],
        on_failed: Callable[[str], None],
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._loop = loop
        self._port = port
        self._on_connected = on_connected
        self._on_failed = on_failed
        self._addresses = list(LOOPBACK)
        self._socket: socket | None = None
        self._is_over = False
        self._timer: Timer = loop.call_later(patience, self._late)
        self._patience = patience
        loop.call_soon(self._next)

    def cancel(self) -> None:
        """Give it up; nothing is called any more.  Twice is fine."""
        self._is_over = True
        self._timer.cancel()
        self._drop()

    def _next(self) -> None:
        if self._is_over:
            return
        if not self._addresses:
            self._fail(_REFUSED)
            return
        address = self._addresses.pop(0)
        try:
            made = socket(AF_INET6 if ":" in address else AF_INET, SOCK_STREAM | SOCK_CLOEXEC)
        except OSError as error:
            self._refused(error.errno or 0)
            return
        self._socket = made
        made.setblocking(False)
        made.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        number = made.connect_ex((address, self._port))
        if number == _EINPROGRESS:
            self._loop.add(made.fileno(), WRITE, lambda _events: self._answered(made, address))
        else:
            self._settle(number, made, address)

    def _answered(self, made: socket, address: str) -> None:
        self._loop.remove(made.fileno())
        self._settle(made.getsockopt(SOL_SOCKET, SO_ERROR), made, address)

    def _settle(self, number: int, made: socket, address: str) -> None:
        # With nobody there the system may give us the very port we ask for, and connect us to
        # ourselves (RFC 9293, simultaneous open).
        if number == 0 and made.getsockname() == made.getpeername():
            number = _ECONNREFUSED
        if number:
            self._drop()
            self._refused(number)
            return
        self._socket = None
        self._is_over = True
        self._timer.cancel()
        self._on_connected(made, address)

    def _refused(self, number: int) -> None:
        if number in _UNUSABLE:
            self._next()
        else:
            self._fail(os.strerror(number))

    def _late(self) -> None:
        self._drop()
        self._fail(f"it has taken no connection for {self._patience:g} s")

    def _fail(self, reason: str) -> None:
        self._is_over = True
        self._timer.cancel()
        self._on_failed(reason)

    def _drop(self) -> None:
        made, self._socket = self._socket, None
        if made is not None:
            self._loop.remove_if_added(made.fileno())
            made.close()
