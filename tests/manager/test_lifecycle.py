from __future__ import annotations

import itertools

import pytest

from sandbox_kernel.manager.lifecycle import (
    Event,
    IllegalMoveError,
    State,
    Step,
    advance,
    steps_to_running,
)


def test_a_whole_life():
    """Created, started, stopped, started, destroyed: each move leads where the drawing says."""
    state = State.ABSENT
    for event, expected in [
        (Event.CREATE, State.STOPPED),
        (Event.START, State.STARTING),
        (Event.STARTED, State.RUNNING),
        (Event.STOP, State.STOPPING),
        (Event.STOPPED, State.STOPPED),
        (Event.START, State.STARTING),
        (Event.FAILED, State.STOPPED),
        (Event.DESTROY, State.DESTROYING),
        (Event.DESTROYED, State.ABSENT),
    ]:
        state = advance(state, event)
        assert state is expected


def test_every_other_move_is_illegal():
    """Of all pairs only those of the table move; the others raise."""
    legal = 0
    for state, event in itertools.product(State, Event):
        try:
            advance(state, event)
        except IllegalMoveError:
            continue
        legal += 1

    assert legal == 15
    with pytest.raises(IllegalMoveError):
        advance(State.DESTROYING, Event.START)


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("state", State)
def test_from_every_state_there_is_a_way_to_running(state, alive):
    """Whatever a crash left, the steps end with a start, and clean what may be lying about."""
    steps = steps_to_running(state, alive=alive)

    if state is State.RUNNING and alive:
        assert steps == []
        return
    assert steps[-1] is Step.START
    if state in (State.STARTING, State.STOPPING, State.RUNNING):
        assert Step.CLEAN in steps
    if state is State.DESTROYING:
        assert steps == [Step.FINISH_DESTROY, Step.CREATE, Step.START]
