"""Tells whether the kernel has killed somebody for want of memory."""

from __future__ import annotations

__all__ = ["MemoryEvents"]


class MemoryEvents:
    """Watches the ``oom_kill`` counter of the sandbox's control group.

    Parameters
    ----------
    path : str, optional
        A file with a line ``oom_kill N``: ``memory.events`` (version 2) or ``memory.oom_control``
        (version 1).  Without one nothing is ever attributed to memory.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._told = self._count()

    def _count(self) -> int:
        if self._path is None:
            return 0
        try:
            with open(self._path, encoding="ascii") as file:
                for line in file:
                    name, _, value = line.partition(" ")
                    if name == "oom_kill":
                        return int(value)
        except (OSError, ValueError):
            pass
        return 0

    def explains_kill(self) -> bool:
        """Whether there was a kill that no earlier call has accounted for."""
        if self._count() <= self._told:
            return False
        self._told += 1
        return True
