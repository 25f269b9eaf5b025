"""When a sandbox may sleep."""

from __future__ import annotations

from sandbox_runtime.activity import Activity


def new(sleep_after: float | None = 10.0, *, keep_alive: bool = False) -> Activity:
    return Activity(100.0, sleep_after=sleep_after, keep_alive=keep_alive)


def test_idle_time_begins_at_the_start_and_at_each_use() -> None:
    """Sleep comes one idle time after the last use."""
    activity = new()
    assert activity.sleep_at() == 110.0

    activity.touch(105.0)

    assert activity.sleep_at() == 115.0
    assert activity.idle_since(106.0) == 105.0


def test_a_holder_keeps_it_awake_until_all_its_holds_end() -> None:
    """Two streams of one process are two holds; the idle time begins with the end of the last."""
    activity = new()
    activity.hold("stream of p-1")
    activity.hold("stream of p-1")
    activity.let_go("stream of p-1", 120.0)
    assert activity.sleep_at() is None
    assert activity.idle_since(500.0) is None
    assert activity.busy(500.0) == ["stream of p-1"]

    activity.let_go("stream of p-1", 500.0)

    assert activity.sleep_at() == 510.0
    assert activity.busy(500.0) == []


def test_a_lease_holds_until_its_time() -> None:
    """The idle time begins when the lease runs out, or is ended."""
    activity = new()
    activity.lease("kernel k", 200.0)
    assert activity.sleep_at() == 210.0
    assert activity.idle_since(150.0) is None
    assert activity.idle_since(205.0) == 200.0
    assert activity.busy(150.0) == ["kernel k (lease)"]

    activity.end_lease("kernel k", 160.0)

    assert activity.sleep_at() == 170.0


def test_an_expired_lease_does_not_count_as_use_when_it_is_removed() -> None:
    """Only a lease that still held restarts the idle time."""
    activity = new()
    activity.lease("kernel k", 101.0)

    activity.end_lease("kernel k", 109.0)

    assert activity.sleep_at() == 110.0


def test_never_sleeping_is_possible_in_two_ways() -> None:
    """keep_alive, and no idle time at all."""
    assert new(None).sleep_at() is None
    activity = new(keep_alive=True)
    assert activity.sleep_at() is None

    activity.configure(300.0, sleep_after=None, keep_alive=False)

    assert activity.sleep_at() == 310.0
