"""The targets of the links on a screen, by number."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_runtime.screen import Screen

__all__ = ["Links"]

_MOST = 2048
_LONGEST = 4096


class Links:
    """Gives numbers to links; forgets those that are no longer on the screen.

    Of more than 2048 that are, the further ones become plain text.
    """

    def __init__(self) -> None:
        self._targets: dict[int, tuple[str, str]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._last = 0

    def number(self, screen: Screen, params: str, uri: str) -> int:
        """Return the number of a link; 0 where it cannot be kept."""
        if len(uri) > _LONGEST or len(params) > _LONGEST:
            return 0
        name = next((p[3:] for p in params.split(":") if p.startswith("id=")), "")
        known = self._numbers.get((name, uri)) if name else None
        if known is not None:
            return known
        if len(self._targets) >= _MOST:
            self._forget_unused(screen)
            if len(self._targets) >= _MOST:
                return 0
        self._last += 1
        self._targets[self._last] = (name, uri)
        if name:
            self._numbers[name, uri] = self._last
        return self._last

    def target(self, number: int) -> tuple[str, str]:
        """Return a link's id, which may be empty, and its target."""
        return self._targets.get(number, ("", ""))

    def _forget_unused(self, screen: Screen) -> None:
        used = {screen.extra[2]}
        for page in (screen.normal, screen.alternate):
            for line in page.lines:
                used.update(look[3][2] for look in line.looks)
        self._targets = {number: self._targets[number] for number in used if number}
        self._numbers = {target: n for n, target in self._targets.items() if target[0]}
