"""When sandboxes of a pool start and end: rules over time, with a machine that is a few numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.manager.policy import (
    USUAL_BYTES,
    Decision,
    History,
    Memory,
    Rules,
    Waiting,
    decide,
)

GIB = 1 << 30
ROOMY = Memory(available=8 * GIB)
RULES = Rules(size=1, memory_bytes=GIB, reserve_bytes=GIB)


def ask(
    now: float = 100.0,
    *,
    rules: Rules = RULES,
    wanted: tuple[str, ...] = ("a",),
    waiting: tuple[Waiting[str], ...] = (),
    memory: Memory = ROOMY,
    history: History[str] | None = None,
) -> Decision[str]:
    looked = (history or History()).looked(now, waiting, wanted)
    return decide(rules, now, wanted=wanted, waiting=waiting, memory=memory, history=looked)


def unit(name: str, kind: str = "a", size: int = USUAL_BYTES) -> Waiting[str]:
    return Waiting(name=name, kind=kind, bytes_used=size)


def test_the_most_wanted_kind_that_lacks_one_comes_first() -> None:
    """The order of what is wanted decides."""
    assert ask(wanted=("b", "a")).start == "b"
    assert ask(wanted=("b", "a"), waiting=(unit("1", "b"),)).start == "a"


def test_nothing_starts_where_all_that_is_wanted_waits() -> None:
    """A full pool rests until it is time to look."""
    decision = ask(waiting=(unit("1"),))

    assert decision == Decision(again_in=RULES.look)


def test_a_start_keeps_its_distance_from_the_last_kernel() -> None:
    """The kernel that a user has just started has the processors to itself first."""
    busy = History[str]().used(100.0)

    assert ask(101.0, history=busy) == Decision(again_in=RULES.pace - 1.0)
    assert ask(100.0 + RULES.pace, history=busy).start == "a"


def test_failures_make_the_distance_longer_and_a_success_ends_that() -> None:
    """Twice as long with each, up to ten minutes."""
    history = History[str]()
    pauses = []
    for _ in range(12):
        history = history.failed(0.0, "a")
        pauses.append(
            next(t for t in range(3000) if ask(float(t), history=history).start is not None)
        )

    assert pauses[:3] == [6, 12, 24]
    assert pauses[-1] == 600
    assert ask(RULES.pace, history=history.succeeded(0.0)).start == "a"


def test_a_kind_that_cannot_be_had_does_not_keep_the_others_from_their_turn() -> None:
    """It comes last, and again once the others are there."""
    history = History[str]().failed(0.0, "a")

    assert ask(wanted=("a", "b"), history=history).start == "b"
    assert ask(wanted=("a", "b"), waiting=(unit("1", "b"),), history=history).start == "a"
    both = history.failed(1.0, "b")
    assert ask(1000.0, wanted=("b", "a"), history=both).start == "a"


def test_what_is_wanted_no_more_lingers() -> None:
    """Somebody who goes back and forth between folders finds it again."""
    history = History[str]().looked(0.0, [unit("1", "b")], ["b"])
    both = (unit("1", "b"), unit("2", "a"))

    assert ask(10.0, waiting=both, history=history).end == ()
    assert ask(RULES.linger, waiting=both, history=history).end == ("1",)


def test_what_is_wanted_no_more_makes_room_in_a_full_pool() -> None:
    """Room is given to what is wanted at once."""
    tight = Rules(size=1, memory_bytes=USUAL_BYTES, reserve_bytes=0)

    decision = ask(rules=tight, waiting=(unit("1", "b"),))

    assert decision.end == ("1",)
    assert decision.start is None


def test_a_machine_short_of_memory_gets_it_back_from_the_least_wanted() -> None:
    """One at a time, since what it gives back is only seen afterwards."""
    both = (unit("1", "a"), unit("2", "b"))
    short = Memory(available=RULES.reserve_bytes // 2 - 1)

    assert ask(wanted=("a", "b"), waiting=both, memory=short).end == ("2",)


def test_a_pool_of_size_zero_is_emptied() -> None:
    """As after a change of the settings, of what an earlier server has left."""
    none = Rules(size=0, memory_bytes=GIB, reserve_bytes=GIB)

    decision = ask(rules=none, waiting=(unit("1"),))

    assert decision.end == ("1",)


@dataclass
class Machine:
    """Carries decisions out, and counts."""

    rules: Rules
    available: int
    real_size: int
    now: float = 0.0
    waiting: list[Waiting[str]] = field(default_factory=list)
    history: History[str] = field(default_factory=History)
    started: list[float] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    count: int = 0

    def turn(self, wanted: list[str], *, fails: bool = False) -> Decision[str]:
        self.history = self.history.looked(self.now, self.waiting, wanted)
        decision = decide(
            self.rules,
            self.now,
            wanted=wanted,
            waiting=self.waiting,
            memory=Memory(available=self.available),
            history=self.history,
        )
        for name in decision.end:
            self.available += next(u.bytes_used for u in self.waiting if u.name == name)
            self.waiting = [each for each in self.waiting if each.name != name]
            self.ended.append(name)
        if decision.start is not None and fails:
            self.history = self.history.failed(self.now, decision.start)
        elif decision.start is not None:
            self.count += 1
            self.available -= self.real_size
            self.waiting.append(unit(str(self.count), decision.start, self.real_size))
            self.started.append(self.now)
            self.history = self.history.succeeded(self.now)
        return decision

    def claim(self) -> None:
        """A kernel takes one, with its memory."""
        if self.waiting:
            self.waiting.pop(0)
        self.history = self.history.used(self.now)


RULE_SETS = st.builds(
    Rules,
    size=st.integers(0, 3),
    memory_bytes=st.integers(0, 8).map(lambda n: n * USUAL_BYTES),
    reserve_bytes=st.integers(0, 2 * GIB),
    pace=st.floats(0.5, 10.0),
)
SIZES = st.integers(10 << 20, 300 << 20)
KINDS = st.lists(st.sampled_from("abcd"), max_size=3, unique=True)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["wait", "claim", "want", "lose memory", "gain memory", "fail"]),
        st.floats(0.0, 60.0),
        KINDS,
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(rules=RULE_SETS, size=SIZES, steps=STEPS, available=st.integers(0, 6 * GIB))
def test_whatever_happens_the_bounds_hold(
    rules: Rules, size: int, steps: list[tuple[str, float, list[str]]], available: int
) -> None:
    """Never more than the size of a kind, starts apart by the pace, and memory within its bounds."""
    machine = Machine(rules, available, size)
    wanted = ["a"]
    for what, seconds, kinds in steps:
        machine.now += seconds
        if what == "claim":
            machine.claim()
        elif what == "want":
            wanted = kinds
        elif what == "lose memory":
            machine.available //= 2
        elif what == "gain memory":
            machine.available += GIB
        before = machine.available
        decision = machine.turn(wanted, fails=what == "fail")

        assert decision.again_in > 0
        assert not (decision.start and decision.end)
        if decision.start is not None:
            assert decision.start in wanted
            assert before - machine.history.largest >= rules.reserve_bytes
        counts = [sum(each.kind == kind for each in machine.waiting) for kind in "abcd"]
        assert max(counts) <= rules.size
        # One that turned out larger than any before it is what a later turn ends.
        known = machine.history.largest
        if all(each.bytes_used <= known for each in machine.waiting):
            used = sum(each.bytes_used for each in machine.waiting)
            assert used <= rules.memory_bytes + max(0, size - known)
    gaps = [b - a for a, b in zip(machine.started, machine.started[1:], strict=False)]
    assert all(gap >= rules.pace * 0.999 for gap in gaps)


@settings(max_examples=300, deadline=None)
@given(rules=RULE_SETS, size=SIZES, wanted=KINDS, available=st.integers(0, 6 * GIB))
def test_it_does_not_flap(rules: Rules, size: int, wanted: list[str], available: int) -> None:
    """With nobody doing anything, what was started stays; one sandbox may show its size first."""
    machine = Machine(rules, available, size)
    for _ in range(200):
        decision = machine.turn(wanted)
        machine.now += max(decision.again_in, 0.5)

    assert len(machine.ended) <= 1
    assert len(machine.started) <= rules.size * len(wanted) + 1


@given(wanted=KINDS, size=st.integers(1, 3))
def test_a_roomy_machine_gets_all_that_is_wanted(wanted: list[str], size: int) -> None:
    """As many of each kind as the size says."""
    machine = Machine(
        Rules(size=size, memory_bytes=8 * GIB, reserve_bytes=0), 64 * GIB, USUAL_BYTES
    )
    for _ in range(100):
        machine.now += max(machine.turn(wanted).again_in, 0.5)

    assert sorted(each.kind for each in machine.waiting) == sorted(wanted * size)
