"""Relays with real interpreters, in sandboxes of an engine that starts in milliseconds."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.jupyter_home import JupyterHome, describe, processes_below
from tests.support.kernel_driver import KERNEL, Kernel
from tests.support.plain_engine import REFERENCE
from tests.support.zmq_connection import ZmqConnection

_REPOSITORY = str(Path(__file__).resolve().parents[2])


class RelayConnection(ZmqConnection):
    """A connection that knows the parts behind it."""

    def __init__(self, kernel_name: str, home: JupyterHome, **extra: str) -> None:
        engine = {"SANDBOX_ENGINE": REFERENCE, "PYTHONPATH": _REPOSITORY}
        super().__init__(kernel_name, home, **{**engine, **extra})

    @property
    def relay(self) -> psutil.Process:
        """The relay's process."""
        return psutil.Process(self.pid)

    def wait_until_ended(self, timeout: float = 15.0) -> int | None:
        """Wait for the relay's end; return its exit code."""
        provisioner = self.manager.provisioner
        assert provisioner is not None
        code: int | None = provisioner.process.wait(timeout)
        return code

    def start_again(self) -> None:
        """Start a relay on the same connection file, as a server's restarter does."""
        self.manager.restart_kernel(now=True)


@contextlib.contextmanager
def one_user() -> Iterator[JupyterHome]:
    """Make a user; at the end no process may refer to it."""
    root = Path(tempfile.mkdtemp(prefix="relay-"))
    home = JupyterHome(root).create()
    with pytest.MonkeyPatch.context() as patch:
        for key in [key for key in os.environ if key.startswith(("JPY_", "JUPYTER_", "XDG_"))]:
            patch.delenv(key)
        for key, value in home.changes(SANDBOX_ENGINE=REFERENCE).items():
            patch.setenv(key, value)
        yield home
    _, left = psutil.wait_procs(processes_below(root), timeout=20)
    said = [describe(process) for process in left]
    for process in left:
        process.kill()
    shutil.rmtree(root, ignore_errors=True)
    assert not said, "processes are left:\n" + "\n".join(said)


@pytest.fixture
def home() -> Iterator[JupyterHome]:
    """One user for the test."""
    with one_user() as home:
        yield home


@pytest.fixture(scope="module")
def shared_kernel() -> Iterator[Kernel]:
    """One kernel for the tests of a module that leave it usable."""
    with one_user() as home, Kernel(RelayConnection(KERNEL, home)) as kernel:
        kernel.become_ready()
        yield kernel


@pytest.fixture
def shared_connection(shared_kernel: Kernel) -> RelayConnection:
    """The connection of `shared_kernel`."""
    assert isinstance(shared_kernel.connection, RelayConnection)
    return shared_kernel.connection


@pytest.fixture
def start(home: JupyterHome) -> Iterator[Callable[..., Kernel]]:
    """Start kernels that end with the test; keyword arguments are environment variables."""
    kernels: list[Kernel] = []

    def start(**extra: str) -> Kernel:
        connection = RelayConnection(KERNEL, home, **extra)
        kernel = Kernel(connection)
        kernels.append(kernel)
        try:
            kernel.become_ready()
        except AssertionError as error:
            raise AssertionError(f"{error}; the relay said: {connection.said()}") from None
        return kernel

    yield start
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def kernel(start: Callable[..., Kernel]) -> Kernel:
    """A kernel in a sandbox of its own, which ends with it."""
    return start()


@pytest.fixture
def connection(kernel: Kernel) -> RelayConnection:
    """The connection of `kernel`."""
    assert isinstance(kernel.connection, RelayConnection)
    return kernel.connection
