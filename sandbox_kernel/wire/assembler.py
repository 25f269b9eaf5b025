"""Collects received chunks until a whole unit is there, joining each byte at most once."""

from __future__ import annotations

__all__ = ["Assembler"]


class Assembler:
    """A receive buffer that knows how much is needed before parsing is worth while.

    Appending to one growing buffer costs a copy of everything for each chunk of a large unit;
    here chunks wait in a list until `need` bytes have come.
    """

    def __init__(self) -> None:
        self._chunks: list[bytes | memoryview] = []
        self._size = 0
        self._need = 1

    @property
    def missing(self) -> int:
        """How many bytes to read, at least, before the next unit can be complete."""
        return max(1, self._need - self._size)

    @property
    def buffered(self) -> int:
        """How many bytes wait for the rest of their unit."""
        return self._size

    def feed(self, data: bytes | memoryview) -> memoryview | None:
        """Add a chunk; return all buffered bytes once enough are there, else None.

        The caller parses the view and hands back what it did not use through `keep`.
        """
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._need:
            return None
        joined = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        return memoryview(joined)

    def keep(self, rest: memoryview, need: int) -> None:
        """Store the unparsed rest; `need` counts from its first byte."""
        self._chunks = [rest] if len(rest) else []
        self._size = len(rest)
        self._need = max(1, need)
