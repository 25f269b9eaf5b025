"""Take changes of a sandbox over to the host's folder."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sandbox_kernel.engines.base import StateLayout
from sandbox_kernel.engines.remove import remove_tree
from sandbox_kernel.errors import StorageError, StorageFullError
from sandbox_kernel.folder.changes import Change, ChangeKind, diff
from sandbox_kernel.folder.layer import FileType, open_layer
from sandbox_kernel.folder.ledger import Takeovers
from sandbox_kernel.folder.notebooks import (
    LARGEST_NOTEBOOK,
    CleanNotebook,
    clean_notebook,
    is_notebook,
)
from sandbox_kernel.folder.selection import Selection
from sandbox_kernel.folder.walk import LinkInTheWayError, make_parents, open_folder, open_parent

__all__ = ["Outcome", "Status", "apply"]

_CHUNK = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)
_WRITE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Status(StrEnum):
    """What became of one change."""

    APPLIED = "applied"
    SKIPPED = "skipped"
    """Possible, but only when asked for."""
    CONFLICT = "conflict"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One change and what became of it.

    Parameters
    ----------
    change : Change
        What was to be taken over.
    status : Status
        Whether it was.
    reason : str
        Why not, or empty.
    cleaned : tuple of str
        What of a notebook that was taken over was left out or is drawn otherwise, a line each.
    """

    change: Change
    status: Status
    reason: str = ""
    cleaned: tuple[str, ...] = ()


class _RefusedError(Exception):
    """One change cannot be taken over; the others can."""


def apply(
    layout: StateLayout,
    folder: Path,
    paths: Iterable[str] | None = None,
    *,
    links: bool = False,
    hidden: bool = False,
    force: bool = False,
    clean: Callable[[bytes], CleanNotebook] = clean_notebook,
    ask: Callable[[list[Change]], None] | None = None,
) -> list[Outcome]:
    """Copy chosen changes, or all of them, from a sandbox's layer to the host's folder.

    No symbolic link is followed on either side.  Each file appears whole or not at all.  Files
    belong to the calling user, lose set-user-id, set-group-id and sticky bits, and are writable by
    group or others only where the host's file was.  The layer itself is left as it is, so that this
    is safe while the sandbox runs.

    Parameters
    ----------
    layout : StateLayout
        Of the sandbox.
    folder : Path
        The notebook's folder on the host.
    paths : iterable of str, optional
        Paths of changes, or folders that hold some; None is every change.
    links : bool
        Take symbolic links over, as links.
    hidden : bool
        Take hidden files over that are not named, neither they nor a hidden folder they are in;
        they configure tools such as git and editors.  A folder of the host with hidden files in
        it is deleted or replaced only when named itself, whatever this says.
    force : bool
        Also replace or delete what has changed on the host since.
    clean : callable
        What a notebook passes through; raises NotANotebookError for what is none.
    ask : callable, optional
        Called before anything is done, with the changes by which files of the host would be deleted
        or replaced, if there are any; what it raises is raised, and nothing was taken over.

    Returns
    -------
    list of Outcome
        One for each chosen change, by path.

    Raises
    ------
    ValidationFailedError
        A path names no change; nothing was taken over.
    StorageFullError, StorageError
        The disk is full, or fails, or the folder or the layer cannot be read.  No file is half
        written; ``context`` lists under ``applied`` what was taken over before, under ``deleted``
        what of that was deleted, and under ``not_applied`` what was not.
    """
    selection = Selection(paths)
    changes = selection.of(diff(layout, folder))
    if not changes:
        return []
    decisions = [
        _decide(change, selection, links=links, hidden=hidden, force=force) for change in changes
    ]
    costly = [
        change
        for change, outcome in zip(changes, decisions, strict=True)
        if outcome is None and change.kind is not ChangeKind.ADDED
    ]
    if costly and ask is not None:
        ask(costly)
    takeovers = Takeovers.load(layout)
    outcomes: list[Outcome] = []
    with open_layer(layout) as upper, open_folder(folder) as host:
        move = _Move(upper, host, clean, takeovers)
        try:
            for change, outcome in zip(changes, decisions, strict=True):
                outcomes.append(outcome or _carry_out(move, change))
        except OSError as error:
            stopped = change.path
            left = [each.path for each in changes[len(outcomes) :]]
            done = [each.change for each in outcomes if each.status is Status.APPLIED]
            raise _stopped(str(folder / stopped), error, done, left) from error
        finally:
            # Without the record the changes are compared by their content, which is the same.
            with suppress(OSError):
                takeovers.save()
    return outcomes


