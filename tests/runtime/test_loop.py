"""The loop: order of timers, faults that stay where they are, descriptors that vanish."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator

import pytest

from sandbox_runtime.loop import READ, Loop


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def loop(log: list[str]) -> Iterator[Loop]:
    before = signal.getsignal(signal.SIGUSR1)
    made = Loop(log.append)
    yield made
    signal.signal(signal.SIGUSR1, before)
    made.close()


def test_timers_run_in_order_and_cancelled_ones_do_not(loop: Loop) -> None:
    """Time decides, not the order of registration."""
    seen: list[str] = []
    loop.call_later(0.02, lambda: seen.append("second"))
    loop.call_later(0.01, lambda: seen.append("first"))
    loop.call_later(0.015, lambda: seen.append("never")).cancel()
    loop.call_later(0.03, loop.stop)

    loop.run()

    assert seen == ["first", "second"]


def test_cancelled_timers_do_not_pile_up(loop: Loop) -> None:
    """Commands with long limits that end early leave nothing behind for long."""
    for _ in range(10_000):
        loop.call_later(3600, loop.stop).cancel()

    assert len(loop._timers) < 1000


def test_a_fault_in_a_callback_is_told_and_contained(loop: Loop, log: list[str]) -> None:
    """One descriptor's trouble ends its watching, not the loop."""
    read, write = os.pipe()
    os.write(write, b"x")

    def fail(_events: int) -> None:
        raise ValueError("of this descriptor")

    loop.add(read, READ, fail)
    loop.call_later(0.05, loop.stop)
    loop.call_soon(lambda: 1 / 0)
    loop.run()

    text = "\n".join(log)
    assert "of this descriptor" in text
    assert "ZeroDivisionError" in text
    assert text.count("ValueError: of this descriptor") == 1
    os.close(read)
    os.close(write)


def test_a_fault_that_cannot_be_told_is_contained() -> None:
    """A log that fails, a descriptor closed before the fault, a signal's callback: all go on."""

    def full(_line: str) -> None:
        raise OSError(errno.ENOSPC, "full")

    before = signal.getsignal(signal.SIGUSR1)
    loop = Loop(full)
    read, write = os.pipe()
    os.write(write, b"x")
    seen: list[int] = []

    def fail(_events: int) -> None:
        os.close(read)
        raise ValueError("of this descriptor")

    def signalled() -> None:
        seen.append(1)
        if len(seen) == 2:
            loop.stop()
        else:
            loop.call_soon(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        raise ValueError("of this signal")

    loop.add(read, READ, fail)
    loop.on_signal(signal.SIGUSR1, signalled)
    loop.call_soon(lambda: 1 / 0)
    loop.call_later(0.02, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    loop.call_later(10, loop.stop)
    loop.run()

    assert len(seen) == 2
    signal.signal(signal.SIGUSR1, before)
    loop.close()
    os.close(write)


def test_a_descriptor_removed_in_the_same_turn_is_not_called(loop: Loop) -> None:
    """What one callback closes, the next one of the same wake-up does not touch."""
    pipes = [os.pipe() for _ in range(2)]
    seen: list[int] = []

    def ready(which: int) -> None:
        seen.append(which)
        for read, _ in pipes:
            loop.remove_if_added(read)

    for which, (read, write) in enumerate(pipes):
        os.write(write, b"x")
        loop.add(read, READ, lambda _events, which=which: ready(which))  # type: ignore[misc]
    loop.call_later(0.03, loop.stop)
    loop.run()

    assert len(seen) == 1
    for pair in pipes:
        for fd in pair:
            os.close(fd)


def test_signals_arrive_as_calls(loop: Loop) -> None:
    """A signal wakes the loop and its callback runs outside any handler."""
    loop.on_signal(signal.SIGUSR1, loop.stop)
    loop.call_soon(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    began = time.monotonic()

    loop.run()

    assert time.monotonic() - began < 5


def test_a_timer_that_stops_the_loop_ends_it(loop: Loop) -> None:
    """Who stops it from a timer does not wait for the next event."""
    loop.call_later(0.01, loop.stop)
    started = time.monotonic()
    loop.run()

    assert time.monotonic() - started < 5


def test_a_timer_that_sets_itself_again_lets_others_come(loop: Loop) -> None:
    """What is due at once, again and again, takes its turn with the descriptors."""
    reader, writer = os.pipe()
    loop.add(reader, READ, lambda _events: loop.stop())

    def again() -> None:
        loop.call_later(0, again)

    again()
    os.write(writer, b"x")
    loop.run()
    loop.remove(reader)
    os.close(reader)
    os.close(writer)
