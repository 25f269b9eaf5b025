"""Whether a sandbox's runtime lives: it holds a lock for as long as it does."""

from __future__ import annotations

import errno
import fcntl
import os

from sandbox_kernel.engines.base import StateLayout

__all__ = ["is_locked"]


def is_locked(layout: StateLayout) -> bool:
    """Whether a runtime over this layout lives; cannot be fooled by what is written anywhere.

    Without a lock file, or where it may not be opened, there is none.
    """
    try:
        lock = os.open(layout.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return True
        raise
    finally:
        os.close(lock)
    return False
