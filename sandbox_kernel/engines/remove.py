"""Remove a tree that somebody else made: any depth, any permissions, no link followed.

The tree is never walked by path and never into depth: a folder found inside is moved up beside the
first one, so that any depth needs two open descriptors and no recursion, and a symbolic link or a
path longer than the system takes cannot lead anywhere.
"""

from __future__ import annotations

import errno
import os
import stat
from itertools import islice

__all__ = ["open_own_folder", "remove_tree"]

_BATCH = 4096
"""Names read at one time, so that a folder of millions does not fill the memory."""

_LONGEST_SHOWN = 1000

_TURNS = 1000
"""How often to begin again when another process, which removes the tree too, has moved folders."""


def remove_tree(parent: int, name: str) -> None:
    """Remove the entry `name` of the open folder `parent`, with all that is in it.

    Whatever can be removed is removed, also after a failure.  Folders without permissions (such as
    overlayfs leaves in its work folder) are opened up first where we own them; device nodes
    (whiteouts), sockets and symbolic links are unlinked, never followed.  Two processes may remove
    the same tree; each goes on with what the other has left.

    Raises
    ------
    FileNotFoundError
        There is no such entry, or no longer.
    OSError
        Something could not be removed; ``filename`` is the first such path, from `name` on.
    """
    if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    top = open_own_folder(name, parent)
    try:
        for turn in range(_TURNS):
            failure = _Sweep(name, top).empty()
            if failure is not None:
                raise failure
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY or turn == _TURNS - 1:
                    raise
            else:
                return
    finally:
        os.close(top)


class _Sweep:
    """One removal: the folders yet to be emptied are direct children of `top`."""

    def __init__(self, name: str, top: int) -> None:
        self._name = name
        self._top = top
        self._mark = os.urandom(6).hex()
        self._moved = 0
        # Names below top, each with the path it had at first, for messages.
        self._waiting: list[tuple[str, str]] = []
        self._failure: OSError | None = None

    def empty(self) -> OSError | None:
        """Remove what can be removed; returns the first failure."""
        self._empty_folder(self._top, self._name)
        while self._waiting:
            name, shown = self._waiting.pop()
            try:
                folder = open_own_folder(name, self._top)
                try:
                    is_empty = self._empty_folder(folder, shown)
                finally:
                    os.close(folder)
                if is_empty:
                    os.rmdir(name, dir_fd=self._top)
            except FileNotFoundError:
                continue  # another process was faster
            except OSError as error:
                if error.errno == errno.ENOTEMPTY:
                    self._waiting.append((name, shown))  # it has moved something into the folder
                else:
                    self._note(shown, error)
        return self._failure

    def _empty_folder(self, folder: int, shown: str) -> bool:
        """Unlink what is no folder, move up what is one; whether nothing is left."""
        kept: set[str] = set()
        while True:
            with os.scandir(folder) as entries:
                # What failed before comes up again: look past it, or a full batch of it ends us.
                batch = list(islice((each for each in entries if each.name not in kept), _BATCH))
            if not batch:
                return not kept
            for entry in batch:
                path = f"{shown}/{entry.name}"
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
        # A name nobody else has: not the tree's maker, nor another process that removes it.
        self._moved += 1
        target = f".removing-{self._mark}-{self._moved}"
        try:
            os.rename(name, target, src_dir_fd=folder, dst_dir_fd=self._top)
        except PermissionError:
            # Moving a folder rewrites its "..", for which it must be writable.
            _open_up(name, folder)
            os.rename(name, target, src_dir_fd=folder, dst_dir_fd=self._top)
        # The whole path of a deep tree would outgrow memory; its end says enough.
        if len(shown) > _LONGEST_SHOWN:
            shown = f"...{shown[-_LONGEST_SHOWN:]}"
        self._waiting.append((target, shown))

    def _note(self, shown: str, error: OSError) -> None:
        if self._failure is None:
            self._failure = OSError(error.errno, error.strerror, shown)
            self._failure.__cause__ = error


def open_own_folder(name: str, within: int) -> int:
    """Return a descriptor of a folder, no link, given the owner's permissions if it lacks them."""
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


def _open_up(name: str, within: int) -> None:
    """Give the owner all permissions of a folder that cannot even be opened."""
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        # fchmod refuses an O_PATH descriptor; its /proc name leads to the same folder.
        os.chmod(f"/proc/self/fd/{path}", 0o700)
    finally:
        os.close(path)
