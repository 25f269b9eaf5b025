"""A runtime for each test, started as a plain child process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime_child import Client, RuntimeChild
from tests.support.xterm_judge import XtermJudge

Start = Callable[..., RuntimeChild]


@pytest.fixture
def start_runtime(tmp_path: Path) -> Iterator[Start]:
    """Start runtimes with config fields of the test's choice; all are stopped at its end."""
    started: list[RuntimeChild] = []

    def start(**config: Any) -> RuntimeChild:
        folder = tmp_path / f"runtime-{len(started)}"
        folder.mkdir()
        started.append(RuntimeChild(folder, **config))
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def runtime(start_runtime: Start) -> RuntimeChild:
    return start_runtime()


@pytest.fixture
def client(runtime: RuntimeChild) -> Iterator[Client]:
    with runtime.connect() as connected:
        connected.welcome()
        yield connected


@pytest.fixture(scope="session")
def xterm() -> Iterator[XtermJudge]:
    """The terminal of the browser, which says what is right."""
    judge = XtermJudge()
    yield judge
    judge.close()
