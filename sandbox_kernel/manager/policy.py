"""When to start and end sandboxes that wait in a pool: pure rules, time and memory passed in.

A start is one at a time and keeps a distance from whatever the user has just started: the pool is
there for the next kernel, and must not take processors from the present one.  A failure makes the
distance longer.  Memory sets the bound: nothing is started that would not fit, and what waits goes
when the machine runs short, the least wanted first.

Nothing starts only to be ended: what is asked for before a start leaves room to the limit at which
something is ended, and the largest sandbox ever seen is what the next one is taken to need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

__all__ = ["USUAL_BYTES", "Decision", "History", "Memory", "Rules", "Waiting", "decide"]

Kind = TypeVar("Kind")

USUAL_BYTES = 96 << 20
"""Memory of one that waits, until one has been measured."""

_LONGEST_PAUSE = 600.0
_SOONEST = 1e-3
_KINDS_KEPT = 16


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a pool may be.

    Parameters
    ----------
    size : int
        Sandboxes of each kind that wait.
    memory_bytes : int
        Memory of all that wait, together.
    reserve_bytes : int
        Memory of the machine that must be left over after a start; at half of it one is ended.
    pace : float
        Seconds between a start of anybody's and the next one here; grows with failures.
    linger : float
        Seconds that one stays whose kind is wanted no more, while its place is not needed.
    look : float
        Seconds until everything is looked at again at the latest.
    """

    size: int
    memory_bytes: int
    reserve_bytes: int
    pace: float = 3.0
    linger: float = 300.0
    look: float = 15.0


@dataclass(frozen=True, kw_only=True)
class Waiting(Generic[Kind]):
    """A sandbox that waits.

    Parameters
    ----------
    name : str
        Which one.
    kind : hashable
        What it could be used for.
    bytes_used : int
        Its memory now.
    """

    name: str
    kind: Kind
    bytes_used: int = 0


@dataclass(frozen=True, kw_only=True)
class Memory:
    """How much memory there is for new programs, on the machine or in what we may use of it."""

    available: int


@dataclass(frozen=True, kw_only=True)
class History(Generic[Kind]):
    """What has happened so far; each method returns what is known after one more event."""

    busy_at: float | None = None
    """When a kernel was started last, by anybody, or one for the pool."""
    failed_at: float | None = None
    failures: int = 0
    """Failed starts since the last one that went well."""
    failed_kinds: tuple[Kind, ...] = ()
    """Of which kinds; others come first."""
    largest: int = USUAL_BYTES
    wanted_at: tuple[tuple[Kind, float], ...] = field(default=())
    """For each kind of those that wait, when it was wanted last."""

    def used(self, now: float) -> History[Kind]:
        """Return what is known once a kernel was started, or one for the pool."""
        return replace(self, busy_at=now)

    def succeeded(self, now: float) -> History[Kind]:
        """Return what is known once one more waits."""
        return replace(self, busy_at=now, failed_at=None, failures=0)

    def failed(self, now: float, kind: Kind) -> History[Kind]:
        """Return what is known once a start of a kind has failed."""
        kinds = (*(each for each in self.failed_kinds if each != kind), kind)
        return replace(
            self,
            busy_at=now,
            failed_at=now,
            failures=self.failures + 1,
            failed_kinds=kinds[-_KINDS_KEPT:],
        )

    def looked(
        self, now: float, waiting: Sequence[Waiting[Kind]], wanted: Sequence[Kind]
    ) -> History[Kind]:
        """Return what is known after a look at what waits and what is wanted."""
        before = dict(self.wanted_at)
        kinds = dict.fromkeys(each.kind for each in waiting)
        return replace(
            self,
            largest=max([self.largest, *(each.bytes_used for each in waiting)]),
            wanted_at=tuple(
                (kind, now if kind in wanted else before.get(kind, now)) for kind in kinds
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Decision(Generic[Kind]):
    """What to do now, and when to ask again."""

    start: Kind | None = None
    end: tuple[str, ...] = ()
    again_in: float = 0.0
    """Seconds; sooner when something happens."""


def decide(
    rules: Rules,
    now: float,
    *,
    wanted: Sequence[Kind],
    waiting: Sequence[Waiting[Kind]],
    memory: Memory,
    history: History[Kind],
) -> Decision[Kind]:
    """Decide about a pool; nothing is being started at this moment.

    Parameters
    ----------
    rules : Rules
        What the pool may be.
    now : float
        Seconds of a clock that never goes back.
    wanted : sequence
        The kinds that should wait, the most wanted first.
    waiting : sequence of Waiting
        Those that wait.
    memory : Memory
        What is left on the machine.
    history : History
        After `History.looked` at the same.
    """
    ended = _superfluous(rules, now, wanted=wanted, waiting=waiting, memory=memory, history=history)
    kept = [each for each in waiting if each.name not in ended]
    if ended:
        # What they give back is seen the next time; nothing is started in the same breath.
        return Decision(end=tuple(ended), again_in=_SOONEST)
    missing = [kind for kind in wanted if sum(each.kind == kind for each in kept) < rules.size]
    if not missing:
        return Decision(again_in=rules.look)
    rest = _rest(rules, now, history)
    if rest > 0:
        return Decision(again_in=min(rest, rules.look))
    if memory.available - history.largest < rules.reserve_bytes:
        return Decision(again_in=rules.look)
    if _used(kept) + history.largest <= rules.memory_bytes:
        # One that cannot be had must not keep the others from their turn.
        promising = [kind for kind in missing if kind not in history.failed_kinds]
        oldest = [kind for kind in history.failed_kinds if kind in missing]
        return Decision(start=(promising or oldest)[0], again_in=_SOONEST)
    # Full: whose kind is wanted no more makes room, however short it has lingered.
    unwanted = [each.name for each in kept if each.kind not in wanted]
    if unwanted and history.largest <= rules.memory_bytes:
        return Decision(end=(unwanted[0],), again_in=_SOONEST)
    return Decision(again_in=rules.look)


def _superfluous(
    rules: Rules,
    now: float,
    *,
    wanted: Sequence[Kind],
    waiting: Sequence[Waiting[Kind]],
    memory: Memory,
    history: History[Kind],
) -> list[str]:
    """Return those that have to go, whatever else is decided."""
    last_wanted = dict(history.wanted_at)
    order = {kind: place for place, kind in enumerate(wanted)}
    ended: list[str] = []
    kept: list[Waiting[Kind]] = []
    # The most wanted come first, so those that have to go are at the end.
    for each in sorted(waiting, key=lambda unit: order.get(unit.kind, len(order))):
        lingered = now - last_wanted.get(each.kind, now)
        too_many = sum(other.kind == each.kind for other in kept) >= rules.size
        too_late = each.kind not in order and lingered >= rules.linger
        if too_many or too_late or _used(kept) + each.bytes_used > rules.memory_bytes:
            ended.append(each.name)
        else:
            kept.append(each)
    if kept and memory.available < rules.reserve_bytes // 2 and not ended:
        ended.append(kept[-1].name)
    return ended


def _rest(rules: Rules, now: float, history: History[Kind]) -> float:
    """Return the seconds until something may be started."""
    due = now
    if history.busy_at is not None:
        due = history.busy_at + rules.pace
    if history.failed_at is not None:
        pause = rules.pace * 2.0 ** min(history.failures, 30)
        due = max(due, history.failed_at + min(pause, max(_LONGEST_PAUSE, rules.pace)))
    return due - now


def _used(waiting: Sequence[Waiting[Kind]]) -> int:
    return sum(each.bytes_used for each in waiting)
