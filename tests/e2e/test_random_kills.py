"""200 kills at random moments, of what starts, serves and is a sandbox."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox_kernel.manager.manager import Manager
from tests.support.jupyter_home import processes_below
from tests.support.kernel_driver import KERNEL, Kernel
from tests.support.plain_engine import REFERENCE
from tests.support.zmq_connection import ZmqConnection

REPOSITORY = Path(__file__).resolve().parents[2]
RELAY_KILLS = 30
EPHEMERAL_STAY = 45.0
"""Seconds after which nothing may be left of a sandbox for one kernel: lease, idle time, margin."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "seed", "kills"), [("bubblewrap", 20240, 70), (REFERENCE, 7, 100)]
)
def test_random_kills_lose_nothing(tmp_path, engine, seed, kills):
    """No orphan process or mount, no lost id or file, and the next start works each time."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.kill_rounds",
            engine,
            str(seed),
            str(kills),
            str(tmp_path / "sandbox"),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert sum(report["kills"].values()) == kills
    assert set(report["kills"]) == {"starter", "stopper", "destroyer", "runtime"}


@pytest.mark.slow
def test_random_kills_of_a_relay_lose_nothing(home):
    """The next relay finds interpreter and variables, each cell has run once, and no id is lost."""
    chance = random.Random(11)  # noqa: S311  repeatable, not secret
    manager = Manager()
    for_one_kernel = Kernel(ZmqConnection(KERNEL, home))
    for_one_kernel.become_ready()
    os.kill(for_one_kernel.connection.pid, signal.SIGKILL)
    abandoned = time.monotonic()
    (ephemeral,) = manager.list()
    with Kernel(ZmqConnection(KERNEL, home, SANDBOX_ID="kept")) as kernel:
        kernel.become_ready()
        kernel.cell("import os, time; ran = []")
        first = kernel.value("os.getpid()"), manager.lookup("kept").instance
        ran = []
        for number in range(RELAY_KILLS):
            cell = None
            kind = chance.choice(("starting", "at rest", "in a cell", "before a cell"))
            if kind != "starting":
                kernel.become_ready()
            if kind.endswith("cell"):
                ran.append(number)
                cell = kernel.execute(
                    f"ran.append({number})\nfor i in range(30): print(i, flush=True); time.sleep(.01)"
                )
                # What the relay has not read goes with it, as with any kernel.
                cell.wait_for("stream" if kind == "in a cell" else "status")
            kernel.drain(chance.uniform(0, 0.3), limit=0.3)
            os.kill(kernel.connection.pid, signal.SIGKILL)
            kernel.connection.manager.restart_kernel(now=True)
            if cell is not None:
                assert cell.wait().text == "".join(f"{i}\n" for i in range(30)), f"{number}: {kind}"
        kernel.become_ready()

        assert kernel.value("ran") == ran
        assert (kernel.value("os.getpid()"), manager.lookup("kept").instance) == first
        assert {each.sandbox_id for each in manager.list()} == {"kept", ephemeral.sandbox_id}
    while processes_below(ephemeral.layout.root):
        assert time.monotonic() < abandoned + EPHEMERAL_STAY, "an orphan"
        time.sleep(0.2)
    for_one_kernel.close()
    manager.destroy("kept")
    manager.gc()

    assert manager.list() == []
    assert not processes_below(home.root)
    assert str(home.root) not in Path("/proc/self/mountinfo").read_text()
