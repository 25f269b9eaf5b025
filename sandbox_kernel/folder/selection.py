"""Which of a sandbox's changes the user means."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.folder.changes import Change
from sandbox_kernel.folder.walk import split_path

__all__ = ["Selection"]


class Selection:
    """All changes, or those at and below named paths.

    Parameters
    ----------
    paths : iterable of str, optional
        Relative to the notebook's folder; None means all.

    Raises
    ------
    ValidationFailedError
        A path leads out of the folder.
    """

    def __init__(self, paths: Iterable[str] | None) -> None:
        self.is_explicit = paths is not None
        self._paths = [split_path(path) for path in paths or ()]

    def names(self, path: str) -> bool:
        """Whether this very path was named, not only a folder above it."""
        return tuple(path.split("/")) in self._paths

    def leaves_hidden(self, path: str) -> bool:
        """Whether this path is hidden and came along without being named.

        Naming a hidden folder names what is in it, down to what is hidden once more.
        """
        parts = tuple(path.split("/"))
        tails = [parts[len(named) :] for named in self._paths if parts[: len(named)] == named] or [
            parts
        ]
        return all(any(part.startswith(".") for part in tail) for tail in tails)

    def of(self, changes: list[Change]) -> list[Change]:
        """Return the chosen ones in their order.

        Raises
        ------
        ValidationFailedError
            A named path has no change at or below it.
        """
        if not self.is_explicit:
            return changes
        chosen = []
        used = set()
        for change in changes:
            parts = tuple(change.path.split("/"))
            holders = [path for path in self._paths if parts[: len(path)] == path]
            used.update(holders)
            if holders:
                chosen.append(change)
        for path in self._paths:
            if path not in used:
                raise ValidationFailedError("path", f"{'/'.join(path)!r} names no change")
        return chosen
