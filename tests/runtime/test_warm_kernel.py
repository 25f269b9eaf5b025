"""An interpreter that waits for a kernel: what it is good for, and when it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sandbox_kernel.errors import ProcessSpawnFailedError
from tests.runtime.conftest import Start
from tests.support.runtime_child import DEADLINE, Client

FAKE = [sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "support" / "fake_kernel.py")]


@pytest.fixture
def client(start_runtime: Start) -> Iterator[Client]:
    with start_runtime(kernel_argv=FAKE).connect() as client:
        client.welcome()
        yield client


def wait_until_ended(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_next_kernel_gets_it(client: Client) -> None:
    """Under the id of that kernel, as one that was not there before."""
    warm = client.call("pool.warm")
    kernel = client.call("kernel.start", kernel_id="k", env={"JPY_SESSION_NAME": "a.ipynb"})

    assert (kernel.pid, kernel.existing, kernel.kernel_id) == (warm.pid, False, "k")
    assert [each.kernel_id for each in client.call("kernel.list").kernels] == ["k"]
    assert client.call("kernel.start", kernel_id="other").pid != warm.pid


def test_one_is_enough(client: Client) -> None:
    """Who asks again is told of it."""
    first = client.call("pool.warm")
    again = client.call("pool.warm")

    assert (again.pid, again.existing) == (first.pid, True)


@pytest.mark.parametrize("wanted", [{"cwd": "/tmp"}, {"env": {"LANG": "de_DE.UTF-8"}}])
def test_whoever_asks_for_another_gets_another(client: Client, wanted: dict[str, object]) -> None:
    """The one that waited ends, as nobody would come for it."""
    warm = client.call("pool.warm")
    kernel = client.call("kernel.start", kernel_id="k", **wanted)

    assert kernel.pid != warm.pid
    wait_until_ended(warm.pid)


def test_one_that_has_died_is_nobodys(client: Client) -> None:
    """The kernel starts anew."""
    warm = client.call("pool.warm")
    psutil.Process(warm.pid).kill()
    wait_until_ended(warm.pid)

    assert client.call("kernel.start", kernel_id="k").pid != warm.pid


def test_one_that_does_not_get_ready_is_told(start_runtime: Start) -> None:
    """With an error, and the runtime is as before."""
    runtime = start_runtime(kernel_argv=[sys.executable, "-c", "raise SystemExit(3)"])
    with runtime.connect() as client:
        client.welcome()
        with pytest.raises(ProcessSpawnFailedError):
            client.call("pool.warm")
        health = client.call("runtime.health")

    assert (health.kernels, health.busy) == (0, [])


def test_it_holds_nothing_awake_and_ends_with_the_sandbox(start_runtime: Start) -> None:
    """A sandbox that nobody claims is as idle as an empty one."""
    runtime = start_runtime(kernel_argv=FAKE, sleep_after=0.3)
    with runtime.connect() as client:
        client.welcome()
        warm = client.call("pool.warm")

        assert client.call("runtime.health").busy == []
        assert runtime.wait_exit() == 0
    wait_until_ended(warm.pid)
