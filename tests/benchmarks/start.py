"""How long a sandbox takes from nothing to its runtime's first answer, beside bare bubblewrap.

    python tests/benchmarks/start.py [--rounds 15] [--json FILE]

Both kinds of round alternate, so that what else the machine does falls on both alike; the first of
each is dropped.  The goal is a ratio of at most 4 to ``bwrap true`` with all namespaces.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sandbox_kernel.engines.base import Launch, SandboxSpec, StateLayout
from sandbox_kernel.engines.binary import find
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
from sandbox_kernel.transports.endpoint import Endpoint, connect
from sandbox_kernel.wire.rpc import ClientConnection, Welcome

GOAL = 4.0
TOKEN = "token-of-a-benchmark"


def bare(bwrap: str) -> dict[str, float]:
    """All namespaces, the whole root read-only, `true`."""
    begin = time.perf_counter()
    subprocess.run(
        [bwrap, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return {"bwrap true": time.perf_counter() - begin}


def sandbox(engine: BubblewrapEngine, folder: Path, **spec: object) -> dict[str, float]:
    """Start a sandbox, be welcomed, stop it."""
    layout = StateLayout(folder / "state")
    launch = Launch(
        sandbox_id="bench",
        lifetime="bench",
        token=TOKEN,
        spec=SandboxSpec(**spec),  # type: ignore[arg-type]
        layout=layout,
    )
    begin = time.perf_counter()
    instance = engine.start(launch)
    started = time.perf_counter()
    protocol = ClientConnection()
    endpoint = Endpoint(sandbox_id="bench", socket=instance.socket, token=TOKEN)
    with connect(endpoint, timeout=20) as client:
        client.settimeout(20)
        client.sendall(protocol.hello(TOKEN, "benchmark"))
        events: list[object] = []
        while not events:
            data = client.recv(1 << 16)
            if not data:
                raise SystemExit(layout.log.read_text())
            events += protocol.receive(data)
    welcomed = time.perf_counter()
    assert isinstance(events[0], Welcome)
    engine.stop(instance, layout, grace=0)
    stopped = time.perf_counter()
    return {
        "engine.start returns": started - begin,
        "first WELCOME": welcomed - begin,
        "engine.stop": stopped - welcomed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    engine = BubblewrapEngine()
    bwrap = find().path
    assert bwrap is not None
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-") as name:
        notebooks = Path(name) / "notebooks"
        notebooks.mkdir()
        for at in range(arguments.rounds + 1):
            taken = bare(bwrap)
            taken |= sandbox(engine, Path(name), notebook_folder=notebooks)
            if at:
                for what, seconds in taken.items():
                    times.setdefault(what, []).append(seconds * 1000)
    floor = statistics.median(times["bwrap true"])
    for what, values in times.items():
        middle = statistics.median(values)
        print(
            f"{what:24} {middle:7.1f} ms  ({min(values):.1f}-{max(values):.1f})"
            f"  {middle / floor:5.2f} x"
        )
    ratio = statistics.median(times["first WELCOME"]) / floor
    print(f"ratio of the first WELCOME: {ratio:.2f} (goal {GOAL:g})")
    if arguments.json:
        arguments.json.write_text(json.dumps(times))
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
