"""What every comm of an interpreter was opened as, for a successor of this relay.

The interpreter opens a comm once, and a successor that has not seen it could be told anything of
its type.  So a line is written before a page hears of the comm.  What could not be written is not
known to the successor, which refuses that comm.
"""

from __future__ import annotations

import contextlib
import os

__all__ = ["CommLog"]

_WASTE = 10_000
"""Lines that say nothing any more; beyond it the file is written anew."""


class CommLog:
    """The file of one kernel; where it cannot be kept, nothing is known to a successor.

    Parameters
    ----------
    path : str
        Where it lies.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._scratch = f"{path}.new"
        self._mark = ""
        self._known: dict[str, str] = {}
        self._lines = 0
        self._descriptor = -1

    def follow(self, mark: str) -> list[tuple[str, str]]:
        """Note comms of this interpreter from now on; return those that are known, with kinds.

        Parameters
        ----------
        mark : str
            Names the interpreter process; what was noted of another one is forgotten.
        """
        if mark == self._mark:
            return list(self._known.items())
        self._mark = mark
        self._known = self._read()
        self._close()
        if not self._known:
            # Most kernels never open a comm, and need no file for it.
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        return list(self._known.items())

    def note(self, comm_id: str, kind: str | None) -> None:
        """Note a comm of this kind, or that it is closed; neither text has a line break."""
        if not self._mark:
            return
        if kind is None:
            self._known.pop(comm_id, None)
        else:
            self._known[comm_id] = kind
        if self._descriptor < 0 or self._lines > len(self._known) + _WASTE:
            self._write_anew()
        else:
            self._append(f"{comm_id} {kind or ''}\n")

    def remove(self) -> None:
        """Forget the kernel; twice is fine, and what it says at its end is not noted."""
        self._close()
        self._mark, self._known = "", {}
        for path in (self.path, self._scratch):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _append(self, line: str) -> None:
        self._lines += 1
        data = line.encode()
        try:
            is_written = os.write(self._descriptor, data) == len(data)
        except OSError:
            is_written = False
        if not is_written:
            # The next line would be taken for the rest of this one; it begins a new file instead.
            self._close()

    def _write_anew(self) -> None:
        self._close()
        lines = [self._mark, *(f"{comm_id} {kind}" for comm_id, kind in self._known.items())]
        data = "".join(f"{line}\n" for line in lines).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        try:
            descriptor = os.open(self._scratch, flags, 0o600)
        except OSError:
            return
        try:
            is_written = os.write(descriptor, data) == len(data)
            if is_written:
                os.rename(self._scratch, self.path)
        except OSError:
            is_written = False
        if not is_written:
            os.close(descriptor)
            return
        self._descriptor, self._lines = descriptor, len(lines)

    def _read(self) -> dict[str, str]:
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                mark, *lines = file.read().split("\n")
        except OSError:
            return {}
        known: dict[str, str] = {}
        if mark != self._mark:
            return known
        # Behind the last line break stands nothing, or a line that was cut short.
        for line in lines[:-1]:
            comm_id, _, kind = line.partition(" ")
            if kind:
                known[comm_id] = kind
            else:
                known.pop(comm_id, None)
        return known

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
