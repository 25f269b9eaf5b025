"""A bounded window of a byte stream, addressed by absolute offsets."""

from __future__ import annotations

from sandbox_runtime.quick import deque

__all__ = ["Ring"]

_LARGE = 32 << 10


class Ring:
    """Keeps the bytes between `start` and `end` until they are released.

    Large pieces are kept as they came and handed out as they are, so that a flood is not copied
    here; small ones are joined, so that there are never many.

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
        self._pieces: deque[bytes | bytearray] = deque()
        self._first = start  # offset of the first piece; what lies before `start` is released

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
        if len(data) >= _LARGE:
            self._pieces.append(data)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            self._pieces[-1] += data
            if len(self._pieces[-1]) >= _LARGE:
                self._pieces.append(bytearray())
        else:
            self._pieces.append(bytearray(data))
        self.end += len(data)

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on; empty at the end.

        Raises
        ------
        ValueError
            The offset is not held.
        """
        if not self.start <= offset <= self.end:
            raise ValueError(f"offset {offset} outside {self.start} to {self.end}")
        found: list[bytes] = []
        # Readers are near the end, so the search begins there.
        at = self.end
        stop = min(self.end, offset + size)
        for piece in reversed(self._pieces):
            after, at = at, at - len(piece)
            if at < stop:
                found.append(_part(piece, max(offset - at, 0), min(stop, after) - at))
            if at <= offset:
                break
        return found[0] if len(found) == 1 else b"".join(reversed(found))

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


def _part(piece: bytes | bytearray, begin: int, end: int) -> bytes:
    if isinstance(piece, bytes):
        return piece[begin:end]  # the piece itself where it is wanted whole
    with memoryview(piece) as view:
        return bytes(view[begin:end])
