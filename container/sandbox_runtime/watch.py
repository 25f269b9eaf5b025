"""Watching folders: what inotify tells, joined and bounded, for one client each.

Folders are watched one by one, in threads, since a tree may be large; what happens meanwhile is
kept by the kernel.  A folder that appears is watched as soon as it is seen, and what is in it by
then is told as made, so nothing is missed between the two.

Events wait `JOIN` seconds, so that the same thing happening again is told once.  At most
`MOST_PENDING` wait for a client; when there are more, or the kernel's own queue ran over, all of
them are dropped and ``resync`` is told in their place.
"""

from __future__ import annotations

import errno
import os
import time

from sandbox_kernel.errors import ValidationFailedError, WatchStartError
from sandbox_kernel.wire.file_operations import WatchFilesEnd, WatchFilesEvent
from sandbox_runtime.drafts import is_draft
from sandbox_runtime.file_errors import explain
from sandbox_runtime.loop import READ
from sandbox_runtime.trees import Folder, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Protocol

    from sandbox_kernel.errors import SandboxError
    from sandbox_kernel.wire.file_operations import CheckChangesRequest, WatchFilesRequest
    from sandbox_kernel.wire.record import Record
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.files import Files
    from sandbox_runtime.globs import Selection
    from sandbox_runtime.inotify import Inotify
    from sandbox_runtime.loop import Loop, Timer

    class Hearer(Protocol):
        """What a watch asks of the exchange, or of whoever stands in its place."""

        on_cancel: Callable[[], None] | None
        on_writable: Callable[[], None] | None

        @property
        def writable(self) -> bool:
            """Whether it takes an event now."""

        def item(self, record: Record) -> None:
            """Take an event."""

        def end(self, record: Record) -> None:
            """Take the last word."""

        def fail(self, error: SandboxError) -> None:
            """Take an error as the last word."""


__all__ = ["JOIN", "MOST_PENDING", "Watch", "Watches"]

JOIN = 0.075
MOST_PENDING = 1000
MOST_WATCHES = 64
SETUP_TIMEOUT = 10.0

_MOST_PATTERNS = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Watches:
    """The watches of one runtime."""

    def __init__(self, loop: Loop, files: Files) -> None:
        self._loop = loop
        self._files = files
        self._count = 0

    def watch(self, request: WatchFilesRequest, exchange: Exchange) -> None:
        """Tell a client what changes."""
        self.begin(request, exchange)

    def begin(
        self,
        request: WatchFilesRequest | CheckChangesRequest,
        hearer: Hearer,
        *,
        holds: bool = True,
    ) -> Watch:
        """Begin to tell `hearer` what changes; with `holds` it keeps the sandbox awake."""
        path = self._files.absolute(request.path)
        if request.include and request.exclude:
            raise ValidationFailedError("exclude", "cannot be given together with include")
        if len(request.include) + len(request.exclude) > _MOST_PATTERNS:
            raise ValidationFailedError("include", f"and exclude have {_MOST_PATTERNS} at most")
        if self._count >= MOST_WATCHES:
            raise WatchStartError(path, "watch", f"{MOST_WATCHES} watches run already")
        self._count += 1
        return Watch(
            self._loop, self._files, path, request, exchange=hearer, ended=self._ended, holds=holds
        )

    def _ended(self) -> None:
        self._count -= 1


