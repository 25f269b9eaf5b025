"""A kernel that is started while its sandbox falls asleep gets the sandbox's next start."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

import pytest

from sandbox_kernel.errors import ContainerUnavailableError, ProcessSpawnFailedError, SandboxError
from sandbox_kernel.kernel import launch


def started(number: int) -> Any:
    """Return what stands for the sandbox's start of this number."""
    identity = types.SimpleNamespace(ephemeral=False, sandbox_id="a")
    running = types.SimpleNamespace(number=number, started=True)
    return types.SimpleNamespace(identity=identity, running=running)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[int], list[str]]]:
    """Run a relay whose sandbox refuses kernels; return code, starts tried, and what was told."""
    monkeypatch.setattr(launch, "_PAUSE", 0.0)

    def run(refusals: list[SandboxError], *, may_again: bool = True) -> Any:
        tried: list[int] = []
        told: list[str] = []

        def serve(*, started: Any, **_: Any) -> int:
            tried.append(started.running.number)
            if refusals:
                raise refusals.pop(0)
            return 0

        monkeypatch.setattr(launch, "_serve", serve)
        numbers = itertools.count(2)
        nothing: Any = None
        code = launch._run(
            nothing,
            started(1),
            None,
            nothing,
            tell=lambda error: told.append(error.code),
            again=(lambda: started(next(numbers))) if may_again else None,
        )
        return code, tried, told

    return run


@pytest.mark.parametrize("reason", ["it goes to sleep", "it hung up"])
def test_the_next_start_gets_the_kernel(run: Any, reason: str) -> None:
    refusals = [ContainerUnavailableError("a", reason) for _ in range(2)]

    assert run(refusals) == (0, [1, 2, 3], [])


def test_one_that_is_stopped_by_somebody_stays_so(run: Any) -> None:
    refusal = ContainerUnavailableError("a", "it is stopping")

    assert run([refusal]) == (1, [1], ["CONTAINER_UNAVAILABLE"])


def test_other_errors_are_told_at_once(run: Any) -> None:
    assert run([ProcessSpawnFailedError("python", "no")])[:2] == (1, [1])


def test_one_that_never_falls_asleep_is_given_up(run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(launch, "_FALLING_ASLEEP", 0.05)

    refusals: list[SandboxError] = [
        ContainerUnavailableError("a", "it goes to sleep") for _ in range(10_000)
    ]
    code, tried, told = run(refusals[:10_000])
    assert (code, told) == (1, ["CONTAINER_UNAVAILABLE"])
    assert len(tried) >= 2


def test_a_relay_out_of_the_pool_leaves_it_to_the_server(run: Any) -> None:
    refusal = ContainerUnavailableError("a", "it goes to sleep")

    assert run([refusal], may_again=False) == (1, [1], ["CONTAINER_UNAVAILABLE"])
