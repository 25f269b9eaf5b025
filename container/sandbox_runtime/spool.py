"""What a process has written: a log with absolute offsets that outgrows memory into a file.

The log joins both streams in the order they were read.  Beside the bytes it keeps entries (offset,
stream, timestamp), each valid up to the next one.  Bytes and entries both live in a `Store`: in
memory first, then in an unlinked file.

Overflow rule: nothing is dropped.  At `limit` bytes `room` is zero, the owner stops reading the
pipe, and the writer blocks until a reader has let something go with `release`.
"""

from __future__ import annotations

import os
import struct

from sandbox_runtime.ring import Ring

__all__ = ["DATA_IN_MEMORY", "STDERR", "STDOUT", "Piece", "Spool", "Store", "open_unlinked"]

STDOUT, STDERR = 0, 1

_ENTRY = struct.Struct(">QBd")
_SAME_ENTRY = 0.01
"""Reads of one stream within so many seconds share an entry, hence a timestamp."""

DATA_IN_MEMORY = 256 << 10
"""Bytes of output of one process held in memory; more goes into the file."""

_ENTRIES_IN_MEMORY = 3600 * _ENTRY.size


def open_unlinked(folder: str) -> int:
    """Return a descriptor of a new file in `folder` that has no name and ends with its closing."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(folder, flags | os.O_TMPFILE, 0o600)
    except OSError:
        # Overlay and network file systems know no O_TMPFILE.
        path = os.path.join(folder, f".spool-{os.getpid()}-{os.urandom(8).hex()}")
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)
        return fd


class Store:
    """Append-only bytes by absolute offset: a ring in memory, then a ring in an unlinked file.

    Parameters
    ----------
    folder : str
        Where the file is made once memory does not suffice.
    capacity : int
        Bytes held at most, and the largest size of the file.
    memory : int
        Bytes held in memory at most.
    """

    def __init__(self, folder: str, capacity: int, memory: int) -> None:
        self.start = 0
        self.end = 0
        self.capacity = capacity
        self._folder = folder
        self._memory = min(memory, capacity)
        self._ring: Ring | None = Ring(self._memory)
        self._fd = -1

    @property
    def room(self) -> int:
        """Bytes that may still be appended."""
        return self.capacity - (self.end - self.start)

    def would_spill(self, size: int) -> bool:
        """Whether all is held in memory, and `size` bytes more would not be."""
        return self._ring is not None and size > self._ring.room

    def append(self, data: bytes) -> None:
        """Add at most `room` bytes at the end.

        Raises
        ------
        OSError
            The file cannot be written; nothing was added.
        """
        ring = self._ring
        if ring is not None:
            if len(data) <= ring.room:
                ring.append(data)
                self.end += len(data)
                return
            self._leave_memory(ring)
        self._write(self.end, data)
        self.end += len(data)

    def _leave_memory(self, ring: Ring) -> None:
        if self._fd < 0:
            self._fd = open_unlinked(self._folder)
        self._write(self.start, ring.read(ring.start, len(ring)))
        self._ring = None

    def _write(self, offset: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            at = offset % self.capacity
            done = os.pwrite(self._fd, view[: self.capacity - at], at)
            view = view[done:]
            offset += done

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes held at `offset`; may be short, empty only at the end."""
        if self._ring is not None:
            return bytes(self._ring.read(offset, size))
        at = offset % self.capacity
        return os.pread(self._fd, min(size, self.end - offset, self.capacity - at), at)

    def release(self, offset: int) -> None:
        """Forget what lies before `offset`; once all is forgotten the file is emptied."""
        self.start = max(self.start, offset)
        if self._ring is not None:
            self._ring.release(self.start)
        elif self.start == self.end:
            os.ftruncate(self._fd, 0)
            self._ring = Ring(self._memory, self.start)

    def close(self) -> None:
        """Give memory and file back; the store cannot be used any more."""
        self._ring = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Piece:
    """Bytes that one stream wrote, and where the next piece begins."""

    __slots__ = ("data", "offset", "stream", "timestamp")

    def __init__(self, stream: int, timestamp: float, data: bytes, offset: int) -> None:
        self.stream = stream
        self.timestamp = timestamp
        self.data = data
        self.offset = offset
        """Absolute offset after the data."""


class Spool:
    """The output log of one process.

    Parameters
    ----------
    folder : str
        Where it may make its files.
    limit : int
        Bytes of output held at most.
    """

    def __init__(self, folder: str, limit: int) -> None:
        self._data = Store(folder, limit, DATA_IN_MEMORY)
        # Entries are few (a hundred a second, or one for each change of stream), but a writer who
        # alternates byte by byte makes one for each byte; a quarter of the limit bounds that.
        entries = max(limit // 4 // _ENTRY.size, 64)
        self._entries = Store(folder, entries * _ENTRY.size, _ENTRIES_IN_MEMORY)
        self._last_stream = -1
        self._last_time = 0.0

    @property
    def start(self) -> int:
        """Absolute offset of the first byte still held."""
        return self._data.start

    @property
    def end(self) -> int:
        """Absolute offset after the last byte written."""
        return self._data.end

    @property
    def room(self) -> int:
        """Bytes that may be appended now."""
        return self._data.room if self._entries.room >= _ENTRY.size else 0

    def would_spill(self, size: int) -> bool:
        """Whether all is held in memory, and `size` bytes more would not be."""
        return self._data.would_spill(size)

    def append(self, stream: int, data: bytes, timestamp: float) -> None:
        """Add at most `room` bytes of a stream.

        Raises
        ------
        OSError
            The disk refuses; nothing was added.
        """
        passed = timestamp - self._last_time
        # Below zero when the clock was put back.
        if stream != self._last_stream or not 0 <= passed <= _SAME_ENTRY:
            entry = _ENTRY.pack(self._data.end, stream, timestamp)
            self._data.append(data)
            self._entries.append(entry)
            self._last_stream, self._last_time = stream, timestamp
        else:
            self._data.append(data)

    def read(self, offset: int, size: int) -> Piece | None:
        """Return the piece at `offset`, at most `size` bytes of one entry; None at the end.

        An offset before `start` is read from `start` on.
        """
        offset = max(offset, self._data.start)
        if offset >= self._data.end:
            return None
        number = self._find(offset)
        _, stream, timestamp = self._entry(number)
        last = (number + 1) * _ENTRY.size >= self._entries.end
        until = self._data.end if last else self._entry(number + 1)[0]
        data = self._data.read(offset, min(size, until - offset))
        return Piece(stream, timestamp, data, offset + len(data))

    def _entry(self, number: int) -> tuple[int, int, float]:
        raw = self._entries.read(number * _ENTRY.size, _ENTRY.size)
        offset, stream, timestamp = _ENTRY.unpack(raw)
        return offset, stream, timestamp

    def _find(self, offset: int) -> int:
        """Return the number of the last entry that begins at or before `offset`."""
        low, high = self._entries.start // _ENTRY.size, self._entries.end // _ENTRY.size
        # Most readers are at the end or close to it.
        if self._entry(high - 1)[0] <= offset:
            return high - 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._entry(middle)[0] <= offset:
                low = middle
            else:
                high = middle
        return low

    def release(self, offset: int) -> None:
        """Forget what lies before `offset`, so that as much may be written again."""
        offset = min(offset, self._data.end)
        if offset <= self._data.start:
            return
        if offset == self._data.end:
            self._entries.release(self._entries.end)
            self._last_stream = -1
        else:
            self._entries.release(self._find(offset) * _ENTRY.size)
        self._data.release(offset)

    def close(self) -> None:
        """Give memory and files back."""
        self._data.close()
        self._entries.close()
