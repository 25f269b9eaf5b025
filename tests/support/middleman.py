"""What stands between two ends of a connection, and may fail in every way that networks do."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

__all__ = ["Middleman", "before_port", "before_runtime"]

_PIECE = 64 << 10
_TICK = 0.02


class Middleman:
    """Relays each connection to its listener, to where `reach` connects.

    Parameters
    ----------
    listener : socket
        Its own; closed at the end.
    reach : callable
        Returns a new connection to the far end.
    idle : float, optional
        Seconds after which a connection is cut of which one direction has been silent so long.

    Attributes
    ----------
    is_up : bool
        Whether new connections are let through.
    swallows : bool
        Whether all bytes vanish, in both directions, and no end is passed on.
    """

    def __init__(
        self,
        listener: socket.socket,
        reach: Callable[[], socket.socket],
        *,
        idle: float | None = None,
    ) -> None:
        self.is_up = True
        self.swallows = False
        self.taken = 0
        """How many connections came."""
        self._listener = listener
        self._reach = reach
        self._idle = idle
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def port(self) -> int:
        """The listener's port, if it has one."""
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        """Reset all connections."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut, and take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.swallows = False
        self.cut()
        for each in self._threads:
            each.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.taken += 1
            self._start(self._relay, near)

    def _relay(self, near: socket.socket) -> None:
        with near:
            if not self.is_up:
                return
            try:
                far = self._reach()
            except OSError:
                return
            with far, self._counted(near, far):
                back = self._start(self._pump, far, near)
                self._pump(near, far)
                back.join()

    @contextlib.contextmanager
    def _counted(self, *ends: socket.socket) -> Iterator[None]:
        with self._lock:
            self._open.update(ends)
        try:
            for end in ends:
                if end.family == socket.AF_INET:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield
        finally:
            with self._lock:
                self._open.difference_update(ends)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Pass bytes on until one end goes; then the other one goes, too."""
        last = time.monotonic()
        with contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            while True:
                if selector.select(_TICK):
                    piece = source.recv(_PIECE)
                    if not piece and not self.swallows:
                        break
                    if not piece:
                        # Gone, but nobody shall hear of it yet.
                        time.sleep(_TICK)
                    elif not self.swallows:
                        sink.sendall(piece)
                    last = time.monotonic()
                if self._idle is not None and time.monotonic() - last > self._idle:
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def before_port(port: int, *, idle: float | None = None) -> Middleman:
    """Return one in front of a port on loopback."""
    listener = socket.create_server(("127.0.0.1", 0))
    return Middleman(listener, lambda: socket.create_connection(("127.0.0.1", port)), idle=idle)


@contextlib.contextmanager
def before_runtime(path: Path) -> Iterator[Middleman]:
    """Yield one in front of a runtime's unix socket, which is at its own path again afterwards."""
    aside = path.with_name("aside.sock")
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    near = f"/proc/self/fd/{folder}/{path.name}"  # its whole path may be too long
    path.rename(aside)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(near)
    listener.listen(16)

    def reach() -> socket.socket:
        far = socket.socket(socket.AF_UNIX)
        far.connect(f"/proc/self/fd/{folder}/{aside.name}")
        return far

    try:
        with Middleman(listener, reach) as made:
            yield made
    finally:
        with contextlib.suppress(FileNotFoundError):  # the sandbox may have gone meanwhile
            path.unlink()
            aside.rename(path)
        os.close(folder)
