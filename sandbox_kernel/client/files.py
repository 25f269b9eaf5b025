"""Files of a sandbox: reading, writing, listing and changing them.

Everything is done inside by the sandbox's runtime, as the sandbox's user: paths are the sandbox's
own, and links in it lead wherever they lead a program in the sandbox.  A relative path begins at
the folder in which commands run by default; one that is given to a session, at the session's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import stat as stat_bits
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Self, TypeVar, cast, overload

from sandbox_kernel.arguments import count, file_mode, inside_path, path_text, patterns
from sandbox_kernel.client.callbacks import tell
from sandbox_kernel.client.making import made
from sandbox_kernel.client.threads import in_thread
from sandbox_kernel.errors import (
    ContainerUnavailableError,
    FileTooLargeError,
    OperationInterruptedError,
    SandboxError,
    ValidationFailedError,
)
from sandbox_kernel.wire.file_operations import (
    AbortWriteRequest,
    BeginWriteRequest,
    ChangeModeRequest,
    CheckChangesRequest,
    DeleteFileRequest,
    EndWriteRequest,
    FileData,
    FileEntry,
    FileExists,
    FileList,
    FileRequest,
    FileUpload,
    ListFilesEnd,
    ListFilesRequest,
    MakeFolderRequest,
    MakeLinkRequest,
    MovedFile,
    MoveFileRequest,
    ReadFileRequest,
    RenameFileRequest,
    WatchFilesEvent,
    WatchFilesRequest,
    WriteFileRequest,
    WritePartRequest,
)
from sandbox_kernel.wire.file_operations import FileChanges as WireChanges

if TYPE_CHECKING:
    from sandbox_kernel.transports.base import EventStream, Transport
    from sandbox_kernel.wire.record import Record

__all__ = ["FileChanges", "FileContent", "FileInfo", "FileOperations", "FileWatchEvent"]

T = TypeVar("T")

MAX_READ = 256 << 20
"""Bytes that `read_file` keeps in memory unless asked for more."""

_AT_ONCE = 1 << 20
"""Content up to this size is written by one call."""

_PART = 1 << 20
_PARTS_ON_THE_WAY = 4

_TOUCH_EVERY = 10.0
"""Seconds after which an upload whose source gives nothing is kept from being given up."""

FileContent = (
    bytes | bytearray | memoryview | str | os.PathLike[str] | IO[bytes] | AsyncIterable[bytes]
)
"""What can be written: bytes, text (as UTF-8), the path of a file on this side, a file opened in
binary mode, or an asynchronous iterable of bytes."""


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """What is known of a file, folder or link in a sandbox.

    Parameters
    ----------
    absolute_path : str
        Where it is; links on the way are not resolved.  Bytes of a name that are no UTF-8 are lone
        surrogates, as in names that Python itself gives.
    relative_path : str
        The path from the folder that was listed; its name where one file was asked for.
    type : str
        ``file``, ``directory``, ``symlink`` or ``other``.
    size : int
        Bytes.
    modified_at : float
        Seconds since the epoch.
    mode : int
        Permission bits, such as ``0o644``.
    permissions : str
        What the sandbox's user may do: ``rwx`` with ``-`` for what they may not.
    target : str or None
        Where a link leads, as it is written in it.
    """

    absolute_path: str
    relative_path: str
    type: str
    size: int
    modified_at: float
    mode: int
    permissions: str
    target: str | None = None

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.absolute_path).name

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.type == "file"

    @property
    def is_directory(self) -> bool:
        """Whether it is a folder."""
        return self.type == "directory"

    @property
    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self.type == "symlink"

    @property
    def mode_string(self) -> str:
        """The mode as ``ls`` shows it, such as ``rw-r--r--``."""
        return stat_bits.filemode(self.mode)[1:]


@dataclass(frozen=True, kw_only=True)
class FileWatchEvent:
    """Something that a watch tells.

    Parameters
    ----------
    type : str
        ``watching``, ``event``, ``resync``, ``error`` or ``stopped``.
    event_type : str or None
        Of an ``event``: ``create``, ``modify``, ``attrib``, ``delete``, ``move_from``, ``move_to``.
    path : str or None
        What it is about, absolute.
    is_directory : bool
        Whether that is a folder.
    timestamp : float
        Seconds since the epoch.
    watch_id : str or None
        Of ``watching``: names the watch.
    reason : str or None
        Of ``resync``, ``error`` and ``stopped``: why.
    """

    type: str
    event_type: str | None = None
    path: str | None = None
    is_directory: bool = False
    timestamp: float = 0.0
    watch_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class FileChanges:
    """Whether a folder has changed.

    Parameters
    ----------
    status : str
        ``unchanged``, ``changed`` or ``resync``.
    version : str
        To be passed next time.
    reason : str or None
        Of ``resync``: ``expired`` or ``restarted``.
    """

    status: str
    version: str
    reason: str | None = None


def file_info(entry: FileEntry, folder: str | None = None) -> FileInfo:
    """Return an entry as people see it; `folder` is the one that was listed."""
    if folder is None:
        absolute = entry.path
        relative = PurePosixPath(absolute).name
    else:
        absolute = f"{folder.rstrip('/')}/{entry.path}"
        relative = entry.path
    return FileInfo(
        absolute_path=absolute,
        relative_path=relative,
        type=entry.type,
        size=entry.size,
        modified_at=entry.modified_at,
        mode=entry.mode,
        permissions=entry.permissions,
        target=entry.target,
    )


class FileOperations(ABC):
    """The operations on files, for a class that can have its sandbox do something."""

    @abstractmethod
    async def _taken(self, work: Callable[[Transport], Awaitable[T]]) -> T:
        """Do something in the sandbox, starting it if need be; nothing is done twice."""

    async def _base(self) -> str | None:
        """Return the folder where relative paths begin; None is the sandbox's own."""
        return None

    async def _at(self, *given: str | os.PathLike[str]) -> list[str]:
        """Return the paths as the sandbox is to be told them."""
        paths = [
            inside_path(name, path) for name, path in zip(("path", "new_path"), given, strict=False)
        ]
        # An empty one is no path, which the sandbox says best.
        if all(path.startswith("/") or not path for path in paths):
            return paths
        base = await self._base()
        return [posixpath.join(base, path) if base and path else path for path in paths]

    # --- reading ---

    @overload
    async def read_file(
        self,
        path: str | os.PathLike[str],
        *,
        offset: int = 0,
        length: int | None = None,
        max_bytes: int = MAX_READ,
    ) -> bytes: ...

    @overload
    async def read_file(
        self,
        path: str | os.PathLike[str],
        *,
        encoding: str,
        offset: int = 0,
        length: int | None = None,
        max_bytes: int = MAX_READ,
    ) -> str: ...

    async def read_file(
        self,
        path: str | os.PathLike[str],
        *,
        encoding: str | None = None,
        offset: int = 0,
        length: int | None = None,
        max_bytes: int = MAX_READ,
    ) -> bytes | str:
        """Return the content of a file.

        Parameters
        ----------
        path : str
            A regular file; links are followed.  What is appended meanwhile is not read.
        encoding : str, optional
            Return text, decoded strictly; line ends stay as they are.  By default bytes.
        offset, length : int
            Only these bytes.
        max_bytes : int
            A larger content is refused, since it is kept in memory.

        Raises
        ------
        PathNotFoundError, PathIsDirectoryError, PermissionDeniedError, FileSystemError
            It cannot be read.
        FileTooLargeError
            It has more than `max_bytes`; `read_file_stream` has no limit.
        UnicodeDecodeError
            With `encoding`: it is no such text.
        """
        [place] = await self._at(path)
        chunks: list[bytes] = []
        room = max_bytes
        async with stream(self, "file.read", _read(place, offset, length)) as events:
            async for event in events:
                assert isinstance(event, FileData)  # noqa: S101  as the table declares
                entry = event.entry
                if entry is not None and entry.size:
                    wanted = max(0, entry.size - offset)
                    room -= wanted if length is None else min(wanted, length)
                    if room < 0:
                        raise _too_large(place, max_bytes)
                    room = max_bytes
                room -= len(event.data)
                if room < 0:
                    raise _too_large(place, max_bytes)
                chunks.append(event.data)
        data = b"".join(chunks)
        return data if encoding is None else data.decode(encoding)

    async def read_file_stream(
        self, path: str | os.PathLike[str], *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Iterate over the content of a file of any size.

        Nothing is read ahead of what is taken but about 1 MiB.  Leaving the loop, or closing the
        generator, ends the reading.

        Parameters
        ----------
        path, offset, length
            As for `read_file`.

        Yields
        ------
        bytes
            In order, in pieces of no particular size.

        Raises
        ------
        PathNotFoundError, PathIsDirectoryError, PermissionDeniedError, FileSystemError
            It cannot be read.
        """
        [place] = await self._at(path)
        async with stream(self, "file.read", _read(place, offset, length)) as events:
            async for event in events:
                assert isinstance(event, FileData)  # noqa: S101  as the table declares
                if event.data:
                    yield event.data

    # --- writing ---

    async def write_file(
        self,
        path: str | os.PathLike[str],
        content: FileContent,
        *,
        mode: int | str | None = None,
        overwrite: bool = True,
        parents: bool = True,
        fsync: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> FileInfo:
        """Replace a file or make it, all at once: others see the old content or the new, whole.

        The last link of `path` is followed, within the sandbox.  A file that is replaced keeps its
        mode, and its owner where the sandbox's user may give files away; further hard links keep
        the old content.  When anything fails, or anybody is killed, nothing has changed.

        Parameters
        ----------
        path : str
            The file.
        content : bytes, str, path, binary file or asynchronous iterable of bytes
            Of any size; see `FileContent`.  A `str` is the content, a `pathlib.Path` names a file
            on this side.  What is opened here is closed; files that are given are left open.
        mode : int or str, optional
            Permission bits, ``0o755`` or ``"755"``; by default those of the file that is replaced,
            or 0o644.
        overwrite : bool
            Without it an existing file is refused.
        parents : bool
            Make missing folders on the way.
        fsync : bool
            Return when it is on the disk.
        on_progress : callable, optional
            Called with the number of bytes written so far.

        Raises
        ------
        NoSpaceError, PermissionDeniedError, ReadOnlyError, PathIsDirectoryError, FileSystemError
            It cannot be written.
        PathExistsError
            Without `overwrite`: something is there.
        """
        [place] = await self._at(path)
        if isinstance(content, str):
            content = content.encode()
        if isinstance(content, bytes | bytearray | memoryview) and len(content) <= _AT_ONCE:
            request = WriteFileRequest(
                path=place,
                mode=_mode(mode),
                overwrite=overwrite,
                parents=parents,
                fsync=fsync,
                data=bytes(content),
            )
            entry = await self._taken(lambda transport: transport.call("file.write", request))
            await tell(on_progress, len(content))
            return file_info(cast("FileEntry", entry))
        begin = BeginWriteRequest(
            path=place, mode=_mode(mode), overwrite=overwrite, parents=parents
        )
        with _parts(content) as parts:
            transport, upload = await self._taken(lambda transport: _begun(transport, begin))
            return await upload_parts(transport, upload, parts, fsync=fsync, told=on_progress)

    # --- folders and names ---

    async def mkdir(
        self, path: str | os.PathLike[str], *, parents: bool = False, mode: int | str | None = None
    ) -> None:
        """Make a folder.

        Parameters
        ----------
        path : str
            The folder.
        parents : bool
            Make those above it too; one that exists already is then fine.
        mode : int or str, optional
            Permission bits, ``0o755`` or ``"755"`` of the folder itself; by default 0o755.

        Raises
        ------
        PathExistsError, PathNotFoundError, PathNotDirectoryError, FileSystemError
            It cannot be made.
        """
        [place] = await self._at(path)
        request = MakeFolderRequest(path=place, parents=parents, mode=_mode(mode))
        await self._taken(lambda transport: transport.call("file.mkdir", request))

    async def delete_file(self, path: str | os.PathLike[str], *, recursive: bool = False) -> None:
        """Delete a file or link, and with `recursive` a folder with everything in it.

        What a link leads to stays.  Cancelling stops a long deletion half-way.

        Raises
        ------
        PathNotFoundError
            It does not exist.
        PathIsDirectoryError
            It is a folder, and `recursive` is not set.
        PermissionDeniedError, FileSystemError
            It, or something in it, cannot be deleted.
        """
        [place] = await self._at(path)
        request = DeleteFileRequest(path=place, recursive=recursive)
        await self._taken(lambda transport: transport.call("file.delete", request))

    async def rename_file(
        self,
        path: str | os.PathLike[str],
        new_path: str | os.PathLike[str],
        *,
        overwrite: bool = True,
    ) -> None:
        """Give a file or folder another path on the same file system, at once.

        An existing file, or an empty folder by a folder, is replaced unless `overwrite` is off.

        Raises
        ------
        PathNotFoundError, PathExistsError, FileSystemError
            It cannot be renamed; between file systems only `move_file` can.
        """
        place, new_place = await self._at(path, new_path)
        request = RenameFileRequest(path=place, new_path=new_place, overwrite=overwrite)
        await self._taken(lambda transport: transport.call("file.rename", request))

    async def move_file(
        self,
        path: str | os.PathLike[str],
        new_path: str | os.PathLike[str],
        *,
        overwrite: bool = True,
    ) -> str:
        """Move a file or folder, as ``mv`` does, and return where it is now.

        If `new_path` is a folder it is moved into it.  Between file systems it is copied, put in
        its new place when it is whole, and then deleted in the old one.

        Raises
        ------
        PathNotFoundError, PathExistsError, FileSystemError
            It cannot be moved.
        """
        place, new_place = await self._at(path, new_path)
        request = MoveFileRequest(path=place, new_path=new_place, overwrite=overwrite)
        moved = await self._taken(lambda transport: transport.call("file.move", request))
        return cast("MovedFile", moved).path

    async def symlink(
        self,
        path: str | os.PathLike[str],
        target: str | os.PathLike[str],
        *,
        overwrite: bool = False,
    ) -> None:
        """Make a symbolic link at `path` that leads to `target`, which need not exist.

        Raises
        ------
        PathExistsError, FileSystemError
            It cannot be made.
        """
        [place] = await self._at(path)
        request = MakeLinkRequest(
            path=place, target=path_text("target", target), overwrite=overwrite
        )
        await self._taken(lambda transport: transport.call("file.symlink", request))

    async def chmod(self, path: str | os.PathLike[str], mode: int | str) -> None:
        """Set the permission bits of a file or folder; links are followed.

        Parameters
        ----------
        path : str or path
            The file or folder.
        mode : int or str
            Bits such as ``0o755``, or their octal digits as text, ``"755"``.  The number 755
            without ``0o`` is refused: it would be 0o1363.

        Raises
        ------
        PathNotFoundError, PermissionDeniedError, FileSystemError
            They cannot be set.
        """
        [place] = await self._at(path)
        request = ChangeModeRequest(path=place, mode=file_mode("mode", mode))
        await self._taken(lambda transport: transport.call("file.chmod", request))

    # --- looking ---

    async def exists(self, path: str | os.PathLike[str]) -> bool:
        """Return whether something is at a path; links are followed.

        Raises
        ------
        PermissionDeniedError, TooManyLinksError, FileSystemError
            It cannot be known.
        """
        [place] = await self._at(path)
        request = FileRequest(path=place)
        found = await self._taken(lambda transport: transport.call("file.exists", request))
        return cast("FileExists", found).exists

    async def stat(self, path: str | os.PathLike[str], *, follow_symlinks: bool = True) -> FileInfo:
        """Return what is known of a file or folder, or of the link itself.

        Raises
        ------
        PathNotFoundError, PermissionDeniedError, FileSystemError
            It cannot be looked at.
        """
        [place] = await self._at(path)
        request = FileRequest(path=place, follow_symlinks=follow_symlinks)
        entry = await self._taken(lambda transport: transport.call("file.stat", request))
        return file_info(cast("FileEntry", entry))

    async def list_files(
        self,
        path: str | os.PathLike[str] = ".",
        *,
        recursive: bool = False,
        include_hidden: bool = False,
    ) -> list[FileInfo]:
        """Return what is in a folder, sorted by path.

        Parameters
        ----------
        path : str
            The folder.
        recursive : bool
            All below it; links are listed, never entered.  What cannot be read below it is left
            out.
        include_hidden : bool
            Names that begin with a dot, too.

        Raises
        ------
        PathNotFoundError, PathNotDirectoryError, PermissionDeniedError, FileSystemError
            It cannot be listed.
        """
        [place] = await self._at(path)
        request = ListFilesRequest(path=place, recursive=recursive, include_hidden=include_hidden)
        entries: list[FileEntry] = []
        async with stream(self, "file.list", request) as events:
            async for event in events:
                assert isinstance(event, FileList)  # noqa: S101  as the table declares
                entries += event.entries
            folder = cast("ListFilesEnd", events.end).path
        entries.sort(key=lambda each: each.path.split("/"))
        return [file_info(each, folder) for each in entries]

    async def list_files_stream(
        self,
        path: str | os.PathLike[str] = ".",
        *,
        recursive: bool = False,
        include_hidden: bool = False,
    ) -> AsyncGenerator[FileInfo, None]:
        """Iterate over what is in a folder of any size; see `list_files`.

        Yields
        ------
        FileInfo
            A folder before what is in it, in no other order.
        """
        [place] = await self._at(path)
        request = ListFilesRequest(path=place, recursive=recursive, include_hidden=include_hidden)
        async with stream(self, "file.list", request) as events:
            async for event in events:
                assert isinstance(event, FileList)  # noqa: S101  as the table declares
                for each in event.entries:
                    yield file_info(each, event.path)

    async def watch(
        self,
        path: str | os.PathLike[str] = ".",
        *,
        recursive: bool = True,
        include: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
    ) -> AsyncGenerator[FileWatchEvent, None]:
        """Iterate over what changes in a folder, or in one file.

        The first event, of type ``watching``, says that nothing is missed from now on; ``resync``
        that something was, so that the folder is to be looked at anew; ``stopped`` is the last.
        The same thing happening again within 75 ms is told once.  Leaving the loop, or closing the
        generator, ends the watch; an open watch keeps the sandbox awake.

        Parameters
        ----------
        path : str
            The folder or file.
        recursive : bool
            All folders below it too, also those that come to be.
        include, exclude : str or sequence of str
            Patterns of shells, or one of them: only what matches, or all but that; not both.  One
            without a slash is compared with each name on the way below the folder, one with a slash
            with the path from the folder on.  Excluded folders cost nothing.

        Yields
        ------
        FileWatchEvent
            As it comes.

        Raises
        ------
        PathNotFoundError, PermissionDeniedError, FileSystemError
            It cannot be watched.
        WatchStartError
            A limit of the system is reached, or there are too many folders.
        """
        [place] = await self._at(path)
        request = WatchFilesRequest(
            path=place,
            recursive=recursive,
            include=patterns("include", include),
            exclude=patterns("exclude", exclude),
        )
        async with stream(self, "file.watch", request) as events:
            async for event in events:
                assert isinstance(event, WatchFilesEvent)  # noqa: S101  as the table declares
                yield FileWatchEvent(
                    type=event.type,
                    event_type=event.event_type,
                    path=event.path,
                    is_directory=event.is_directory,
                    timestamp=event.timestamp,
                    watch_id=event.watch_id,
                    reason=event.reason,
                )

    async def check_changes(
        self,
        path: str | os.PathLike[str] = ".",
        *,
        since: str | None = None,
        recursive: bool = True,
        include: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
    ) -> FileChanges:
        """Return whether something in a folder has changed since an earlier answer.

        For whoever looks now and then and keeps no connection; it does not keep the sandbox awake.

        Parameters
        ----------
        path, recursive, include, exclude
            As for `watch`.
        since : str, optional
            The `version` of an earlier answer for the same folder and patterns; without one, only
            a first version is asked for.

        Returns
        -------
        FileChanges
            Its `status` is ``unchanged``, ``changed``, or ``resync`` when it cannot be known, since
            the version is older than 10 minutes (`reason` is ``expired``) or of an earlier start of
            the sandbox (``restarted``); then look at the folder anew.  Pass `version` next time.

        Raises
        ------
        PathNotFoundError, WatchStartError, FileSystemError
            It cannot be watched.
        """
        [place] = await self._at(path)
        request = CheckChangesRequest(
            path=place,
            since=since,
            recursive=recursive,
            include=patterns("include", include),
            exclude=patterns("exclude", exclude),
        )
        answer = await self._taken(lambda transport: transport.call("file.check_changes", request))
        found = cast("WireChanges", answer)
        return FileChanges(status=found.status, version=found.version, reason=found.reason)


# --- how it is done ---------------------------------------------------------------------------


def _mode(mode: int | str | None) -> int | None:
    return None if mode is None else file_mode("mode", mode)


def _read(path: str, offset: int, length: int | None) -> ReadFileRequest:
    return ReadFileRequest(
        path=path,
        offset=count("offset", offset, of="bytes"),
        length=None if length is None else count("length", length, of="bytes"),
    )


def _too_large(path: str, most: int) -> FileTooLargeError:
    return FileTooLargeError(
        path,
        "read",
        f"it has more than {most} bytes",
        hint="Use read_file_stream(), or raise max_bytes.",
    )


@asynccontextmanager
async def stream(sandbox: FileOperations, operation: str, request: Record) -> AsyncIterator[Events]:
    """Do a stream operation; leaving the block early ends it."""
    opened = await sandbox._taken(lambda transport: _opened(transport, operation, request))  # noqa: SLF001  what the class has it for
    async with opened:
        yield opened


async def _opened(transport: Transport, operation: str, request: Record) -> Events:
    stack = contextlib.AsyncExitStack()
    async with stack:
        events = await stack.enter_async_context(transport.stream(operation, request))
        first = await anext(events, None)
        return Events(stack.pop_all(), first, events)
    raise AssertionError  # the block returns or raises


class Events:
    """The events of a stream whose first one has come: the operation has been taken."""

    def __init__(
        self, stack: contextlib.AsyncExitStack, first: Record | None, rest: EventStream
    ) -> None:
        self._stack = stack
        self._first = first
        self._rest = rest

    @property
    def end(self) -> Record | None:
        """The operation's result, once there are no more events."""
        return self._rest.end

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        first, self._first = self._first, None
        return await anext(self._rest) if first is None else first

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


async def _begun(transport: Transport, request: BeginWriteRequest) -> tuple[Transport, str]:
    answer = await made(
        transport,
        "file.begin_write",
        request,
        lambda begun: _abort(transport, cast("FileUpload", begun).upload_id),
    )
    return transport, cast("FileUpload", answer).upload_id


async def upload_parts(
    transport: Transport,
    upload_id: str,
    parts: AsyncIterable[bytes],
    *,
    fsync: bool,
    told: Callable[[int], object] | None,
) -> FileInfo:
    """Write all the parts of an upload that has begun, and put it in its place.

    Some parts are on the way at a time.  However this ends, the upload has ended.
    """
    on_the_way: deque[asyncio.Task[Record]] = deque()
    written = offset = 0

    async def arrived() -> None:
        nonlocal written
        task = on_the_way.popleft()
        await task
        written += sizes.popleft()
        await tell(told, written)

    async def touch() -> None:
        request = WritePartRequest(upload_id=upload_id, offset=offset)
        await transport.call("file.write_part", request)

    sizes: deque[int] = deque()
    try:
        async with aclosing(_steadily(parts, touch)) as steady:
            async for data in steady:
                request = WritePartRequest(upload_id=upload_id, offset=offset, data=data)
                writing = transport.call("file.write_part", request)
                on_the_way.append(asyncio.ensure_future(writing))
                sizes.append(len(data))
                offset += len(data)
                if len(on_the_way) >= _PARTS_ON_THE_WAY:
                    await arrived()
        while on_the_way:
            await arrived()
        end = EndWriteRequest(upload_id=upload_id, size=offset, fsync=fsync)
        return file_info(cast("FileEntry", await transport.call("file.end_write", end)))
    except BaseException as error:
        for task in on_the_way:
            task.cancel()
        await asyncio.gather(*on_the_way, return_exceptions=True)
        # Shielded: giving up the waiting must not leave the half file in the sandbox.
        await asyncio.shield(_abort(transport, upload_id))
        if isinstance(error, ContainerUnavailableError):
            # It ended under way, so it cannot simply be begun again elsewhere.
            raise OperationInterruptedError("file.write_part", "the sandbox ended") from error
        raise


async def _steadily(
    parts: AsyncIterable[bytes], touch: Callable[[], Awaitable[None]]
) -> AsyncGenerator[bytes, None]:
    """Pass parts on, and say that there will be more where a source takes its time.

    The source is read by one task from its beginning to its end, since it may mind where it runs;
    one part is read ahead.
    """
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue(1)
    broken: list[Exception] = []

    async def read() -> None:
        try:
            async for data in parts:
                await waiting.put(data)
        except Exception as error:  # noqa: BLE001  the caller gets it, whatever it is
            broken.append(error)
        await waiting.put(None)

    reading = asyncio.create_task(read())
    try:
        while True:
            data = None
            try:
                # Not wait_for, which may take a cancellation for an end of the wait.
                async with asyncio.timeout(_TOUCH_EVERY):
                    data = await waiting.get()
            except TimeoutError:
                await touch()
                continue
            if data is None:
                break
            yield data
        if broken:
            raise broken[0]
    finally:
        reading.cancel()
        await asyncio.wait([reading])


async def upload_file(
    transport: Transport,
    begin: BeginWriteRequest,
    parts: AsyncIterable[bytes],
    *,
    told: Callable[[int], object] | None,
) -> FileInfo:
    """Write one file of any size over a given connection."""
    _, upload_id = await _begun(transport, begin)
    return await upload_parts(transport, upload_id, parts, fsync=False, told=told)


async def _abort(transport: Transport, upload_id: str) -> None:
    with contextlib.suppress(SandboxError):
        await transport.call("file.abort_write", AbortWriteRequest(upload_id=upload_id))


@contextlib.contextmanager
def _parts(
    content: bytes | bytearray | memoryview | os.PathLike[str] | IO[bytes] | AsyncIterable[bytes],
) -> Iterator[AsyncIterable[bytes]]:
    """Yield the content in parts of a good size; what was opened for it is closed afterwards."""
    if isinstance(content, bytes | bytearray | memoryview):
        yield _of_bytes(content)
    elif isinstance(content, os.PathLike):
        with open(content, "rb", buffering=0) as file:
            yield _of_file(file)
    elif hasattr(content, "read"):
        yield _of_file(cast("IO[bytes]", content))
    elif isinstance(content, AsyncIterable):
        yield _joined(content)
    else:
        raise ValidationFailedError(
            "content",
            "must be bytes, text, a pathlib path, a file opened in binary mode or an asynchronous "
            f"iterable of bytes, not {type(content).__name__}",
            hint="sandbox_kernel.sync takes every iterable of bytes.",
        )


async def _of_bytes(content: bytes | bytearray | memoryview) -> AsyncGenerator[bytes, None]:
    view = memoryview(content).cast("B")
    for begin in range(0, len(view), _PART):
        yield bytes(view[begin : begin + _PART])


async def _of_file(file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    while data := await in_thread(file.read, _PART):
        if not isinstance(data, bytes):
            raise ValidationFailedError("content", "must be a file opened in binary mode")
        yield data


def _bytes_of(piece: object) -> bytes | bytearray | memoryview:
    if isinstance(piece, bytes | bytearray | memoryview):
        return piece
    raise ValidationFailedError("content", f"gave {type(piece).__name__}, where bytes belong")


async def _joined(pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Join small pieces and cut large ones."""
    waiting = bytearray()
    try:
        async for piece in pieces:
            waiting += _bytes_of(piece)
            while len(waiting) >= _PART:
                yield bytes(waiting[:_PART])
                del waiting[:_PART]
        if waiting:
            yield bytes(waiting)
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
