"""Collects received chunks until a whole unit is there, copying each byte at most once."""

from __future__ import annotations

from sandbox_kernel.wire.bulk import BULK, BulkMemory

__all__ = ["Assembler"]

_AHEAD = 64 << 10
"""Bytes of the next unit that a large one leaves room for."""


class Assembler:
    """A receive buffer that knows how much is needed before parsing is worth while.

    Appending to one growing buffer costs a copy of everything for each chunk of a large unit;
    here chunks wait in a list until `need` bytes have come, and a large unit has memory of its own
    from the moment its size is known.

    Parameters
    ----------
    bulk : int
        Bytes from which on a unit is large.
    """

    def __init__(self, bulk: int = BULK) -> None:
        self.least_bulk = bulk
        self._chunks: list[bytes | memoryview] = []
        self._size = 0
        self._need = 1
        self._memory = BulkMemory()
        self._bulk: memoryview | None = None  # holds all that is buffered, instead of the chunks

    @property
    def missing(self) -> int:
        """How many bytes to read, at least, before the next unit can be complete."""
        return max(1, self._need - self._size)

    @property
    def buffered(self) -> int:
        """How many bytes wait for the rest of their unit."""
        return self._size

    @property
    def space(self) -> memoryview | None:
        """Where the next bytes may be put, to be told with `filled`; None where `feed` is due."""
        return None if self._bulk is None else self._bulk[self._size :]

    def filled(self, count: int) -> memoryview | None:
        """Add the first `count` bytes of `space`; return as `feed` does."""
        assert self._bulk is not None  # noqa: S101  there was space
        self._size += count
        if self._size < self._need:
            return None
        return self._bulk[: self._size].toreadonly()

    def feed(self, data: bytes | memoryview) -> memoryview | None:
        """Add a chunk; return all buffered bytes once enough are there, else None.

        The caller parses the view and hands back what it did not use through `keep`.
        """
        if self._bulk is not None:
            after = self._size + len(data)
            if after <= len(self._bulk):
                self._bulk[self._size : after] = data
                return self.filled(len(data))
            self._chunks = [self._bulk[: self._size]]
            self._bulk = None
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._need:
            return None
        joined = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        return memoryview(joined)

    def give_up(self) -> memoryview:
        """Return all that is buffered, and begin anew."""
        buffered = self._chunks if self._bulk is None else [self._bulk[: self._size]]
        self._chunks, self._bulk, self._size, self._need = [], None, 0, 1
        return memoryview(buffered[0] if len(buffered) == 1 else b"".join(buffered))

    def keep(self, rest: memoryview, need: int, *, in_place: bool = True) -> None:
        """Store the unparsed rest; `need` counts from its first byte.

        Without `in_place` it gets no memory of its own, for an owner that calls `give_up` soon.
        """
        was_bulk = self._bulk is not None
        if need >= self.least_bulk and in_place:
            self._bulk = self._memory.take(need + _AHEAD)
        else:
            self._bulk = None
            self._memory.not_needed()
        self._size = len(rest)
        self._need = max(1, need)
        if self._bulk is not None:
            self._bulk[: len(rest)] = rest
            self._chunks = []
        elif len(rest):
            # A few bytes must not hold the memory of a large unit.
            self._chunks = [bytes(rest) if was_bulk else rest]
        else:
            self._chunks = []
