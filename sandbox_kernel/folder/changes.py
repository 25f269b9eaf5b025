"""What a sandbox changed in the notebook's folder, compared with the folder as it is now."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sandbox_kernel.engines.base import StateLayout
from sandbox_kernel.errors import StorageError
from sandbox_kernel.folder.birth import made_at_ns
from sandbox_kernel.folder.layer import Entry, FileType, open_layer, read_entry
from sandbox_kernel.folder.ledger import Takeovers
from sandbox_kernel.folder.walk import LinkInTheWayError, open_folder, open_parent

__all__ = ["Change", "ChangeKind", "diff", "folder_of", "upper_of"]

# Every path is walked from the top, so depth costs its square; no real project comes near this.
_DEEPEST = 200
_CHUNK = 1 << 20
_CHANGED = "changed on the host since"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ChangeKind(StrEnum):
    """What happened to a path."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    TYPE_CHANGED = "type-changed"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One path that differs between the sandbox and the host.

    Parameters
    ----------
    path : str
        Relative to the folder, with ``/``; may hold any character but NUL.
    kind : ChangeKind
        What happened to it.
    type : FileType
        What it is in the sandbox; of a deleted one, what it is on the host.
    size : int
        Bytes of the file; 0 for what is no file.
    target : str, optional
        Where a link points.
    conflict : str
        How the host's file has changed since the sandbox made its own, or empty.
    problem : str
        Why it can never be taken over, or empty.
    host_entries : int
        How many files and folders of the host go with a folder that was deleted or replaced.
    takes_hidden : bool
        Whether hidden ones may be among them; such a folder goes only when it is named itself.
    """

    path: str
    kind: ChangeKind
    type: FileType
    size: int = 0
    target: str | None = None
    conflict: str = ""
    problem: str = ""
    host_entries: int = 0
    takes_hidden: bool = False

    @property
    def is_hidden(self) -> bool:
        """Whether a component begins with a dot; such files configure tools."""
        return any(part.startswith(".") for part in self.path.split("/"))


def upper_of(layout: StateLayout) -> Path:
    """Return the directory that holds the sandbox's own version of what it changed."""
    return layout.folder / "upper"


def folder_of(layout: StateLayout) -> Path | None:
    """Return the host folder that the layer lies over, or None if there is no layer.

    The engine notes it when it first mounts the layer: a sandbox that is used from a second folder
    keeps its changes to the first one.
    """
    try:
        return Path(os.fsdecode((layout.folder / "of").read_bytes()))
    except FileNotFoundError:
        return None


def diff(layout: StateLayout, folder: Path) -> list[Change]:
    """Compare a sandbox's layer with the host folder it lies over.

    Safe while the sandbox runs; what it changes meanwhile may or may not be seen.

    Parameters
    ----------
    layout : StateLayout
        Of the sandbox.
    folder : Path
        The notebook's folder on the host.

    Returns
    -------
    list of Change
        By path, a folder before what is in it.  Contents and permission bits of files count,
        times and owners do not; a folder is only listed when it appeared, went, took the place of
        something else, or cannot be looked into.

    Raises
    ------
    StorageError
        The host folder or the layer cannot be read.
    """
    if not upper_of(layout).is_dir():
        return []
    takeovers = Takeovers.load(layout)
    try:
        with open_layer(layout) as upper_root, open_folder(folder) as host_root:
            changes = list(_compare(upper_root, host_root, takeovers))
    except OSError as error:
        path = str(error.filename or folder)
        raise StorageError(path, "compare", error.strerror or str(error)) from error
    return sorted(changes, key=lambda change: change.path.split("/"))


def _compare(upper_root: int, host_root: int, takeovers: Takeovers) -> Iterator[Change]:
    """Yield the changes, one directory after another."""
    pending: list[tuple[tuple[str, ...], bool]] = [((), False)]
    while pending:
        parts, is_opaque = pending.pop()
        with ExitStack() as stack:
            try:
                upper = stack.enter_context(open_parent(upper_root, (*parts, "")))
                names = os.listdir(upper)
                host = _enter_host(stack, host_root, parts)
            except (LinkInTheWayError, FileNotFoundError, PermissionError):
                if not parts:
                    raise
                continue  # changed by the running sandbox meanwhile
            for name in names:
                path = "/".join((*parts, name))
                try:
                    entry = read_entry(upper, name)
                    below = read_entry(host, name) if host is not None else None
                    if entry is None:
                        continue
                    change = _judge(path, entry, below, upper=upper, host=host, takeovers=takeovers)
                except (FileNotFoundError, PermissionError):
                    if not parts:
                        raise
                    continue
                if change is not None:
                    yield change
                is_too_deep = len(parts) >= _DEEPEST
                is_readable = not entry.problem and not (below is not None and below.problem)
                if entry.type is FileType.FOLDER and is_readable and not is_too_deep:
                    pending.append(((*parts, name), entry.is_opaque))
            if is_opaque and host is not None:
                yield from _hidden_by_opaque(parts, set(names), upper, host)


def _enter_host(stack: ExitStack, root: int, parts: tuple[str, ...]) -> int | None:
    try:
        return stack.enter_context(open_parent(root, (*parts, "")))
    except (LinkInTheWayError, FileNotFoundError):
        return None


