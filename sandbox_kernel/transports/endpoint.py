"""How to reach a runtime: its socket and its secret.  Standard library, no event loop."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass, field

from sandbox_kernel.errors import ContainerUnavailableError

__all__ = ["Endpoint", "connect", "connect_at_once"]

# sun_path is 108 bytes with its final NUL (unix(7)).
_LONGEST_PATH = 107
_TCP = "tcp://"
_HERE = "inprocess:"  # see `local_doors`, which few need


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the runtime of one incarnation listens, and what it wants to hear.

    Parameters
    ----------
    sandbox_id : str
        For messages.
    socket : str
        Path of its unix socket, ``tcp://HOST:PORT``, or ``inprocess:NAME`` for one in this process.
    token : str
        The incarnation token; never printed.
    """

    sandbox_id: str
    socket: str
    token: str = field(repr=False)


def connect(endpoint: Endpoint, *, timeout: float | None = None) -> socket.socket:
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
    try:
        if endpoint.socket.startswith(_TCP):
            client = _connect_tcp(endpoint.socket.removeprefix(_TCP), timeout)
        elif endpoint.socket.startswith(_HERE):
            client = _connect_here(endpoint.socket)
        else:
            client = _connect_unix(endpoint.socket, timeout)
    except OSError as error:
        reason = error.strerror or "the connection timed out"
        raise ContainerUnavailableError(endpoint.sandbox_id, reason) from error
    client.settimeout(None)
    return client


def connect_at_once(endpoint: Endpoint) -> socket.socket | None:
    """Connect without waiting; None where that may take time, or fail: `connect` knows."""
    if endpoint.socket.startswith(_TCP):
        return None
    if endpoint.socket.startswith(_HERE):
        try:
            return _connect_here(endpoint.socket)
        except OSError:
            return None
    client = socket.socket(
        socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    )
    try:
        _connect_path(client, endpoint.socket)
    except OSError:
        client.close()
        return None
    return client


def _connect_here(address: str) -> socket.socket:
    from sandbox_kernel.transports.local_doors import connect_here  # noqa: PLC0415  for tests

    return connect_here(address)


def _connect_tcp(address: str, timeout: float | None) -> socket.socket:
    host, _, port = address.rpartition(":")
    client = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout)
    # A frame is a whole message: nothing is to be waited for.
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def _connect_unix(socket_path: str, timeout: float | None) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # A full backlog refuses a socket that does not block, as one with Python's own timeout
        # does not; one that blocks waits its turn, so long as the system lets it.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout))
        _connect_path(client, socket_path)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(None))
    except BlockingIOError as error:
        client.close()
        raise TimeoutError from error
    except BaseException:
        client.close()
        raise
    return client


def _connect_path(client: socket.socket, socket_path: str) -> None:
    path = os.fsencode(socket_path)
    if len(path) <= _LONGEST_PATH:
        client.connect(path)
        return
    folder, name = os.path.split(socket_path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        client.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)


def _timeval(seconds: float | None) -> bytes:
    """Return a C `struct timeval`; zero is no limit."""
    whole = seconds or 0.0
    return struct.pack("@ll", int(whole), int(whole % 1 * 1e6))