class Watch:
    """One client's watch."""

    def __init__(
        self,
        loop: Loop,
        files: Files,
        path: str,
        request: WatchFilesRequest | CheckChangesRequest,
        *,
        exchange: Hearer,
        ended: Callable[[], None],
        holds: bool = True,
    ) -> None:
        self._loop = loop
        self._files = files
        self._path = path
        self._request = request
        self._exchange = exchange
        self._ended = ended
        self.id = os.urandom(8).hex()
        self.changes = 0
        self.taken = 0
        self._inotify: Inotify | None = None
        self._select: Selection | None = None
        self._is_folder = True
        self._top = -1
        # By the kernel's number; filled by threads before the kernel can tell of it.
        self._folders: dict[int, str] = {}
        self._adding = 0
        self._early: list[tuple[int, int, int, str]] = []
        self._moved: dict[int, str] = {}
        self._filled: set[int] = set()
        self._pending: dict[tuple[str, str], WatchFilesEvent] = {}
        self._has_overflown = False
        self._reason: str | None = None
        self._timer: Timer | None = None
        self._is_due = False
        self._is_open = True
        self._deadline = time.monotonic() + SETUP_TIMEOUT
        exchange.on_cancel = lambda: self._stop("cancelled")
        self._holds = holds
        if holds:
            files.activity.hold("file.watch")
        self._work(self._set_up, self._watching)

    def _work(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Do something in a thread that adds folders, then go on."""

        def done(_result: object, error: BaseException | None) -> None:
            self._adding -= 1
            if isinstance(error, OSError):
                self._fail(error)
            elif error is not None:
                self._close()
                self._files.jobs.fail(self._exchange, error, self._path, "watch")  # type: ignore[arg-type]
            elif self._is_open:
                then()
            if not self._is_open and not self._adding:
                self._clear()

        self._adding += 1
        self._files.workers.submit(work, done)

    # --- setting up, in threads ---

    def _set_up(self) -> None:
        # Loaded here: both of them take longer than the loop may be kept.
        from sandbox_runtime.globs import Selection  # noqa: PLC0415
        from sandbox_runtime.inotify import Inotify  # noqa: PLC0415

        self._select = Selection(self._request.include, self._request.exclude)
        self._inotify = Inotify()
        self._is_folder = os.path.isdir(self._path)
        self._top = self._inotify.add(self._path, top=True)
        self._folders[self._top] = ""
        if self._is_folder and self._request.recursive:
            for _ in self._add_below("", tell=False):
                pass

    def _add_below(self, path: str, *, tell: bool) -> Generator[tuple[str, bool], None, None]:
        """Watch the folders below one that is watched; yield what is in them."""
        assert self._inotify is not None  # noqa: S101  set up before
        where = os.path.join(self._path, path) if path else self._path
        try:
            top = os.open(where, _FOLDER)
        except OSError:
            return
        try:
            for found in walk(top, recursive=True, hidden=True):
                if not self._is_open:
                    return
                if found is None or isinstance(found, Folder) or is_draft(found[1].name):
                    continue
                folder, entry, _ = found
                below = folder.path(entry.name)
                below = f"{path}/{below}" if path else below
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and not self._hides(below):
                    self._add(below)
                if tell:
                    yield below, is_folder
                elif time.monotonic() > self._deadline:
                    number = errno.ETIMEDOUT
                    raise OSError(number, os.strerror(number), self._path)
        finally:
            os.close(top)

    def _add(self, path: str) -> None:
        assert self._inotify is not None  # noqa: S101  set up before
        try:
            number = self._inotify.add(os.path.join(self._path, path))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                return
            raise
        self._folders[number] = path

    def _hides(self, path: str) -> bool:
        return self._select is not None and self._select.hides(path)

    # --- events, on the loop ---

    def _watching(self) -> None:
        assert self._inotify is not None  # noqa: S101  set up just now
        self._exchange.on_writable = self._flush
        self._exchange.item(
            WatchFilesEvent(
                type="watching", watch_id=self.id, path=self._path, timestamp=time.time()
            )
        )
        self._loop.add(self._inotify.fd, READ, self._ready)

    def look(self) -> None:
        """Take what has happened until now."""
        before = -1
        while self._inotify is not None and before != self.taken:
            before = self.taken
            self._ready(0)

    def stop(self) -> None:
        """End it."""
        self._stop("cancelled")

    def _ready(self, _events: int) -> None:
        if self._inotify is None:
            return
        for event in self._inotify.read():
            self.taken += 1
            self._take(*event)
        self._schedule()

    def _take(self, watch: int, mask: int, cookie: int, name: str) -> None:
        from sandbox_runtime import inotify  # noqa: PLC0415  loaded by the set-up

        if mask & inotify.OVERFLOW:
            self._overflow()
            return
        folder = self._folders.get(watch)
        if folder is None:
            if self._adding:
                self._early.append((watch, mask, cookie, name))
            return
        if mask & (inotify.IGNORED | inotify.DELETE_SELF | inotify.MOVE_SELF):
            if watch == self._top:
                self._reason = "deleted"
            elif mask & inotify.IGNORED:
                del self._folders[watch]
            return
        if is_draft(name):
            if mask & inotify.MOVED_FROM:
                self._filled.add(cookie)
            return
        path = f"{folder}/{name}" if folder and name else folder or name
        is_folder = bool(mask & inotify.ISDIR)
        if mask & inotify.MOVED_FROM:
            self._tell("move_from", path, is_folder)
            if is_folder:
                self._moved[cookie] = path
        elif mask & inotify.MOVED_TO:
            if cookie in self._filled:
                # A draft of ours a moment ago: it was written, not moved.
                self._filled.discard(cookie)
                self._tell("create" if is_folder else "modify", path, is_folder)
            else:
                self._tell("move_to", path, is_folder)
            if is_folder:
                self._move(self._moved.pop(cookie, None), path)
        elif mask & inotify.CREATE:
            self._tell("create", path, is_folder)
            if is_folder:
                self._appeared(path)
        elif mask & inotify.DELETE:
            self._tell("delete", path, is_folder)
        elif mask & inotify.MODIFY:
            self._tell("modify", path, is_folder)
        elif mask & inotify.ATTRIB:
            self._tell("attrib", path, is_folder)

    def _move(self, old: str | None, new: str) -> None:
        """Know watched folders by their new paths; one from elsewhere is watched from now on."""
        if old is None:
            self._appeared(new)
            return
        for number, path in list(self._folders.items()):
            if path == old or path.startswith(f"{old}/"):
                self._folders[number] = new + path[len(old) :]

    def _appeared(self, path: str) -> None:
        if not self._request.recursive or self._hides(path):
            return
        found: list[tuple[str, bool]] = []

        def work() -> None:
            self._add(path)
            for each in self._add_below(path, tell=True):
                # More than that are not told one by one anyway.
                if len(found) <= MOST_PENDING:
                    found.append(each)

        def then() -> None:
            for below, is_folder in found:
                self._tell("create", below, is_folder)
            early, self._early = self._early, []
            for event in early:
                self._take(*event)
            self._schedule()

        self._work(work, then)

    def _tell(self, kind: str, path: str, is_folder: bool) -> None:  # noqa: FBT001  private
        if self._has_overflown or (self._select is not None and not self._select.has(path)):
            return
        self.changes += 1
        key = kind, path
        # In the place of the last, so that what is told keeps the order of what came last.
        self._pending.pop(key, None)
        where = os.path.join(self._path, path) if path else self._path
        self._pending[key] = WatchFilesEvent(
            type="event",
            event_type=kind,
            path=where,
            is_directory=is_folder,
            timestamp=time.time(),
        )
        if len(self._pending) > MOST_PENDING:
            self._overflow()

    def _overflow(self) -> None:
        self.changes += 1
        self._has_overflown = True
        self._pending.clear()

    # --- telling ---

    def _schedule(self) -> None:
        if (
            self._is_open
            and self._timer is None
            and (self._pending or self._has_overflown or self._moved or self._reason)
        ):
            self._timer = self._loop.call_later(JOIN, self._due)

    def _due(self) -> None:
        self._timer = None
        self._is_due = True
        # A folder that was moved out of the tree comes nowhere: it is watched no more.
        moved, self._moved = self._moved, {}
        self._filled.clear()
        for path in moved.values():
            self._forget(path)
        self._flush()

    def _forget(self, gone: str) -> None:
        assert self._inotify is not None  # noqa: S101  it runs
        for number, path in list(self._folders.items()):
            if path == gone or path.startswith(f"{gone}/"):
                del self._folders[number]
                self._inotify.remove(number)

    def _flush(self) -> None:
        """Send what is due, as far as the client takes it."""
        if not self._is_due or not self._is_open:
            return
        if self._has_overflown and self._exchange.writable:
            self._has_overflown = False
            self._exchange.item(
                WatchFilesEvent(type="resync", reason="overflow", timestamp=time.time())
            )
        while self._pending and self._exchange.writable:
            key = next(iter(self._pending))
            self._exchange.item(self._pending.pop(key))
        if self._pending or self._has_overflown:
            return
        self._is_due = False
        if self._reason is not None:
            self._stop(self._reason)

    def _fail(self, error: OSError) -> None:
        if not self._is_open:
            return
        if error.errno in (errno.ENOSPC, errno.EMFILE, errno.ETIMEDOUT):
            # The system's limits of watches have these numbers, though neither disk nor files.
            reason = {
                errno.ENOSPC: "the limit of watched folders is reached",
                errno.EMFILE: "the limit of watches is reached",
            }.get(error.errno, "it has too many folders to be set up in time")
            problem = WatchStartError(
                self._path, "watch", reason, hint="Watch a smaller folder, or exclude some."
            )
        else:
            problem = explain(error, self._path, "watch")  # type: ignore[assignment]
        if self._exchange.on_writable is None:
            self._close()
            self._exchange.fail(problem)
            return
        if self._exchange.writable:
            self._exchange.item(
                WatchFilesEvent(
                    type="error", reason=problem.message, path=self._path, timestamp=time.time()
                )
            )
        self._stop("error")

    def _stop(self, reason: str) -> None:
        if not self._is_open:
            return
        self._close()
        if self._exchange.writable:
            self._exchange.item(
                WatchFilesEvent(type="stopped", reason=reason, timestamp=time.time())
            )
        self._exchange.end(WatchFilesEnd(reason=reason))

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._ended()
        if self._holds:
            self._files.activity.let_go("file.watch", time.monotonic())
        if self._timer is not None:
            self._timer.cancel()
        if not self._adding:
            self._clear()

    def _clear(self) -> None:
        """Let go of what threads may have used until now."""
        notify, self._inotify = self._inotify, None
        if notify is not None:
            self._loop.remove_if_added(notify.fd)
            notify.close()
