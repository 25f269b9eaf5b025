"""Drop parts of a layer, so that the sandbox sees the host's files there again.

The kernel leaves undefined what a mounted overlay shows when its layer is changed beneath it.  So
all of this is for stopped sandboxes, and the caller keeps them from being started meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sandbox_kernel.engines.alive import is_locked
from sandbox_kernel.engines.base import StateLayout
from sandbox_kernel.engines.remove import remove_tree
from sandbox_kernel.errors import SandboxRunningError, StorageError, ValidationFailedError
from sandbox_kernel.folder.changes import Change, diff, upper_of
from sandbox_kernel.folder.layer import FileType, open_layer, read_entry
from sandbox_kernel.folder.ledger import Takeovers
from sandbox_kernel.folder.selection import Selection
from sandbox_kernel.folder.walk import open_folder, open_parent, split_path

__all__ = ["discard", "forget_taken_over"]


def discard(
    layout: StateLayout,
    folder: Path,
    paths: Iterable[str] | None = None,
    *,
    sandbox_id: str,
) -> list[Change]:
    """Remove chosen changes, or the whole layer, and return what was removed.

    Parameters
    ----------
    layout : StateLayout
        Of the sandbox.
    folder : Path
        The notebook's folder on the host; it is only read.
    paths : iterable of str, optional
        Paths of changes, or folders that hold some; None is the whole layer.
    sandbox_id : str
        For messages.

    Raises
    ------
    SandboxRunningError
        The sandbox runs; nothing was removed.
    ValidationFailedError
        A path names no change, or cannot be dropped by itself; nothing was removed.
    StorageError
        The folder or the layer cannot be read.  The whole layer goes without being read; what was
        removed is then not told.
    """
    if is_locked(layout):
        raise SandboxRunningError(sandbox_id, "discard changes")
    names = None if paths is None else list(paths)
    if names is None:
        try:
            changes = diff(layout, folder)
        except StorageError:
            changes = []  # the layer can go all the same, unseen
        if layout.folder.is_dir():
            with open_folder(layout.root) as root:
                remove_tree(root, layout.folder.name)
        return changes
    changes = Selection(names).of(diff(layout, folder))
    with open_layer(layout) as upper:
        chosen = [split_path(name) for name in names]
        for parts in chosen:
            if not _is_in_layer(upper, parts):
                raise ValidationFailedError(
                    "path",
                    f"{'/'.join(parts)!r} went because a folder above it was replaced;"
                    " discard that folder",
                )
        for parts in chosen:
            if _is_in_layer(upper, parts):  # not removed with one named before
                with open_parent(upper, parts) as parent:
                    remove_tree(parent, parts[-1])
    return changes


def forget_taken_over(layout: StateLayout) -> None:
    """Remove from the layer what the host has by now, so that later edits on the host are seen.

    Done before each start.  Does nothing while the sandbox runs, and leaves what the sandbox has
    changed again since.
    """
    takeovers = Takeovers.load(layout)
    if not takeovers.paths() or is_locked(layout):
        return
    if not upper_of(layout).is_dir():
        takeovers.clear()
        return
    with open_layer(layout) as upper:
        for path in takeovers.paths():
            parts = tuple(path.split("/"))
            try:
                with open_parent(upper, parts) as parent:
                    _forget(parent, parts[-1], path, takeovers)
            except OSError:  # gone, or another kind of file by now: then it is no longer ours
                continue
    takeovers.clear()


def _forget(parent: int, name: str, path: str, takeovers: Takeovers) -> None:
    entry = read_entry(parent, name)
    if entry is None:
        return
    if entry.is_whiteout:
        if takeovers.is_deletion(path):
            os.unlink(name, dir_fd=parent)
    elif entry.type is FileType.FOLDER:
        if not entry.is_opaque:
            os.rmdir(name, dir_fd=parent)  # fails, rightly, while something is left in it
    elif takeovers.covers(path, entry.status):
        os.unlink(name, dir_fd=parent)


def _is_in_layer(upper: int, parts: tuple[str, ...]) -> bool:
    try:
        with open_parent(upper, parts) as parent:
            return parts[-1] in os.listdir(parent)
    except OSError:
        return False
