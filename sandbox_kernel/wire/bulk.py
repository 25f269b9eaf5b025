"""Memory for large units: mapped for itself, in huge pages, and used again while they keep coming.

A fresh page costs more than to copy its 4 KiB (4 us against 0.5, measured), and the allocator gives
the pages of large objects back at each release.  Huge pages make 512 of those faults one, and
memory that is used again needs not even be cleared.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap

__all__ = ["BULK", "BulkMemory"]

BULK = 1 << 20
"""Bytes from which on a unit is worth memory of its own."""

_HUGE_PAGE = 2 << 20
_KEPT = 32 << 20
_PATIENCE = 16


class BulkMemory:
    """Lends memory, and takes it back when the last view of it is gone.

    Up to 32 MiB are kept for the next taker, until `not_needed` was said 16 times in a row.
    """

    def __init__(self) -> None:
        self._kept: list[mmap.mmap] = []
        self._unneeded = 0

    def take(self, size: int) -> memoryview | None:
        """Return at least `size` bytes, or None where a limit forbids it."""
        self._unneeded = 0
        for each in self._kept:
            if len(each) >= size and _is_free(each):
                return memoryview(each)
        # The system aligns a mapping to huge pages only if it is some of them long.
        memory = _map(-(-size // _HUGE_PAGE) * _HUGE_PAGE)
        if memory is None:
            return None
        self._keep(memory)
        return memoryview(memory)

    def not_needed(self) -> None:
        """Note that a unit was small."""
        if self._kept:
            self._unneeded += 1
            if self._unneeded == _PATIENCE:
                self._kept.clear()

    def _keep(self, memory: mmap.mmap) -> None:
        if len(memory) + sum(map(len, self._kept)) > _KEPT:
            self._kept = [each for each in self._kept if not _is_free(each)]
        if len(memory) + sum(map(len, self._kept)) <= _KEPT:
            self._kept.append(memory)


def _map(size: int) -> mmap.mmap | None:
    import contextlib  # noqa: PLC0415  no small message needs these
    import mmap  # noqa: PLC0415

    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return None
    with contextlib.suppress(AttributeError, OSError):  # small pages are slower, not wrong
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _is_free(memory: mmap.mmap) -> bool:
    """Whether nobody holds a view of it: only then its size may be set, here to what it is."""
    try:
        memory.resize(len(memory))
    except BufferError:
        return False
    return True
