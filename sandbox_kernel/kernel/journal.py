"""What a successor of this relay needs to go on: one small file per kernel, its seams and comms.

It lies in the sandbox's state folder on the host, which is never shown inside.  It is not synced:
it must survive the relay, not the machine, and the interpreter would be gone with the machine too.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import orjson

from sandbox_kernel.kernel.commlog import CommLog
from sandbox_kernel.kernel.seams import Seams

__all__ = ["Inheritance", "Journal"]

_VERSION = 1
_HALF = 1 << 20
_HEAD = struct.Struct(">QII")


@dataclass(frozen=True, kw_only=True)
class Inheritance:
    """What one relay leaves to the next.

    Parameters
    ----------
    mark : str
        Names the interpreter process it served.
    session : str
        Its header session.
    subscribers : int
        How many listened to iopub.
    requests : dict
        The request table, as it dumps itself.
    """

    mark: str
    session: str
    subscribers: int
    requests: dict[str, Any]  # JSON


class Journal:
    """The file of one kernel.

    Replacing a file by renaming costs a millisecond and more on usual disks, and this is written
    for every cell.  So there are two halves, written in turn, each with a number and a checksum:
    whoever is killed while writing one leaves the other.

    Parameters
    ----------
    folder : str
        ``kernels`` in the sandbox's state folder; made if missing.
    kernel_id : str
        Whose journal it is.
    """

    def __init__(self, folder: str, kernel_id: str) -> None:
        self.path = os.path.join(folder, f"{kernel_id}.journal")
        self.seams = Seams(os.path.join(folder, f"{kernel_id}.seams"))
        self.comms = CommLog(os.path.join(folder, f"{kernel_id}.comms"))
        self._descriptor = -1
        self._number = 0
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            # A relay without a journal still serves; its successor only knows less.
            return

    def load(self) -> Inheritance | None:
        """Return what was left here, or None."""
        best: Inheritance | None = None
        for half in (0, 1):
            found = self._read(half)
            if found is not None and found[0] > self._number:
                self._number, best = found
        return best

    def _read(self, half: int) -> tuple[int, Inheritance] | None:
        try:
            head = os.pread(self._descriptor, _HEAD.size, half * _HALF)
            number, length, checksum = _HEAD.unpack(head)
            data = os.pread(self._descriptor, length, half * _HALF + _HEAD.size)
            if zlib.crc32(data) != checksum:
                return None
            value = orjson.loads(data)
            if value["version"] != _VERSION:
                return None
            return number, Inheritance(
                mark=str(value["mark"]),
                session=str(value["session"]),
                subscribers=int(value["subscribers"]),
                requests=dict(value["requests"]),
            )
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return None

    def save(self, inheritance: Inheritance) -> bool:
        """Write the next half; return whether that worked.

        A full disk must not stop the cell, and neither must a table that is too large.
        """
        data = orjson.dumps({"version": _VERSION, **vars(inheritance)})
        if len(data) > _HALF - _HEAD.size:
            return False
        self._number += 1
        record = _HEAD.pack(self._number, len(data), zlib.crc32(data)) + data
        try:
            return os.pwrite(self._descriptor, record, self._number % 2 * _HALF) == len(record)
        except OSError:
            return False

    def remove(self) -> None:
        """Forget the kernel; twice is fine."""
        self.seams.remove()
        self.comms.remove()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            try:
                os.unlink(self.path)
            except FileNotFoundError:
                return
