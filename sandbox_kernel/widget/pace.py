"""When the next piece of output may go to the page over the kernel's channel, and how much.

The Jupyter server mutes a kernel that publishes more than 1 MB/s over three seconds
(``iopub_data_rate_limit``), its cells' output included.  What waits, waits in the sandbox.
"""

from __future__ import annotations

__all__ = ["PIECE", "RATE", "Pace"]

RATE = 600_000
"""Bytes per second of all terminals of a kernel together."""

PIECE = 64 << 10
"""Bytes that go at once; also how much may wait here before the sandbox is asked to wait."""

_GAP = 0.008
"""Seconds between two pieces at the least, for small output to be joined."""


class Pace:
    """Spreads pieces in time; pure, the clock is passed in.  Seconds, of any one clock."""

    def __init__(self) -> None:
        self._next = 0.0

    def delay(self, now: float) -> float:
        """Return how long from `now` until the next piece may go; 0 for at once."""
        return max(0.0, self._next - now)

    def sent(self, now: float, size: int) -> None:
        """Note that a piece of `size` bytes went."""
        self._next = now + max(_GAP, size / RATE)
