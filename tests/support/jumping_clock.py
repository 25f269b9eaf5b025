"""Runs a program whose wall clock is off by what a file says.  For tests only.

``python jumping_clock.py FILE PROGRAM ARGUMENTS...``; the file holds seconds, and may be written anew
at any time, as when the time of a machine is corrected.  What counts seconds since an arbitrary
beginning goes on as ever, as it does there.
"""

from __future__ import annotations

import runpy
import sys
import time


def main() -> None:
    """Become the program."""
    path, program = sys.argv[1:3]
    true_time = time.time

    def wrong_time() -> float:
        with open(path) as file:
            return true_time() + float(file.read())

    time.time = wrong_time
    time.time_ns = lambda: int(wrong_time() * 1e9)
    del sys.argv[:2]
    runpy.run_path(program, run_name="__main__")


main()
