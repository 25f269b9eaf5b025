"""Whole folders, in steps: walking, removing, copying.

Every function here is a generator that gives the thread back often, so that many of them share a
few threads and each can be given up between two steps.  Folders are opened from the top by pieces
of their path, no longer than the system takes, and no more than two are open at once, so neither
depth nor width is bounded by descriptors, recursion or the length of a path.
"""

from __future__ import annotations

import errno
import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "CHUNK",
    "Folder",
    "Pace",
    "copy",
    "kind_of",
    "open_regular",
    "remove",
    "walk",
    "write_all",
]

CHUNK = 256 << 10
"""Bytes of a file that are read or copied in one step."""

STEP = 0.005
"""Seconds that a step takes, about, where it consists of many small parts."""

_LONGEST = 4000
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Folder:
    """A folder somewhere below the top one, known by its name and the folder it is in."""

    __slots__ = ("above", "name")

    def __init__(self, name: str = "", above: Folder | None = None) -> None:
        self.name = name
        self.above = above

    def path(self, name: str = "") -> str:
        """Return its path, or that of an entry in it, from the top folder on."""
        return "/".join([*self._names(), name] if name else self._names())

    def _names(self) -> list[str]:
        names = []
        each: Folder | None = self
        while each is not None and each.above is not None:
            names.append(each.name)
            each = each.above
        return names[::-1]

    def open(self, top: int) -> int:
        """Open it, from the open top folder on."""
        fd = os.open(".", _OPEN, dir_fd=top)
        piece: list[str] = []
        length = 0
        for name in self._names():
            size = 4 * len(name) + 1  # no character takes more bytes
            if length + size > _LONGEST and piece:
                fd = _within(fd, "/".join(piece))
                piece, length = [], 0
            piece.append(name)
            length += size
        return _within(fd, "/".join(piece)) if piece else fd


def _within(fd: int, path: str) -> int:
    try:
        return os.open(path, _OPEN, dir_fd=fd)
    finally:
        os.close(fd)


class Pace:
    """Says when a step has lasted long enough."""

    def __init__(self) -> None:
        self._until = time.monotonic() + STEP

    def is_up(self) -> bool:
        """Whether to give the thread back now; begins the next step if so."""
        if time.monotonic() < self._until:
            return False
        self._until = time.monotonic() + STEP
        return True


