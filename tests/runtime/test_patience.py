"""A command's pipe waits a moment for its reader before output goes to the disk, and only then."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox_runtime.loop import Loop
from sandbox_runtime.processes import Process
from sandbox_runtime.spool import DATA_IN_MEMORY


class Watched:
    """Stands for a process's pipe."""

    def __init__(self) -> None:
        self.count = 0

    def watch(self) -> None:
        self.count += 1


@pytest.fixture
def loop():
    made = Loop(print)
    yield made
    made.close()


@pytest.fixture
def process(loop, tmp_path: Path) -> Process:
    """One with a reader that has got nothing yet, and with memory used up."""
    table = SimpleNamespace(
        config=SimpleNamespace(spool_dir=str(tmp_path)), spool_limit=1 << 30, loop=loop
    )
    made = Process(table, "p", 1, ["true"], "/")
    made.keeps_output = False
    made.followers = [SimpleNamespace(offset=0)]
    made.outputs = [Watched()]
    made.spool.append(0, bytes(DATA_IN_MEMORY), 0.0)
    return made


def test_it_waits_until_the_reader_has_made_room(process: Process) -> None:
    """And is read on at once then."""
    assert process.waits_for_reader()
    assert process.waits_for_reader()
    process.followers[0].offset = DATA_IN_MEMORY
    process.has_sent()

    assert process.outputs[0].count == 1
    assert not process.waits_for_reader()


def test_a_slow_reader_is_not_waited_for_again_until_it_has_caught_up(process, loop) -> None:
    """What is written meanwhile goes to the disk."""
    assert process.waits_for_reader()
    loop.call_later(0.2, loop.stop)
    loop.run()

    assert process.outputs[0].count == 1
    assert not process.waits_for_reader()
    process.spool.append(0, bytes(DATA_IN_MEMORY), 0.0)
    process.followers[0].offset = process.spool.end
    process.has_sent()
    process.spool.append(0, bytes(DATA_IN_MEMORY), 0.0)
    assert process.waits_for_reader()


@pytest.mark.parametrize("how", ["kept for later readers", "without a reader", "not much"])
def test_it_waits_for_nobody(process: Process, how: str) -> None:
    """Output that is kept, that nobody reads yet, or that memory has room for."""
    if how == "kept for later readers":
        process.keeps_output = True
    elif how == "without a reader":
        process.followers.clear()
    else:
        process.spool.release(process.spool.end)

    assert not process.waits_for_reader()
