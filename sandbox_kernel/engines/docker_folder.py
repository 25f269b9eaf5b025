"""How the notebook's folder appears in a container: as a layer, read-only, or writable."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sandbox_kernel.engines import recipe
from sandbox_kernel.engines.base import FolderMode, StateLayout
from sandbox_kernel.engines.disk import no_upper, storage_errors
from sandbox_kernel.engines.docker_body import Bind, Volume, overlay_options
from sandbox_kernel.engines.docker_labels import volume_of
from sandbox_kernel.engines.machine import has_mounts_below
from sandbox_kernel.engines.notebook_folder import claim_layer

__all__ = ["NotebookFolder", "Shown"]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """How the notebook's folder appears."""

    how: str
    cwd: str = recipe.WORKSPACE
    bind: Bind | None = None
    volume: Volume | None = None


class NotebookFolder:
    """Decides how the folder is shown, and says in `notices` what is not as asked.

    Parameters
    ----------
    layout : StateLayout
        Holds the layer.
    mode : FolderMode
        What was asked for.
    uid : int
        As whom programs run inside.
    no_layer : str
        Why there can be none, or an empty string.
    """

    def __init__(
        self, layout: StateLayout, mode: FolderMode, *, uid: int, no_layer: str, notices: list[str]
    ) -> None:
        self.layout = layout
        self.mode = mode
        self.uid = uid
        self.no_layer = no_layer
        self.notices = notices

    def show(self, folder: str | None, *, sees_files: bool) -> Shown:
        """Return how a folder is shown that may be; `sees_files` tells whether the daemon can."""
        if folder is None:
            return Shown(how="not shown")
        if not sees_files:
            self.notices.append(
                f"Folder {folder} is not shown, since the Docker engine does not see this"
                f" machine's files. Use {recipe.WORKSPACE} instead."
            )
            return Shown(how="not shown")
        real = os.path.realpath(folder)
        mode = self.mode
        self._warn_of_owner(folder, real)
        if mode is FolderMode.WRITE:
            bind = Bind(source=real, dest=folder, read_only=False)
            return Shown(how="writable", cwd=folder, bind=bind)
        if mode is FolderMode.READ:
            return self._read_only(folder, real)
        reason = (
            self.no_layer
            or no_upper(self.layout.root)
            or claim_layer(self.layout, real, uid=self.uid)
        )
        options = overlay_options(
            real, upper=str(self.layout.folder / "upper"), work=str(self.layout.folder / "work")
        )
        if not reason and options is None:
            reason = "its path has signs that a layer's cannot have"
        if reason:
            return self.plain(folder, reason)
        volume = Volume(name=volume_of(self.layout, "folder"), dest=folder, options=options)
        how = "writable layer, host files unchanged"
        return Shown(how=how, cwd=folder, volume=volume)

    def _read_only(self, folder: str, real: str) -> Shown:
        """Show it so that programs inside reach no socket, pipe or lock of the host in it."""
        nothing = self.layout.root / "empty"
        with storage_errors(nothing, "create"):
            os.makedirs(nothing, mode=0o700, exist_ok=True)
            # The upper one's owner and permissions are those of the folder that is seen.
            _give_to(nothing, self.uid)
        options = overlay_options(real, nothing=str(nothing))
        if options is None or has_mounts_below(real):
            return self._bound(folder, real)
        name = volume_of(self.layout, "folder")
        volume = Volume(name=name, dest=folder, options=options, read_only=True)
        return Shown(how="read-only", cwd=folder, volume=volume)

    def plain(self, folder: str, reason: str) -> Shown:
        """Fall back to what always works, and say so."""
        if self.mode is FolderMode.OVERLAY:
            self.notices.append(
                f"Folder {folder} is shown read-only, since no writable layer can be put over it:"
                f" {reason}. Write to {recipe.WORKSPACE} instead."
            )
        return self._bound(folder, os.path.realpath(folder))

    def _bound(self, folder: str, real: str) -> Shown:
        self.notices.append(
            f"Programs inside can talk to programs of the host by sockets, pipes and locks in"
            f" {folder}."
        )
        how = "read-only, with the host's sockets and pipes"
        return Shown(how=how, cwd=folder, bind=Bind(source=real, dest=folder))

    def _warn_of_owner(self, folder: str, real: str) -> None:
        if os.stat(real).st_uid != self.uid:
            self.notices.append(
                f"Files in {folder} belong to another user than {self.uid}, as whom programs run"
                " inside; they read and change what its permissions allow. See DockerEngine.user."
            )


def _give_to(path: Path, uid: int) -> None:
    if os.geteuid() == 0:
        os.chown(path, uid, -1, follow_symlinks=False)
