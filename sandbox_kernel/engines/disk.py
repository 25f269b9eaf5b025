"""The disk under a sandbox: typed errors for what it refuses, and what it is fit for."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from sandbox_kernel.engines.machine import filesystem_type
from sandbox_kernel.engines.remove import remove_tree
from sandbox_kernel.errors import StorageError, StorageFullError

__all__ = ["empty", "no_upper", "storage_errors", "tail"]

_LOG_TAIL = 2000


@contextlib.contextmanager
def storage_errors(path: Path, action: str) -> Iterator[None]:
    """Turn what the system says of `path` into errors that name it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFullError(str(path), action) from error
        raise StorageError(str(path), action, error.strerror or str(error)) from error


def empty(folder: Path) -> None:
    """Remove what lies in a folder, made by whoever; one that is not there is fine."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(str(folder), "empty", error.strerror or str(error)) from error
    try:
        with storage_errors(folder, "empty"):
            for name in os.listdir(descriptor):
                remove_tree(descriptor, name)
    finally:
        os.close(descriptor)


def tail(path: Path) -> str:
    """Return the end of a log, an empty text if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LOG_TAIL))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def no_upper(folder: Path) -> str:
    """Return why the disk below `folder` takes no writable layer, or an empty string."""
    kind = filesystem_type(os.fspath(folder))
    # overlayfs documentation, "Upper and lower"; FUSE and network disks lack what it needs.
    unfit = {
        "overlay",
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "9p",
        "virtiofs",
        "vfat",
        "exfat",
        "ecryptfs",
    }
    return f"a disk of type {kind}" if kind in unfit or kind.startswith("fuse") else ""
