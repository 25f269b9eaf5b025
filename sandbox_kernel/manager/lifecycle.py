"""The states of one sandbox id as the registry stores them, and the moves that are legal.

::

    absent --create--> stopped --start--> starting --started--> running
                         ^  ^                |                     |
                         |  +--failed--------+                     |
                         +--stopped-- stopping <--stop-------------+
    any but absent --destroy--> destroying --destroyed--> absent

`STARTING`, `STOPPING` and `DESTROYING` are written before the work begins.  Whoever finds one of
them while holding the sandbox's lock knows that the process which wrote it died on the way.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Event", "IllegalMoveError", "State", "Step", "advance", "steps_to_running"]


class State(StrEnum):
    """What the registry says of a sandbox id."""

    ABSENT = "absent"
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DESTROYING = "destroying"


class Event(StrEnum):
    """What is about to happen, or has happened."""

    CREATE = "create"
    START = "start"
    STARTED = "started"
    FAILED = "failed"
    STOP = "stop"
    STOPPED = "stopped"
    DESTROY = "destroy"
    DESTROYED = "destroyed"


class Step(StrEnum):
    """One thing the manager has to do, in the order given."""

    CREATE = "create"
    CLEAN = "clean"
    """End whatever is left of an earlier incarnation."""
    FINISH_DESTROY = "finish destroy"
    START = "start"


class IllegalMoveError(RuntimeError):
    """A move that the table does not hold: a fault of this program."""


_MOVES: dict[tuple[State, Event], State] = {
    (State.ABSENT, Event.CREATE): State.STOPPED,
    (State.STOPPED, Event.START): State.STARTING,
    (State.STARTING, Event.STARTED): State.RUNNING,
    (State.STARTING, Event.FAILED): State.STOPPED,
    (State.STOPPED, Event.STOP): State.STOPPING,
    (State.STARTING, Event.STOP): State.STOPPING,
    (State.RUNNING, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.STOPPED): State.STOPPED,
    (State.STOPPED, Event.DESTROY): State.DESTROYING,
    (State.STARTING, Event.DESTROY): State.DESTROYING,
    (State.RUNNING, Event.DESTROY): State.DESTROYING,
    (State.STOPPING, Event.DESTROY): State.DESTROYING,
    (State.DESTROYING, Event.DESTROY): State.DESTROYING,
    (State.DESTROYING, Event.DESTROYED): State.ABSENT,
}


def advance(state: State, event: Event) -> State:
    """Return the state after the event.

    Raises
    ------
    IllegalMoveError
        The event cannot happen in this state.
    """
    try:
        return _MOVES[state, event]
    except KeyError:
        raise IllegalMoveError(f"{event.value!r} in state {state.value!r}") from None


def steps_to_running(state: State, *, alive: bool) -> list[Step]:
    """Return what to do, under the lock, until the sandbox runs.

    Parameters
    ----------
    state : State
        What the registry says.
    alive : bool
        Whether the engine finds the recorded incarnation alive; only asked for `RUNNING`.
    """
    match state:
        case State.RUNNING if alive:
            return []
        case State.RUNNING | State.STARTING | State.STOPPING:
            return [Step.CLEAN, Step.START]
        case State.STOPPED:
            return [Step.START]
        case State.DESTROYING:
            return [Step.FINISH_DESTROY, Step.CREATE, Step.START]
        case State.ABSENT:
            return [Step.CREATE, Step.START]
