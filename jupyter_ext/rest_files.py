"""Contents of files over REST: read and written as bytes, of any size."""

from __future__ import annotations

import re
from email.utils import formatdate
from typing import TYPE_CHECKING, cast

from tornado import iostream, web

from sandbox_kernel.client.by_name import call_by_name, stream_by_name
from sandbox_kernel.errors import PathIsDirectoryError, ValidationFailedError
from sandbox_kernel.wire.file_operations import (
    DeleteFileRequest,
    FileData,
    FileEntry,
    FileRequest,
    ReadFileRequest,
)
from sandbox_kernel.wire.operations import Empty
from sandbox_kernel.wire.record import Record

if TYPE_CHECKING:
    from jupyter_ext.rest import RestHandler

__all__ = ["DeleteFile", "PutFile", "ReadFile", "delete", "file_path", "head", "read", "write"]

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)
_TYPE = "application/octet-stream"


class ReadFile(Record):
    """Names a file by the address."""

    path: str


class PutFile(Record):
    """Replace a file or make it, all at once; the body is its content.

    `mode` is its permission bits as a number; left out, that of the file that is replaced, or 0o644
    (420).  Without `overwrite` an existing file is refused; with `parents` missing folders are
    made; with `fsync` it is on the disk when answered.
    """

    path: str
    mode: int | None = None
    overwrite: bool = True
    parents: bool = True
    fsync: bool = False


def file_path(text: str) -> str:
    """Return the sandbox's path that the end of an address means: absolute, from its root.

    Raises
    ------
    ValidationFailedError
        It has dot segments, which clients and proxies resolve as they like, or is empty.
    """
    names = text.split("/")
    if "." in names or ".." in names:
        raise ValidationFailedError("path", "has a segment of dots")
    if not text.strip("/"):
        raise ValidationFailedError("path", "is empty")
    return "/" + text.lstrip("/")


async def head(handler: RestHandler, request: ReadFile) -> None:
    """Answer with what a reader of the file would get, and none of it."""
    stat = FileRequest(path=file_path(request.path))
    entry = cast("FileEntry", await call_by_name(handler.sandbox, "file.stat", stat, starts=False))
    if entry.type == "directory":
        raise PathIsDirectoryError(entry.path, "read", "it is a folder")
    handler.set_header("Accept-Ranges", "bytes")
    _head(handler, entry, None)
    handler.finish(set_content_type=_TYPE)


class DeleteFile(Record):
    """Delete a file or link, never what a link leads to; a folder only if `recursive`."""

    path: str
    recursive: bool = False


async def delete(handler: RestHandler, request: DeleteFile) -> Empty:
    """Delete a file or folder."""
    wish = DeleteFileRequest(path=file_path(request.path), recursive=request.recursive)
    await call_by_name(handler.sandbox, "file.delete", wish, starts=True)
    return Empty()


async def read(handler: RestHandler, request: ReadFile) -> None:
    """Answer with the bytes of a file, or with those of a range."""
    path = file_path(request.path)
    stat = FileRequest(path=path)
    entry = cast("FileEntry", await call_by_name(handler.sandbox, "file.stat", stat, starts=False))
    handler.set_header("Accept-Ranges", "bytes")
    asked = _range(handler.request.headers.get("Range"), entry.size)
    offset, length = asked if asked is not None else (0, None)
    wanted = ReadFileRequest(path=path, offset=offset, length=length)
    async with stream_by_name(handler.sandbox, "file.read", wanted, starts=False) as events:
        sent = 0
        async for event in events:
            part = cast("FileData", event)
            if part.entry is not None:
                _head(handler, part.entry, asked)
                await handler.flush()
            if part.data:
                sent += len(part.data)
                handler.write(part.data)
                try:
                    await handler.flush()
                except iostream.StreamClosedError:
                    return
    handler.finish(set_content_type=_TYPE)


def _head(handler: RestHandler, entry: FileEntry, asked: tuple[int, int] | None) -> None:
    handler.set_header("Content-Type", _TYPE)
    # Whatever is in it, it is no page of this origin.
    handler.set_header("X-Content-Type-Options", "nosniff")
    handler.set_header("Content-Disposition", "attachment")
    handler.set_header("Last-Modified", formatdate(entry.modified_at, usegmt=True))
    if asked is not None:
        offset, length = asked
        handler.says(206)
        handler.set_header("Content-Range", f"bytes {offset}-{offset + length - 1}/{entry.size}")
        handler.set_header("Content-Length", str(length))
    elif entry.size:
        handler.set_header("Content-Length", str(entry.size))


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return offset and length of one range; None for the whole, also where we know no better."""
    found = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if found is None or not (found[1] or found[2]) or not size:
        return None
    if not found[1]:
        length = min(int(found[2]), size)
        offset = size - length
    else:
        offset = int(found[1])
        end = min(int(found[2]) if found[2] else size - 1, size - 1)
        if found[2] and int(found[2]) < offset:
            return None
        length = end - offset + 1
    if offset >= size or length < 1:
        raise web.HTTPError(416, "The file has %s bytes", size)
    return offset, length


async def write(handler: RestHandler, request: PutFile) -> FileEntry:
    """Write the body into a file; until all has come, nothing has changed."""
    info = await handler.sandbox.write_file(
        file_path(request.path),
        handler.body.pieces(),
        mode=request.mode,
        overwrite=request.overwrite,
        parents=request.parents,
        fsync=request.fsync,
    )
    return FileEntry(
        path=info.absolute_path,
        type=info.type,
        size=info.size,
        modified_at=info.modified_at,
        mode=info.mode,
        permissions=info.permissions,
        target=info.target,
    )
