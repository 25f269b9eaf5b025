"""Files, as clients of the sandbox see them: one method for each operation."""

from __future__ import annotations

import os

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.wire.file_operations import FileExists, MovedFile
from sandbox_kernel.wire.operations import Empty
from sandbox_runtime import file_access
from sandbox_runtime.changes import Changes
from sandbox_runtime.draft_ledger import ledger_of
from sandbox_runtime.drafts import Drafts
from sandbox_runtime.file_access import Place, absolute, check_mode
from sandbox_runtime.jobs import Jobs
from sandbox_runtime.trees import remove
from sandbox_runtime.uploads import Uploads
from sandbox_runtime.watch import Watches
from sandbox_runtime.workers import Workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sandbox_kernel.wire.file_operations import (
        BeginWriteRequest,
        ChangeModeRequest,
        DeleteFileRequest,
        FileEntry,
        FileRequest,
        ListFilesRequest,
        MakeFolderRequest,
        MakeLinkRequest,
        MoveFileRequest,
        PackFolderRequest,
        ReadFileRequest,
        RenameFileRequest,
        UnpackFolderRequest,
        WriteFileRequest,
    )
    from sandbox_runtime.activity import Activity
    from sandbox_runtime.config import Config
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.loop import Loop

__all__ = ["Files"]


