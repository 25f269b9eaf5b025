"""Remember what was taken over, so that it is neither shown again nor called a conflict.

While a sandbox runs, its layer may not be touched, so a file that was taken over stays in it.  For
each such path a small file beside the layer keeps which inode state the two sides had then.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sandbox_kernel.engines.base import StateLayout

__all__ = ["Takeovers"]


class Takeovers:
    """The record of one layer; a damaged or missing file is an empty record.

    Parameters
    ----------
    file : Path
        Where it is kept.
    states : dict
        Per path the marks of the layer's and the host's file.
    """

    def __init__(self, file: Path, states: dict[str, Any]) -> None:
        self._file = file
        self._states = states

    @classmethod
    def load(cls, layout: StateLayout) -> Takeovers:
        """Read the record of this sandbox's layer."""
        file = layout.taken_over
        try:
            states = json.loads(file.read_bytes())
        except (OSError, ValueError):
            states = {}
        return cls(file, states if isinstance(states, dict) else {})

    def covers(self, path: str, layer_status: os.stat_result) -> bool:
        """Whether the layer's file is still the one that was taken over."""
        state = self._states.get(path)
        return state is not None and state[0] == _mark(layer_status)

    def left_host(self, path: str, host_status: os.stat_result) -> bool:
        """Whether the host's file is still as the take-over left it."""
        state = self._states.get(path)
        return state is not None and state[1] == _mark(host_status)

    def note(self, path: str, layer_status: os.stat_result, host_status: os.stat_result) -> None:
        """Note that both sides are now the same."""
        self._states[path] = [_mark(layer_status), _mark(host_status)]

    def note_deleted(self, path: str) -> None:
        """Note that the host's file is gone as the sandbox's was."""
        self._states[path] = [None, None]

    def paths(self) -> list[str]:
        """Return what is recorded, the contents of a folder before the folder."""
        return sorted(self._states, key=lambda path: path.split("/"), reverse=True)

    def is_deletion(self, path: str) -> bool:
        """Whether it was a deletion that was taken over."""
        state = self._states.get(path)
        return state is not None and state[0] is None

    def clear(self) -> None:
        """Forget everything, on disk as well."""
        self._states.clear()
        self._file.unlink(missing_ok=True)

    def save(self) -> None:
        """Write the record, in whole or not at all."""
        draft = self._file.with_suffix(".new")
        try:
            draft.write_text(json.dumps(self._states), encoding="ascii")
            os.replace(draft, self._file)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def _mark(status: os.stat_result) -> list[int]:
    return [status.st_ino, status.st_ctime_ns, status.st_size]
