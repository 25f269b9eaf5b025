"""Removing what a sandbox wrote, which may be anything a hostile program can make of a folder.

The tree is never walked by path and never into depth: a folder found inside is moved up beside the
first one, so that any depth needs two open descriptors and no recursion, and a symbolic link or a
path longer than the system takes cannot lead anywhere.
"""

from __future__ import annotations

import errno
import os
import stat
from itertools import islice
from pathlib import Path

from sandbox_kernel.errors import StorageError

__all__ = ["remove_tree"]

_ROUNDS = 1000
_BATCH = 4096
"""Names read at one time, so that a folder of millions does not fill the memory."""


def remove_tree(root: Path) -> None:
    """Remove a folder with all it holds; one that is not there is fine.

    Whatever can be removed is removed, also after a failure.  Folders without permissions (such as
    overlayfs leaves in its work folder) are opened up first where we own them; device nodes
    (whiteouts), sockets and symbolic links are unlinked, never followed.

    Raises
    ------
    StorageError
        Something could not be removed; names the first such path below `root`.
    """
    try:
        status = os.lstat(root)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refusal(root, error) from error
    try:
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(root)
            return
        top = _open_folder(os.fspath(root), None)
    except OSError as error:
        raise _refusal(root, error) from error
    try:
        for _ in range(_ROUNDS):
            failure = _Sweep(root, top).empty()
            if failure is not None:
                raise failure
            try:
                os.rmdir(root)
            except FileNotFoundError:
                return
            except OSError as error:
                # Another process removes it too, and has moved folders up meanwhile.
                if error.errno != errno.ENOTEMPTY:
                    raise _refusal(root, error) from error
            else:
                return
        raise _refusal(root, OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY)))
    finally:
        os.close(top)


class _Sweep:
    """One removal: the folders yet to be emptied are direct children of `top`."""

    def __init__(self, root: Path, top: int) -> None:
        self._root = root
        self._top = top
        self._moved = 0
        # Names below top, each with the path it had at first, for messages.
        self._waiting: list[tuple[str, str]] = []
        self._failure: StorageError | None = None

    def empty(self) -> StorageError | None:
        self._empty_folder(self._top, "")
        while self._waiting:
            name, shown = self._waiting.pop()
            try:
                folder = _open_folder(name, self._top)
                try:
                    is_empty = self._empty_folder(folder, shown)
                finally:
                    os.close(folder)
                if is_empty:
                    os.rmdir(name, dir_fd=self._top)
            except FileNotFoundError:
                continue  # another process removes the tree too
            except OSError as error:
                if error.errno == errno.ENOTEMPTY:
                    self._waiting.append((name, shown))
                    continue  # likewise
                self._note(shown, error)
        return self._failure

    def _empty_folder(self, folder: int, shown: str) -> bool:
        """Unlink what is no folder, move up what is one; whether nothing is left."""
        kept: set[str] = set()
        while True:
            with os.scandir(folder) as entries:
                # What failed before comes up again: look past it, or a full batch of it ends us.
                batch = list(islice((e for e in entries if e.name not in kept), _BATCH))
            if not batch:
                return not kept
            for entry in batch:
                path = f"{shown}/{entry.name}" if shown else entry.name
                try:
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.name, dir_fd=folder)
                    elif folder == self._top:
                        kept.add(entry.name)
                        self._waiting.append((entry.name, path))
                    else:
                        self._move_up(entry.name, folder, path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    kept.add(entry.name)
                    self._note(path, error)

    def _move_up(self, name: str, folder: int, shown: str) -> None:
        while True:
            self._moved += 1
            target = f".removing-{os.getpid()}-{self._moved}"
            try:
                os.lstat(target, dir_fd=self._top)
            except FileNotFoundError:
                break
        try:
            os.rename(name, target, src_dir_fd=folder, dst_dir_fd=self._top)
        except PermissionError:
            # Moving a folder rewrites its "..", for which it must be writable.
            _open_up(name, folder)
            os.rename(name, target, src_dir_fd=folder, dst_dir_fd=self._top)
        # The path of a deep tree would outgrow memory; its end says enough.
        self._waiting.append((target, shown if len(shown) < 1000 else f"...{shown[-900:]}"))

    def _note(self, shown: str, error: OSError) -> None:
        if self._failure is None:
            self._failure = _refusal(self._root / shown, error)
            self._failure.__cause__ = error


def _open_folder(name: str, within: int | None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(name, flags, dir_fd=within)
    except PermissionError:
        _open_up(name, within)
        folder = os.open(name, flags, dir_fd=within)
    status = os.fstat(folder)
    if status.st_mode & 0o700 != 0o700 and status.st_uid == os.geteuid():
        os.fchmod(folder, 0o700)
    return folder


def _open_up(name: str, within: int | None) -> None:
    """Give the owner all permissions of a folder that cannot even be opened."""
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        # fchmod refuses an O_PATH descriptor; its /proc name leads to the same folder.
        os.chmod(f"/proc/self/fd/{path}", 0o700)
    finally:
        os.close(path)


def _refusal(path: Path, error: OSError) -> StorageError:
    mend = ""
    if error.errno in (errno.EPERM, errno.EACCES):
        mend = "Remove it as its owner or as root; the next clean-up then goes on."
    elif error.errno == errno.EBUSY:
        mend = "Something is mounted there; unmount it, then try again."
    return StorageError(str(path), "remove", error.strerror or type(error).__name__, mend)
