"""Foreign errors of the manager's files, translated once into ours."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_kernel.errors import StorageError, StorageFullError

__all__ = [
    "keep_owner_bits",
    "make_private_folder",
    "storage_errors",
    "usable_umask",
    "write_private_file",
]

_umask_lock = threading.Lock()

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_MENDS = {
    errno.EROFS: "Its file system is read-only; point JUPYTER_DATA_DIR to a writable folder.",
    errno.ENOTDIR: "Something that is no folder is in the way; move it aside.",
    errno.ELOOP: "A symbolic link is in the way; move it aside.",
    errno.EIO: "The disk reports an error; look at the system's log.",
}


@contextmanager
def storage_errors(path: str | os.PathLike[str], action: str) -> Iterator[None]:
    """Turn an `OSError` of the block into `StorageError` or `StorageFullError` with the path."""
    try:
        yield
    except OSError as error:
        where = os.fspath(error.filename) if isinstance(error.filename, str) else os.fspath(path)
        if error.errno in _FULL:
            raise StorageFullError(where, action) from error
        reason = error.strerror or type(error).__name__
        raise StorageError(where, action, reason, _MENDS.get(error.errno or 0, "")) from error


def make_private_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder (parents too) that only its owner can enter, whatever the umask."""
    with storage_errors(path, "create the folder"):
        try:
            try:
                os.mkdir(path, 0o700)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.mkdir(path, 0o700)
            # A umask may take the owner's bits too.
            os.chmod(path, 0o700)
        except FileExistsError:
            status = os.stat(path)
            if status.st_mode & 0o077 and status.st_uid == os.geteuid():
                os.chmod(path, 0o700)


def keep_owner_bits(descriptor: int) -> None:
    """Let the owner read and write a file just made, also under a umask that forbids it."""
    if os.fstat(descriptor).st_mode & 0o600 != 0o600:
        os.fchmod(descriptor, 0o600)


@contextmanager
def usable_umask() -> Iterator[None]:
    """Let what is made in the block be used by its owner, whatever the umask.

    The umask belongs to the whole process, so it is only touched where it would do harm.
    """
    if not _umask() & 0o700:
        yield
        return
    with _umask_lock:
        before = os.umask(_umask() & 0o077)
        try:
            yield
        finally:
            os.umask(before)


def _umask() -> int:
    """Return the umask without setting it, as another thread may be making files."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            lines = [line for line in status if line.startswith("Umask:")]
    except OSError:
        return 0
    return int(lines[0].split()[1], 8) if lines else 0


def write_private_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace a file in one step, mode 0600: readers see old or new content, never a part."""
    draft = f"{os.fspath(path)}.{threading.get_native_id()}.draft"
    with storage_errors(path, "write"):
        descriptor = os.open(
            draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            with open(descriptor, "wb") as file:
                keep_owner_bits(descriptor)
                file.write(content)
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
