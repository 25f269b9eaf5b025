"""What the SDK costs beside running a program directly.

    python tests/benchmarks/sdk.py [--rounds 200] [--json FILE]

Both kinds of round alternate, so that what else the machine does falls on both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sandbox_kernel.client.sandbox import Sandbox, get_sandbox
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings

BULK = 100_000_000


async def timed(sandbox: Sandbox, argv: list[str]) -> float:
    begin = time.perf_counter()
    result = await sandbox.exec(argv)
    assert result.success
    return time.perf_counter() - begin


def direct(argv: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    return time.perf_counter() - begin


async def compare(sandbox: Sandbox, argv: list[str], rounds: int) -> dict[str, float]:
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(await timed(sandbox, argv))
        theirs.append(direct(argv))
    one, other = statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3
    return {
        "sandbox_ms": round(one, 2),
        "direct_ms": round(other, 2),
        "ratio": round(one / other, 2),
    }


async def measure(rounds: int, data_dir: Path) -> dict[str, object]:
    manager = Manager(Settings(data_dir=data_dir))
    table: dict[str, object] = {}
    async with get_sandbox("bench", manager=manager) as sandbox:
        cold = []
        for _ in range(5):
            cold.append(await timed(sandbox, ["true"]))
            await sandbox.stop(grace=0.0)
        table["cold start and true"] = {"sandbox_ms": round(statistics.median(cold) * 1e3, 1)}
        await timed(sandbox, ["true"])
        table["true"] = await compare(sandbox, ["true"], rounds)
        table["100 MB of output"] = await compare(
            sandbox, ["head", "-c", str(BULK), "/dev/zero"], max(3, rounds // 40)
        )
        found = []
        for _ in range(rounds):
            begin = time.perf_counter()
            manager.ensure("bench")
            found.append(time.perf_counter() - begin)
        table["ensure of a running sandbox"] = {
            "sandbox_ms": round(statistics.median(found) * 1e3, 3)
        }
        await sandbox.destroy()
    manager.close()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = asyncio.run(measure(options.rounds, Path(folder) / "sandbox"))
    for name, figures in table.items():
        print(f"{name:30} {figures}")
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    sys.exit(main())
