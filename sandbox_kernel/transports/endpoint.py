"""How to reach a runtime: its socket and its secret.  Standard library, no event loop."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field

from sandbox_kernel.errors import ContainerUnavailableError

__all__ = ["Endpoint", "connect_unix"]

# sun_path is 108 bytes with its final NUL (unix(7)).
_LONGEST_PATH = 107


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the runtime of one incarnation listens, and what it wants to hear.

    Parameters
    ----------
    sandbox_id : str
        For messages.
    socket : str
        Path of its unix socket.
    token : str
        The incarnation token; never printed.
    """

    sandbox_id: str
    socket: str
    token: str = field(repr=False)


def connect_unix(endpoint: Endpoint, *, timeout: float | None = None) -> socket.socket:
    """Connect to the runtime's frame door; the caller closes the socket.

    Parameters
    ----------
    timeout : float, optional
        Seconds for the connection; the socket returned is blocking.

    Raises
    ------
    ContainerUnavailableError
        Nobody listens there.
    """
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    client.settimeout(timeout)
    try:
        path = os.fsencode(endpoint.socket)
        if len(path) <= _LONGEST_PATH:
            client.connect(path)
        else:
            folder, name = os.path.split(endpoint.socket)
            descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                client.connect(f"/proc/self/fd/{descriptor}/{name}")
            finally:
                os.close(descriptor)
    except OSError as error:
        client.close()
        reason = error.strerror or "the connection timed out"
        raise ContainerUnavailableError(endpoint.sandbox_id, reason) from error
    client.settimeout(None)
    return client
