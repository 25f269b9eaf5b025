"""Makes programs, not the runtime, the first whom the kernel kills for want of memory.

With the runtime everything in the sandbox ends, and among many small processes it is the largest.
A process may raise its own score and lower it again to where it was, and a child starts with its
parent's; so the runtime raises its score for the moment in which it starts a program.
"""

from __future__ import annotations

import os

__all__ = ["OomScore"]

_MORE = 500
_MOST = 1000


class OomScore:
    """The score of this process, which is raised while a program is started.

    Make it before the memory of this process is hidden; after that its files in ``/proc`` cannot be
    opened.  Where there is no such file, or not `is_ours`, nothing is done.
    """

    def __init__(self, *, is_ours: bool = True) -> None:
        self._fd = -1
        if not is_ours:
            return
        try:
            self._fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            self._usual = os.pread(self._fd, 16, 0).strip()
            self._raised = b"%d" % min(_MOST, int(self._usual) + _MORE)
        except (OSError, ValueError):
            self._fd = -1

    def up(self) -> None:
        """Let what starts now be killed before this process."""
        self._write(raised=True)

    def down(self) -> None:
        """Return to the usual score."""
        self._write(raised=False)

    def _write(self, *, raised: bool) -> None:
        if self._fd < 0:
            return
        try:
            os.pwrite(self._fd, self._raised if raised else self._usual, 0)
        except OSError:
            os.close(self._fd)
            self._fd = -1
