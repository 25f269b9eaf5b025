"""What a successor of this relay needs to go on: one small file per kernel, replaced atomically.

It lies in the sandbox's state folder on the host, which is never shown inside.  It is not synced:
it must survive the relay, not the machine, and the interpreter would be gone with the machine too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import orjson

__all__ = ["Inheritance", "Journal"]

_VERSION = 1


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
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError:
            # Told by the first `save`; a relay without a journal still serves.
            return

    def load(self) -> Inheritance | None:
        """Return what was left here, or None."""
        try:
            with open(self.path, "rb") as file:
                value = orjson.loads(file.read())
            if value["version"] != _VERSION:
                return None
            return Inheritance(
                mark=str(value["mark"]),
                session=str(value["session"]),
                subscribers=int(value["subscribers"]),
                requests=dict(value["requests"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, inheritance: Inheritance) -> bool:
        """Replace the file; return whether that worked.

        A full disk must not stop the cell: a successor then only knows less.
        """
        data = orjson.dumps({"version": _VERSION, **vars(inheritance)})
        try:
            descriptor = os.open(
                self._next, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
            )
            try:
                written = os.write(descriptor, data)
            finally:
                os.close(descriptor)
            if written < len(data):
                return False
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
