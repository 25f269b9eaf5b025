"""When a terminal's output goes to its readers at once, and when it waits to be joined."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_runtime.terminals import MANY_READERS, READS, Terminal
from sandbox_runtime.viewers import Flow

COST = 0.002


class Reader:
    """Takes everything, and some time for it."""

    def __init__(self) -> None:
        self.flow = Flow(1 << 20)
        self.pieces: list[bytes] = []

    def take(self, data: bytes, _begin: int, _end: int) -> bool:
        time.sleep(COST)
        self.pieces.append(data)
        return True


class Scene:
    """A terminal that reads from a pipe, whose loop runs nothing by itself."""

    def __init__(self) -> None:
        self.timers: list[Any] = []
        table: Any = SimpleNamespace(
            incarnation="0" * 16,
            calm_from=0.0,
            loop=SimpleNamespace(call_at=self._call_at),
        )
        self.table = table
        self.terminal: Any = Terminal(
            table, "t-1", ["cat"], "/", session=None, size=(80, 24), buffer_size=1 << 20
        )
        read, self.end = os.pipe2(os.O_NONBLOCK)
        self.terminal._master, self.terminal._is_reading = read, True

    def _call_at(self, *timer: Any) -> object:
        self.timers.append(timer)
        return timer

    def read_by(self, count: int) -> Reader:
        readers = [Reader() for _ in range(count)]
        self.terminal.readers = readers
        self.terminal._until_viewed = None
        return readers[-1]

    def output(self, *pieces: bytes) -> None:
        for each in pieces:
            os.write(self.end, each)
            self.terminal._ready(0)

    def run_timers(self) -> None:
        due, self.timers = self.timers, []
        for when, callback in due:
            while time.monotonic() < when:
                time.sleep(0.001)
            callback()

    def close(self) -> None:
        os.close(self.end)
        os.close(self.terminal._master)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_a_few_readers_get_each_small_piece_at_once(scene: Scene) -> None:
    """A key waits for nothing, however long each of them takes."""
    reader = scene.read_by(MANY_READERS - 1)
    scene.output(b"a", b"b", b"c")

    assert reader.pieces == [b"a", b"b", b"c"]
    assert scene.timers == []


def test_many_readers_get_what_follows_soon_in_one_piece(scene: Scene) -> None:
    """After a piece, the next one waits twice as long as that one took; no byte is lost."""
    reader = scene.read_by(MANY_READERS)
    started = time.monotonic()
    scene.output(b"a", b"b", b"c", b"d")

    assert reader.pieces == [b"a"]
    assert [when > started + 2 * MANY_READERS * COST for when, _ in scene.timers] == [True]
    scene.run_timers()
    assert reader.pieces == [b"a", b"bcd"]


def test_many_readers_get_a_key_after_a_pause_at_once(scene: Scene) -> None:
    """What nothing came before of late is nobody's burden."""
    reader = scene.read_by(MANY_READERS)
    scene.output(b"a")
    deadline = time.monotonic() + 10
    while time.monotonic() < min(deadline, scene.terminal._rests_until):
        time.sleep(0.001)
    scene.output(b"b")

    assert reader.pieces == [b"a", b"b"]


@pytest.mark.parametrize(("is_typing", "reads"), [(False, READS), (True, 1)])
def test_a_flood_is_read_more_than_once_for_a_wake_up_while_nobody_types(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, is_typing: bool, reads: int
) -> None:
    """Whoever types, in any terminal, waits for one read of a neighbour's flood at most."""
    scene.read_by(1)
    read = os.read
    taken: list[bytes] = []

    def read_as_a_terminal(descriptor: int, _size: int) -> bytes:
        taken.append(read(descriptor, 4095))
        return taken[-1]

    os.write(scene.end, b"x" * 40_000)
    scene.table.calm_from = time.monotonic() + (60 if is_typing else 0)
    monkeypatch.setattr("sandbox_runtime.terminals.os.read", read_as_a_terminal)
    scene.terminal._ready(0)
    monkeypatch.undo()

    assert [len(each) for each in taken] == [4095] * reads


def test_what_comes_behind_a_flood_stays_in_its_place(scene: Scene) -> None:
    """Reading on ends where nothing more is there, and everything is passed on in its order."""
    reader = scene.read_by(1)
    scene.output(b"x" * 3000, b"y" * 10)
    scene.run_timers()

    assert b"".join(reader.pieces) == b"x" * 3000 + b"y" * 10
