"""The operations on files for code without an event loop; see `sandbox_kernel.sync`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

from sandbox_kernel.client.files import (
    MAX_READ,
    FileChanges,
    FileContent,
    FileInfo,
    FileWatchEvent,
)
from sandbox_kernel.client.git import GitCheckout, GitCheckoutProgress, GitOperations
from sandbox_kernel.client.host_folder import LinkRule
from sandbox_kernel.client.loop_thread import Caller
from sandbox_kernel.client.transfer import (
    MAX_BYTES,
    MAX_ENTRIES,
    FolderTransfer,
    TransferProgress,
)

__all__ = ["BlockingFiles"]

T = TypeVar("T")


class BlockingFiles(ABC):
    """Files of a sandbox or session; callbacks are called in the thread that waits."""

    @property
    @abstractmethod
    def _files(self) -> GitOperations:
        """What does the work in the loop."""

    @abstractmethod
    def _wait(self, work: Coroutine[Any, Any, T], caller: Caller | None = None) -> T:
        """Do the work in the loop, and return its result; it may ask the caller for something."""

    @abstractmethod
    def _each(self, events: AsyncGenerator[T, None]) -> Iterator[T]:
        """Iterate over what the generator gives in the loop."""

    @overload
    def read_file(
        self,
        path: str | os.PathLike[str],
        *,
        offset: int = 0,
        length: int | None = None,
        max_bytes: int = MAX_READ,
    ) -> bytes: ...

    @overload
    def read_file(
        self,
        path: str | os.PathLike[str],
        *,
        encoding: str,
        offset: int = 0,
        length: int | None = None,
        max_bytes: int = MAX_READ,
    ) -> str: ...

    def read_file(
        self,
        path: str | os.PathLike[str],
        *,
        encoding: str | None = None,
        offset: int = 0,
        length: int | None = None,
        max_bytes: int = MAX_READ,
    ) -> bytes | str:
        """Return the content of a file; see `sandbox_kernel.Sandbox.read_file`."""
        options: dict[str, Any] = {"offset": offset, "length": length, "max_bytes": max_bytes}
        if encoding is not None:
            options["encoding"] = encoding
        content: bytes | str = self._wait(self._files.read_file(path, **options))
        return content

    def read_file_stream(
        self, path: str | os.PathLike[str], *, offset: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """Iterate over a file's bytes; see `sandbox_kernel.Sandbox.read_file_stream`."""
        return self._each(self._files.read_file_stream(path, offset=offset, length=length))

    def write_file(
        self,
        path: str | os.PathLike[str],
        content: FileContent | Iterable[bytes],
        *,
        mode: int | str | None = None,
        overwrite: bool = True,
        parents: bool = True,
        fsync: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> FileInfo:
        """Replace a file or make it; see `sandbox_kernel.Sandbox.write_file`.

        `content` may also be any iterable of bytes, which is iterated over in the waiting thread.
        """
        caller = Caller()
        return self._wait(
            self._files.write_file(
                path,
                caller.source(content),
                mode=mode,
                overwrite=overwrite,
                parents=parents,
                fsync=fsync,
                on_progress=caller.here(on_progress),
            ),
            caller,
        )

    def mkdir(
        self, path: str | os.PathLike[str], *, parents: bool = False, mode: int | str | None = None
    ) -> None:
        """Make a folder; see `sandbox_kernel.Sandbox.mkdir`."""
        self._wait(self._files.mkdir(path, parents=parents, mode=mode))

    def delete_file(self, path: str | os.PathLike[str], *, recursive: bool = False) -> None:
        """Delete a file or folder; see `sandbox_kernel.Sandbox.delete_file`."""
        self._wait(self._files.delete_file(path, recursive=recursive))

    def rename_file(
        self,
        path: str | os.PathLike[str],
        new_path: str | os.PathLike[str],
        *,
        overwrite: bool = True,
    ) -> None:
        """Give something another path; see `sandbox_kernel.Sandbox.rename_file`."""
        self._wait(self._files.rename_file(path, new_path, overwrite=overwrite))

    def move_file(
        self,
        path: str | os.PathLike[str],
        new_path: str | os.PathLike[str],
        *,
        overwrite: bool = True,
    ) -> str:
        """Move something; see `sandbox_kernel.Sandbox.move_file`."""
        return self._wait(self._files.move_file(path, new_path, overwrite=overwrite))

    def symlink(
        self,
        path: str | os.PathLike[str],
        target: str | os.PathLike[str],
        *,
        overwrite: bool = False,
    ) -> None:
        """Make a symbolic link; see `sandbox_kernel.Sandbox.symlink`."""
        self._wait(self._files.symlink(path, target, overwrite=overwrite))

    def chmod(self, path: str | os.PathLike[str], mode: int | str) -> None:
        """Set permission bits; see `sandbox_kernel.Sandbox.chmod`."""
        self._wait(self._files.chmod(path, mode))

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Return whether something is at a path; see `sandbox_kernel.Sandbox.exists`."""
        return self._wait(self._files.exists(path))

    def stat(self, path: str | os.PathLike[str], *, follow_symlinks: bool = True) -> FileInfo:
        """Return what is known of a path; see `sandbox_kernel.Sandbox.stat`."""
        return self._wait(self._files.stat(path, follow_symlinks=follow_symlinks))

    def list_files(
        self,
        path: str | os.PathLike[str] = ".",
        *,
        recursive: bool = False,
        include_hidden: bool = False,
    ) -> list[FileInfo]:
        """Return what is in a folder; see `sandbox_kernel.Sandbox.list_files`."""
        return self._wait(
            self._files.list_files(path, recursive=recursive, include_hidden=include_hidden)
        )

    def list_files_stream(
        self,
        path: str | os.PathLike[str] = ".",
        *,
        recursive: bool = False,
        include_hidden: bool = False,
    ) -> Iterator[FileInfo]:
        """Iterate over a folder of any size; see `sandbox_kernel.Sandbox.list_files_stream`."""
        return self._each(
            self._files.list_files_stream(path, recursive=recursive, include_hidden=include_hidden)
        )

    def watch(
        self,
        path: str | os.PathLike[str] = ".",
        *,
        recursive: bool = True,
        include: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
    ) -> Iterator[FileWatchEvent]:
        """Iterate over what changes; see `sandbox_kernel.Sandbox.watch`."""
        return self._each(
            self._files.watch(path, recursive=recursive, include=include, exclude=exclude)
        )

    def check_changes(
        self,
        path: str | os.PathLike[str] = ".",
        *,
        since: str | None = None,
        recursive: bool = True,
        include: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
    ) -> FileChanges:
        """Return whether a folder has changed; see `sandbox_kernel.Sandbox.check_changes`."""
        return self._wait(
            self._files.check_changes(
                path, since=since, recursive=recursive, include=include, exclude=exclude
            )
        )

    def upload_folder(
        self,
        source: str | os.PathLike[str],
        path: str | os.PathLike[str],
        *,
        follow_symlinks: bool = False,
        on_progress: Callable[[TransferProgress], object] | None = None,
    ) -> FolderTransfer:
        """Copy a folder into the sandbox; see `sandbox_kernel.Sandbox.upload_folder`."""
        caller = Caller()
        return self._wait(
            self._files.upload_folder(
                source,
                path,
                follow_symlinks=follow_symlinks,
                on_progress=caller.here(on_progress),
            ),
            caller,
        )

    def download_folder(
        self,
        path: str | os.PathLike[str],
        destination: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        symlinks: LinkRule = "safe",
        max_bytes: int = MAX_BYTES,
        max_entries: int = MAX_ENTRIES,
        on_progress: Callable[[TransferProgress], object] | None = None,
    ) -> FolderTransfer:
        """Copy a folder of the sandbox to this machine; see `Sandbox.download_folder`."""
        caller = Caller()
        return self._wait(
            self._files.download_folder(
                path,
                destination,
                overwrite=overwrite,
                symlinks=symlinks,
                max_bytes=max_bytes,
                max_entries=max_entries,
                on_progress=caller.here(on_progress),
            ),
            caller,
        )

    def git_checkout(
        self,
        url: str,
        *,
        branch: str | None = None,
        target_dir: str | os.PathLike[str] | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        timeout: float | None = 600.0,
        on_progress: Callable[[GitCheckoutProgress], object] | None = None,
    ) -> GitCheckout:
        """Clone a repository; see `sandbox_kernel.Sandbox.git_checkout`."""
        caller = Caller()
        return self._wait(
            self._files.git_checkout(
                url,
                branch=branch,
                target_dir=target_dir,
                depth=depth,
                username=username,
                password=password,
                timeout=timeout,
                on_progress=caller.here(on_progress),
            ),
            caller,
        )
