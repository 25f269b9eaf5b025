"""Folders over REST: listed in pages, and whole ones in and out as tar archives."""

from __future__ import annotations

import asyncio
import bisect
import functools
import posixpath
import queue
import tarfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tornado import iostream

from jupyter_ext.rest_pages import cursor_of, wishes
from jupyter_ext.rest_stream import Format, pour
from sandbox_kernel.client.by_name import stream_by_name
from sandbox_kernel.errors import FileSystemError, ValidationFailedError
from sandbox_kernel.wire.file_operations import (
    FileEntry,
    FileList,
    ListFilesEnd,
    ListFilesRequest,
    PackedFiles,
    PackFolderRequest,
)
from sandbox_kernel.wire.record import Record

if TYPE_CHECKING:
    from jupyter_ext.rest import RestHandler
    from sandbox_kernel.client.sandbox import Sandbox

__all__ = [
    "FolderListing",
    "FolderUnpacked",
    "ListFolder",
    "PackFolder",
    "UnpackArchive",
    "list_folder",
    "pack",
    "unpack",
]

T = TypeVar("T")

TAR = "application/x-tar"

_BLOCK = 512
_PIECE = 1 << 20
_LONGEST_HEADER = 1 << 20
_AHEAD = 4


class ListFolder(Record):
    """List a folder, with `recursive` all below it; links are listed, never entered."""

    path: str = "."
    recursive: bool = False
    include_hidden: bool = False


class FolderListing(Record):
    """What is in a folder, by its path below it."""

    path: str
    """The folder's own, absolute."""
    entries: list[FileEntry]
    next: str | None
    """The `after` of the next page; null at the end."""


async def list_folder(handler: RestHandler, wish: ListFolder) -> FolderListing | None:
    """Answer with one page of a folder, or with all of it as it is read."""
    request = ListFilesRequest(
        path=wish.path, recursive=wish.recursive, include_hidden=wish.include_hidden
    )
    chosen = handler.wanted_format()
    limit, after = wishes(handler.request.query_arguments, ("path",))
    kept: list[tuple[str, FileEntry]] = []
    begin = after[0] if after is not None else ""
    if not isinstance(begin, str):
        raise ValidationFailedError("after", "is no cursor of this list")
    async with stream_by_name(handler.sandbox, "file.list", request, starts=False) as events:
        if chosen is not Format.JSON:
            await pour(handler, events, lambda: events.end, chosen, "entries")
            return None
        async for event in events:
            for entry in cast("FileList", event).entries:
                if entry.path > begin and (len(kept) <= limit or entry.path < kept[-1][0]):
                    # One more than is wanted tells whether there are more.
                    bisect.insort(kept, (entry.path, entry), key=lambda each: each[0])
                    del kept[limit + 1 :]
        folder = cast("ListFilesEnd", events.end).path
    page = [entry for _, entry in kept[:limit]]
    following = cursor_of([page[-1].path]) if len(kept) > limit else None
    return FolderListing(path=folder, entries=page, next=following)


# --- out --------------------------------------------------------------------------------------


class PackFolder(Record):
    """Names a folder."""

    path: str


async def pack(handler: RestHandler, wish: PackFolder) -> None:
    """Answer with a folder and everything in it as a tar archive."""
    request = PackFolderRequest(path=wish.path)
    tar = _Tar()
    async with stream_by_name(handler.sandbox, "file.pack", request, starts=False) as events:
        is_first = True
        async for event in events:
            if is_first:
                is_first = False
                handler.set_header("Content-Type", TAR)
                handler.set_header("X-Content-Type-Options", "nosniff")
                handler.set_header("Content-Disposition", "attachment")
            handler.write(tar.add(cast("PackedFiles", event)))
            try:
                await handler.flush()
            except iostream.StreamClosedError:
                return
    handler.write(tar.end())
    handler.finish(set_content_type=TAR)


