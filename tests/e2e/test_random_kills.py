"""200 kills at random moments, on real sandboxes and on cheap ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.plain_engine import REFERENCE

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "seed", "kills"), [("bubblewrap", 20240, 80), (REFERENCE, 7, 120)]
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
