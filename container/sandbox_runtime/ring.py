"""A bounded window of a byte stream, addressed by absolute offsets."""

from __future__ import annotations

__all__ = ["Ring"]


class Ring:
    """Keeps the bytes between `start` and `end` until they are released.

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
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._data)

    @property
    def end(self) -> int:
        """Absolute offset after the last byte held."""
        return self.start + len(self._data)

    @property
    def room(self) -> int:
        """Bytes that may still be appended."""
        return self.capacity - len(self._data)

    def append(self, data: bytes) -> None:
        """Add bytes at the end.

        Raises
        ------
        ValueError
            There is no room; nothing was added.
        """
        if len(data) > self.room:
            raise ValueError(f"{len(data)} bytes for {self.room} of room")
        self._data += data

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on; empty at the end.

        Raises
        ------
        ValueError
            The offset is not held.
        """
        if not self.start <= offset <= self.end:
            raise ValueError(f"offset {offset} outside {self.start} to {self.end}")
        at = offset - self.start
        with memoryview(self._data) as view:
            return bytes(view[at : at + size])

    def release(self, offset: int) -> None:
        """Forget everything before `offset`; an offset already released changes nothing.

        Raises
        ------
        ValueError
            The offset lies after the end.
        """
        if offset > self.end:
            raise ValueError(f"offset {offset} after the end {self.end}")
        if offset > self.start:
            del self._data[: offset - self.start]
            self.start = offset
