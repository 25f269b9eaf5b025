"""One place of the pool: a sandbox that waits, the relay that waits with it, and whose they are."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_ext.memory import private_bytes, with_descendants
from sandbox_kernel.engines.base import StateLayout
from sandbox_kernel.kernel.standby import DONE, OPTION, Order
from sandbox_kernel.manager.running import Running

__all__ = ["Relay", "Unit", "take_ownership"]

_START_TIMEOUT = 30.0
_ANSWER_TIMEOUT = 15.0
_VARIABLES = {"MALLOC_ARENA_MAX": "1"}
"""What the kernelspec sets for a relay's own memory."""


class Relay:
    """A relay that waits for an order; it ends with this process.

    Parameters
    ----------
    environ : mapping
        The environment to start it in; the kernel's own comes with the order.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self._line = ours
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "sandbox_kernel.kernel.launch",
                    OPTION,
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**environ, **_VARIABLES},
                cwd="/",
                start_new_session=True,
            )

    def wait_until_ready(self) -> bool:
        """Wait until it has imported everything; whether it has."""
        self._line.settimeout(_START_TIMEOUT)
        return self._heard() == DONE

    def order(self, order: Order) -> str | None:
        """Have it serve a kernel; return the reason where it does not, when clients can connect."""
        self._line.settimeout(_ANSWER_TIMEOUT)
        try:
            self._line.sendall(pickle.dumps(order, pickle.HIGHEST_PROTOCOL))
            self._line.shutdown(socket.SHUT_WR)
        except OSError as error:
            return str(error)
        answer = self._heard()
        self._line.close()
        return None if answer == DONE else answer.decode(errors="replace") or "it ended"

    def _heard(self) -> bytes:
        try:
            return self._line.recv(1 << 12)
        except OSError as error:
            return str(error).encode()

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def end(self) -> None:
        """End it; twice is fine."""
        self._line.close()
        self.process.kill()
        self.process.wait()


class Unit:
    """A sandbox of the pool with its relay, held by this process.

    Parameters
    ----------
    running : Running
        The sandbox.
    relay : Relay
        Ready for an order.
    owner : int, optional
        The descriptor of `take_ownership`; this object owns it.
    """

    def __init__(self, running: Running, relay: Relay, owner: int | None) -> None:
        self.running = running
        self.relay = relay
        self._owner = owner

    def __repr__(self) -> str:
        return f"<Unit {self.name} folder={self.folder}>"

    @property
    def name(self) -> str:
        """The id of its place."""
        return self.running.sandbox_id

    @property
    def folder(self) -> str:
        """The folder that it shows."""
        return str(self.running.spec.notebook_folder)

    def memory(self) -> int:
        """Return what it takes, in bytes, about."""
        pid = self.running.instance.data.get("pid")
        pids = with_descendants(pid) if isinstance(pid, int) else []
        return private_bytes([self.relay.process.pid, *pids])

    def let_go(self) -> None:
        """Hold it no more: it has been claimed, or ended."""
        owner, self._owner = self._owner, None
        if owner is not None:
            os.close(owner)


def take_ownership(layout: StateLayout) -> int | None:
    """Become the one server whose pool a waiting sandbox belongs to.

    Returns
    -------
    int or None
        A descriptor that holds it, also while this process is killed; None if another server has
        it, or it is gone.
    """
    descriptor = -1
    try:
        descriptor = os.open(
            Path(layout.root, "pool.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        return None
    return descriptor
