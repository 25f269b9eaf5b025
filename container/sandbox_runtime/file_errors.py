"""From what the system says of a file to the error a caller can act on."""

from __future__ import annotations

import errno
import os

from sandbox_kernel.errors import (
    FileSystemError,
    FileTooLargeError,
    NoSpaceError,
    PathBusyError,
    PathExistsError,
    PathIsDirectoryError,
    PathNotDirectoryError,
    PathNotFoundError,
    PathTooLongError,
    PermissionDeniedError,
    ReadOnlyError,
    TooManyFilesError,
    TooManyLinksError,
)

__all__ = ["KINDS", "explain"]

KINDS: dict[int, type[FileSystemError]] = {
    errno.ENOENT: PathNotFoundError,
    errno.EEXIST: PathExistsError,
    errno.ENOTEMPTY: PathExistsError,
    errno.EBUSY: PathBusyError,
    errno.ETXTBSY: PathBusyError,
    # A lease that another program has on the file; nothing of ours waits for it.
    errno.EAGAIN: PathBusyError,
    errno.EACCES: PermissionDeniedError,
    errno.EPERM: PermissionDeniedError,
    errno.EROFS: ReadOnlyError,
    errno.EISDIR: PathIsDirectoryError,
    errno.ENOTDIR: PathNotDirectoryError,
    errno.ENAMETOOLONG: PathTooLongError,
    errno.EFBIG: FileTooLargeError,
    errno.ENOSPC: NoSpaceError,
    errno.EDQUOT: NoSpaceError,
    errno.EMFILE: TooManyFilesError,
    errno.ENFILE: TooManyFilesError,
    errno.ELOOP: TooManyLinksError,
    errno.EMLINK: TooManyLinksError,
}


def explain(error: OSError, path: str, action: str) -> FileSystemError:
    """Return the error for what went wrong with `path`; the system's own message is the reason."""
    number = error.errno or 0
    kind = KINDS.get(number, FileSystemError)
    # What is our own finding has no number, and says itself what it is.
    reason = os.strerror(number) if number else error.strerror or str(error)
    hint = None
    if number == errno.EXDEV:
        hint = "move_file() also moves between file systems."
    return kind(path, action, reason[:1].lower() + reason[1:], hint=hint)
