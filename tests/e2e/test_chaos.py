"""Kills at random moments, of those who use sandboxes, start them, and are them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docker import need_docker
from tests.support.own_daemon import OwnDaemon

REPOSITORY = Path(__file__).resolve().parents[2]

KILLS = int(os.environ.get("E2E_KILLS", "0"))
"""How many in all; 0 for as many as the usual run of all tests has time for."""

SEED = os.environ.get("E2E_SEED")


def run(engine: str, seed: int, kills: int, folder: Path, **env: str) -> dict:
    """Run rounds of kills and return their report; what was found wrong fails the test."""
    seed = int(SEED) if SEED else seed
    print(f"{kills} kills on {engine}, E2E_SEED={seed}")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.support.chaos"),
            *(engine, str(seed), str(kills), str(folder / "chaos")),
        ],
        cwd=REPOSITORY,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120 + 10 * kills,
        check=False,
    )
    print(done.stderr[-4000:])

    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert sum(report["kills"].values()) == kills
    assert "\n".join(report["problems"]) == "", f"E2E_SEED={seed}, records in {folder}"
    return report


@pytest.mark.slow
@pytest.mark.timeout(180 + 10 * KILLS)
@pytest.mark.parametrize(
    ("engine", "seed", "usual", "share"),
    [("bubblewrap", 4, 16, 0.8), ("docker", 40, 5, 0.2)],
)
def test_random_kills_harm_nobody_else(tmp_path, engine, seed, usual, share):
    """Calls end as they should, files are old or new, ids stay, and nothing is left of the dead."""
    if engine == "docker":
        need_docker()

    report = run(engine, seed, round(KILLS * share) or usual, tmp_path)

    counts = report["outcomes"].values()
    assert sum(each.get("result", 0) for each in counts) > 100


@pytest.mark.slow
@pytest.mark.timeout(300 + 2 * KILLS)
@pytest.mark.skipif(not KILLS, reason="takes minutes; E2E_KILLS=300 asks for it")
def test_random_kills_of_a_daemon(tmp_path):
    """Those of the Docker daemon itself, too: what it ran starts anew, with its files."""
    need_docker()
    with OwnDaemon() as daemon, daemon.kept_running():
        run(
            "docker",
            400,
            max(10, round(KILLS * 0.1)),
            tmp_path,
            DOCKER_HOST=daemon.host,
            CHAOS_IMAGE=daemon.image,
            CHAOS_DAEMON=str(daemon.pid_file),
        )
