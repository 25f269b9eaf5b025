"""Pace and size of a terminal with several viewers: pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_runtime.viewers import STALL, WINDOW, Flow, Sizes, may_read, next_stall


def full(now: float = 0.0) -> Flow:
    flow = Flow(WINDOW)
    flow.sent(WINDOW, WINDOW, now)
    return flow


def test_a_terminal_without_viewers_is_read() -> None:
    """No program waits because nobody looks."""
    assert may_read([], 0.0)


def test_a_program_waits_for_the_only_viewer() -> None:
    """From a full window on, until the viewer has taken something."""
    flow = Flow(WINDOW)
    flow.sent(WINDOW - 1, WINDOW - 1, 0.0)
    assert may_read([flow], 0.0)
    flow.sent(1, WINDOW, 0.0)
    assert not may_read([flow], 0.0)

    flow.acknowledged(WINDOW - 1, 0.5)

    assert may_read([flow], 0.5)
    assert flow.outstanding == 1


def test_the_fastest_viewer_sets_the_pace() -> None:
    """One that is full delays nobody else."""
    assert may_read([full(), Flow(WINDOW)], 0.0)


def test_a_dead_viewer_is_waited_for_once() -> None:
    """For a second in which it takes nothing; it counts again when it does."""
    flow = full(now=10.0)
    assert not may_read([flow], 10.0 + STALL / 2)
    assert next_stall([flow], 10.5) == 10.0 + STALL

    assert may_read([flow], 10.0 + STALL)
    assert next_stall([flow], 10.0 + STALL) is None

    flow.sent(WINDOW, 2 * WINDOW, 11.5)
    flow.acknowledged(WINDOW, 12.0)
    assert not may_read([flow], 12.1)
    assert next_stall([flow], 12.1) == 12.0 + STALL


def test_a_slow_viewer_is_not_dead() -> None:
    """Whoever takes a little in each second sets a slow pace, if alone."""
    flow = Flow(WINDOW)
    for number in range(100):
        flow.sent(WINDOW // 10, number, 0.0)
    for number in range(50):
        now = number * STALL * 0.9
        flow.acknowledged(number, now)
        assert not may_read([flow], now + STALL * 0.9)


@pytest.mark.parametrize("reason", ["is_hidden", "is_choked"])
def test_viewers_that_do_not_count(reason: str) -> None:
    """A hidden one, and one whose acknowledgements cannot be heard, do not hold a program up."""
    flow = full()
    if reason == "is_hidden":
        flow.is_visible = False
    else:
        flow.is_choked = True

    assert may_read([flow], 0.0)
    assert not may_read([flow, full()], 0.0)


def test_a_viewer_without_acknowledgements_is_measured() -> None:
    """By what waits beside its socket; any progress keeps it alive."""
    flow = Flow(1000)
    flow.measured(1500, 0.0)
    assert not may_read([flow], 0.5)
    flow.measured(1400, 0.9)
    assert not may_read([flow], 1.5)
    assert may_read([flow], 0.9 + STALL)

    flow.measured(0, 5.0)
    assert not flow.is_full


@given(st.lists(st.tuples(st.integers(1, 50_000), st.integers(0, 20)), max_size=60))
def test_outstanding_is_what_was_sent_after_the_last_acknowledgement(
    steps: list[tuple[int, int]],
) -> None:
    """Whatever the order of sending and acknowledging."""
    flow, offset, sent, acknowledged = Flow(WINDOW), 0, [], 0
    for now, (size, ack) in enumerate(steps):
        offset += size
        flow.sent(size, offset, now)
        sent.append((offset, size))
        if ack < len(sent):
            acknowledged = max(acknowledged, sent[ack][0])
            flow.acknowledged(sent[ack][0], now)

        assert flow.outstanding == sum(size for end, size in sent if end > acknowledged)
        assert flow.is_full == (flow.outstanding >= WINDOW)


def test_the_last_viewer_to_connect_decides() -> None:
    """And when it leaves, the size of the one before it returns by itself."""
    sizes = Sizes((80, 24))
    assert sizes.resize("A", (120, 40)) == (120, 40)
    assert sizes.resize("B", (60, 20)) == (60, 20)

    assert sizes.leave("B") == (120, 40)


def test_who_types_or_has_the_focus_decides() -> None:
    """A resize of another one counts when its turn comes."""
    sizes = Sizes((80, 24))
    sizes.resize("A", (120, 40))
    sizes.resize("B", (60, 20))
    assert sizes.claim("A") == (120, 40)
    assert sizes.resize("B", (61, 21)) == (120, 40)
    assert sizes.resize("A", (121, 41)) == (121, 41)

    assert sizes.claim("B") == (61, 21)
    assert sizes.claim("C") == (61, 21), "one without a size decides nothing"


def test_hidden_viewers_do_not_count() -> None:
    """They keep their place for when they are seen again."""
    sizes = Sizes((80, 24))
    sizes.resize("A", (120, 40))
    sizes.resize("B", (60, 20))

    assert sizes.show("B", is_visible=False) == (120, 40)
    assert sizes.claim("B") == (120, 40)
    assert sizes.show("B", is_visible=True) == (60, 20)
    sizes.show("A", is_visible=False)
    assert sizes.leave("B") == (60, 20), "the last one's size stays"


def test_a_call_decides_until_a_viewer_does() -> None:
    """Viewers that come and go beside the deciding one change nothing."""
    sizes = Sizes((80, 24))
    sizes.resize("A", (120, 40))
    sizes.set((100, 30))
    assert sizes.claim("A") == (100, 30)
    sizes.resize("A", (120, 40))
    assert sizes.size == (120, 40)

    sizes.set((100, 30))
    assert sizes.resize("B", (60, 20)) == (60, 20)
