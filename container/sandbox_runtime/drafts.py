"""Files and folders that are made beside their place and put there when they are whole.

Each draft is written down before it is made, in a file that outlives this process: what a killed
runtime has left is removed by the next one.
"""

from __future__ import annotations

import _thread
import errno
import os
import stat

from sandbox_runtime.trees import remove

__all__ = ["DRAFT", "Drafts", "is_draft"]

DRAFT = ".sandbox-draft-"
"""How names of drafts begin; 16 hexadecimal digits follow.  Listings leave them out."""

_LENGTH = len(DRAFT) + 16
_NEW = ".new"
_MOST_READ = 1 << 20

_MOST_NOTED = 256 << 10
"""Bytes past which the list is written anew, with those alone that are open."""


def is_draft(name: str) -> bool:
    """Whether a name is that of a draft."""
    return (
        len(name) == _LENGTH
        and name.startswith(DRAFT)
        and all(each in "0123456789abcdef" for each in name[len(DRAFT) :])
    )


class Drafts:
    """The drafts of one runtime; may be used from several threads.

    Parameters
    ----------
    ledger : str, optional
        The file in which they are written down.
    """

    def __init__(self, ledger: str | None) -> None:
        self._path = ledger
        self._lock = _thread.allocate_lock()
        self._ledger = -1
        self._noted = 0
        self._open: set[str] = set()

    def begin(self, folder: str) -> str:
        """Return the path of a new draft in `folder`; it is the caller's to make."""
        path = os.path.join(folder, DRAFT + os.urandom(8).hex())
        with self._lock:
            if self._path is not None:
                self._note(os.fsencode(path) + b"\0")
            self._open.add(path)
        return path

    def end(self, path: str) -> None:
        """Forget a draft that is in its place, or gone."""
        with self._lock:
            self._open.discard(path)
            if self._ledger < 0:
                return
            if not self._open:
                os.ftruncate(self._ledger, 0)
                self._noted = 0
            elif self._noted > _MOST_NOTED:
                self._note_anew()

    def drop(self, path: str) -> None:
        """Remove a draft, whatever there is of it."""
        try:
            for _ in remove(path):
                pass
        except OSError:
            # Its folder is gone, or may not be written any more: nobody can do more about it.
            pass
        self.end(path)

    def _note(self, line: bytes) -> None:
        assert self._path is not None  # noqa: S101  the caller has looked
        if self._ledger < 0:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            try:
                self._ledger = os.open(self._path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            except OSError:
                # A home that cannot be written; all but a kill is coped with all the same.
                self._path = None
                return
        self._noted += os.write(self._ledger, line)

    def _note_anew(self) -> None:
        """Replace the list, which grows as long as some draft is open, by one of those open now."""
        assert self._path is not None  # noqa: S101  there is a list
        lines = b"".join(os.fsencode(each) + b"\0" for each in self._open)
        # Not again before as much has come as there is now, however much that is.
        self._noted = 0
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        new = self._path + _NEW
        _unlink(new)
        try:
            fd = os.open(new, flags, 0o600)
        except OSError:
            return
        try:
            if os.write(fd, lines) == len(lines):
                os.rename(new, self._path)
                fd, self._ledger = self._ledger, fd
        except OSError:
            pass  # the old one goes on
        finally:
            os.close(fd)

    def sweep(self) -> None:
        """Remove what an earlier runtime has left; before the first draft of this one."""
        if self._path is None:
            return
        _unlink(self._path + _NEW)
        try:
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(self._path, flags)
        except OSError:
            return
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return
            for each in os.read(fd, _MOST_READ).split(b"\0"):
                path = os.fsdecode(each)
                # Programs can write this file, too: nothing but drafts is removed for what it says.
                if os.path.isabs(path) and is_draft(os.path.basename(path)):
                    self.drop(path)
            os.ftruncate(fd, 0)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.ENOSPC):
                raise
        finally:
            os.close(fd)


def _unlink(path: str) -> bool:
    """Remove a file; whether there was one."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