def _judge(
    path: str,
    entry: Entry,
    below: Entry | None,
    *,
    upper: int,
    host: int | None,
    takeovers: Takeovers,
) -> Change | None:
    """Decide what one entry of the layer means for the host."""
    name = path.rsplit("/", 1)[-1]
    if entry.is_whiteout:
        if below is None or host is None:
            return None
        return _deletion(path, below, host, made_at_ns(upper, name))

    kind = _kind(name, upper, host, entry, below)
    if kind is None or takeovers.covers(path, entry.status):
        return None
    conflict = ""
    fate = _Fate()
    if below is not None and host is not None:
        if kind is ChangeKind.TYPE_CHANGED:
            fate = _look_through(host, name, below, made_at_ns(upper, name))
        if takeovers.left_host(path, below.status):
            pass
        elif kind is ChangeKind.TYPE_CHANGED:
            conflict = fate.conflict
        else:
            conflict = _changed_since(below, made_at_ns(upper, name))
    elif entry.was_copied_up and entry.type is FileType.FILE:
        conflict = "deleted on the host since"
    return Change(
        path=path,
        kind=kind,
        type=entry.type,
        size=_size(entry),
        target=entry.target,
        conflict=conflict,
        problem=entry.problem or _problem(entry, below, depth=path.count("/")),
        host_entries=fate.entries,
        takes_hidden=fate.takes_hidden,
    )


def _deletion(path: str, below: Entry, host: int, moment_ns: int) -> Change:
    fate = _look_through(host, path.rsplit("/", 1)[-1], below, moment_ns)
    return Change(
        path=path,
        kind=ChangeKind.DELETED,
        type=below.type,
        size=_size(below),
        target=below.target,
        conflict=fate.conflict,
        host_entries=fate.entries,
        takes_hidden=fate.takes_hidden,
    )


def _kind(
    name: str, upper: int, host: int | None, entry: Entry, below: Entry | None
) -> ChangeKind | None:
    if below is None or host is None:
        return ChangeKind.ADDED
    if entry.type is not below.type:
        return ChangeKind.TYPE_CHANGED
    match entry.type:
        case FileType.FOLDER:
            is_same = not entry.problem and not below.problem
        case FileType.LINK:
            is_same = entry.target == below.target
        case FileType.SPECIAL:
            is_same = entry.status.st_mode == below.status.st_mode
        case FileType.FILE:
            is_same = (
                stat.S_IMODE(entry.status.st_mode) == stat.S_IMODE(below.status.st_mode)
                and entry.status.st_size == below.status.st_size
                and _same_content(upper, host, name)
            )
    return None if is_same else ChangeKind.MODIFIED


def _problem(entry: Entry, below: Entry | None, *, depth: int) -> str:
    if entry.type is FileType.SPECIAL:
        return "pipes, sockets and devices are not taken over"
    if entry.type is FileType.FOLDER and below is not None and below.problem:
        return "the host's folder may not be read"
    if depth >= _DEEPEST:
        return "it is nested too deep"
    return ""


def _size(entry: Entry) -> int:
    return entry.status.st_size if entry.type is FileType.FILE else 0


def _hidden_by_opaque(
    parts: tuple[str, ...], names: set[str], upper: int, host: int
) -> Iterator[Change]:
    """Yield what a replaced folder no longer shows."""
    replaced_at = made_at_ns(upper, ".")
    for name in os.listdir(host):
        below = read_entry(host, name) if name not in names else None
        if below is not None:
            yield _deletion("/".join((*parts, name)), below, host, replaced_at)


@dataclass(kw_only=True)
class _Fate:
    """What goes with the host's entry when it is deleted or replaced."""

    conflict: str = ""
    entries: int = 0
    takes_hidden: bool = False


def _look_through(host: int, name: str, below: Entry, moment_ns: int) -> _Fate:
    """Look at the host's entry, and in a folder at everything below it."""
    fate = _Fate(conflict=_changed_since(below, moment_ns))
    if below.type is not FileType.FOLDER:
        return fate

    def miss(_: OSError) -> None:
        # Nobody can say what is in there, so it counts as worth keeping.
        fate.takes_hidden = True
        fate.conflict = fate.conflict or "a folder in it may not be read on the host"

    walk = os.fwalk(name, dir_fd=host, follow_symlinks=False, onerror=miss)
    for _, folders, files, descriptor in walk:
        for child in (*folders, *files):
            fate.entries += 1
            fate.takes_hidden = fate.takes_hidden or child.startswith(".")
            try:
                status = os.stat(child, dir_fd=descriptor, follow_symlinks=False)
            except OSError as error:
                miss(error)
                continue
            if status.st_ctime_ns > moment_ns:
                fate.conflict = _CHANGED
    return fate


def _changed_since(below: Entry, moment_ns: int) -> str:
    """Say whether the host's entry is newer than a moment.

    The inode's change time counts: unlike the modification time no program sets it back.
    """
    return _CHANGED if below.status.st_ctime_ns > moment_ns else ""


def _same_content(upper: int, host: int, name: str) -> bool:
    with ExitStack() as stack:
        try:
            ours, theirs = (
                stack.enter_context(open(os.open(name, _READ, dir_fd=parent), "rb"))
                for parent in (upper, host)
            )
            while (chunk := ours.read(_CHUNK)) == theirs.read(_CHUNK):
                if not chunk:
                    return True
        except OSError:  # unreadable, or replaced by something else meanwhile
            pass
        return False
