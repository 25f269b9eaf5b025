"""What a successor of this relay needs to go on: one small file per kernel, replaced atomically.

It lies in the sandbox's state folder on the host, which is never shown inside.  It is not synced:
it must survive the relay, not the machine, and the interpreter would be gone with the machine too.
"""

from __future__ import annotations

import os
from typing import Any

import orjson

__all__ = ["Journal"]

_VERSION = 1


class Journal:
    """The file of one kernel.

    Parameters
    ----------
    folder : str
        ``kernels`` in the sandbox's state folder; made if missing.
    kernel_id : str
        Whose journal it is.
    """

    def __init__(self, folder: str, kernel_id: str) -> None:
        self.path = os.path.join(folder, f"{kernel_id}.json")
        self._next = f"{self.path}.new"
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def load(self, mark: str) -> dict[str, Any] | None:
        """Return what was saved for the interpreter of this mark, or None.

        Parameters
        ----------
        mark : str
            Names one interpreter process; what was saved for an earlier one is of no use.
        """
        try:
            with open(self.path, "rb") as file:
                value = orjson.loads(file.read())
        except (OSError, ValueError):
            return None
        if (
            not isinstance(value, dict)
            or value.get("version") != _VERSION
            or value.get("mark") != mark
        ):
            return None
        return value

    def save(self, mark: str, value: dict[str, Any]) -> bool:
        """Replace the file; return whether that worked.

        A full disk must not stop the cell: then a successor only knows less.
        """
        data = orjson.dumps({"version": _VERSION, "mark": mark, **value})
        try:
            descriptor = os.open(
                self._next, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
            )
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
            os.rename(self._next, self.path)
        except OSError:
            return False
        return True

    def remove(self) -> None:
        """Forget the kernel; twice is fine."""
        for path in (self.path, self._next):
            try:
                os.unlink(path)
            except OSError:
                continue
