"""The last bytes of a stream by absolute offset, in the pieces that they came in: no byte moves."""

from __future__ import annotations

from _bisect import bisect_right

__all__ = ["KeptOutput"]

_JOINED = 4 << 10
"""Bytes up to which pieces are joined: each costs some of its own."""

_MOVED = 64 << 10
"""Bytes of a piece that are copied, at most, so that it ends where it should."""


class KeptOutput:
    """A queue of pieces.

    Attributes
    ----------
    start : int
        Offset of the first byte.
    end : int
        Offset after the last byte.
    """

    def __init__(self) -> None:
        self.start = self.end = 0
        self._pieces: list[bytes] = []
        self._offsets: list[int] = []

    def __repr__(self) -> str:
        return f"<KeptOutput {self.start} to {self.end}, {len(self._pieces)} pieces>"

    def append(self, data: bytes, cut: int) -> None:
        """Add bytes; the last piece is to end at `cut`, if that lies in it and not far back."""
        if self._pieces:
            last, offset = self._pieces[-1], self._offsets[-1]
            if len(last) + len(data) <= _JOINED:
                cut = offset
            if offset <= cut < self.end <= cut + _MOVED:
                data = last[cut - offset :] + data
                if cut > offset:
                    self._pieces[-1] = last[: cut - offset]
                else:
                    del self._pieces[-1], self._offsets[-1]
                self.end = cut
        self._offsets.append(self.end)
        self._pieces.append(data)
        self.end += len(data)

    def pieces(self, begin: int, end: int) -> list[bytes]:
        """Return what lies between two offsets, in pieces."""
        if begin >= end:
            return []
        first = bisect_right(self._offsets, begin) - 1
        after = bisect_right(self._offsets, end - 1)
        found = self._pieces[first:after]
        # The last one first: it may be the first one, too.
        found[-1] = found[-1][: end - self._offsets[after - 1]]
        found[0] = found[0][begin - self._offsets[first] :]
        return found

    def read(self, begin: int, end: int) -> bytes:
        """Return what lies between two offsets."""
        found = self.pieces(begin, end)
        return found[0] if len(found) == 1 else b"".join(found)

    def forget(self, offset: int) -> list[bytes]:
        """Drop the pieces that end before an offset, or there; return them."""
        count = max(0, bisect_right(self._offsets, offset) - 1)
        if count == len(self._pieces) - 1 and self.end <= offset:
            count += 1
        dropped = self._pieces[:count]
        del self._pieces[:count], self._offsets[:count]
        self.start = self._offsets[0] if self._offsets else self.end
        return dropped
