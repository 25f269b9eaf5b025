"""Stream sockets without the `socket` module, whose import costs a third of a runtime's start.

The C type behind `socket.socket` does all that is needed here; GOTCHAS.md has the figures.
"""

from __future__ import annotations

import os
from _socket import AF_UNIX, IPPROTO_TCP, SOCK_CLOEXEC, SOCK_STREAM, TCP_NODELAY, socket

__all__ = ["accept", "adopt_listener", "listen_unix"]

_BACKLOG = 512


def adopt_listener(fd: int) -> socket:
    """Take over a listening socket, so that no program inherits it.

    Raises
    ------
    OSError
        The descriptor is no socket.
    """
    os.set_inheritable(fd, False)
    listener = socket(fileno=fd)
    listener.setblocking(False)
    return listener


def listen_unix(path: str) -> socket:
    """Listen on a new unix socket that only this user can connect to.

    The path appears once connections are taken, so whoever sees it may connect.
    """
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)
    early = f"{path}~"
    mask = os.umask(0o177)
    try:
        listener.bind(early)
    finally:
        os.umask(mask)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    os.rename(early, path)
    return listener


def accept(listener: socket) -> socket:
    """Return the next connection, ready for use by the loop.

    Raises
    ------
    BlockingIOError
        Nobody waits.
    OSError
        There are no descriptors left.
    """
    fd, _ = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001
    client = socket(fileno=fd)
    client.setblocking(False)
    if client.family != AF_UNIX:
        client.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    return client
