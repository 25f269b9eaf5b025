"""The frame door by TCP, for daemons whose containers share no unix socket with this machine.

Docker Desktop runs containers in a virtual machine, and a daemon may run on another machine.  Where
the sandbox has a network of the engine, its own port is published.  Where it has none, that must
stay so: a second container, which runs nothing but the few lines here, has the published port.  It
listens there and hands the listening socket to the runtime through a volume that both see, as this
host does where it can (`docker_handover`).  It ends with the runtime.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Any

from sandbox_kernel.engines import docker_daemon as daemon
from sandbox_kernel.engines.docker_body import DOOR_PORT

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["DOOR_SCRIPT", "Attached", "address_of"]

DOOR_SCRIPT = rf"""
import os, socket, sys
size = int(sys.stdin.buffer.readline())
config = sys.stdin.buffer.read(size)
listener = socket.create_server(("0.0.0.0", {DOOR_PORT}), backlog=512)
path = "/run/sandbox/start.sock"
if os.path.exists(path):
    os.unlink(path)
os.umask(0)
host = socket.socket(socket.AF_UNIX)
host.bind(path)
host.listen(1)
os.write(1, b"open\n")
client, _ = host.accept()
out, into = os.pipe()
lives, held = os.pipe()
if os.fork() == 0:
    os.close(held)
    with open(into, "wb") as pipe:
        pipe.write(config)
    os._exit(0)
os.close(into)
socket.send_fds(client, [b"."], [out, listener.fileno(), held, 2])
for fd in (out, held):
    os.close(fd)
listener.close()
host.close()
os.unlink(path)
os.write(1, b"taken\n")
os.read(lives, 1)
"""
"""Runs in the second container; what it has to tell is its standard input: size, configuration."""

_HEADER = 8  # Engine API, "Attach to a container", stream format


class Attached:
    """Standard input and output of a container that is about to be started.

    Parameters
    ----------
    client : APIClient
        Of the daemon.
    container : str
        Its id.
    """

    def __init__(self, client: APIClient, host: str, container: str) -> None:
        with daemon.errors(host):
            self._stream: Any = client.attach_socket(
                container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            )
        # A socket under several wrappers, which differ by the kind of connection.
        self._socket: Any = getattr(self._stream, "_sock", self._stream)
        self._data = b""
        self._said = b""

    def close(self) -> None:
        """Hang up."""
        # What wraps the socket first: it wants to see it open.
        response = getattr(self._stream, "_response", None)
        if response is not None:
            response.close()
        self._socket.close()

    def send(self, content: bytes) -> None:
        """Write to its standard input."""
        self._socket.sendall(content)

    def wait_for(self, wanted: bytes, *, timeout: float) -> bool:
        """Wait until it has written something; False when it has ended before."""
        deadline = time.monotonic() + timeout
        while wanted not in self._said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._socket], [], [], left)[0]:
                return False
            more = self._socket.recv(65536)
            if not more:
                return False
            self._data += more
            while len(self._data) >= _HEADER:
                end = _HEADER + int.from_bytes(self._data[4:_HEADER], "big")
                if len(self._data) < end:
                    break
                self._said += self._data[_HEADER:end]
                self._data = self._data[end:]
        return True

    @property
    def said(self) -> str:
        """What it has written so far."""
        return self._said.decode("utf-8", "replace")


def address_of(client: APIClient, host: str, container: str, address: str) -> str:
    """Return where a container's published door is reached, as an `Endpoint` wants it.

    Raises
    ------
    RefusedError
        It is not published.
    """
    with daemon.errors(host):
        found = client.inspect_container(container)
    ports = found["NetworkSettings"]["Ports"].get(f"{DOOR_PORT}/tcp")
    if not ports:
        raise daemon.RefusedError("the engine has not published the port of the sandbox")
    return f"tcp://{address}:{ports[0]['HostPort']}"
