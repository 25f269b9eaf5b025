"""Where a relay has cut the interpreter's output, for a successor that must cut it there again.

Neighbouring texts are joined into one message as far as they were read together, which is chance.
A successor is given again what was not acknowledged; unless it ends its joining where this relay
did, it would send the same text in other messages, whose ids nobody can recognise.

So the offset after each turn of reading is noted before anything of that turn is sent.  It goes
into a file mapped into memory: a store costs no system call, and survives the process.

The record that is being taken is noted there too.  One that two relays have ended on would end
every other as well; the next one leaves it out.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import zlib

__all__ = ["Seams"]

_KEPT = 2048
"""More turns than are unacknowledged; beyond it the oldest are forgotten, and only their texts
may come again in other pieces."""

_HEAD = struct.Struct("@QQ")  # interpreter's key, how many were ever noted
_TAKEN = struct.Struct("@QQQ")  # ends of the record taken now and the last fatal one, its deaths
_SLOT = struct.Struct("@Q")
_SLOTS = _HEAD.size + _TAKEN.size
_SIZE = _SLOTS + _KEPT * _SLOT.size
_DEADLY = 2
"""Relays that end on one record before it is left out; one may have been killed by chance."""


class Seams:
    """The file of one kernel; where it cannot be kept, nothing is noted.

    Parameters
    ----------
    path : str
        Where it lies.

    Attributes
    ----------
    deadly : int or None
        The end of a record that relays have ended on.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.deadly: int | None = None
        self._map: mmap.mmap | None = None
        self._key = 0
        self._count = 0

    def follow(self, mark: str) -> list[int]:
        """Note seams of this interpreter from now on; return those that a predecessor has left.

        Parameters
        ----------
        mark : str
            Names the interpreter process; what was noted of another one is forgotten.
        """
        self._key = zlib.crc32(mark.encode()) | len(mark) << 32
        try:
            file = self._map = self._map or self._open()
        except (OSError, ValueError):
            return []
        key, count = _HEAD.unpack_from(file)
        if key != self._key:
            # In this order: who is killed between the two has left none.
            _HEAD.pack_into(file, 0, 0, 0)
            _TAKEN.pack_into(file, _HEAD.size, 0, 0, 0)
            _HEAD.pack_into(file, 0, self._key, 0)
            count = 0
        self._count = count
        self.deadly = self._find_deadly(file)
        return [
            _SLOT.unpack_from(file, _SLOTS + at % _KEPT * _SLOT.size)[0]
            for at in range(max(0, count - _KEPT), count)
        ]

    @staticmethod
    def _find_deadly(file: mmap.mmap) -> int | None:
        """Count the death of a predecessor, if it was in a record."""
        taken, fatal, deaths = _TAKEN.unpack_from(file, _HEAD.size)
        if taken:
            fatal, deaths = taken, deaths + 1 if taken == fatal else 1
            _TAKEN.pack_into(file, _HEAD.size, 0, fatal, deaths)
        return fatal if deaths >= _DEADLY else None

    def enter(self, end: int) -> None:
        """Note that the record which ends here is being taken."""
        if self._map is not None:
            _SLOT.pack_into(self._map, _HEAD.size, end)

    def leave(self) -> None:
        """Note that no record is being taken any more."""
        self.enter(0)

    def _open(self) -> mmap.mmap:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size != _SIZE:
                # Written, not only sized: a store into a hole kills where the disk is full.
                os.ftruncate(descriptor, 0)
                if os.pwrite(descriptor, bytes(_SIZE), 0) != _SIZE:
                    raise OSError("the disk is full")
            return mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)

    def note(self, offset: int) -> None:
        """Note that the output is cut at this offset."""
        if self._map is not None:
            # The slot first: until the count is there it does not exist.
            _SLOT.pack_into(self._map, _SLOTS + self._count % _KEPT * _SLOT.size, offset)
            self._count += 1
            _HEAD.pack_into(self._map, 0, self._key, self._count)

    def remove(self) -> None:
        """Forget the kernel; twice is fine."""
        if self._map is not None:
            self._map.close()
            self._map = None
        with contextlib.suppress(OSError):
            os.unlink(self.path)
