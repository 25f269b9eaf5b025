"""Folders of this machine, as the other end of a transfer: blocking, for use in a thread.

What comes from a sandbox is hostile: names may try to lead out of the folder, links may be planted
between two steps, sizes may lie.  So no path of it is ever resolved by the system.  Each part of a
name is checked, folders are opened one by one from the top with O_NOFOLLOW, and files are made as
drafts that are put in their place when they are whole.  Where the file system can have it, a draft
has no name, so that nothing of it stays when we are killed; else it lies beside its place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from sandbox_kernel.errors import (
    FileTooLargeError,
    HostileNameError,
    PathExistsError,
    PathNotDirectoryError,
    SandboxConfigurationError,
    StorageError,
    StorageFullError,
)
from sandbox_kernel.wire.file_operations import FileEntry

__all__ = ["FolderReader", "FolderWriter", "HostEntry", "LinkRule", "Skipped", "is_inside"]

LinkRule = Literal["safe", "all", "skip"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DRAFT = ".sandbox-draft-"
_NAMELESS = getattr(os, "O_TMPFILE", 0)


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """What was left out of a transfer.

    Parameters
    ----------
    path : str
        Below the folder.
    reason : str
        Why, in words.
    """

    path: str
    reason: str


def is_inside(folder: tuple[str, ...], target: str) -> bool:
    """Return whether a link in `folder`, below the top, cannot lead above the top.

    It may go up at its beginning only, where it passes real folders, and no further than the top.
    After that it may pass other links, which obey the same rule; with ``..`` behind one of them it
    could lead anywhere.
    """
    if not target or target.startswith("/"):
        return False
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return up <= len(folder) and ".." not in parts[up:]


def _names(path: str) -> tuple[str, ...]:
    """Split a path that a sandbox sent.

    Raises
    ------
    HostileNameError
        It would not stay below the folder.
    """
    names = tuple(path.split("/"))
    for name in names:
        if name in ("", ".", "..") or "\0" in name or (os.sep != "/" and os.sep in name):
            raise HostileNameError(path, "write", "the name leads out of its folder")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        reason = "this machine cannot have such a name"
        raise HostileNameError(ascii(path), "write", reason) from None
    return names


@contextlib.contextmanager
def _told(path: Path, action: str) -> Iterator[None]:
    """Turn what this machine's file system says into our errors."""
    try:
        yield
    except OSError as error:
        where = str(path)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFullError(where, action) from error
        reason = error.strerror or str(error)
        mend = "It is a folder of this machine: check its owner and permissions."
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            reason = "it does not exist" if error.errno == errno.ENOENT else "it is no folder"
            mend = "Name a folder of this machine."
        raise StorageError(where, action, reason, mend) from error


def _needs_descriptors() -> None:
    if os.open not in os.supports_dir_fd:
        raise SandboxConfigurationError(
            "Folders cannot be transferred safely on this system.",
            hint="Use read_file() and write_file() for each file.",
        )


# --- from a sandbox ---------------------------------------------------------------------------


