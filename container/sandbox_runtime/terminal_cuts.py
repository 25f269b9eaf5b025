"""Where live output is cut: between characters and sequences, if their ends come soon."""

from __future__ import annotations

from sandbox_runtime.screen_boundaries import Boundaries

__all__ = ["MOST_HELD", "Cutter", "cut_at"]

MOST_HELD = 4 << 10
"""Bytes of an unfinished sequence, beyond which its end is not waited for."""


class Cutter:
    """Passes a stream on in pieces, and holds back what should not be parted.

    What is held shows nothing: it is the beginning of a character or of a sequence.  Its owner says
    when a sequence has been waited for long enough; half a character waits for what follows it.

    Attributes
    ----------
    end : int
        Offset in the stream after all that was passed on.
    """

    def __init__(self) -> None:
        self.end = 0
        self._boundaries = Boundaries()
        self._held = b""
        self._parted = b""

    def __repr__(self) -> str:
        return f"<Cutter end={self.end} held={len(self._held)} whole_end={self.whole_end}>"

    @property
    def whole_end(self) -> int:
        """The last offset passed on that is not inside a character or a sequence."""
        return min(self.end, self._boundaries.safe)

    @property
    def is_holding(self) -> bool:
        """Whether `release` would pass something on."""
        return len(self._held) > self._boundaries.partial

    @property
    def parted(self) -> bytes:
        """The beginning of an unfinished sequence that was passed on, if it is a short one."""
        return self._parted

    def feed(self, data: bytes) -> bytes:
        """Add what has come; return what is to be passed on now, which may be nothing."""
        boundaries = self._boundaries
        boundaries.feed(data)
        if self._held:
            data = self._held + data
        keep = boundaries.end - boundaries.safe
        if keep > len(data) or keep > MOST_HELD:
            keep = boundaries.partial
        return self._pass_on(data, keep)

    def release(self) -> bytes:
        """Return what is held of a sequence: it has been waited for long enough."""
        return self._pass_on(self._held, self._boundaries.partial)

    def finish(self) -> bytes:
        """Return all that is held: nothing will follow."""
        return self._pass_on(self._held, 0)

    def _pass_on(self, data: bytes, keep: int) -> bytes:
        self._held = data[len(data) - keep :] if keep else b""
        if keep:
            data = data[: len(data) - keep]
        self.end += len(data)
        is_open = self.end - self.whole_end
        if is_open:
            self._parted = (self._parted + data)[-is_open:] if is_open <= MOST_HELD else b""
        else:
            self._parted = b""
        return data


def cut_at(data: bytes) -> int:
    """Return the last place to cut output that begins between sequences, and goes on."""
    boundaries = Boundaries()
    boundaries.feed(data)
    return boundaries.safe or len(data) - boundaries.partial