def _decide(
    change: Change, selection: Selection, *, links: bool, hidden: bool, force: bool
) -> Outcome | None:
    """Return why a change shall not be taken over, or None."""
    if change.problem:
        return Outcome(change=change, status=Status.REFUSED, reason=change.problem)
    if not hidden and selection.leaves_hidden(change.path):
        reason = "hidden files are taken over only when named, or with --hidden"
        return Outcome(change=change, status=Status.SKIPPED, reason=reason)
    if change.takes_hidden and not selection.names(change.path):
        reason = "hidden files of the host would go with it; name this path to apply it"
        return Outcome(change=change, status=Status.REFUSED, reason=reason)
    is_new_link = change.type is FileType.LINK and change.kind is not ChangeKind.DELETED
    if is_new_link and not links:
        reason = "symbolic links are taken over only when asked for"
        return Outcome(change=change, status=Status.SKIPPED, reason=reason)
    if change.conflict and not force:
        return Outcome(change=change, status=Status.CONFLICT, reason=change.conflict)
    return None


def _carry_out(move: _Move, change: Change) -> Outcome:
    try:
        cleaned = move(change)
    except (_RefusedError, ValueError) as error:
        return Outcome(change=change, status=Status.REFUSED, reason=str(error))
    except (MemoryError, RecursionError):
        reason = "it is too large or too deeply nested to be read"
        return Outcome(change=change, status=Status.REFUSED, reason=reason)
    except LinkInTheWayError:
        reason = "a folder on its way is a link or a file on the host"
        return Outcome(change=change, status=Status.REFUSED, reason=reason)
    except OSError as error:
        if error.errno in (*_FULL, errno.EIO):
            raise  # it would be no better for the others
        reason = error.strerror or str(error)
        return Outcome(change=change, status=Status.REFUSED, reason=reason.lower())
    return Outcome(change=change, status=Status.APPLIED, cleaned=cleaned)


def _stopped(
    path: str, error: OSError, done: list[Change], left: list[str]
) -> StorageError | StorageFullError:
    """Return the error for a disk that takes no more, with what was done and what was not."""
    stopped: StorageError | StorageFullError
    if error.errno in _FULL:
        stopped = StorageFullError(path, "write")
    else:
        stopped = StorageError(path, "write", "input/output error")
    stopped.hint = (
        f"{len(done)} of the changes were taken over before it, {len(left)} were not;"
        " mend the disk or free space on it, then apply again."
    )
    stopped.context |= {
        "applied": [change.path for change in done],
        "deleted": [change.path for change in done if change.kind is ChangeKind.DELETED],
        "not_applied": left,
    }
    return stopped


class _Made(NamedTuple):
    """The state of the layer's file whose copy was made, and what of it was cleaned."""

    status: os.stat_result
    cleaned: tuple[str, ...] = ()


