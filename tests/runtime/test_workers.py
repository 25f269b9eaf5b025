"""Threads of the runtime: they come and go, share fairly, and are not needed for anything."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from sandbox_runtime import workers as module
from sandbox_runtime.loop import Loop
from sandbox_runtime.uploads import LOST_TIMEOUT, _Upload
from sandbox_runtime.workers import MOST_HELD, MOST_THREADS, Workers


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop(pytest.fail)
    yield made
    made.close()


@pytest.fixture
def workers(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setattr(module, "_IDLE", 0.05)
    before, interval = _thread._count(), sys.getswitchinterval()
    yield Workers(loop)
    sys.setswitchinterval(interval)
    deadline = time.monotonic() + 10
    while _thread._count() > before:
        assert time.monotonic() < deadline, "a thread stays"
        time.sleep(0.01)


def run(loop: Loop, workers: Workers, *jobs: Callable[[], object], holds: int = 0) -> list[object]:
    """Do jobs to their ends; return results and errors in their order."""
    told: dict[int, object] = {}

    def done(number: int, result: object, error: BaseException | None) -> None:
        told[number] = error or result
        if len(told) == len(jobs):
            loop.stop()

    for number, job in enumerate(jobs):
        workers.submit(job, lambda r, e, n=number: done(n, r, e), holds=holds)  # type: ignore[misc]
    loop.call_later(20, loop.stop)
    loop.run()
    return [told[number] for number in range(len(jobs))]


def test_results_and_errors(loop: Loop, workers: Workers) -> None:
    """Each job's outcome is told, from the loop's thread."""
    here = threading.get_ident()
    error = ValueError("x")

    def fail() -> None:
        raise error

    assert run(loop, workers, lambda: 1, fail, lambda: threading.get_ident() != here) == [
        1,
        error,
        True,
    ]


def test_no_more_threads_than_allowed(loop: Loop, workers: Workers) -> None:
    """However many jobs wait; and all of them are done."""
    seen: set[int] = set()

    def work() -> None:
        seen.add(threading.get_ident())
        time.sleep(0.01)

    run(loop, workers, *[work] * 50)
    assert 1 < len(seen) <= MOST_THREADS


def test_without_threads(loop: Loop, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none can be had, as under a fork bomb, the loop does the work itself."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    here = threading.get_ident()
    assert run(loop, workers, *[threading.get_ident] * 5) == [here] * 5


def test_memory_is_bounded(loop: Loop, workers: Workers) -> None:
    """Jobs that hold too much together are done by the loop, before it reads anything else."""
    here = threading.get_ident()
    gate = threading.Event()
    threads: list[int] = []

    def work() -> None:
        threads.append(threading.get_ident())
        if threading.get_ident() == here:
            gate.set()
        gate.wait(10)

    run(loop, workers, *[work] * 6, holds=MOST_HELD // 4)
    assert here in threads
    assert len(set(threads)) > 1


class FakeExchange:
    """One whose connection is there, or gone."""

    def __init__(self, *, is_closed: bool) -> None:
        self.connection = self
        self.is_closed = is_closed


@pytest.mark.parametrize(
    ("lost", "idle", "limit", "abandoned"),
    [
        (False, 599, 600, False),
        (False, 601, 600, True),
        (True, LOST_TIMEOUT - 1, 600, False),
        (True, LOST_TIMEOUT + 1, 600, True),
        (True, 6, 5, True),
    ],
)
def test_when_an_upload_is_abandoned(
    lost: bool,  # noqa: FBT001
    idle: float,
    limit: float,
    abandoned: bool,  # noqa: FBT001
) -> None:
    """After its own time, and sooner when its client is gone."""
    upload = _Upload(None, "", -1)  # type: ignore[arg-type]
    upload.idle_timeout = limit
    upload.exchange = FakeExchange(is_closed=lost)  # type: ignore[assignment]
    assert upload.is_abandoned(upload.touched + idle) is abandoned


def test_parts_of_an_upload_come_together() -> None:
    """In any order, twice, or with gaps."""
    upload = _Upload(None, "", -1)  # type: ignore[arg-type]
    assert upload.is_whole(0)
    for begin, end, whole in ((10, 20, False), (0, 5, False), (3, 12, True), (0, 20, True)):
        upload.cover(begin, end)
        assert upload.is_whole(20) is whole
    assert not upload.is_whole(19)
    assert not upload.is_whole(21)
