"""Single files and folders by path: what they are, their bytes, and changing them.

Called from threads, with absolute paths; raises `OSError`, which `file_errors` explains.
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.wire.file_operations import (
    FileData,
    FileEntry,
    FileList,
    ListFilesEnd,
    PackedFiles,
    PackFolderEnd,
    ReadFileEnd,
)
from sandbox_runtime.drafts import is_draft
from sandbox_runtime.trees import (
    CHUNK,
    Folder,
    Pace,
    copy,
    kind_of,
    open_regular,
    remove,
    walk,
    write_all,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from sandbox_runtime.drafts import Drafts

__all__ = [
    "Place",
    "absolute",
    "check_mode",
    "entry_at",
    "list_folder",
    "make_folder",
    "move",
    "pack_folder",
    "read_file",
    "rename",
    "symlink",
    "unpack",
    "write_file",
]

_MOST_LINKS = 40
"""As many as the system itself follows."""

_ENTRY_BYTES = 150
"""What an entry takes in an event, about, beside its path."""

_LISTED = 256
_LISTED_BYTES = 128 << 10
_UNREADABLE_SHOWN = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


def absolute(path: str, cwd: str) -> str:
    """Return the absolute path a request means.

    Raises
    ------
    ValidationFailedError
        It is empty, or no path at all.
    """
    if not path:
        raise ValidationFailedError("path", "is empty")
    if "\0" in path:
        raise ValidationFailedError("path", "holds a NUL")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ValidationFailedError("path", "holds a character that is no text") from None
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    return cwd if path in ("", ".") else os.path.join(cwd, path)


def check_mode(mode: int | None) -> None:
    """Refuse what are no permission bits."""
    if mode is not None and not 0 <= mode <= 0o7777:
        raise ValidationFailedError("mode", "must be 0 to 0o7777")


# --- what there is ----------------------------------------------------------------------------


def entry_at(path: str, *, follow: bool = True) -> FileEntry:
    """Return what is known of a path."""
    status = os.stat(path, follow_symlinks=follow)
    target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
    return _entry(path, status, target)


def _entry(path: str, status: os.stat_result, target: str | None = None) -> FileEntry:
    mode = status.st_mode
    return FileEntry(
        path=path,
        type=_TYPES.get(stat.S_IFMT(mode), "other"),
        size=status.st_size,
        modified_at=status.st_mtime,
        mode=stat.S_IMODE(mode),
        permissions=_permissions(mode, status.st_uid, status.st_gid),
        target=target,
    )


_user: tuple[int, frozenset[int]] | None = None


def _permissions(mode: int, uid: int, gid: int) -> str:
    """Return what this process's user may do, going by the bits."""
    global _user  # noqa: PLW0603  it does not change
    if _user is None:
        _user = os.geteuid(), frozenset((os.getegid(), *os.getgroups()))
    if _user[0] == 0:
        bits = 6 | (1 if mode & 0o111 or stat.S_ISDIR(mode) else 0)
    elif uid == _user[0]:
        bits = mode >> 6
    elif gid in _user[1]:
        bits = mode >> 3
    else:
        bits = mode
    return ("r" if bits & 4 else "-") + ("w" if bits & 2 else "-") + ("x" if bits & 1 else "-")


def list_folder(
    path: str, *, recursive: bool, hidden: bool
) -> Generator[FileList | None, None, ListFilesEnd]:
    """Yield what is in a folder, some entries at a time."""
    # The last link is followed, as by ls with a slash; those found below are not.
    top = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
    count = size = 0
    unreadable: list[str] = []
    entries: list[FileEntry] = []
    pace = Pace()
    try:
        for found in walk(top, recursive=recursive, hidden=hidden):
            if isinstance(found, Folder):
                if not found.path():
                    os.close(os.open(".", _FOLDER, dir_fd=top))
                if len(unreadable) < _UNREADABLE_SHOWN:
                    unreadable.append(found.path())
            elif found is not None:
                entry = _found(found)
                if entry is not None:
                    entries.append(entry)
                    size += len(entry.path)
                    count += 1
            if pace.is_up() or len(entries) >= _LISTED or size >= _LISTED_BYTES:
                yield FileList(path=path, entries=entries) if entries else None
                entries, size = [], 0
    finally:
        os.close(top)
    if entries:
        yield FileList(path=path, entries=entries)
    return ListFilesEnd(path=path, count=count, unreadable=unreadable)


def _found(found: tuple[Folder, os.DirEntry[str], int]) -> FileEntry | None:
    """Return what a walk has found; None if it is a draft of ours, or has gone meanwhile."""
    folder, entry, fd = found
    if is_draft(entry.name):
        return None
    try:
        status = entry.stat(follow_symlinks=False)
        target = os.readlink(entry.name, dir_fd=fd) if stat.S_ISLNK(status.st_mode) else None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINVAL, errno.ENOTDIR):
            return None
        raise
    return _entry(folder.path(entry.name), status, target)


# --- bytes out --------------------------------------------------------------------------------


