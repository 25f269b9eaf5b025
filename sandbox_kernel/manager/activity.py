"""Who did what in a sandbox, and when: a file of lines that only grows, beside the sandbox.

One file for each lifetime, out of the sandbox's reach, which stays when the sandbox is destroyed.
A line is a JSON object; what commands and cells wrote is never in it.  Every process of the user
that works with sandboxes appends to the same file: each line is one write.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.manager.storage import make_private_folder, storage_errors

if TYPE_CHECKING:
    from sandbox_kernel.manager.settings import Settings

__all__ = [
    "LONGEST_TEXT",
    "Activity",
    "ActivityLog",
    "ActivityPage",
    "acting_as",
    "activity_log",
    "name_program",
    "os_user",
]

LONGEST_TEXT = 2000
"""Characters of a command or cell that are kept."""

_LARGEST_FILE = 8 << 20
"""Bytes after which a file becomes the older one of two, in the place of the one before."""

_KEPT_AFTER_DESTROY = 30 * 86400.0
_CURSOR = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_who: ContextVar[str | None] = ContextVar("sandbox_activity_who", default=None)
_program = "python"


@dataclass(frozen=True, kw_only=True)
class Activity:
    """One line.

    Parameters
    ----------
    at : float
        When it began, in seconds since the epoch.
    kind : str
        ``started``, ``stopped``, ``destroyed``, ``cell``, ``command``, ``process``,
        ``process_ended``, ``signal``, ``terminal``, ``terminal_ended``, ``port``.
    who : str
        The user, and by what: ``alice (kernel)``.
    what : str or list of str, optional
        The cell or command.
    details : dict
        What else there is to say, such as ``exit_code``, ``duration`` (seconds), ``reason``.
    """

    at: float
    kind: str
    who: str
    what: str | list[str] | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ActivityPage:
    """Lines in the order they were written, and where the next ones begin."""

    items: list[Activity]
    cursor: str
    """To be given as `since` the next time."""
    missed: bool = False
    """Whether older lines than these were asked for, and are gone."""


def os_user() -> str:
    """Return the name of this process's user."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # containers run under numbers that have no name
        return str(os.geteuid())


@contextmanager
def acting_as(who: str) -> Iterator[None]:
    """Name whom the block, and the tasks that it starts, act for."""
    before = _who.set(who)
    try:
        yield
    finally:
        _who.reset(before)


def name_program(name: str) -> None:
    """Say by what the user acts in this process, unless `acting_as` says otherwise."""
    global _program  # noqa: PLW0603  a process is one program
    _program = name


class ActivityLog:
    """The lines of every sandbox.

    Parameters
    ----------
    folder : Path
        Where the files lie; made when the first line is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._user: str | None = None

    def add(
        self,
        sandbox_id: str,
        lifetime: str,
        kind: str,
        *,
        what: str | list[str] | None = None,
        at: float | None = None,
        **details: Any,
    ) -> None:
        """Append a line.

        Raises
        ------
        StorageError, StorageFullError
            It could not be written.
        """
        line: dict[str, Any] = {
            "at": time.time() if at is None else at,
            "sandbox_id": sandbox_id,
            "kind": kind,
            "who": _who.get() or self._me(),
        }
        if what is not None:
            line["what"] = _shortened(what)
        line.update((name, value) for name, value in details.items() if value is not None)
        path = self._path(sandbox_id, lifetime)
        with storage_errors(path, "append to the activity log"):
            try:
                descriptor = _opened(path)
            except FileNotFoundError:
                make_private_folder(self._folder)
                descriptor = _opened(path)
            try:
                _append(descriptor, orjson.dumps(line, default=str) + b"\n", path)
            finally:
                os.close(descriptor)

    def read(
        self, sandbox_id: str, lifetime: str, *, since: str | None = None, limit: int = 1000
    ) -> ActivityPage:
        """Return the lines after a cursor, the oldest first.

        Parameters
        ----------
        since : str, optional
            `ActivityPage.cursor` of the page before; by default the oldest line there is.
        limit : int
            The most lines to return.

        Raises
        ------
        ValidationFailedError
            There is no such cursor.
        StorageError
            A file cannot be read.
        """
        place = _place(since)
        path = self._path(sandbox_id, lifetime)
        found: list[Activity] = []
        cursor = since or "0-0"
        with storage_errors(path, "read the activity log"):
            files = _files(path)
            marks = [each.mark for each in files]
            mark, offset = place
            if mark in marks:
                files = files[marks.index(mark) :]
            else:
                offset = 0
            for each in files:
                for line, end in _lines(each.path, offset, limit - len(found)):
                    activity = _read(line)
                    if activity is not None:
                        found.append(activity)
                    cursor = f"{each.mark}-{end}"
                offset = 0
                if len(found) >= limit:
                    break
        missed = mark != 0 and mark not in marks
        return ActivityPage(items=found, cursor=cursor, missed=missed)

    def lifetimes(self, sandbox_id: str) -> list[str]:
        """Return the lifetimes of an id of which there are lines, the last one last."""
        if not self._folder.is_dir():
            return []
        with storage_errors(self._folder, "list the folder"):
            paths = [
                path
                for path in self._folder.glob("*.jsonl")
                if path.name.startswith(f"{sandbox_id}.") and path.name.count(".") == 2
            ]
            paths.sort(key=lambda path: path.stat().st_mtime)
        return [path.name.split(".")[1] for path in paths]

    def old(self, living: frozenset[str], *, now: float) -> list[Path]:
        """Return the files of lifetimes that ended long ago.

        Parameters
        ----------
        living : frozenset of str
            The lifetimes of the sandboxes there are.
        now : float
            In seconds since the epoch.
        """
        found: list[Path] = []
        if not self._folder.is_dir():
            return found
        with storage_errors(self._folder, "look for old files"):
            for path in self._folder.iterdir():
                parts = path.name.split(".")
                is_ours = len(parts) in {3, 4} and parts[2] == "jsonl"
                if is_ours and parts[1] not in living:
                    with suppress(FileNotFoundError):
                        if now - path.stat().st_mtime > _KEPT_AFTER_DESTROY:
                            found.append(path)
        return found

    def forget(self, living: frozenset[str], *, now: float) -> None:
        """Remove the files that `old` names."""
        for path in self.old(living, now=now):
            with storage_errors(path, "remove"):
                path.unlink(missing_ok=True)

    def _path(self, sandbox_id: str, lifetime: str) -> Path:
        return self._folder / f"{sandbox_id}.{lifetime}.jsonl"

    def _me(self) -> str:
        if self._user is None:
            self._user = os_user()
        return f"{self._user} ({_program})"


def activity_log(settings: Settings) -> ActivityLog | None:
    """Return the log of a user's sandboxes; None where the settings want none."""
    return ActivityLog(settings.data_dir / "activity") if settings.activity_log else None


