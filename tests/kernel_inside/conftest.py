"""Kernels of the sandbox that run without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.kernel_driver import Kernel
from tests.support.record_kernel import RecordConnection, start


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def shared_kernel(shared_home: Path) -> Iterator[Kernel]:
    """One kernel for all tests of a module."""
    with start(RecordConnection(shared_home)) as kernel:
        yield kernel


@pytest.fixture
def kernel(shared_kernel: Kernel) -> Kernel:
    """The module's kernel; each test proves that the one before it left it usable."""
    assert shared_kernel.cell("20 + 1").result == "21"
    return shared_kernel


@pytest.fixture
def new_kernel(tmp_path: Path) -> Iterator[Callable[..., Kernel]]:
    """Start kernels of the test's own."""
    kernels: list[Kernel] = []

    def begin(**env: str) -> Kernel:
        kernel = start(RecordConnection(tmp_path, env=env))
        kernels.append(kernel)
        return kernel

    yield begin
    for kernel in kernels:
        kernel.close()
