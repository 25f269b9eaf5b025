"""Removing what a sandbox wrote, with errors that name the path and the mend."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sandbox_kernel.engines import remove
from sandbox_kernel.errors import StorageError

__all__ = ["remove_tree"]

_MENDS = {
    errno.EPERM: "Remove it as its owner or as root; the next clean-up then goes on.",
    errno.EACCES: "Remove it as its owner or as root; the next clean-up then goes on.",
    errno.EBUSY: "Something is mounted there; unmount it, then try again.",
    errno.EROFS: "Its file system is read-only; make it writable, then try again.",
}


def remove_tree(root: Path) -> None:
    """Remove a folder with all it holds; one that is not there is fine.

    Whatever can be removed is removed, also after a failure; no link is ever followed.

    Raises
    ------
    StorageError
        Something could not be removed; names the first such path.
    """
    try:
        parent = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refusal(root, error) from error
    try:
        remove.remove_tree(parent, root.name)
    except FileNotFoundError:
        return
    except OSError as error:
        inside = error.filename if isinstance(error.filename, str) else root.name
        raise _refusal(root.parent / inside, error) from error
    finally:
        os.close(parent)


def _refusal(path: Path, error: OSError) -> StorageError:
    reason = error.strerror or type(error).__name__
    return StorageError(str(path), "remove", reason, _MENDS.get(error.errno or 0, ""))