def read_file(path: str, offset: int, length: int | None) -> Generator[FileData, None, ReadFileEnd]:
    """Yield a file's bytes, and with the first of them what it is."""
    fd = open_regular(path)
    try:
        status = os.fstat(fd)
        # A writer faster than we are would keep us for ever; only what has no size tells its end.
        left = max(0, status.st_size - offset) if status.st_size else None
        if length is not None:
            left = length if left is None else min(left, length)
        entry: FileEntry | None = _entry(path, status)
        position = offset
        while True:
            data = os.pread(fd, CHUNK if left is None else min(CHUNK, left), position)
            if not data and entry is None:
                break
            yield FileData(entry=entry, data=data)
            entry = None
            position += len(data)
            if left is not None:
                left -= len(data)
            if not data or left == 0:
                break
        return ReadFileEnd(size=position - offset)
    finally:
        os.close(fd)


class _Packing:
    """What the next event of a packed folder shall hold."""

    def __init__(self) -> None:
        self.entries: list[FileEntry] = []
        self.sizes: list[int] = []
        self.more = 0
        self.chunks: list[bytes] = []
        self.length = 0

    def add(self, entry: FileEntry) -> None:
        """Begin an entry."""
        self.entries.append(entry)
        self.sizes.append(0)
        self.length += _ENTRY_BYTES + len(entry.path)

    def add_bytes(self, data: bytes) -> None:
        """Go on with the last entry, which may have been in an event before."""
        if self.sizes:
            self.sizes[-1] += len(data)
        else:
            self.more += len(data)
        self.chunks.append(data)
        self.length += len(data)

    def take(self) -> PackedFiles | None:
        """Return what has come together, if anything, and begin anew."""
        if not self.length:
            return None
        event = PackedFiles(
            entries=self.entries, sizes=self.sizes, more=self.more, data=b"".join(self.chunks)
        )
        self.entries, self.sizes, self.chunks = [], [], []
        self.more = self.length = 0
        return event


def pack_folder(path: str) -> Generator[PackedFiles | None, None, PackFolderEnd]:
    """Yield everything in a folder with its bytes; what is no file, folder or link without."""
    top = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
    count = 0
    packing, pace = _Packing(), Pace()
    try:
        for found in walk(top, recursive=True, hidden=True):
            if isinstance(found, Folder):
                # A copy that silently lacks a part is worse than none.
                reason = os.strerror(errno.EACCES)
                raise PermissionError(errno.EACCES, reason, os.path.join(path, found.path()))
            if found is not None:
                entry = _found(found)
                if entry is None:
                    continue
                try:
                    fd = -1
                    if entry.type == "file":
                        fd = open_regular(found[1].name, dir_fd=found[2], follow=False)
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.ELOOP):
                        continue
                    error.filename = os.path.join(path, entry.path)
                    raise
                count += 1
                packing.add(entry)
                if fd >= 0:
                    yield from _packed(fd, entry.size, packing)
            if pace.is_up() or packing.length >= CHUNK:
                yield packing.take()
    finally:
        os.close(top)
    if packing.length:
        yield packing.take()
    return PackFolderEnd(path=path, count=count)


def _packed(fd: int, left: int, packing: _Packing) -> Generator[PackedFiles | None, None, None]:
    position = 0
    try:
        while left > 0:
            data = os.pread(fd, min(CHUNK, left), position)
            if not data:
                return
            packing.add_bytes(data)
            position += len(data)
            left -= len(data)
            if packing.length >= CHUNK:
                yield packing.take()
    finally:
        os.close(fd)


# --- bytes in ---------------------------------------------------------------------------------


