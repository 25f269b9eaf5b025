"""Whoever fills a pool and claims from it is killed at any moment: no sandbox has a wrong id."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.wire.operations import Empty
from tests.support.managed import plain_manager
from tests.support.plain_engine import MARK

_REPOSITORY = Path(__file__).resolve().parents[2]

# Starts a sandbox for the pool, claims it, and so on until it is killed.
_WORK = """
import sys, uuid
from pathlib import Path
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.wire.pool_operations import WarmRequest
from tests.support.managed import plain_settings

manager = Manager(plain_settings(Path(sys.argv[1])))
spec = manager.settings.spec()
while True:
    running = manager.warm(spec, WarmRequest(), stay=3600.0)
    print("warm", flush=True)
    manager.claim(running, f"mine-{uuid.uuid4().hex[:8]}", spec)
"""

KILLS = 8


@pytest.mark.timeout(240)
def test_a_kill_at_any_moment_leaves_no_orphan_and_no_wrong_id(tmp_path: Path) -> None:
    """What waits waits under its own id, what is claimed has its own, and the rest is cleaned up."""
    seed = int(os.environ.get("POOL_SEED", time.time_ns() % 10**6))
    print(f"POOL_SEED={seed}")
    chance = random.Random(seed)  # noqa: S311  to be repeated
    data = tmp_path / "sandbox"
    with plain_manager(data) as manager:
        for _ in range(KILLS):
            worker = subprocess.Popen(
                [sys.executable, "-c", _WORK, str(data)],
                cwd=_REPOSITORY,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(_REPOSITORY)},
            )
            assert worker.stdout is not None
            with worker, worker.stdout:
                if chance.random() < 0.7:
                    # About a claim, which takes a few milliseconds.
                    worker.stdout.readline()
                    time.sleep(chance.random() * 0.01)
                else:
                    time.sleep(chance.random() * 2.0)
                worker.kill()
        manager.gc()

        for waiting in manager.waiting():
            if not manager.stays(waiting):  # as the next server does
                manager.destroy(waiting.sandbox_id)
        for info in manager.list():
            assert info.sandbox_id.startswith("mine-")
            running = manager.find_running(info.sandbox_id)
            assert running is not None
            health = call_once(running.endpoint, "runtime.health", Empty(), timeout=5)
            assert health.sandbox_id == info.sandbox_id
        known = {each.lifetime for each in (*manager.list(), *manager.waiting())}
        assert lifetimes_of_processes(data) <= known
        assert {each.name for each in (data / "sandboxes").iterdir()} == known
        for each in manager.waiting():
            manager.destroy(each.sandbox_id)


def lifetimes_of_processes(data: Path) -> set[str]:
    """Return the lifetimes that living runtimes of this folder belong to."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
            environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(data) in words:
            marks = [each for each in environ if each.startswith(f"{MARK}=".encode())]
            found |= {each.partition(b"=")[2].decode() for each in marks}
    return found