@dataclass
class FolderWriter:
    """Writes what a sandbox sends of a folder into one of this machine.

    Use it as a context manager, give it all entries by `take`, then call `finish`.

    Parameters
    ----------
    path : Path
        The folder; it is made if it does not exist.  It is trusted, as is what leads to it.
    overwrite : bool
        Replace files and links that exist.
    max_bytes, max_entries : int
        What may be written at most.
    symlinks : str
        ``safe``: links are made that cannot lead out of the folder; ``all`` or ``skip`` of them.
    """

    path: Path
    overwrite: bool
    max_bytes: int
    max_entries: int
    symlinks: LinkRule
    files: int = 0
    folders: int = 0
    links: int = 0
    written: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    current: str = ""

    def __post_init__(self) -> None:
        _needs_descriptors()
        self._top = -1
        self._here: tuple[tuple[str, ...], int] | None = None
        # The open file, its name if it has one, and the open folder.
        self._draft: tuple[int, str, int] | None = None
        self._entry: tuple[tuple[str, ...], int] = ((), 0)
        # By device and inode: names that a file system does not tell apart are one file.
        self._made: set[tuple[int, int]] = set()
        self._modes: list[tuple[tuple[str, ...], int]] = []

    def __enter__(self) -> Self:
        with _told(self.path, "write to"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._top = os.open(self.path, _FOLDER & ~os.O_NOFOLLOW)
        return self

    def __exit__(self, *_: object) -> None:
        self._drop_draft()
        self._leave()
        if self._top >= 0:
            os.close(self._top)

    def take(self, entry: FileEntry | None, data: bytes | memoryview) -> None:
        """Take an entry with its first bytes, or more bytes of the one before.

        Raises
        ------
        HostileNameError, FileTooLargeError, PathExistsError
            It is not written; nor should anything be that follows.
        StorageError, StorageFullError
            This machine refuses.
        """
        with _told(self.path, "write to"):
            if entry is not None:
                self._put()
                self._begin(entry)
            if data and self._draft is not None:
                if len(data) > self.max_bytes - self.written:
                    raise self._too_large(f"more than {self.max_bytes} bytes")
                self.written += len(data)
                _write(self._draft[0], data)

    def finish(self) -> None:
        """Put the last file in its place, and set the modes of the folders."""
        with _told(self.path, "write to"):
            self._put()
            self._leave()
            # What is in a folder comes before it: one may lose the right to enter it.
            for names, mode in reversed(self._modes):
                fd = self._open(names)
                try:
                    os.fchmod(fd, mode)
                finally:
                    os.close(fd)

    # --- entries ---

    def _begin(self, entry: FileEntry) -> None:
        self.current = entry.path
        names = _names(entry.path)
        if self.files + self.folders + self.links + len(self.skipped) >= self.max_entries:
            raise self._too_large(f"more than {self.max_entries} entries")
        # Set-user-id bits would make it somebody else's program on this side.
        mode = entry.mode & 0o777
        if entry.type == "directory":
            self._make_folder(names, mode)
        elif entry.type == "file":
            if entry.size > self.max_bytes - self.written:
                raise self._too_large(f"more than {self.max_bytes} bytes")
            folder = self._enter(names[:-1])
            self._draft = *_new_draft(folder), folder
            self._entry = names, mode
        elif entry.type == "symlink":
            self._make_link(names, entry.target or "")
        else:
            self.skipped.append(Skipped(path=entry.path, reason="neither file, folder nor link"))

    def _make_folder(self, names: tuple[str, ...], mode: int) -> None:
        parent = self._enter(names[:-1])
        try:
            os.mkdir(names[-1], 0o700, dir_fd=parent)
        except FileExistsError:
            status = os.stat(names[-1], dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode) or not self._is_new(status):
                raise self._exists(names) from None
        else:
            self._is_new(os.stat(names[-1], dir_fd=parent, follow_symlinks=False))
            self._modes.append((names, mode))
        self.folders += 1

    def _make_link(self, names: tuple[str, ...], target: str) -> None:
        rule = self.symlinks
        if rule == "skip" or (rule == "safe" and not is_inside(names[:-1], target)):
            reason = "a link" if rule == "skip" else "a link that may lead out of the folder"
            self.skipped.append(Skipped(path="/".join(names), reason=reason))
            return
        if not target or "\0" in target:
            raise HostileNameError("/".join(names), "write", "it leads nowhere at all")
        parent = self._enter(names[:-1])
        draft = _DRAFT + os.urandom(8).hex()
        os.symlink(target, draft, dir_fd=parent)
        try:
            self._place(draft, names, parent)
        except BaseException:
            os.unlink(draft, dir_fd=parent)
            raise
        self.links += 1

    def _put(self) -> None:
        """Put the file that has come in its place."""
        if self._draft is None:
            return
        fd, draft, folder = self._draft
        names, mode = self._entry
        os.fchmod(fd, mode)
        self._place(draft, names, folder, fd=fd)
        os.close(fd)
        self._draft = None
        self.files += 1

    def _place(self, draft: str, names: tuple[str, ...], folder: int, *, fd: int = -1) -> None:
        name = names[-1]
        try:
            old: os.stat_result | None = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            old = None
        made = os.stat(draft, dir_fd=folder, follow_symlinks=False) if draft else os.fstat(fd)
        if old is not None and (
            not self.overwrite
            or stat.S_ISDIR(old.st_mode)
            or (old.st_dev, old.st_ino) in self._made
        ):
            raise self._exists(names)
        # A link in the place of a rename: what came there since is not replaced.
        try:
            if not draft and old is None:
                _give_name(fd, name, folder)
            elif not draft:
                self._draft = fd, _DRAFT + os.urandom(8).hex(), folder
                draft = self._draft[1]
                _give_name(fd, draft, folder)
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            elif old is None and stat.S_ISREG(made.st_mode):
                self._link(draft, name, folder)
            else:
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            raise self._exists(names) from None
        self._made.add((made.st_dev, made.st_ino))

    @staticmethod
    def _link(draft: str, name: str, folder: int) -> None:
        try:
            os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            raise
        except OSError:
            # There are file systems without links.
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.unlink(draft, dir_fd=folder)

    def _is_new(self, status: os.stat_result) -> bool:
        """Note a folder; False if it was made under another name by this transfer."""
        identity = status.st_dev, status.st_ino
        if identity in self._made:
            return False
        self._made.add(identity)
        return True

    # --- folders ---

    def _enter(self, names: tuple[str, ...]) -> int:
        """Return the open folder of these names; it stays open until another one is entered."""
        if self._here is not None and self._here[0] == names:
            return self._here[1]
        self._leave()
        self._here = names, self._open(names)
        return self._here[1]

    def _open(self, names: tuple[str, ...]) -> int:
        fd = os.open(".", _FOLDER, dir_fd=self._top)
        for name in names:
            try:
                below = os.open(name, _FOLDER, dir_fd=fd)
            except FileNotFoundError:
                path = "/".join(names)
                raise HostileNameError(path, "write to", "it was not sent before") from None
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP):
                    path = str(self.path / "/".join(names))
                    raise PathNotDirectoryError(path, "write to", "it is no folder") from None
                raise
            finally:
                os.close(fd)
            fd = below
        return fd

    def _leave(self) -> None:
        here, self._here = self._here, None
        if here is not None:
            os.close(here[1])

    def _drop_draft(self) -> None:
        draft, self._draft = self._draft, None
        if draft is not None:
            os.close(draft[0])
            if draft[1]:
                with contextlib.suppress(OSError):
                    os.unlink(draft[1], dir_fd=draft[2])

    # --- refusals ---

    def _too_large(self, what: str) -> FileTooLargeError:
        hint = "Raise max_bytes or max_entries if that is what you want."
        return FileTooLargeError(self.current, "download", f"it would be {what}", hint=hint)

    def _exists(self, names: tuple[str, ...]) -> PathExistsError:
        path = str(self.path / "/".join(names))
        hint = "Use another folder, or overwrite=True for files that were there before."
        return PathExistsError(path, "write", "something of that name is there", hint=hint)


