"""Wait for the clock of file systems."""

from __future__ import annotations

import time

# <linux/time.h>: the clock that inode times are taken from.
_CLOCK_REALTIME_COARSE = 5


def tick() -> None:
    """Wait until inode times, which move in steps of some milliseconds, have moved on."""
    before = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
    while time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) == before:
        time.sleep(0.001)