class Place:
    """Where a new file shall be: its final path, and what is there now.

    The last link of the path is followed, also one that leads to nothing yet, as a shell does when
    it writes.  A file that is replaced must be one that could be written to.

    Parameters
    ----------
    path : str
        Absolute.
    parents : bool
        Make the folders that are missing on the way.

    Raises
    ------
    OSError
        Nothing can be put there.
    """

    def __init__(self, path: str, *, mode: int | None, overwrite: bool, parents: bool) -> None:
        if path.endswith("/"):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self.path = _final(path)
        self.folder = os.path.dirname(self.path)
        self._mode = mode
        self._overwrite = overwrite
        if parents and not os.path.isdir(self.folder):
            make_folder(self.folder, parents=True)
        try:
            self._old: os.stat_result | None = os.lstat(self.path)
        except FileNotFoundError:
            self._old = None
        if self._old is not None:
            self._check(self._old)

    def _check(self, old: os.stat_result) -> None:
        if not self._overwrite:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.path)
        if stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)
        if not stat.S_ISREG(old.st_mode):
            raise OSError(0, f"it is no file but a {kind_of(old.st_mode)}")
        if not os.access(self.path, os.W_OK):
            is_read_only = os.statvfs(self.path).f_flag & os.ST_RDONLY
            number = errno.EROFS if is_read_only else errno.EACCES
            raise OSError(number, os.strerror(number), self.path)

    def open(self, draft: str) -> int:
        """Make the draft of the file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(draft, flags, 0o600)

    def fill(self, draft: str, fd: int, *, fsync: bool) -> FileEntry:
        """Put a complete draft, which is open, in this place."""
        old = self._old
        mode = 0o644
        if old is not None:
            mode = stat.S_IMODE(old.st_mode)
            status = os.fstat(fd)
            if (old.st_uid, old.st_gid) != (status.st_uid, status.st_gid):
                # Not everybody may give files away; the group alone often can be kept.
                for owner in (old.st_uid, -1):
                    try:
                        os.fchown(fd, owner, old.st_gid)
                        break
                    except OSError:
                        continue
        os.fchmod(fd, mode if self._mode is None else self._mode)
        if fsync:
            os.fsync(fd)
        entry = _entry(self.path, os.fstat(fd))
        if old is not None or not self._link(draft):
            os.rename(draft, self.path)
        if fsync:
            _sync_folder(self.folder)
        return entry

    def _link(self, draft: str) -> bool:
        """Put a draft where nothing is; False if it must be renamed.

        A new name rather than another one: whoever watches the folder sees a file being made, and
        what came there meanwhile is not replaced unasked.
        """
        try:
            os.link(draft, self.path)
        except OSError as error:
            if not self._overwrite and error.errno == errno.EEXIST:
                raise
            # There are file systems without links.
            return False
        os.unlink(draft)
        return True


def _sync_folder(path: str) -> None:
    fd = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _final(path: str) -> str:
    """Follow the links at the end of a path; the system follows those on the way."""
    first = path
    for _ in range(_MOST_LINKS):
        try:
            target = os.readlink(path)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return path
            raise
        path = os.path.join(os.path.dirname(path), target)
        if path.endswith("/"):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), first)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), first)


def write_file(place: Place, data: bytes, drafts: Drafts, *, fsync: bool) -> FileEntry:
    """Put a file with these bytes in a place."""
    draft = drafts.begin(place.folder)
    try:
        fd = place.open(draft)
        try:
            write_all(fd, data, 0)
            entry = place.fill(draft, fd, fsync=fsync)
        finally:
            os.close(fd)
    except BaseException:
        drafts.drop(draft)
        raise
    drafts.end(draft)
    return entry


# --- names ------------------------------------------------------------------------------------


def make_folder(path: str, *, parents: bool, mode: int | None = None) -> None:
    """Make a folder; with `parents` those above it, too, and one that exists is fine."""
    missing = []
    each = path.rstrip("/") or "/"
    while True:
        try:
            os.mkdir(each, 0o755)
        except FileNotFoundError:
            above = os.path.dirname(each)
            if not parents or above == each:
                raise
            missing.append(each)
            each = above
            continue
        except FileExistsError:
            if not parents:
                raise
            if not os.path.isdir(each):
                number = errno.ENOTDIR if missing else errno.EEXIST
                raise OSError(number, os.strerror(number), each) from None
            if not missing:
                return
        if not missing:
            break
        each = missing.pop()
    if mode is not None:
        os.chmod(path, mode)


def rename(path: str, new_path: str, *, overwrite: bool) -> None:
    """Give something another path on the same file system."""
    if not overwrite and os.path.lexists(new_path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_path)
    os.rename(path, new_path)


def move(
    path: str, new_path: str, drafts: Drafts, *, overwrite: bool
) -> Generator[None, None, str]:
    """Move something, also to another file system; the last link of `new_path` is followed."""
    path = path.rstrip("/") or "/"
    if os.path.isdir(new_path):
        new_path = os.path.join(new_path, os.path.basename(path))
    new_path = new_path.rstrip("/") or "/"
    try:
        rename(path, new_path, overwrite=overwrite)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    else:
        return new_path
    draft = drafts.begin(os.path.dirname(new_path))
    try:
        yield from copy(path, draft)
        rename(draft, new_path, overwrite=overwrite)
    except BaseException:
        drafts.drop(draft)
        raise
    drafts.end(draft)
    yield from remove(path)
    return new_path


def unpack(
    path: str,
    entries: list[FileEntry],
    sizes: list[int],
    data: bytes,
    drafts: Drafts,
) -> Generator[None, None, None]:
    """Make or replace entries below a folder."""
    position = 0
    pace = Pace()
    for entry, size in zip(entries, sizes, strict=True):
        where = absolute(entry.path, path)
        if entry.type == "directory":
            make_folder(where, parents=True)
            os.chmod(where, entry.mode)
        elif entry.type == "symlink":
            symlink(where, entry.target or "", drafts, overwrite=True)
        else:
            place = Place(where, mode=entry.mode, overwrite=True, parents=False)
            write_file(place, data[position : position + size], drafts, fsync=False)
            position += size
        if pace.is_up():
            yield


def symlink(path: str, target: str, drafts: Drafts, *, overwrite: bool) -> None:
    """Make a link; in the place of a file or link only with `overwrite`."""
    if not overwrite:
        os.symlink(target, path)
        return
    draft = drafts.begin(os.path.dirname(path.rstrip("/")))
    try:
        os.symlink(target, draft)
        os.rename(draft, path)
    except BaseException:
        drafts.drop(draft)
        raise
    drafts.end(draft)
