"""A kernel out of a warm pool beside the start of a plain ipykernel, in one interleaved run.

    python tests/benchmarks/pool.py [--rounds N] [--json FILE]

Both are started by a kernel manager of jupyter_client, as a Jupyter server does; measured from its
call to the reply of a first cell, and for the plain one until the same reply.  A pool of one is
filled again before each round, and rests while anything is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.kernel import Probe
from tests.support.benchmark_table import Row, run_table
from tests.support.jupyter_home import JupyterHome
from tests.support.pool_host import PoolHost, pool_host

PLAIN, OURS = "python3", "sandbox-python"
_PACE = 1.0


class StartedProbe(Probe):
    """A client of a kernel that a pool's host starts."""

    def __init__(self, manager: Any, home: JupyterHome, started_at: float) -> None:
        self.home, self.manager, self.started_at = home, manager, started_at
        self.connect_to(manager.connection_file)


async def first_cell(host: PoolHost, name: str, session: str) -> float:
    """Return the milliseconds from the call that starts a kernel to the reply of its first cell."""
    started = time.perf_counter()
    kernel = await host.start(name, JPY_SESSION_NAME=session)
    probe = StartedProbe(kernel, host.home, started)
    took = probe.wait_for_first_cell()
    probe.context.destroy(linger=0)
    await kernel.shutdown_kernel(now=False)
    return took * 1e3


async def measured(home: JupyterHome, rounds: int) -> Iterator[Row]:
    cells: dict[str, list[float]] = {PLAIN: [], OURS: []}
    memory: list[float] = []
    async with pool_host(home, pace=_PACE) as host:
        for n in range(6 * rounds + 1):
            for name in (PLAIN, OURS)[:: 1 if n % 2 else -1]:
                await host.until_waiting(1)
                [unit] = host.schedule.units
                memory.append(unit.memory() / 2**20)
                took = await first_cell(host, name, f"round-{n}.ipynb")
                if n:  # the first round fills the page cache
                    cells[name].append(took)
                assert (unit in host.schedule.units) == (name == PLAIN), "not out of the pool"
    home.destroy_named_sandboxes()
    return iter(
        [
            Row("warm pool, start to the first cell's reply", "ms", 0.15, cells),
            Row("memory of one that waits", "MiB", None, {"": [], OURS: memory}),
        ]
    )


def measure_all(rounds: int, only: list[str]) -> Iterator[Row]:
    del only
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pool-")))
        yield from asyncio.run(measured(JupyterHome(root).create(), rounds))


if __name__ == "__main__":
    sys.exit(run_table(__doc__ or "", ("plain", "pool"), measure_all))
