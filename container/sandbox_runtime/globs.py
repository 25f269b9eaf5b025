"""Which paths patterns of shells mean."""

from __future__ import annotations

import re
from fnmatch import translate

__all__ = ["Selection"]


class Selection:
    """Which paths below a folder count.

    Parameters
    ----------
    include, exclude : list of str
        Only what matches the one, or all but what matches the other.  A pattern without a slash is
        compared with each part of a path, one with a slash with the path from the folder on.
    """

    def __init__(self, include: list[str], exclude: list[str]) -> None:
        self._include = _compiled(include)
        self._exclude = _compiled(exclude)

    def has(self, path: str) -> bool:
        """Whether a path counts."""
        if self._include:
            return self._matches(path, self._include)
        return not self.hides(path)

    def hides(self, path: str) -> bool:
        """Whether neither a path counts nor anything below it."""
        return bool(self._exclude) and self._matches(path, self._exclude)

    @staticmethod
    def _matches(path: str, patterns: list[tuple[bool, re.Pattern[str]]]) -> bool:
        parts = path.split("/")
        for is_whole, pattern in patterns:
            if is_whole:
                # What is below a folder that matches, too.
                if any(pattern.match("/".join(parts[:n])) for n in range(1, len(parts) + 1)):
                    return True
            elif any(pattern.match(part) for part in parts):
                return True
        return False


def _compiled(patterns: list[str]) -> list[tuple[bool, re.Pattern[str]]]:
    return [
        ("/" in each.strip("/"), re.compile(translate(each.strip("/")), re.DOTALL))
        for each in patterns
    ]
