"""One operating-system lock per sandbox id, held around start, stop and destroy.

The lock is a ``flock`` on a file of its own: the kernel drops it when its holder dies, however it
dies, so a lock can never be stale.  Two threads of one process exclude each other too, since each
holder opens the file anew.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_kernel.errors import SandboxBusyError
from sandbox_kernel.manager.storage import keep_owner_bits, storage_errors

__all__ = ["SandboxLock", "hold"]

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


class SandboxLock:
    """A lock that is held; `forget_file` removes its file when the sandbox is gone."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def forget_file(self) -> None:
        """Remove the lock's file; a waiter notices and opens the new one."""
        with storage_errors(self._path, "remove"):
            self._path.unlink(missing_ok=True)

    def _release(self) -> None:
        os.close(self._descriptor)


@contextmanager
def hold(folder: Path, sandbox_id: str, *, timeout: float) -> Iterator[SandboxLock]:
    """Hold the lock of one sandbox id for the block.

    Parameters
    ----------
    folder : Path
        Where the lock files are; it exists.
    timeout : float
        Seconds to wait for another holder; 0 tries once.

    Raises
    ------
    SandboxBusyError
        Another process or thread held it all that time.
    StorageError
        The lock's file cannot be made.
    """
    lock = _acquire(folder / f"{sandbox_id}.lock", sandbox_id, timeout)
    try:
        yield lock
    finally:
        lock._release()  # noqa: SLF001  the pair of _acquire


def _acquire(path: Path, sandbox_id: str, timeout: float) -> SandboxLock:
    # flock has no timeout of its own, and a signal to end it would need the main thread.
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        with storage_errors(path, "open"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            keep_owner_bits(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() >= deadline:
                raise SandboxBusyError(sandbox_id, timeout) from None
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            continue
        except BaseException:
            os.close(descriptor)
            raise
        if _is_still_there(path, descriptor):
            return SandboxLock(path, descriptor)
        # The last holder destroyed the sandbox and removed the file between our open and flock.
        os.close(descriptor)


def _is_still_there(path: Path, descriptor: int) -> bool:
    mine = os.fstat(descriptor)
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
