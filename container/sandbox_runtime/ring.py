"""A bounded window of a byte stream, addressed by absolute offsets."""

from __future__ import annotations

from sandbox_kernel.wire.bulk import BulkMemory
from sandbox_runtime.quick import deque

__all__ = ["Ring"]

_LARGE = 32 << 10
_BLOCK = 2 << 20
_LEAST = 256 << 10
"""Bytes at the end of a block that are rather left empty than filled by a read of their own."""


class Ring:
    """Keeps the bytes between `start` and `end` until they are released.

    Large pieces are kept as they came and handed out as they are, so that a flood is not copied
    here; small ones are joined, so that there are never many.  Whoever reads from a descriptor may
    do so straight into `space`.

    Parameters
    ----------
    capacity : int
        How many bytes may be held.  The owner stops its source when `room` is used up, so the
        overflow rule is: nothing is dropped, the writer waits.
    start : int
        Absolute offset of the first byte that will be appended.
    """

    def __init__(self, capacity: int, start: int = 0) -> None:
        self.capacity = capacity
        self.start = start
        self.end = start
        """Absolute offset after the last byte held."""
        self._pieces: deque[bytes | bytearray | memoryview] = deque()
        self._first = start  # offset of the first piece; what lies before `start` is released
        self._memory = BulkMemory()
        self._block: memoryview | None = None  # where `space` is taken from
        self._block_from = self._block_to = 0  # the part of it that the last piece is

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def room(self) -> int:
        """Bytes that may still be appended."""
        return self.capacity - len(self)

    def append(self, data: bytes) -> None:
        """Add bytes at the end.

        Raises
        ------
        ValueError
            There is no room; nothing was added.
        """
        if len(data) > self.room:
            raise ValueError(f"{len(data)} bytes for {self.room} of room")
        self._block = None
        self._memory.not_needed()
        if len(data) >= _LARGE:
            self._pieces.append(data)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            self._pieces[-1] += data
            if len(self._pieces[-1]) >= _LARGE:
                self._pieces.append(bytearray())
        else:
            self._pieces.append(bytearray(data))
        self.end += len(data)

    def space(self, size: int) -> memoryview | None:
        """Return where at most `size` of the next bytes may be put, to be told with `filled`.

        None where there is no memory for it; `append` may still work.
        """
        left = 0 if self._block is None else len(self._block) - self._block_to
        if left < min(size, _LEAST):
            self._block = self._memory.take(_BLOCK)
            self._block_from = self._block_to = 0
        if self._block is None:
            return None
        return self._block[self._block_to : self._block_to + min(size, self.room)]

    def filled(self, count: int) -> None:
        """Add the first `count` bytes of `space` at the end."""
        assert self._block is not None  # noqa: S101  there was space
        if self._block_to > self._block_from:
            if self._pieces:
                self._pieces.pop()
            else:
                self._block_from = self._block_to  # released, and maybe in use elsewhere
                self._first = self.end
        self._block_to += count
        self._pieces.append(self._block[self._block_from : self._block_to].toreadonly())
        self.end += count

    def read(self, offset: int, size: int) -> bytes | memoryview:
        """Return at most `size` bytes from `offset` on; empty at the end only.

        Raises
        ------
        ValueError
            The offset is not held.
        """
        if not self.start <= offset <= self.end:
            raise ValueError(f"offset {offset} outside {self.start} to {self.end}")
        found: list[bytes | memoryview] = []
        # Readers are near the end, so the search begins there.
        at = self.end
        stop = min(self.end, offset + size)
        for piece in reversed(self._pieces):
            after, at = at, at - len(piece)
            if at < stop:
                found.append(_part(piece, max(offset - at, 0), min(stop, after) - at))
            if at <= offset:
                break
        if len(found) == 1 or (found and isinstance(found[-1], memoryview)):
            return found[-1]
        return b"".join(reversed(found))

    def release(self, offset: int) -> None:
        """Forget everything before `offset`; an offset already released changes nothing.

        Raises
        ------
        ValueError
            The offset lies after the end.
        """
        if offset > self.end:
            raise ValueError(f"offset {offset} after the end {self.end}")
        if offset <= self.start:
            return
        self.start = offset
        while self._pieces and self._first + len(self._pieces[0]) <= offset:
            self._first += len(self._pieces.popleft())


def _part(piece: bytes | bytearray | memoryview, begin: int, end: int) -> bytes | memoryview:
    if not isinstance(piece, bytearray):
        return piece[begin:end]  # bytes: the piece itself where it is wanted whole
    with memoryview(piece) as view:
        return bytes(view[begin:end])
