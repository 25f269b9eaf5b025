"""What a command costs in a running sandbox, beside the ways there are without one.

    python tests/benchmarks/exec.py [--rounds 100] [--image IMAGE] [--only WORD ...] [--json FILE]

Every round does each of them once, in changing order, so that what else the machine does falls on
all alike; a figure is the median.  The ways: a program started by this process (``subprocess``),
one bubblewrap per command, a list of words and a text in a sandbox on bubblewrap, and, with
``--image`` and a Docker daemon that answers, ``exec_run`` of the docker SDK in a container.
The exit code is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from sandbox_kernel.client.sandbox import Sandbox, get_sandbox
from sandbox_kernel.engines.binary import find
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings

BULK = 100_000_000
AT_ONCE = 64
BWRAP = [
    str(find().path),
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
    *("--unshare-all", "--die-with-parent"),
]
GOALS = {
    ("true", "list / subprocess"): 5.0,
    ("true", "text / subprocess"): 5.0,
    ("true", "list / docker SDK"): 0.08,
    ("100 MB", "list / docker SDK"): 1 / 1.5,
    ("64 at once", "list / docker SDK"): 0.05,
}

Way = Callable[[list[str]], Awaitable[int]]


async def plain(argv: list[str]) -> int:
    """Run a program as most scripts do."""

    def run() -> int:
        done = subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        return len(done.stdout)

    return await asyncio.to_thread(run)


def direct(argv: list[str]) -> int:
    """Run a program from the thread at hand."""
    done = subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return len(done.stdout)


async def one_sandbox_each(argv: list[str]) -> int:
    """Run a program in a bubblewrap of its own."""
    return direct([*BWRAP, *argv])


def ways(sandbox: Sandbox, container: object | None) -> dict[str, Way]:
    """Return what is compared."""

    async def subprocess_way(argv: list[str]) -> int:
        return direct(argv)

    async def words(argv: list[str]) -> int:
        result = await sandbox.exec(argv)
        assert result.success
        return len(result.stdout)

    async def text(argv: list[str]) -> int:
        result = await sandbox.exec(" ".join(argv))
        assert result.success
        return len(result.stdout)

    found: dict[str, Way] = {
        "subprocess": subprocess_way,
        "bwrap each": one_sandbox_each,
        "list": words,
        "text": text,
    }
    if container is not None:

        async def sdk(argv: list[str]) -> int:
            done = await asyncio.to_thread(container.exec_run, argv)  # type: ignore[attr-defined]
            return len(done.output)

        found["docker SDK"] = sdk
    return found


async def interleaved(
    every: dict[str, Way], argv: list[str], rounds: int, size: int
) -> dict[str, float]:
    """Return the median seconds of each way."""
    times: dict[str, list[float]] = {name: [] for name in every}
    order = list(every)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            begin = time.perf_counter()
            assert await every[name](argv) == size, name
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


async def at_once(every: dict[str, Way], sandbox: Sandbox, rounds: int) -> dict[str, float]:
    """Return the median seconds for many commands at once, texts in sessions of their own."""
    sessions = [await sandbox.create_session() for _ in range(AT_ONCE)]
    await asyncio.gather(*(each.exec("true") for each in sessions))

    async def gather(name: str) -> None:
        if name == "subprocess":
            await asyncio.gather(*(plain(["true"]) for _ in range(AT_ONCE)))
        elif name == "bwrap each":
            await asyncio.gather(*(plain([*BWRAP, "true"]) for _ in range(AT_ONCE)))
        elif name == "text":
            await asyncio.gather(*(each.exec("true") for each in sessions))
        else:
            await asyncio.gather(*(every[name](["true"]) for _ in range(AT_ONCE)))

    times: dict[str, list[float]] = {name: [] for name in every}
    for _ in range(rounds):
        for name in random.sample(list(every), len(every)):
            begin = time.perf_counter()
            await gather(name)
            times[name].append(time.perf_counter() - begin)
    for each in sessions:
        await each.delete()
    return {name: statistics.median(values) for name, values in times.items()}


def show(title: str, medians: dict[str, float]) -> tuple[dict[str, object], bool]:
    """Print a row with its ratios, and return it and whether the goals are met."""
    print(f"{title:12}" + "".join(f"  {name} {1e3 * s:.2f} ms" for name, s in medians.items()))
    ratios: dict[str, float] = {}
    is_met = True
    for ours in ("list", "text"):
        for peer in ("subprocess", "bwrap each", "docker SDK"):
            if peer not in medians:
                continue
            name = f"{ours} / {peer}"
            ratios[name] = round(medians[ours] / medians[peer], 3)
            goal = GOALS.get((title, name))
            verdict = "" if goal is None else f"  goal <= {goal:.3g}"
            if goal is not None and ratios[name] > goal:
                is_met, verdict = False, f"{verdict}  MISS"
            print(f"{'':12}  {name:22} {ratios[name]:7.3f}{verdict}")
    return {"title": title, "seconds": medians, "ratios": ratios}, is_met


@contextlib.contextmanager
def container_of(image: str | None):
    """Run a container to compare with, if there can be one."""
    if image is None:
        yield None
        return
    import docker

    client = docker.from_env()
    container = client.containers.run(
        image, ["sleep", "3600"], detach=True, network_mode="none", auto_remove=True
    )
    try:
        yield container
    finally:
        container.kill()
        client.close()


async def measured(
    rounds: int, data_dir: Path, image: str | None, only: list[str]
) -> tuple[list[object], bool]:
    """Measure all and print it."""
    manager = Manager(Settings(data_dir=data_dir, engine="bubblewrap"))
    rows, good = [], True
    with container_of(image) as container:
        async with get_sandbox("bench", manager=manager) as sandbox:
            every = ways(sandbox, container)
            for way in every.values():
                await way(["true"])
            bulk = ["head", "-c", str(BULK), "/dev/zero"]
            few = max(3, rounds // 12)
            measures: dict[str, Callable[[], Awaitable[dict[str, float]]]] = {
                "true": lambda: interleaved(every, ["true"], rounds, 0),
                "/bin/true": lambda: interleaved(every, ["/bin/true"], rounds, 0),
                "100 MB": lambda: interleaved(every, bulk, few, BULK),
                "64 at once": lambda: at_once(every, sandbox, few),
            }
            for title, measure in measures.items():
                if only and not any(word in title for word in only):
                    continue
                row, is_met = show(title, await measure())
                rows.append(row)
                good = good and is_met
            await sandbox.destroy()
    manager.close()
    return rows, good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--image", help="of a container for the docker SDK's exec_run")
    parser.add_argument("--only", nargs="*", default=[], help="parts of rows' titles")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        rows, good = asyncio.run(
            measured(options.rounds, Path(folder) / "sandbox", options.image, options.only)
        )
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