def _new_draft(folder: int) -> tuple[int, str]:
    """Return an open new file and its name, which is empty where it can do without."""
    # Only by way of /proc is it given one (open(2), O_TMPFILE).
    if _NAMELESS and os.path.isdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # a file system or kernel that knows no such files
            flags = _NAMELESS | os.O_WRONLY | os.O_CLOEXEC
            return os.open(".", flags, 0o600, dir_fd=folder), ""
    draft = _DRAFT + os.urandom(8).hex()
    return os.open(draft, _NEW, 0o600, dir_fd=folder), draft


def _give_name(fd: int, name: str, folder: int) -> None:
    os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder, follow_symlinks=True)


def _write(fd: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


# --- to a sandbox -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HostEntry:
    """An entry of a folder of this machine; of a file the beginning of its bytes.

    Parameters
    ----------
    path : str
        Below the folder.
    type : str
        ``file``, ``directory``, ``symlink`` or ``other``.
    mode : int
        Permission bits, without those that change the user.
    size : int
        Of a file.
    target : str
        Of a link.
    data : bytes or None
        All bytes of a small file.
    is_final : bool
        Of a folder: everything in it is there.
    """

    path: str
    type: str
    mode: int = 0
    size: int = 0
    target: str = ""
    data: bytes | None = None
    is_final: bool = False


class FolderReader:
    """Reads a folder of this machine; no link below it is followed unless asked.

    Parameters
    ----------
    path : Path
        The folder.  It is trusted, as is what leads to it.
    follow_symlinks : bool
        Take what links lead to in their place, wherever that is.
    small : int
        Bytes up to which a file is read along with its entry.
    """

    def __init__(self, path: Path, *, follow_symlinks: bool, small: int) -> None:
        _needs_descriptors()
        self._path = path
        self._follow = follow_symlinks
        self._small = small
        self._top = -1

    def __enter__(self) -> Self:
        with _told(self._path, "read"):
            self._top = os.open(self._path, _FOLDER & ~os.O_NOFOLLOW)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._top)

    def entries(self) -> Iterator[HostEntry]:
        """Yield every entry; a folder before what is in it."""
        status = os.fstat(self._top)
        waiting: list[tuple[tuple[str, ...], frozenset[tuple[int, int]]]]
        waiting = [((), frozenset([(status.st_dev, status.st_ino)]))]
        while waiting:
            names, above = waiting.pop()
            with _told(self._path / "/".join(names), "read"):
                fd = self._open(names)
                try:
                    for name in sorted(os.listdir(fd)):
                        entry = self._entry((*names, name), fd)
                        if entry.type == "directory":
                            status = os.stat(name, dir_fd=fd, follow_symlinks=self._follow)
                            identity = status.st_dev, status.st_ino
                            if identity in above:
                                path, reason = entry.path, "a link back to a folder above"
                                yield HostEntry(path=path, type="other", target=reason)
                                continue
                            waiting.append(((*names, name), above | {identity}))
                        yield entry
                finally:
                    os.close(fd)

    def open(self, path: str) -> int:
        """Open a file of the folder for reading."""
        names = tuple(path.split("/"))
        with _told(self._path / path, "read"):
            folder = self._open(names[:-1])
            try:
                return os.open(names[-1], self._flags(_READ), dir_fd=folder)
            finally:
                os.close(folder)

    def _flags(self, flags: int) -> int:
        return flags & ~os.O_NOFOLLOW if self._follow else flags

    def _open(self, names: tuple[str, ...]) -> int:
        fd = os.open(".", _FOLDER, dir_fd=self._top)
        for name in names:
            try:
                below = os.open(name, self._flags(_FOLDER), dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        return fd

    def _entry(self, names: tuple[str, ...], folder: int) -> HostEntry:
        path = "/".join(names)
        try:
            status = os.stat(names[-1], dir_fd=folder, follow_symlinks=self._follow)
        except FileNotFoundError:
            # With links followed: one that leads nowhere stays what it is.
            status = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
        mode = stat.S_IMODE(status.st_mode) & 0o777
        if stat.S_ISDIR(status.st_mode):
            return HostEntry(path=path, type="directory", mode=mode)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(names[-1], dir_fd=folder)
            return HostEntry(path=path, type="symlink", target=target)
        if not stat.S_ISREG(status.st_mode):
            return HostEntry(path=path, type="other", target="neither file, folder nor link")
        data = None
        if status.st_size <= self._small:
            fd = os.open(names[-1], self._flags(_READ), dir_fd=folder)
            with open(fd, "rb", buffering=0) as file:
                data = file.read(self._small + 1)
            if len(data) > self._small:
                # It has grown since.
                data = None
        return HostEntry(path=path, type="file", mode=mode, size=status.st_size, data=data)
