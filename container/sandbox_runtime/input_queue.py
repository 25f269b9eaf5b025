"""Bytes on their way into a program: in order, as fast as it takes them."""

from __future__ import annotations

import os

from sandbox_runtime.quick import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["InputQueue"]


class InputQueue:
    """What waits for a descriptor that does not block.

    Its owner bounds it by `waiting`, watches the descriptor while `blocked`, and calls `pump` when
    it can be written to.

    Parameters
    ----------
    fd : int
        Where to write.
    on_blocked : callable
        Called with whether the descriptor must be watched from now on.
    on_broken : callable
        Called when nobody will read what is written; the owner clears the queue.
    """

    def __init__(
        self, fd: int, on_blocked: Callable[[bool], None], on_broken: Callable[[], None]
    ) -> None:
        self.waiting = 0
        """Bytes not written yet."""
        self.blocked = False
        self._fd = fd
        self._on_blocked = on_blocked
        self._on_broken = on_broken
        self._entries: deque[tuple[memoryview, object, Callable[[bool], None]]] = deque()

    def put(self, data: bytes | memoryview, owner: object, done: Callable[[bool], None]) -> None:
        """Write behind what waits; call `done(True)` after the last byte, `done(False)` if never.

        `owner` is a key for `cancel`.
        """
        self._entries.append((memoryview(data), owner, done))
        self.waiting += len(data)
        if not self.blocked:
            self.pump()

    def pump(self) -> None:
        """Write as much as is taken."""
        while self._entries:
            data, owner, done = self._entries[0]
            if len(data):
                try:
                    count = os.write(self._fd, data)
                except BlockingIOError:
                    break
                except OSError:
                    self._on_broken()
                    return
                self.waiting -= count
                if count < len(data):
                    self._entries[0] = (data[count:], owner, done)
                    break
            self._entries.popleft()
            done(True)
        self._set_blocked(bool(self._entries))

    def cancel(self, owner: object) -> None:
        """Take out what an owner has put and is not written; nothing is called for it."""
        kept = [each for each in self._entries if each[1] is not owner]
        self._entries = deque(kept)
        self.waiting = sum(len(data) for data, _, _ in kept)
        self._set_blocked(bool(kept))

    def clear(self) -> None:
        """Drop all that waits, and say so."""
        entries, self._entries = self._entries, deque()
        self.waiting = 0
        self._set_blocked(False)
        for _, _, done in entries:
            done(False)

    def _set_blocked(self, blocked: bool) -> None:  # noqa: FBT001
        if blocked != self.blocked:
            self.blocked = blocked
            self._on_blocked(blocked)
