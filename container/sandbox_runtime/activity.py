"""When a sandbox may sleep: pure rules, time passed in.

What holds it awake: a command or started process that runs, also in the foreground of a terminal,
a stream or a connection to a port that is open, an attached relay, and a detached kernel while its
lease lasts.  What does not: an open connection, a lookup, an idle shell, a viewer of a terminal
(typing counts as use, but not to connect: a forgotten page does so again and again), something left
in the background by a command that has ended.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ANSWERED_ASLEEP", "LOOKUPS", "Activity"]

LOOKUPS = frozenset(
    (
        "runtime.health",
        "runtime.configure",
        "process.get",
        "process.list",
        "session.get",
        "session.list",
        "kernel.list",
        "port.connect",
        "port.get",
        "port.list",
        "port.wait",
        "terminal.create",
        "terminal.get",
        "terminal.list",
        "terminal.snapshot",
        "terminal.connect",
    )
)
"""Operations that observe only; every other one starts the idle time anew.

`terminal.create` does so by itself where it starts one rather than finds it, `port.connect` where
somebody listens, and `port.wait` when it ends.
"""

ANSWERED_ASLEEP = frozenset(
    (
        "runtime.health",
        "runtime.configure",
        "runtime.shutdown",
        "process.get",
        "process.list",
        "session.get",
        "session.list",
        "kernel.list",
        "port.get",
        "port.list",
        "terminal.get",
        "terminal.list",
    )
)
"""What is still done between falling asleep and the end; the rest is for the next incarnation."""


class Activity:
    """The idle clock of a sandbox; all times are monotonic seconds.

    Parameters
    ----------
    now : float
        When the sandbox started.
    sleep_after : float, optional
        Idle seconds until sleep; None never.
    keep_alive : bool
        Never sleep while this is set.
    """

    def __init__(self, now: float, *, sleep_after: float | None, keep_alive: bool) -> None:
        self.sleep_after = sleep_after
        self.keep_alive = keep_alive
        self._holders: dict[str, int] = {}
        self._leases: dict[str, float] = {}
        self._idle_since = now

    def touch(self, now: float) -> None:
        """Note that something was asked of the sandbox."""
        self._idle_since = max(self._idle_since, now)

    def hold(self, holder: str) -> None:
        """Hold the sandbox awake until the same holder lets go as often."""
        self._holders[holder] = self._holders.get(holder, 0) + 1

    def let_go(self, holder: str, now: float) -> None:
        """End one hold; the idle time starts anew with the last one."""
        count = self._holders.get(holder, 0) - 1
        if count > 0:
            self._holders[holder] = count
        else:
            self._holders.pop(holder, None)
        self.touch(now)

    def lease(self, holder: str, until: float) -> None:
        """Hold the sandbox awake until a time; a second lease of a holder replaces the first."""
        self._leases[holder] = until

    def end_lease(self, holder: str, now: float) -> None:
        """End a lease early; without one nothing changes."""
        if self._leases.pop(holder, now) > now:
            self.touch(now)

    def configure(self, now: float, *, sleep_after: float | None, keep_alive: bool | None) -> None:
        """Change the rules; None leaves one as it is.  The idle time starts anew."""
        if sleep_after is not None:
            self.sleep_after = sleep_after
        if keep_alive is not None:
            self.keep_alive = keep_alive
        self.touch(now)

    def busy(self, now: float) -> list[str]:
        """Return what holds the sandbox awake, for people."""
        leased = (f"{name} (lease)" for name, until in self._leases.items() if until > now)
        return [*self._holders, *leased]

    def idle_since(self, now: float) -> float | None:
        """Return since when nothing has held the sandbox awake; None while something does."""
        if self._holders or any(until > now for until in self._leases.values()):
            return None
        return max((self._idle_since, *_past(self._leases.values(), now)))

    def sleep_at(self) -> float | None:
        """Return when to sleep if nothing happens until then; None while there is no such time."""
        if self.keep_alive or self.sleep_after is None or self._holders:
            return None
        since = max((self._idle_since, *self._leases.values()))
        return since + self.sleep_after


def _past(times: Iterable[float], now: float) -> list[float]:
    return [time for time in times if time <= now]
