"""Hands descriptors to a process in a container: through a unix socket, once.

bubblewrap lets a sandbox inherit them; the Docker engine passes none on.  So the host listens on a
socket in a folder of its own, which is mounted into the container, and gives what it has to the
first who connects; see `sandbox_runtime.container_main` for the other end.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox_kernel.engines.disk import storage_errors

__all__ = ["NAME", "Handover"]

NAME = "start.sock"
"""The socket's name in its folder."""

_LOOK_AGAIN = 0.25


class Handover:
    """A listening socket in a folder, for one client; both are gone at the end.

    The folder lies in one that only its owner can enter.  It is itself open to all, since the user
    inside may be another one than outside.

    Parameters
    ----------
    folder : Path
        To be made; what lies there is left over.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)

    def __enter__(self) -> Self:
        path = self.folder / NAME
        try:
            with storage_errors(path, "listen on"):
                self.folder.mkdir(exist_ok=True)
                self.folder.chmod(0o755)
                path.unlink(missing_ok=True)
                # Through the folder's descriptor: the path may be longer than an address can be.
                descriptor = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    self._listener.bind(f"/proc/self/fd/{descriptor}/{NAME}")
                finally:
                    os.close(descriptor)
                path.chmod(0o666)
                self._listener.listen(1)
        except BaseException:
            self._listener.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        # What the folder's mount in the container still shows is empty from now on.
        with contextlib.suppress(OSError):
            (self.folder / NAME).unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def fileno(self) -> int:
        """Return the listening socket's descriptor."""
        return self._listener.fileno()

    def give(
        self, descriptors: Sequence[int], *, timeout: float, has_ended: Callable[[], bool]
    ) -> int | None:
        """Give descriptors to the first who connects, and return its process id as seen from here.

        Parameters
        ----------
        timeout : float
            Seconds to wait for it.
        has_ended : callable
            Asked now and then whether there is anybody to wait for.

        Returns
        -------
        int or None
            None if nobody came.
        """
        deadline = time.monotonic() + timeout
        while not select.select([self._listener], [], [], _LOOK_AGAIN)[0]:
            if time.monotonic() > deadline or has_ended():
                return None
        client, _ = self._listener.accept()
        with client:
            credentials = client.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
            )
            try:
                socket.send_fds(client, [b"."], descriptors)
            except OSError:
                return None
        pid: int = struct.unpack("3i", credentials)[0]
        return pid