@dataclass(frozen=True)
class _File:
    path: Path
    mark: int
    """What tells it from all others: its first line, which never changes.  Inodes are reused."""


def _files(path: Path) -> list[_File]:
    """Return the file's older part and the file, as far as they are there."""
    found = []
    for each in (_older(path), path):
        with suppress(FileNotFoundError), each.open("rb") as file:
            line = file.readline()
            if line.endswith(b"\n"):
                digest = hashlib.blake2b(line, digest_size=7).digest()
                found.append(_File(each, int.from_bytes(digest) | 1))
    return found


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _opened(path: Path) -> int:
    return os.open(
        path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )


def _append(descriptor: int, line: bytes, path: Path) -> None:
    status = os.fstat(descriptor)
    if status.st_size > _LARGEST_FILE:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Whoever came first has moved it already, and lines written to it since are found there.
        with suppress(FileNotFoundError):
            if path.stat().st_ino == status.st_ino:
                path.rename(_older(path))
    os.write(descriptor, line)


def _lines(path: Path, offset: int, most: int) -> Iterator[tuple[bytes, int]]:
    """Yield whole lines from an offset, each with the offset behind it."""
    with path.open("rb") as file:
        file.seek(offset)
        for _ in range(most):
            line = file.readline()
            if not line.endswith(b"\n"):
                return  # none, or one that is just being written
            offset += len(line)
            yield line, offset


def _read(line: bytes) -> Activity | None:
    try:
        value = orjson.loads(line)
        at, kind, who = float(value.pop("at")), str(value.pop("kind")), str(value.pop("who"))
        value.pop("sandbox_id", None)
        return Activity(at=at, kind=kind, who=who, what=value.pop("what", None), details=value)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # a disk that filled up cuts lines


def _shortened(what: str | list[str]) -> str | list[str]:
    if isinstance(what, str):
        return _printable(what, LONGEST_TEXT)
    kept: list[str] = []
    room = LONGEST_TEXT
    for word in what:
        if room <= 0:
            kept.append("…")
            break
        kept.append(_printable(word, room))
        room -= len(word) + 1
    return kept


def _printable(text: str, room: int) -> str:
    # Names of files need not be UTF-8, and JSON must be.
    valid = text[:room].encode("utf-8", "backslashreplace").decode()
    return valid if len(text) <= room else f"{valid}…"


def _place(cursor: str | None) -> tuple[int, int]:
    """Return which file a cursor is in, and where; before all of them without one."""
    if cursor is None:
        return 0, 0
    found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise ValidationFailedError("since", "is no cursor of the activity log")
    return int(found[1]), int(found[2])
