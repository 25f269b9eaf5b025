"""Signals to the relay, the end of its parent, and what outlives it.

How a relay ends:

=========================================  =============================  =========
what happened                              the interpreter                exit code
=========================================  =============================  =========
``shutdown_request``                       is ended, within two seconds   0
the interpreter ended by itself with 0     is gone                        0
it was killed, or failed, or the sandbox   is gone                        1
SIGTERM or SIGHUP without a request        keeps its lease                0
the parent (``JPY_PARENT_PID``) ended      keeps its lease                0
another relay took the interpreter over    lives on                       0
=========================================  =============================  =========

A sandbox that was made for this kernel alone ends with it: nobody could find it again.  It is
destroyed in every case but the last; where the exit code is 1 or the request was for a restart,
only if Jupyter has not started the kernel again within `RESTART_WAIT` seconds.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

__all__ = ["RESTARTED", "RESTART_WAIT", "SUPERSEDED", "ParentWatch", "Signals", "destroy_later"]

RESTART_WAIT = 6.0
"""Seconds; a Jupyter server looks every three seconds whether a kernel has died."""

RESTARTED = -2
"""Stands for the exit code 0 of a relay that was shut down in order to be started again."""

SUPERSEDED = -1
"""Stands for the exit code 0 of a relay whose interpreter another one has taken over."""


class Signals:
    """Turns signals into bytes on a pipe, so that the loop meets them between messages."""

    HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self.HANDLED:
            signal.signal(number, _leave_to_the_loop)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._read

    def take(self) -> list[int]:
        """Return the signals that came since the last call."""
        try:
            return list(os.read(self._read, 4096))
        except BlockingIOError:
            return []


def _leave_to_the_loop(_number: int, _frame: object) -> None:
    """Do nothing: the wake-up descriptor has the signal's number."""


class ParentWatch:
    """Notices that the process which started this kernel has ended.

    Parameters
    ----------
    environ : mapping
        ``JPY_PARENT_PID`` names the parent; without it there is none to watch, as in a kernel that
        was started to outlive its starter.
    """

    INTERVAL = 1.0
    """Seconds between looks where the system has no pidfd."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        text = environ.get("JPY_PARENT_PID", "")
        self._pid = int(text) if text.isdecimal() else 0
        self._descriptor = -1
        self.must_be_polled = False
        """Whether `is_gone` has to be asked now and then, for want of a descriptor."""
        if self._pid:
            try:
                self._descriptor = os.pidfd_open(self._pid)
            except ProcessLookupError:
                pass
            except OSError:
                self.must_be_polled = True

    def fileno(self) -> int:
        """Return a descriptor that becomes readable at the parent's end, or -1."""
        return self._descriptor

    def is_gone(self) -> bool:
        """Whether the parent has ended."""
        if not self._pid:
            return False
        if self._descriptor >= 0:
            import select  # noqa: PLC0415  asked once, at the end

            return bool(select.select([self._descriptor], [], [], 0)[0])
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def destroy_later(sandbox_id: str, *, wait: float = 0.0) -> None:
    """Have a process of its own destroy the sandbox; it survives this one's end.

    Parameters
    ----------
    sandbox_id : str
        Which one.
    wait : float
        Seconds in which a new relay may attach, and so keep the sandbox.
    """
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "sandbox_kernel.kernel.farewell", sandbox_id, str(wait)],
            {key: value for key, value in os.environ.items() if key != "JPY_PARENT_PID"},
            file_actions=[(os.POSIX_SPAWN_DUP2, null, target) for target in (0, 1, 2)],
            setsid=True,
        )
    finally:
        os.close(null)
