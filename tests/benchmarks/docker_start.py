"""How long a sandbox on Docker takes to its runtime's first answer, beside a bare container.

    DOCKER_HOST=... python tests/benchmarks/docker_start.py [--rounds 15] [--image IMAGE] [--json FILE]

Both kinds of round alternate, so that what else the machine does falls on both alike; the first of
each is dropped.  Bare is the same image with the same options over the same package: create, start,
and wait for the end of `true`.  The goal is a ratio of at most 1.15 to that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from sandbox_kernel.engines import docker_daemon
from sandbox_kernel.engines.base import Launch, SandboxSpec, StateLayout
from sandbox_kernel.engines.docker import DockerEngine
from sandbox_kernel.engines.docker_body import ContainerPlan, create_body
from sandbox_kernel.transports.endpoint import Endpoint, connect
from sandbox_kernel.wire.rpc import ClientConnection

GOAL = 1.15
TOKEN = "token-of-a-benchmark"


def bare(host: str, image: str) -> dict[str, float]:
    """A container with nothing but `true`, hardened in the same way."""
    plan = ContainerPlan(
        image=image,
        command=("true",),
        hostname="bare",
        user="1000:1000",
        cwd="/",
        network="none",
        tmp_bytes=1 << 30,
    )
    begin = time.perf_counter()
    with closing(docker_daemon.connect(host)) as client:
        container = client.create_container_from_config(create_body(plan))["Id"]
        client.start(container)
        started = time.perf_counter()
        client.wait(container)
        ended = time.perf_counter()
        client.remove_container(container, force=True)
    return {"bare: start returns": started - begin, "bare: true has run": ended - begin}


def sandbox(engine: DockerEngine, folder: Path) -> dict[str, float]:
    """Start a sandbox, be welcomed, stop it."""
    layout = StateLayout(folder / "state")
    spec = SandboxSpec(sleep_after=None)
    launch = Launch(sandbox_id="bench", lifetime="bench", token=TOKEN, spec=spec, layout=layout)
    begin = time.perf_counter()
    instance = engine.start(launch)
    started = time.perf_counter()
    endpoint = Endpoint(sandbox_id="bench", socket=instance.socket, token=TOKEN)
    with connect(endpoint, timeout=20) as client:
        client.settimeout(20)
        client.sendall(ClientConnection().hello(TOKEN, "benchmark"))
        assert client.recv(1 << 16)
    welcomed = time.perf_counter()
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
    parser.add_argument("--image", default="jupyter-sandbox-ci")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    host = docker_daemon.host_of(None)
    engine = DockerEngine(image=arguments.image)
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-") as name:
        for at in range(arguments.rounds + 1):
            taken: dict[str, Any] = bare(host, arguments.image)
            taken |= sandbox(engine, Path(name))
            if at:
                for what, seconds in taken.items():
                    times.setdefault(what, []).append(seconds * 1000)
    floor = statistics.median(times["bare: true has run"])
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