class _Move:
    """Carries one change at a time from the layer to the host, through descriptors only."""

    def __init__(
        self, upper: int, host: int, clean: Callable[[bytes], CleanNotebook], takeovers: Takeovers
    ) -> None:
        self._upper = upper
        self._host = host
        self._clean = clean
        self._takeovers = takeovers

    def __call__(self, change: Change) -> tuple[str, ...]:
        """Carry it out; return what of a notebook was cleaned."""
        parts = tuple(change.path.split("/"))
        name = parts[-1]
        if change.kind is ChangeKind.DELETED:
            with open_parent(self._host, parts) as host:
                _delete(host, name)
            self._takeovers.note_deleted(change.path)
            return ()
        make_parents(self._host, parts)
        with open_parent(self._upper, parts) as upper, open_parent(self._host, parts) as host:
            draft = _draft_name()
            try:
                layer_status, cleaned = self._make(change, upper, host, name, draft)
                _put_in_place(host, draft, name, is_new_type=change.kind is ChangeKind.TYPE_CHANGED)
            except BaseException:
                _remove_if_there(host, draft)
                raise
            host_status = os.stat(name, dir_fd=host, follow_symlinks=False)
            self._takeovers.note(change.path, layer_status, host_status)
        return cleaned

    def _make(self, change: Change, upper: int, host: int, name: str, draft: str) -> _Made:
        """Make the new file beside the old one."""
        match change.type:
            case FileType.FOLDER:
                os.mkdir(draft, 0o755, dir_fd=host)
                return _Made(os.stat(name, dir_fd=upper, follow_symlinks=False))
            case FileType.LINK:
                status = os.stat(name, dir_fd=upper, follow_symlinks=False)
                os.symlink(os.readlink(name, dir_fd=upper), draft, dir_fd=host)
                return _Made(status)
            case _:
                return self._copy(change.path, upper, host, name, draft)

    def _copy(self, path: str, upper: int, host: int, name: str, draft: str) -> _Made:
        cleaned: list[str] = []
        # O_NONBLOCK: what was a file in the diff may be a pipe by now.
        read = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        write = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, read, dir_fd=upper), "rb") as source:
            status = os.fstat(source.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _RefusedError("it is no longer a file in the sandbox")
            with open(os.open(draft, write, 0o600, dir_fd=host), "wb") as copy:
                # Up to the size seen, so that a program that keeps writing cannot keep us here.
                if is_notebook(path):
                    if status.st_size > LARGEST_NOTEBOOK:
                        most = f"{LARGEST_NOTEBOOK >> 20} MiB"
                        raise _RefusedError(f"notebooks over {most} are not taken over")
                    content, cleaned = self._clean(source.read(status.st_size))
                    copy.write(content)
                else:
                    _copy_data(source, copy, status.st_size)
                copy.flush()
                os.fchmod(copy.fileno(), _permissions(status, host, name))
                os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
                os.fsync(copy.fileno())
        return _Made(status, tuple(cleaned))


def _copy_data(source: BinaryIO, copy: BinaryIO, size: int) -> None:
    """Copy what is stored of the first `size` bytes; holes stay holes and fill no disk."""
    reader = source.fileno()
    here = 0
    while here < size:
        try:
            here = os.lseek(reader, here, os.SEEK_DATA)
            end = min(os.lseek(reader, here, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                break
            raise
        copy.seek(here)
        while here < end and (chunk := os.pread(reader, min(_CHUNK, end - here), here)):
            copy.write(chunk)
            here += len(chunk)
        if here < end:  # cut short meanwhile
            break
    copy.flush()
    os.ftruncate(copy.fileno(), min(size, os.fstat(reader).st_size))


def _permissions(status: os.stat_result, host: int, name: str) -> int:
    """Return the permission bits: the sandbox's, less writing by others unless the host had it."""
    try:
        before = os.stat(name, dir_fd=host, follow_symlinks=False)
        allowed = before.st_mode & _WRITE_BY_OTHERS if stat.S_ISREG(before.st_mode) else 0
    except FileNotFoundError:
        allowed = 0
    return status.st_mode & 0o777 & ~(_WRITE_BY_OTHERS & ~allowed)


def _put_in_place(host: int, draft: str, name: str, *, is_new_type: bool) -> None:
    if not is_new_type:
        os.rename(draft, name, src_dir_fd=host, dst_dir_fd=host)
        return
    # A folder cannot replace a file in one step, nor a file a folder: the old one steps aside and
    # comes back if the new one cannot take its place.
    aside = _draft_name()
    os.rename(name, aside, src_dir_fd=host, dst_dir_fd=host)
    try:
        os.rename(draft, name, src_dir_fd=host, dst_dir_fd=host)
    except OSError:
        os.rename(aside, name, src_dir_fd=host, dst_dir_fd=host)
        raise
    remove_tree(host, aside)


def _delete(host: int, name: str) -> None:
    aside = _draft_name()
    os.rename(name, aside, src_dir_fd=host, dst_dir_fd=host)
    remove_tree(host, aside)


def _remove_if_there(host: int, draft: str) -> None:
    with suppress(FileNotFoundError):
        remove_tree(host, draft)


def _draft_name() -> str:
    return f".{secrets.token_hex(8)}.taking-over"
