"""What was refused, for ``%sandbox status``: a count and the last few, so a flood costs nothing."""

from __future__ import annotations

from collections import deque

__all__ = ["Notes"]


class Notes:
    """The memory of refused messages."""

    def __init__(self) -> None:
        self.count = 0
        self._last: deque[str] = deque(maxlen=20)

    def add(self, text: str) -> None:
        """Note that something was not passed on, and why; never with its content."""
        self.count += 1
        self._last.append(text[:200])

    def last(self, number: int) -> list[str]:
        """Return the newest notes, oldest first."""
        return list(self._last)[-number:]