class _Tar:
    """Makes an archive of what a sandbox packs."""

    def __init__(self) -> None:
        self._missing = 0
        self._padding = 0

    def add(self, event: PackedFiles) -> bytes:
        """Return the archive's bytes of one event."""
        parts: list[bytes] = []
        data = memoryview(event.data)
        at = min(event.more, self._missing)
        parts.append(bytes(data[:at]))
        self._missing -= at
        at = event.more
        for entry, size in zip(event.entries, event.sizes, strict=True):
            parts.append(self._close())
            header = _header(entry)
            if header is not None:
                parts.append(header)
            if entry.type == "file":
                self._missing = entry.size
                self._padding = -entry.size % _BLOCK
                taken = min(size, self._missing)
                parts.append(bytes(data[at : at + taken]))
                self._missing -= taken
            at += size
        return b"".join(parts)

    def _close(self) -> bytes:
        """End the last file, which may have become shorter meanwhile."""
        rest, self._missing, self._padding = self._missing + self._padding, 0, 0
        return bytes(rest)

    def end(self) -> bytes:
        """Return the archive's last bytes."""
        return self._close() + bytes(2 * _BLOCK)


def _header(entry: FileEntry) -> bytes | None:
    kinds = {"file": tarfile.REGTYPE, "directory": tarfile.DIRTYPE, "symlink": tarfile.SYMTYPE}
    if entry.type not in kinds:
        return None
    info = tarfile.TarInfo(entry.path)
    info.type = kinds[entry.type]
    info.mode = entry.mode & 0o777
    info.mtime = max(entry.modified_at, 0)
    if entry.type == "file":
        info.size = entry.size
    if entry.type == "symlink":
        info.linkname = entry.target or ""
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


# --- in ---------------------------------------------------------------------------------------


class UnpackArchive(Record):
    """Make or replace what a tar archive holds, in a folder that is made if it is missing.

    Files, folders and symbolic links; hard links, devices and sparse files are refused, and so are
    names that lead out of the folder.  Each file is replaced all at once; what came before a fault
    stays.
    """

    path: str


class FolderUnpacked(Record):
    """How much there was in an archive."""

    files: int
    folders: int
    links: int
    bytes: int


class _Member(tarfile.TarInfo):
    """A member whose header is of a sane size; the library would keep any in memory."""

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if self.type not in tarfile.REGULAR_TYPES and self.size > _LONGEST_HEADER:
            raise tarfile.ReadError("a header that is too long")
        return super()._proc_member(tar)  # type: ignore[misc]  # not in the stubs