def open_regular(path: str, *, dir_fd: int | None = None, follow: bool = True) -> int:
    """Open a regular file for reading, without waiting for anything.

    Raises
    ------
    OSError
        It is none, or cannot be read.  What is no file has no number, but says what it is.
    """
    fd = os.open(path, _READ | (0 if follow else os.O_NOFOLLOW), dir_fd=dir_fd)
    try:
        _check_regular(os.fstat(fd).st_mode, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_regular(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(0, f"it is no file but a {kind_of(mode)}")


def kind_of(mode: int) -> str:
    """Return the name of a special file's kind, for people."""
    for is_it, name in (
        (stat.S_ISFIFO, "pipe"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISCHR, "device"),
        (stat.S_ISBLK, "device"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "link"),
    ):
        if is_it(mode):
            return name
    return "file"


Found = tuple[Folder, "os.DirEntry[str]", int]


def walk(top: int, *, recursive: bool, hidden: bool) -> Iterator[Found | Folder | None]:
    """Yield each entry below the open folder `top` as (its folder, entry, the folder open).

    A folder comes before what is in it.  Links are not entered.  A `Folder` is yielded that cannot
    be read, and None where nothing is found for a while.
    """
    pace = Pace()
    waiting = [Folder()]
    while waiting:
        folder = waiting.pop()
        if pace.is_up():
            yield None
        try:
            fd = folder.open(top)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                yield folder
            continue
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    if not hidden and entry.name.startswith("."):
                        continue
                    yield folder, entry, fd
                    if recursive and entry.is_dir(follow_symlinks=False):
                        waiting.append(Folder(entry.name, folder))
        finally:
            os.close(fd)


def remove(path: str) -> Iterator[None]:
    """Remove a file, a link, or a folder with everything in it; no link is followed.

    Raises
    ------
    OSError
        Something could not be removed; what was found before it is gone.
    """
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    top = os.open(path, _OPEN)
    try:
        yield from _empty(top)
    finally:
        os.close(top)
    os.rmdir(path)


def _empty(top: int) -> Iterator[None]:
    pace = Pace()
    waiting = [Folder()]
    while waiting:
        folder = waiting[-1]
        try:
            fd = folder.open(top)
        except FileNotFoundError:
            waiting.pop()
            continue
        try:
            below = []
            with os.scandir(fd) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.name)
                    else:
                        _quietly(os.unlink, entry.name, fd)
                    if pace.is_up():
                        yield
            left = [name for name in below if not _quietly(os.rmdir, name, fd)]
        finally:
            os.close(fd)
        if not left:
            waiting.pop()
            continue
        # It is read again once these are empty, and they are removed then.
        waiting.extend(Folder(name, folder) for name in left)
        yield


def _quietly(call: Callable[..., object], name: str, fd: int) -> bool:
    """Remove an entry; False if it is a folder that is not empty.  Its absence is as good."""
    try:
        call(name, dir_fd=fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _copy_bytes(source: int, target: int) -> Iterator[None]:
    """Copy from one open file to another, up to the size it has now."""
    left = os.fstat(source).st_size
    position = 0
    while left > 0:
        data = os.pread(source, min(CHUNK, left), position)
        if not data:
            return
        write_all(target, data, position)
        position += len(data)
        left -= len(data)
        if left > 0:
            yield


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all the bytes at an offset."""
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view = view[count:]
        offset += count


def copy(source: str, target: str) -> Iterator[None]:
    """Copy a file, a link or a folder with everything in it to a path that does not exist.

    Bits of permission and times are kept; what is no file, folder or link is refused.
    """
    status = os.lstat(source)
    if not stat.S_ISDIR(status.st_mode):
        yield from _copy_entry(source, None, target, None, status)
        return
    os.mkdir(target, 0o700)
    top, copied = os.open(source, _OPEN), os.open(target, _OPEN)
    finished: list[tuple[Folder, os.stat_result]] = [(Folder(), status)]
    here: Folder | None = None
    within = -1
    pace = Pace()
    try:
        for found in walk(top, recursive=True, hidden=True):
            if found is None:
                yield
                continue
            if isinstance(found, Folder):
                raise PermissionError(
                    errno.EACCES, os.strerror(errno.EACCES), os.path.join(source, found.path())
                )
            folder, entry, fd = found
            if folder is not here:
                if within >= 0:
                    os.close(within)
                    within = -1
                here, within = folder, folder.open(copied)
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                os.mkdir(entry.name, 0o700, dir_fd=within)
                finished.append((Folder(entry.name, folder), status))
            else:
                yield from _copy_entry(entry.name, fd, entry.name, within, status)
            if pace.is_up():
                yield
        for made, status in reversed(finished):
            fd = made.open(copied)
            try:
                os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
                os.fchmod(fd, stat.S_IMODE(status.st_mode))
            finally:
                os.close(fd)
    finally:
        if within >= 0:
            os.close(within)
        os.close(top)
        os.close(copied)


def _copy_entry(
    source: str,
    source_fd: int | None,
    target: str,
    target_fd: int | None,
    status: os.stat_result,
) -> Iterator[None]:
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source, dir_fd=source_fd), target, dir_fd=target_fd)
        return
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, f"{source!r} is a {kind_of(status.st_mode)}, which cannot be copied")
    reading = open_regular(source, dir_fd=source_fd, follow=False)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        writing = os.open(target, flags, 0o600, dir_fd=target_fd)
        try:
            yield from _copy_bytes(reading, writing)
            os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fchmod(writing, stat.S_IMODE(status.st_mode))
        finally:
            os.close(writing)
    finally:
        os.close(reading)
