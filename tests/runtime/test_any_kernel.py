"""Kernels of other languages come through the bridge, over the same channel."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil

from tests.runtime.conftest import Start
from tests.runtime.test_fork_server import PATIENCE, run_cell


def test_a_jupyter_kernel_by_its_command_line(start_runtime: Start, tmp_path: Path) -> None:
    """A stock kernel started by argv answers, and ends with its children."""
    runtime = start_runtime(env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    with runtime.connect() as client:
        info = client.call("kernel.start", kernel_id="k", argv=argv)

        said = run_cell(runtime, "print('sum ' + str(6 * 7))")

        assert b"sum 42" in said
        family = [psutil.Process(info.pid), *psutil.Process(info.pid).children(recursive=True)]
        client.call("kernel.end", kernel_id="k", grace=5.0)
        gone, alive = psutil.wait_procs(family, timeout=PATIENCE)
        assert not alive
        assert len(gone) >= 2
