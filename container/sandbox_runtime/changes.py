"""Whether a folder has changed since somebody looked: a watch that counts and tells nobody."""

from __future__ import annotations

import os

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.wire.file_operations import FileChanges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_kernel.errors import SandboxError
    from sandbox_kernel.wire.file_operations import CheckChangesRequest
    from sandbox_kernel.wire.record import Record
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.loop import Loop, Timer
    from sandbox_runtime.watch import Watch, Watches

    Key = tuple[str, bool, tuple[str, ...], tuple[str, ...]]

__all__ = ["KEPT", "Changes"]

KEPT = 600.0
"""Seconds that a folder is watched after it was last asked for."""

MOST_KEPT = 32
"""Folders watched at a time; the one not asked for the longest is forgotten first."""


class Changes:
    """Answers whether folders have changed, by versions.

    A version names this incarnation, one watch of it, and how much that has seen.
    """

    def __init__(self, loop: Loop, watches: Watches, incarnation: str) -> None:
        self._loop = loop
        self._watches = watches
        self._incarnation = incarnation
        self._counts: dict[Key, _Count] = {}

    def check(self, request: CheckChangesRequest, exchange: Exchange) -> None:
        """Answer whether something has changed since a version."""
        if request.since is not None and request.since.count(".") != 2:
            raise ValidationFailedError("since", "is no version that was given here")
        key = (request.path, request.recursive, tuple(request.include), tuple(request.exclude))
        count = self._counts.pop(key, None)
        if count is None:
            if len(self._counts) >= MOST_KEPT:
                self._counts[next(iter(self._counts))].forget()
            count = _Count(lambda: self._counts.pop(key, None))
            count.watch = self._watches.begin(request, count, holds=False)
        # Behind the others: the first is the one not asked for the longest.
        self._counts[key] = count
        count.keep(self._loop)
        chosen = count
        count.when_ready(lambda error: self._answer(chosen, request.since, exchange, error))

    def _answer(
        self, count: _Count, since: str | None, exchange: Exchange, error: SandboxError | None
    ) -> None:
        if error is not None:
            exchange.fail(error)
            return
        watch = count.watch
        assert watch is not None  # noqa: S101  it is ready
        watch.look()
        version = f"{self._incarnation}.{count.id}.{watch.changes}"
        incarnation, name, seen = since.split(".") if since is not None else ("", "", "")
        status, reason = "unchanged", None
        if since is not None and incarnation != self._incarnation:
            status, reason = "resync", "restarted"
        elif since is not None and name != count.id:
            status, reason = "resync", "expired"
        elif since is not None and seen != str(watch.changes):
            status = "changed"
        exchange.result(FileChanges(status=status, version=version, reason=reason))


class _Count:
    """Hears what one watch tells, and keeps no more of it than that it is there."""

    writable = True

    def __init__(self, gone: Callable[[], object]) -> None:
        self.id = os.urandom(8).hex()
        self.watch: Watch | None = None
        self.on_cancel: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self._gone = gone
        self._is_ready = False
        self._waiting: list[Callable[[SandboxError | None], None]] = []
        self._timer: Timer | None = None

    def when_ready(self, then: Callable[[SandboxError | None], None]) -> None:
        """Go on once everything is watched, or with the error that keeps it from being so."""
        if self._is_ready:
            then(None)
        else:
            self._waiting.append(then)

    def keep(self, loop: Loop) -> None:
        """Begin the time anew after which it is forgotten."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(KEPT, self.forget)

    def forget(self) -> None:
        """End the watch."""
        if self.watch is not None:
            self.watch.stop()

    def item(self, _record: Record) -> None:
        """Hear that it is set up, or something that was counted already."""
        if not self._is_ready:
            self._is_ready = True
            self._tell(None)

    def end(self, _record: Record) -> None:
        """Hear that it is over; who asks later gets another one."""
        self._leave()

    def fail(self, error: SandboxError) -> None:
        """Hear that it cannot be watched."""
        self._leave()
        self._tell(error)

    def _tell(self, error: SandboxError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each(error)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._gone()
