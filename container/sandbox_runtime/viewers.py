"""What several viewers of one terminal mean for its pace and its size: pure rules, time passed in.

The pace: a terminal is read while one viewer that counts is not full, and while none counts.  So
the fastest viewer sets it, a program waits only for viewers of which none keeps up, and never for
one that has died or is not looked at.

The size: that of the viewer who last connected with one, typed, got the focus or first named one.
"""

from __future__ import annotations

from sandbox_runtime.quick import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Dimensions = tuple[int, int]

__all__ = ["MOST_LAG", "MOST_QUEUED", "STALL", "WINDOW", "Flow", "Sizes", "may_read", "next_stall"]

WINDOW = 256 << 10
"""Bytes on their way to a viewer that acknowledges, from which on it is full."""

MOST_QUEUED = 64 << 10
"""Bytes waiting beside its socket's buffer, from which on a viewer that does not is full."""

MOST_LAG = 256 << 10
"""Bytes between what was sent to a viewer and the end of the log, beyond which it gets a screen."""

STALL = 1.0
"""Seconds after which a full viewer that takes nothing is not waited for any more."""


class Flow:
    """How much is on its way to one viewer.

    Attributes
    ----------
    outstanding : int
        Bytes sent that it has not taken.
    is_visible : bool
        Whether anybody looks at it, as far as it has said.
    is_choked : bool
        Whether it is not read from now, so that it cannot say what it has taken.
    """

    def __init__(self, window: int) -> None:
        self.outstanding = 0
        self.is_visible = True
        self.is_choked = False
        self.last_offset = 0
        """Offset in the log after all that was sent."""
        self._window = window
        self._sent: deque[tuple[int, int]] = deque()
        self._full_since: float | None = None

    def __repr__(self) -> str:
        return f"<Flow outstanding={self.outstanding} full_since={self._full_since}>"

    @property
    def is_full(self) -> bool:
        """Whether nothing more is sent for now."""
        return self.outstanding >= self._window

    def counts(self, now: float) -> bool:
        """Whether the terminal's pace depends on this viewer."""
        return (
            self.is_visible
            and not self.is_choked
            and (self._full_since is None or now < self._full_since + STALL)
        )

    def stalls_at(self, now: float) -> float | None:
        """Return when it stops to count if it takes nothing until then; None if it will not."""
        if self._full_since is None or not self.counts(now):
            return None
        return self._full_since + STALL

    def sent(self, size: int, offset: int, now: float) -> None:
        """Note that `size` bytes are on their way, the log's up to `offset`."""
        self.last_offset = offset
        self.outstanding += size
        self._sent.append((offset, size))
        self._check(now, progress=False)

    def acknowledged(self, offset: int, now: float) -> None:
        """Note that all up to an offset has been taken."""
        before = self.outstanding
        while self._sent and self._sent[0][0] <= offset:
            self.outstanding -= self._sent.popleft()[1]
        self._check(now, progress=self.outstanding < before)

    def measured(self, outstanding: int, now: float) -> None:
        """Note how much is on its way, where that is known without acknowledgements."""
        progress = outstanding < self.outstanding
        self.outstanding = outstanding
        self._sent.clear()
        self._check(now, progress=progress)

    def _check(self, now: float, *, progress: bool) -> None:
        if not self.is_full:
            self._full_since = None
        elif progress or self._full_since is None:
            self._full_since = now


def may_read(flows: Iterable[Flow], now: float) -> bool:
    """Whether a terminal with these viewers is to be read."""
    nobody_counts = True
    for each in flows:
        if each.counts(now):
            if not each.is_full:
                return True
            nobody_counts = False
    return nobody_counts


def next_stall(flows: Iterable[Flow], now: float) -> float | None:
    """Return when the answer of `may_read` may change by time alone."""
    times = [when for each in flows if (when := each.stalls_at(now)) is not None]
    return min(times, default=None)


class Sizes:
    """Who decides a terminal's size; viewers are any objects.

    Attributes
    ----------
    size : tuple of int
        Columns and rows the terminal has now.
    """

    def __init__(self, size: Dimensions) -> None:
        self.size = size
        self._named: dict[object, Dimensions] = {}  # who decided last comes last
        self._hidden: set[object] = set()
        self._decided: tuple[object, Dimensions] | None = None

    @property
    def decider(self) -> object | None:
        """The viewer whose size it is; None if none has one."""
        return None if self._decided is None else self._decided[0]

    def resize(self, viewer: object, size: Dimensions) -> Dimensions:
        """Take a viewer's size; its first one is a claim as well.  Return the terminal's."""
        self._named[viewer] = size
        if self._decided is not None and self._decided[0] is viewer:
            self._decided = None
        return self._decide()

    def claim(self, viewer: object) -> Dimensions:
        """Let a viewer decide from now on, if it has named a size.  Return the terminal's."""
        if viewer in self._named and (self._decided is None or self._decided[0] is not viewer):
            self._named[viewer] = self._named.pop(viewer)
            self._decide()
        return self.size

    def show(self, viewer: object, *, is_visible: bool) -> Dimensions:
        """Take into account whether a viewer is seen.  Return the terminal's size."""
        if is_visible:
            self._hidden.discard(viewer)
        else:
            self._hidden.add(viewer)
        return self._decide()

    def leave(self, viewer: object) -> Dimensions:
        """Forget a viewer.  Return the terminal's size."""
        self._named.pop(viewer, None)
        self._hidden.discard(viewer)
        return self._decide()

    def set(self, size: Dimensions) -> None:
        """Set the size until a viewer decides otherwise."""
        self.size = size

    def _decide(self) -> Dimensions:
        seen = [each for each in self._named.items() if each[0] not in self._hidden]
        decided = seen[-1] if seen else None
        if decided is not None and decided != self._decided:
            self.size = decided[1]
        self._decided = decided
        return self.size