class Files:
    """The files of a sandbox: everything is done as its user, with its view of the world."""

    def __init__(
        self,
        loop: Loop,
        config: Config,
        incarnation: str,
        *,
        activity: Activity,
        log: Callable[[str], None],
    ) -> None:
        self._cwd = config.cwd
        self.workers = Workers(loop)
        self.jobs = Jobs(self.workers, activity, log)
        self.drafts = Drafts(ledger_of(config.env.get("HOME")))
        self.drafts.sweep()
        self.activity = activity
        self.watches = Watches(loop, self)
        self.changes = Changes(loop, self.watches, incarnation)
        self.uploads = Uploads(loop, self.jobs, self.drafts, activity)

    def absolute(self, path: str) -> str:
        """Return the absolute path a request means."""
        return absolute(path, self._cwd)

    # --- bytes ---

    def read(self, request: ReadFileRequest, exchange: Exchange) -> None:
        """Send the bytes of a file."""
        if request.offset < 0 or (request.length is not None and request.length < 0):
            raise ValidationFailedError("offset", "and length must not be below zero")
        path = self.absolute(request.path)
        steps = file_access.read_file(path, request.offset, request.length)
        self.jobs.stream(exchange, steps, "file.read", path, "read")

    def write(self, request: WriteFileRequest, exchange: Exchange) -> None:
        """Replace or make a file."""
        path = self.absolute(request.path)
        check_mode(request.mode)

        def work() -> FileEntry:
            place = Place(
                path, mode=request.mode, overwrite=request.overwrite, parents=request.parents
            )
            return file_access.write_file(place, request.data, self.drafts, fsync=request.fsync)

        self.jobs.call(exchange, work, path, "write", holds=len(request.data))

    def unpack(self, request: UnpackFolderRequest, exchange: Exchange) -> None:
        """Write entries of a folder."""
        path = self.absolute(request.path)
        if len(request.sizes) != len(request.entries) or min(request.sizes, default=0) < 0:
            raise ValidationFailedError("sizes", "must be one for each entry, none below zero")
        if sum(request.sizes) != len(request.data):
            raise ValidationFailedError("sizes", "are not those of the bytes that came")
        for entry in request.entries:
            check_mode(entry.mode)

        def steps() -> Generator[None, None, Empty]:
            yield from file_access.unpack(
                path, request.entries, request.sizes, request.data, self.drafts
            )
            return Empty()

        holds = len(request.data)
        self.jobs.steps(exchange, steps(), "file.unpack", path, "write", holds=holds)

    def begin_write(self, request: BeginWriteRequest, exchange: Exchange) -> None:
        """Begin an upload."""
        check_mode(request.mode)
        self.uploads.begin(self.absolute(request.path), request, exchange)

    # --- names ---

    def mkdir(self, request: MakeFolderRequest, exchange: Exchange) -> None:
        """Make a folder."""
        path = self.absolute(request.path)
        check_mode(request.mode)

        def work() -> Empty:
            file_access.make_folder(path, parents=request.parents, mode=request.mode)
            return Empty()

        self.jobs.call(exchange, work, path, "make folder")

    def delete(self, request: DeleteFileRequest, exchange: Exchange) -> None:
        """Delete a file, or a folder with all that is in it."""
        path = self.absolute(request.path)

        def work() -> Empty:
            try:
                os.unlink(path)
            except PermissionError as error:
                # What Linux says for a folder depends on its file system.
                if os.path.isdir(path) and not os.path.islink(path):
                    raise IsADirectoryError(21, os.strerror(21), path) from error
                raise
            return Empty()

        def steps() -> Generator[None, None, Empty]:
            yield from remove(path.rstrip("/") or "/")
            return Empty()

        if request.recursive:
            self.jobs.steps(exchange, steps(), "file.delete", path, "delete")
        else:
            self.jobs.call(exchange, work, path, "delete")

    def rename(self, request: RenameFileRequest, exchange: Exchange) -> None:
        """Give something another path."""
        path, new_path = self.absolute(request.path), self.absolute(request.new_path)

        def work() -> Empty:
            file_access.rename(path, new_path, overwrite=request.overwrite)
            return Empty()

        self.jobs.call(exchange, work, path, "rename")

    def move(self, request: MoveFileRequest, exchange: Exchange) -> None:
        """Move something."""
        path, new_path = self.absolute(request.path), self.absolute(request.new_path)

        def steps() -> Generator[None, None, MovedFile]:
            moved = yield from file_access.move(
                path, new_path, self.drafts, overwrite=request.overwrite
            )
            return MovedFile(path=moved)

        self.jobs.steps(exchange, steps(), "file.move", path, "move")

    def symlink(self, request: MakeLinkRequest, exchange: Exchange) -> None:
        """Make a link."""
        path = self.absolute(request.path)
        absolute(request.target, "/")

        def work() -> Empty:
            file_access.symlink(path, request.target, self.drafts, overwrite=request.overwrite)
            return Empty()

        self.jobs.call(exchange, work, path, "make link")

    def chmod(self, request: ChangeModeRequest, exchange: Exchange) -> None:
        """Set the permission bits."""
        path = self.absolute(request.path)
        check_mode(request.mode)

        def work() -> Empty:
            os.chmod(path, request.mode)
            return Empty()

        self.jobs.call(exchange, work, path, "set the mode of")

    # --- what there is ---

    def exists(self, request: FileRequest, exchange: Exchange) -> None:
        """Tell whether something is there."""
        path = self.absolute(request.path)

        def work() -> FileExists:
            try:
                os.stat(path, follow_symlinks=request.follow_symlinks)
            except (FileNotFoundError, NotADirectoryError):
                return FileExists(exists=False)
            return FileExists(exists=True)

        self.jobs.call(exchange, work, path, "look at")

    def stat(self, request: FileRequest, exchange: Exchange) -> None:
        """Tell what something is."""
        path = self.absolute(request.path)
        self.jobs.call(
            exchange,
            lambda: file_access.entry_at(path, follow=request.follow_symlinks),
            path,
            "look at",
        )

    def list(self, request: ListFilesRequest, exchange: Exchange) -> None:
        """Send what is in a folder."""
        path = self.absolute(request.path)
        steps = file_access.list_folder(
            path, recursive=request.recursive, hidden=request.include_hidden
        )
        self.jobs.stream(exchange, steps, "file.list", path, "list")

    def pack(self, request: PackFolderRequest, exchange: Exchange) -> None:
        """Send a folder with the bytes of its files."""
        path = self.absolute(request.path)
        self.jobs.stream(exchange, file_access.pack_folder(path), "file.pack", path, "read")