class _Source:
    """The body as a file for the thread that reads the archive."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pieces: queue.Queue[bytes | None] = queue.Queue()
        self.room = asyncio.Semaphore(_AHEAD)
        self._rest = b""
        self._is_over = False

    def put(self, piece: bytes | None) -> None:
        self._pieces.put(piece)

    def read(self, size: int) -> bytes:
        while not self._rest and not self._is_over:
            piece = self._pieces.get()
            if piece is None:
                self._is_over = True
            else:
                self._rest = piece
                self._loop.call_soon_threadsafe(self.room.release)
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


async def unpack(handler: RestHandler, wish: UnpackArchive) -> FolderUnpacked:
    """Write what is in the body, as it comes."""
    if not wish.path:
        raise ValidationFailedError("path", "is empty")
    sandbox = handler.sandbox
    await sandbox.mkdir(wish.path, parents=True)
    loop = asyncio.get_running_loop()
    source = _Source(loop)
    unpacking = _Unpacking(sandbox, wish.path, loop)

    async def feed() -> None:
        try:
            async for piece in handler.body.pieces():
                await source.room.acquire()
                source.put(piece)
        finally:
            source.put(None)

    feeding = asyncio.create_task(feed())
    # A thread of its own: it waits for the client, and others shall not wait with it.
    thread = ThreadPoolExecutor(1, thread_name_prefix="unpack")
    running = loop.run_in_executor(thread, unpacking.run, source)
    try:
        both: list[asyncio.Future[Any]] = [feeding, running]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if feeding.done() and feeding.exception() is not None:
            unpacking.stop()
            await feeding
        return await asyncio.shield(running)
    finally:
        unpacking.stop()
        feeding.cancel()
        source.put(None)
        await asyncio.wait([feeding])
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        thread.shutdown(wait=False)


class _Unpacking:
    """Takes an archive apart in a thread, and has the loop write what it finds."""

    def __init__(self, sandbox: Sandbox, folder: str, loop: asyncio.AbstractEventLoop) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._loop = loop
        self._is_stopped = False

    def stop(self) -> None:
        """Have the thread end at its next step."""
        self._is_stopped = True

    def run(self, source: _Source) -> FolderUnpacked:
        """Write everything."""
        counts = {"files": 0, "folders": 0, "links": 0, "bytes": 0}
        try:
            with tarfile.open(
                fileobj=cast("Any", source),
                mode="r|",
                tarinfo=_Member,
                errors="surrogateescape",
            ) as tar:
                while (member := tar.next()) is not None:
                    self._one(tar, member, counts)
                    # The library would remember every one of them.
                    tar.members = []  # type: ignore[attr-defined]  # not in the stubs
        except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
            raise ValidationFailedError("body", f"is no tar archive: {str(error)[:100]}") from None
        # Whatever follows the end of an archive is no part of it.
        while source.read(_PIECE):
            pass
        return FolderUnpacked(**counts)

    def _one(self, tar: tarfile.TarFile, member: tarfile.TarInfo, counts: dict[str, int]) -> None:
        name = _inner(member.name)
        path = posixpath.join(self._folder, name) if name else self._folder
        mode = member.mode & 0o777
        if member.isdir():
            if name:
                self._wait(lambda: self._folder_made(path, mode))
                counts["folders"] += 1
        elif member.issym():
            self._wait(lambda: self._sandbox.symlink(path, member.linkname, overwrite=True))
            counts["links"] += 1
        elif member.isreg() and not member.issparse() and name:
            file = tar.extractfile(member)
            assert file is not None  # noqa: S101  a regular file has content
            self._file_written(path, mode, member.size, file)
            counts["files"] += 1
            counts["bytes"] += member.size
        else:
            raise ValidationFailedError(
                "body", "holds something else than files, folders and symbolic links"
            )

    def _wait(self, work: Callable[[], Awaitable[T]]) -> T:
        if self._is_stopped:
            raise FileSystemError(self._folder, "unpack into", "it was given up")

        async def do() -> T:
            return await work()

        waiting: Future[T] = asyncio.run_coroutine_threadsafe(do(), self._loop)
        return waiting.result()

    async def _folder_made(self, path: str, mode: int) -> None:
        await self._sandbox.mkdir(path, parents=True)
        await self._sandbox.chmod(path, mode | 0o700)

    def _file_written(self, path: str, mode: int, size: int, file: Any) -> None:
        if size <= _PIECE:
            content = self._read(file, size)
            self._wait(lambda: self._sandbox.write_file(path, content, mode=mode))
            return
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue(2)

        async def content_of() -> AsyncGenerator[bytes, None]:
            while (piece := await pieces.get()) is not None:
                yield piece

        async def begin() -> asyncio.Task[Any]:
            writing = self._sandbox.write_file(path, content_of(), mode=mode)
            return asyncio.create_task(writing)

        async def offer(piece: bytes | None) -> None:
            offering = asyncio.ensure_future(pieces.put(piece))
            await asyncio.wait([offering, writing], return_when=asyncio.FIRST_COMPLETED)
            offering.cancel()

        async def give_up() -> None:
            writing.cancel()
            await asyncio.wait([writing])

        async def finish() -> None:
            await writing

        writing = self._wait(begin)
        try:
            while size and not writing.done():
                piece = self._read(file, min(size, _PIECE))
                size -= len(piece)
                self._wait(functools.partial(offer, piece))
            self._wait(functools.partial(offer, None))
            self._wait(finish)
        except BaseException:
            asyncio.run_coroutine_threadsafe(give_up(), self._loop).result()
            raise

    def _read(self, file: Any, size: int) -> bytes:
        data: bytes = file.read(size)
        if len(data) != size:
            raise tarfile.ReadError("it ends too early")
        return data


def _inner(name: str) -> str:
    """Return a member's path below the folder; the folder itself is empty."""
    names = [each for each in name.split("/") if each not in ("", ".")]
    if name.startswith("/") or ".." in names or "\0" in name:
        raise ValidationFailedError("body", "holds a name that leads out of the folder")
    return "/".join(names)
