"""Whole folders into a sandbox and out of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.client.callbacks import tell
from sandbox_kernel.client.files import FileOperations, stream, upload_file
from sandbox_kernel.client.host_folder import (
    FolderReader,
    FolderWriter,
    HostEntry,
    LinkRule,
    Skipped,
)
from sandbox_kernel.client.threads import in_thread
from sandbox_kernel.errors import (
    ContainerUnavailableError,
    OperationInterruptedError,
    ProtocolViolationError,
)
from sandbox_kernel.wire.file_operations import (
    BeginWriteRequest,
    FileEntry,
    MakeFolderRequest,
    PackedFiles,
    PackFolderRequest,
    UnpackFolderRequest,
)

if TYPE_CHECKING:
    from sandbox_kernel.transports.base import Transport

__all__ = ["FolderTransfer", "FolderTransfers", "Skipped", "TransferProgress"]

MAX_BYTES = 16 << 30
MAX_ENTRIES = 1_000_000

_SMALL = 256 << 10
_BATCH_BYTES = 1 << 20
_BATCH_ENTRIES = 256
_PIECE = 1 << 20
_TOLD_EVERY = 0.1


@dataclass(frozen=True, kw_only=True)
class TransferProgress:
    """How far a transfer is.

    Parameters
    ----------
    path : str
        What is being transferred, below the folder.
    files : int
        Files that are done.
    bytes : int
        Bytes of files that are done or under way.
    """

    path: str
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class FolderTransfer:
    """What a transfer has done.

    Parameters
    ----------
    files, folders, links : int
        How many there are now at the other end, below the folder.
    bytes : int
        Of all files.
    skipped : list of Skipped
        What was left out, and why.
    """

    files: int
    folders: int
    links: int
    bytes: int
    skipped: list[Skipped]


class FolderTransfers(FileOperations):
    """The transfer of folders, for a class that has the operations on files."""

    async def upload_folder(
        self,
        source: str | os.PathLike[str],
        path: str | os.PathLike[str],
        *,
        follow_symlinks: bool = False,
        on_progress: Callable[[TransferProgress], object] | None = None,
    ) -> FolderTransfer:
        """Copy a folder of this machine, with everything in it, into the sandbox.

        It becomes `path`; what is there already stays unless something of the same name comes.
        Modes and links are kept (bits that change the user are not), times and owners are not.
        Each file is replaced all at once; when something fails, what came before it stays.

        Parameters
        ----------
        source : path
            The folder on this side.
        path : str
            The folder in the sandbox; it is made if it does not exist, also those above it.
        follow_symlinks : bool
            Take what links lead to in their place, also outside of `source`.  By default links are
            copied as links, and nothing outside is read.
        on_progress : callable, optional
            Called with a `TransferProgress` some times a second.

        Raises
        ------
        StorageError
            Something cannot be read on this side.
        NoSpaceError, PermissionDeniedError, FileSystemError
            Something cannot be written in the sandbox.
        """
        reader = FolderReader(Path(source), follow_symlinks=follow_symlinks, small=_SMALL)
        [place] = await self._at(path)
        with reader:
            transport = await self._taken(lambda transport: _made(transport, place))
            try:
                return await _Upload(transport, place, reader, on_progress).run()
            except ContainerUnavailableError as error:
                raise OperationInterruptedError("upload_folder", "the sandbox ended") from error

    async def download_folder(
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
        """Copy a folder of the sandbox, with everything in it, to this machine.

        What a sandbox sends is not trusted: nothing is written outside `destination`, whatever
        names and links it has or makes meanwhile; pipes, sockets and devices are left out; bits
        that change the user are dropped.  Modes are kept, times and owners are not.  Each file
        appears when it is whole; when something fails, what came before it stays.

        Parameters
        ----------
        path : str
            The folder in the sandbox.
        destination : path
            The folder on this side; it is made if it does not exist.
        overwrite : bool
            Replace files and links that are there.  By default they are an error; folders that
            exist are always filled.
        symlinks : str
            ``"safe"``: links are made unless they may lead out of the folder; ``"all"`` of them
            are, as they are, or ``"skip"``: none.
        max_bytes, max_entries : int
            What may be written at most.
        on_progress : callable, optional
            Called with a `TransferProgress` some times a second.

        Raises
        ------
        HostileNameError
            A name would lead out of `destination`.
        FileTooLargeError
            It is more than `max_bytes` or `max_entries`.
        PathExistsError
            Something is there, or two names are one for this machine's file system.
        PathNotFoundError, PathNotDirectoryError, PermissionDeniedError, FileSystemError
            It cannot be read in the sandbox.
        StorageError, StorageFullError
            It cannot be written on this side.
        """
        writer = FolderWriter(
            path=Path(destination),
            overwrite=overwrite,
            max_bytes=max_bytes,
            max_entries=max_entries,
            symlinks=symlinks,
        )
        [place] = await self._at(path)
        pace = _Pace(on_progress)
        async with stream(self, "file.pack", PackFolderRequest(path=place)) as events:
            # In the thread that writes, since it may have to wait for the disk to be left.
            try:
                await in_thread(writer.__enter__)
                async for event in events:
                    assert isinstance(event, PackedFiles)  # noqa: S101  as the table declares
                    await in_thread(_write, writer, event)
                    await pace.tell(writer.current, writer.files, writer.written)
                await in_thread(writer.finish)
            finally:
                writer.__exit__()
        await pace.tell(writer.current, writer.files, writer.written, last=True)
        return FolderTransfer(
            files=writer.files,
            folders=writer.folders,
            links=writer.links,
            bytes=writer.written,
            skipped=writer.skipped,
        )


def _write(writer: FolderWriter, event: PackedFiles) -> None:
    if len(event.sizes) != len(event.entries) or min(event.sizes, default=0) < 0 or event.more < 0:
        raise ProtocolViolationError("a packed folder whose sizes make no sense")
    data = memoryview(event.data)
    writer.take(None, data[: event.more])
    position = event.more
    for entry, size in zip(event.entries, event.sizes, strict=True):
        writer.take(entry, data[position : position + size])
        position += size


class _Pace:
    """Tells of progress, not too often."""

    def __init__(self, told: Callable[[TransferProgress], object] | None) -> None:
        self._told = told
        self._next = 0.0

    async def tell(self, path: str, files: int, size: int, *, last: bool = False) -> None:
        if self._told is None:
            return
        now = asyncio.get_running_loop().time()
        if now >= self._next or last:
            self._next = now + _TOLD_EVERY
            await tell(self._told, TransferProgress(path=path, files=files, bytes=size))


async def _made(transport: Transport, path: str) -> Transport:
    await transport.call("file.mkdir", MakeFolderRequest(path=path, parents=True))
    return transport


class _Upload:
    """One upload of a folder."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        reader: FolderReader,
        on_progress: Callable[[TransferProgress], object] | None,
    ) -> None:
        self._transport = transport
        self._path = path.rstrip("/") or "/"
        self._reader = reader
        self._pace = _Pace(on_progress)
        self._files = self._folders = self._links = self._bytes = 0
        self._skipped: list[Skipped] = []
        self._modes: list[HostEntry] = []

    async def run(self) -> FolderTransfer:
        entries = self._reader.entries()
        batch = await in_thread(_batch, entries)
        while batch:
            # The next batch is read while this one is written; what is in a folder is written
            # after the folder, so two are not on the way.
            writing = asyncio.ensure_future(self._write(batch))
            try:
                batch = await in_thread(_batch, entries)
                await writing
            finally:
                writing.cancel()
                await asyncio.wait([writing])
        # The deepest first: one may lose the right to enter a folder.
        while self._modes:
            some, self._modes = self._modes[-_BATCH_ENTRIES:][::-1], self._modes[:-_BATCH_ENTRIES]
            await self._unpack(some)
        await self._pace.tell(self._path, self._files, self._bytes, last=True)
        return FolderTransfer(
            files=self._files,
            folders=self._folders,
            links=self._links,
            bytes=self._bytes,
            skipped=self._skipped,
        )

    async def _write(self, batch: list[HostEntry]) -> None:
        small = [each for each in batch if each.type != "file" or each.data is not None]
        await self._unpack(small)
        for entry in batch:
            if entry.type == "file" and entry.data is None:
                await self._file(entry)

    async def _unpack(self, batch: list[HostEntry]) -> None:
        entries, chunks = [], []
        for each in batch:
            if each.type == "other":
                self._skipped.append(Skipped(path=each.path, reason=each.target))
                continue
            mode = each.mode
            if each.type == "directory" and not each.is_final:
                self._folders += 1
                mode |= 0o700
                if mode != each.mode:
                    self._modes.append(replace(each, is_final=True))
            elif each.type == "symlink":
                self._links += 1
            elif each.type == "file":
                self._files += 1
            entries.append(
                FileEntry(
                    path=each.path,
                    type=each.type,
                    size=each.size,
                    modified_at=0.0,
                    mode=mode,
                    permissions="",
                    target=each.target or None,
                )
            )
            chunks.append(each.data or b"")
        if not entries:
            return
        request = UnpackFolderRequest(
            path=self._path,
            entries=entries,
            sizes=[len(each) for each in chunks],
            data=b"".join(chunks),
        )
        await self._transport.call("file.unpack", request)
        self._bytes += len(request.data)
        await self._pace.tell(entries[-1].path, self._files, self._bytes)

    async def _file(self, entry: HostEntry) -> None:
        begin = BeginWriteRequest(path=f"{self._path}/{entry.path}", mode=entry.mode)
        before = self._bytes

        async def told(written: int) -> None:
            self._bytes = before + written
            await self._pace.tell(entry.path, self._files, self._bytes)

        opened: list[int] = []  # known here also if we are cancelled while it is opened
        try:
            await in_thread(lambda: opened.append(self._reader.open(entry.path)))
            await upload_file(self._transport, begin, _pieces(opened[0]), told=told)
        finally:
            for fd in opened:
                os.close(fd)
        self._files += 1


async def _pieces(fd: int) -> AsyncGenerator[bytes, None]:
    while data := await in_thread(os.read, fd, _PIECE):
        yield data


def _batch(entries: Iterator[HostEntry]) -> list[HostEntry]:
    """Return some entries, fewer where they have many bytes."""
    batch: list[HostEntry] = []
    room = _BATCH_BYTES
    for entry in islice(entries, _BATCH_ENTRIES):
        batch.append(entry)
        room -= len(entry.data or b"")
        if room <= 0:
            break
    return batch
