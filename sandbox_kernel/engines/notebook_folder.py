"""The notebook's folder as an engine may show it, and the layer that holds its changes."""

from __future__ import annotations

import os

from sandbox_kernel.engines.base import FolderMode, SandboxSpec, StateLayout
from sandbox_kernel.engines.disk import storage_errors
from sandbox_kernel.engines.folders import HostFolders, refusal
from sandbox_kernel.errors import NotebookFolderRefusedError

__all__ = ["claim_layer", "folder_to_show"]


def folder_to_show(spec: SandboxSpec, host: HostFolders, notices: list[str]) -> str | None:
    """Return the notebook's folder as it will be shown, or None.

    One that may not be shown, and need not be, is told of in `notices`.

    Raises
    ------
    NotebookFolderRefusedError
        It does not exist; or it may not be shown, and `folder_required` is on.
    """
    folder = spec.notebook_folder
    if folder is None or spec.folder_mode is FolderMode.NONE:
        return None
    given = os.path.abspath(folder)
    real = os.path.realpath(given)
    if not os.path.isdir(real):
        problem = "is no folder" if os.path.lexists(real) else "does not exist"
        raise NotebookFolderRefusedError(given, f"it {problem}")
    reason = refusal(real, host)
    if not reason and not os.access(real, os.R_OK | os.X_OK):
        reason = "you may not read it"
    if not reason:
        return given
    error = NotebookFolderRefusedError(given, reason)
    if spec.folder_required:
        raise error
    notices.append(str(error))
    return None


def claim_layer(layout: StateLayout, real: str, *, uid: int | None = None) -> str:
    """Note which folder the layer belongs to; returns why it cannot be had for this one.

    Parameters
    ----------
    real : str
        The notebook's folder, with symbolic links resolved.
    uid : int, optional
        Whose the layer has to be; by default ours.  Root gives it to that user.
    """
    record = layout.folder / "of"
    with storage_errors(record, "write"):
        for name in ("upper", "work"):
            path = layout.folder / name
            os.makedirs(path, mode=0o700, exist_ok=True)
            # Over somebody else's layer the kernel mounts the overlay read-only, and says
            # nothing of it.
            if os.lstat(path).st_uid != (os.geteuid() if uid is None else uid):
                if uid is None or os.geteuid() != 0:
                    return f"{path} belongs to another user"
                os.chown(path, uid, -1, follow_symlinks=False)
        try:
            owner = os.fsdecode(record.read_bytes())
        except FileNotFoundError:
            owner = ""
        if owner == real:
            return ""
        if owner and os.listdir(layout.folder / "upper"):
            return (
                f"the sandbox holds changes to {owner}; take them over or drop them with"
                " 'jupyter sandbox apply' or 'jupyter sandbox discard' first"
            )
        record.write_bytes(os.fsencode(real))
    return ""
