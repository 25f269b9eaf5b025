"""What a relay costs: few modules, little memory."""

from __future__ import annotations

import subprocess
import sys

from tests.kernel.conftest import RelayConnection
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL, Kernel

FORBIDDEN = {
    "asyncio",
    "aiohttp",
    "tornado",
    "traitlets",
    "jupyter_client",
    "jupyter_core",
    "ipykernel",
    "IPython",
}
MEMORY = 15.0
"""MiB of memory that a relay has for itself alone."""


def private_mebibytes(pid: int) -> float:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        lines = [line.split() for line in file if line.startswith("Private_")]
    return sum(int(line[1]) for line in lines) / 1024


def test_a_running_relay_has_loaded_no_event_loop_and_no_client_library(
    home: JupyterHome,
) -> None:
    """Python's own list of imports, of a relay that has served cells."""
    with Kernel(RelayConnection(KERNEL, home, PYTHONPROFILEIMPORTTIME="1")) as kernel:
        kernel.become_ready()
        kernel.cell("import pandas; pandas.DataFrame({'a': [1]})")
        kernel.cell("%sandbox")
        kernel.cell("1/0")
        assert isinstance(kernel.connection, RelayConnection)
        lines = kernel.connection.said().splitlines()
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}

    assert "zmq" in loaded
    assert not loaded & FORBIDDEN


def test_a_relay_is_small(shared_kernel: Kernel, shared_connection: RelayConnection) -> None:
    for number in range(50):
        shared_kernel.cell(str(number))

    assert private_mebibytes(shared_connection.pid) <= MEMORY


def test_importing_the_entry_point_loads_no_sockets() -> None:
    """The sandbox is asked for before pyzmq and orjson are loaded."""
    code = "import sys, sandbox_kernel.kernel.launch; print({'zmq', 'orjson'}.intersection(sys.modules))"

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
