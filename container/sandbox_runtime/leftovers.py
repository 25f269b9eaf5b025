"""Output of what was left in the background: read on behalf of nobody, and thrown away."""

from __future__ import annotations

import os

from sandbox_runtime.loop import READ
from sandbox_runtime.quick import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_runtime.loop import Loop

__all__ = ["Leftovers"]

_MOST = 256
_CHUNK = 256 << 10


class Leftovers:
    """Pipes and terminals whose writers outlive the command they came from.

    At most 256 are held; beyond that the oldest is closed, and its writers get SIGPIPE or EIO.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._held: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def discard(self, fd: int) -> None:
        """Take over a descriptor that does not block, and read it until its last writer is gone."""

        def ready(_events: int) -> None:
            try:
                if os.read(fd, _CHUNK):
                    return
            except BlockingIOError:
                return
            except OSError:
                pass  # Which is how a terminal says that nobody has it any more.
            self._held.remove(fd)
            self._close(fd)

        self._held.append(fd)
        self._loop.add(fd, READ, ready)
        if len(self._held) > _MOST:
            self._close(self._held.popleft())

    def _close(self, fd: int) -> None:
        self._loop.remove(fd)
        os.close(fd)
