"""The table that benchmarks print: two columns, their ratio, and what is wanted of it."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["Row", "cpu_of", "run_table"]


@dataclasses.dataclass
class Row:
    """One line of the table; `values` holds what was measured, the peer's first, ours second."""

    title: str
    unit: str
    goal: float | None
    values: dict[str, list[float]]
    absolute: bool = False
    """The goal is for our own value, not for the ratio to the peer's."""
    at_least: bool = False
    note: str = ""

    def median(self, place: int) -> float | None:
        columns = list(self.values.values())
        return (
            statistics.median(columns[place]) if len(columns) > place and columns[place] else None
        )

    @property
    def ratio(self) -> float | None:
        peer, ours = self.median(0), self.median(1)
        return ours / peer if peer and ours is not None else None

    @property
    def passes(self) -> bool:
        if self.goal is None:
            return True
        judged = self.median(1) if self.absolute else self.ratio
        assert judged is not None
        return judged >= self.goal if self.at_least else judged <= self.goal

    def __str__(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:7.2f}"
        goal, verdict = "", ""
        if self.goal is not None:
            sign = ">=" if self.at_least else "<="
            goal = f"{sign} {self.goal:g}" + (f" {self.unit}" if self.absolute else " x")
            verdict = "pass" if self.passes else "MISS"
        cells = "".join(
            f"{'-':>10}" if value is None else f"{value:10.2f}"
            for value in (self.median(0), self.median(1))
        )
        line = f"{self.title:<52}{cells} {self.unit:<4}{ratio:>8}  {goal:<12} {verdict}"
        return line + (f"\n    {self.note}" if self.note else "")


def cpu_of(pid: int) -> float:
    """Return the processor seconds of a process, without its children."""
    # schedstat counts nanoseconds; the times of psutil come in hundredths of a second.
    used = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                used += int(file.read().split()[0])
    return used / 1e9


def run_table(
    description: str,
    names: tuple[str, str],
    measure: Callable[[int, list[str]], Iterator[Row]],
) -> int:
    """Measure, print the table, and return 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="multiplies every row's repetitions")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="echo, flood, ...")
    parser.add_argument("--json", type=Path, help="file for every single value")
    options = parser.parse_args()
    # So that what was started is ended, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # A program that compiles its modules anew at each start is not what users have.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(f"{'':<52}{names[0]:>10}{names[1]:>10} {'':<4}{'ratio':>8}  goal", flush=True)
    rows = []
    for row in measure(options.rounds, options.only):
        print(row, flush=True)
        rows.append(row)
    load = os.getloadavg()[0]
    print(f"load average {load:.1f} on {os.cpu_count()} cores")
    if options.json:
        found = [
            {**dataclasses.asdict(row), "ratio": row.ratio, "passes": row.passes} for row in rows
        ]
        options.json.write_text(json.dumps({"load": load, "rows": found}, indent=1))
    return 0 if all(row.passes for row in rows) else 1
