"""Running Python where a folder is a small disk of its own, or cannot be written.

A mount namespace of bubblewrap makes it, as root and as an ordinary user; nothing is left mounted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sandbox_kernel.engines.binary import find

__all__ = ["run_on_read_only_disk", "run_on_small_disk", "run_with_mount"]

_REPOSITORY = Path(__file__).resolve().parents[2]


def run_with_mount(folder: Path, script: str, *arguments: str) -> str:
    """Run a script where `folder` is a mount point; return what it prints."""
    return _run(["--tmpfs", str(folder)], script, arguments)


def run_on_small_disk(folder: Path, size: int, script: str, *arguments: str) -> str:
    """Run a script where `folder` is an empty disk of `size` bytes; return what it prints."""
    return _run(["--size", str(size), "--tmpfs", str(folder)], script, arguments)


def run_on_read_only_disk(folder: Path, script: str, *arguments: str) -> str:
    """Run a script where `folder` is mounted read-only; return what it prints."""
    return _run(["--ro-bind", str(folder), str(folder)], script, arguments)


def _run(mounts: list[str], script: str, arguments: tuple[str, ...]) -> str:
    bwrap = find().path
    assert bwrap is not None
    done = subprocess.run(
        [
            bwrap,
            "--dev-bind",
            "/",
            "/",
            *mounts,
            "--setenv",
            "PYTHONPATH",
            str(_REPOSITORY),
            sys.executable,
            "-W",
            "error",
            "-c",
            script,
            *arguments,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
