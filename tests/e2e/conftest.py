"""Users, kernels and servers of the end-to-end tests, and the proof that nothing of them stays."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.jupyter_home import JupyterHome, describe, processes_below
from tests.support.kernel_driver import KERNEL, Kernel
from tests.support.ws_connection import JupyterServer
from tests.support.zmq_connection import ZmqConnection

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def e2e_root() -> Iterator[Path]:
    """One short folder above all users of the run; at its end no process may refer to it."""
    root = Path(tempfile.mkdtemp(prefix="e2e-"))
    yield root
    _, left = psutil.wait_procs(processes_below(root), timeout=10)
    said = [describe(process) for process in left]
    for process in left:
        process.kill()
    assert not said, "processes of sandboxes or kernels are left:\n" + "\n".join(said)
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def new_home(e2e_root: Path) -> Iterator[Callable[[], JupyterHome]]:
    """Make users, each with folders of its own; what they keep on purpose ends with the run."""
    homes: list[JupyterHome] = []

    def new() -> JupyterHome:
        homes.append(JupyterHome(e2e_root / str(next(_numbers)), e2e_root / "cache").create())
        return homes[-1]

    yield new
    for home in homes:
        home.destroy_named_sandboxes()


@pytest.fixture
def home(new_home: Callable[[], JupyterHome], monkeypatch: pytest.MonkeyPatch) -> JupyterHome:
    """One user for the test; this process acts as that user."""
    home = new_home()
    for key in [key for key in os.environ if key.startswith(("JPY_", "JUPYTER_", "XDG_"))]:
        monkeypatch.delenv(key)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    for key, value in home.changes().items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(home.work)
    return home


@pytest.fixture
def start_kernel(home: JupyterHome) -> Iterator[Callable[..., Kernel]]:
    """Start kernels that end with the test."""
    kernels: list[Kernel] = []

    def start(kernel_name: str = KERNEL, **extra: str) -> Kernel:
        kernel = Kernel(ZmqConnection(kernel_name, home, **extra))
        kernels.append(kernel)
        kernel.become_ready()
        return kernel

    yield start
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """A fresh kernel under test."""
    return start_kernel()


@pytest.fixture(scope="module")
def shared_kernel(new_home: Callable[[], JupyterHome]) -> Iterator[Kernel]:
    """One kernel for all tests of a module that leave it usable."""
    with Kernel(ZmqConnection(KERNEL, new_home())) as kernel:
        kernel.become_ready()
        yield kernel


@pytest.fixture(scope="module")
def server(new_home: Callable[[], JupyterHome]) -> Iterator[JupyterServer]:
    """A Jupyter server for the tests of a module."""
    with JupyterServer(new_home()) as server:
        yield server
