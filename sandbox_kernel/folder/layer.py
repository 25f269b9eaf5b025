"""Read one entry of an overlay's upper layer: what it is, and what it says about the layer below.

The forms are those of the kernel's overlayfs documentation ("whiteouts and opaque directories").
An overlay mounted in a user namespace keeps its marks in ``user.overlay.*`` attributes, one mounted
by the host's root in ``trusted.overlay.*``.  Code in the sandbox can set neither: the kernel
escapes such names when they are set through the overlay.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from sandbox_kernel.engines.base import StateLayout
from sandbox_kernel.engines.remove import open_own_folder
from sandbox_kernel.folder.walk import open_folder

__all__ = ["Entry", "FileType", "open_layer", "read_entry"]

_PREFIXES = ("user.overlay.", "trusted.overlay.")


class FileType(StrEnum):
    """What kind of file an entry is."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    SPECIAL = "special"
    """A pipe, socket or device."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file of the layer, or of the host folder below it.

    Parameters
    ----------
    type : FileType
        Its kind.
    status : os.stat_result
        Of the file itself, never of a link's target.
    target : str, optional
        Where a link points; text made by whoever made the link.
    is_whiteout : bool
        Says that the file below is deleted.
    is_opaque : bool
        A folder that hides everything of the folder below.
    was_copied_up : bool
        A file that began as the host's file of that name.
    problem : str
        Why it cannot be understood, or empty.
    """

    type: FileType
    status: os.stat_result
    target: str | None = None
    is_whiteout: bool = False
    is_opaque: bool = False
    was_copied_up: bool = False
    problem: str = ""


@contextmanager
def open_layer(layout: StateLayout) -> Iterator[int]:
    """Yield a descriptor of the layer's own folder.

    Its permissions are those of the notebook's folder inside, where any program may take them
    away.  What we need to look into it is given back.
    """
    with open_folder(layout.folder) as parent:
        descriptor = open_own_folder("upper", parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_entry(parent: int, name: str) -> Entry | None:
    """Return the entry `name` of the directory `parent`, or None when there is none."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        mode = status.st_mode
        if stat.S_ISLNK(mode):
            return Entry(type=FileType.LINK, status=status, target=os.readlink(name, dir_fd=parent))
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            # A whiteout is a character device of number 0:0.
            is_whiteout = stat.S_ISCHR(mode) and status.st_rdev == 0
            return Entry(type=FileType.SPECIAL, status=status, is_whiteout=is_whiteout)
        marks = _marks(parent, name)
    except FileNotFoundError:
        return None
    is_folder = stat.S_ISDIR(mode)
    problem = ""
    if is_folder and not os.access(name, os.R_OK | os.X_OK, dir_fd=parent, effective_ids=True):
        problem = "it may not be read"
    if marks is None:
        marks = {}
        problem = "it may not be read" if is_folder else ""
    elif "redirect" in marks or "metacopy" in marks:
        problem = "it refers to the layer below in a way that is not understood"
    return Entry(
        type=FileType.FOLDER if is_folder else FileType.FILE,
        status=status,
        is_whiteout=not is_folder and status.st_size == 0 and "whiteout" in marks,
        is_opaque=is_folder and marks.get("opaque") == b"y",
        was_copied_up="origin" in marks,
        problem=problem,
    )


def _marks(parent: int, name: str) -> dict[str, bytes] | None:
    """Return the overlay's own attributes by their name without prefix; None when unreadable."""
    # There is no getxattrat: the descriptor's /proc entry stands for the directory.
    path = f"/proc/self/fd/{parent}/{name}"
    marks = {}
    try:
        for attribute in os.listxattr(path, follow_symlinks=False):
            for prefix in _PREFIXES:
                if attribute.startswith(prefix):
                    value = os.getxattr(path, attribute, follow_symlinks=False)
                    marks[attribute.removeprefix(prefix)] = value
    except PermissionError:
        return None
    except FileNotFoundError:
        raise
    except OSError:  # the file system knows no attributes, so it holds no marks either
        return {}
    return marks
