"""Files that come in parts: each is a draft until its last part is there.

At most `MOST_UPLOADS` are open; what their parts hold while they wait is bounded by the workers.
"""

from __future__ import annotations

import errno
import os
import time

from sandbox_kernel.errors import UploadNotFoundError, ValidationFailedError
from sandbox_kernel.wire.file_operations import FileUpload
from sandbox_kernel.wire.operations import Empty
from sandbox_runtime.file_access import Place
from sandbox_runtime.trees import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_kernel.wire.file_operations import (
        BeginWriteRequest,
        EndWriteRequest,
        FileEntry,
        WritePartRequest,
    )
    from sandbox_runtime.activity import Activity
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.drafts import Drafts
    from sandbox_runtime.jobs import Jobs
    from sandbox_runtime.loop import Loop

__all__ = ["LOST_TIMEOUT", "MOST_UPLOADS", "Uploads"]

MOST_UPLOADS = 128

LOST_TIMEOUT = 30.0
"""Seconds that an upload is kept after its client's connection was lost, unless something comes."""

_LONGEST_IDLE = 86400.0
_LOOK_EVERY = 1.0


class _Upload:
    """One file that is coming."""

    def __init__(self, place: Place, draft: str, fd: int) -> None:
        self.id = os.urandom(8).hex()
        self.place = place
        self.draft = draft
        self.fd = fd
        self.parts: list[tuple[int, int]] = []
        self.writing = 0
        self.is_closed = False
        self.idle_timeout = 0.0
        self.touched = time.monotonic()
        self.exchange: Exchange | None = None
        self.when_written: Callable[[], None] | None = None

    def cover(self, begin: int, end: int) -> None:
        """Note that the bytes from `begin` to `end` are written."""
        parts = []
        for first, last in self.parts:
            if last < begin or first > end:
                parts.append((first, last))
            else:
                begin, end = min(first, begin), max(last, end)
        parts.append((begin, end))
        self.parts = parts

    def is_whole(self, size: int) -> bool:
        """Whether the bytes before `size` are there, and no others."""
        return [each for each in self.parts if each[0] < each[1]] == ([(0, size)] if size else [])

    def is_abandoned(self, now: float) -> bool:
        """Whether nobody goes on with it."""
        is_lost = self.exchange is not None and self.exchange.connection.is_closed
        return now - self.touched > (
            min(self.idle_timeout, LOST_TIMEOUT) if is_lost else self.idle_timeout
        )


class Uploads:
    """The uploads of one runtime."""

    def __init__(self, loop: Loop, jobs: Jobs, drafts: Drafts, activity: Activity) -> None:
        self._loop = loop
        self._jobs = jobs
        self._drafts = drafts
        self._activity = activity
        self._uploads: dict[str, _Upload] = {}
        self._beginning = 0
        self._is_looking = False

    def begin(self, path: str, request: BeginWriteRequest, exchange: Exchange) -> None:
        """Make the draft of a file, and answer with its upload's name."""
        if not 0 < request.idle_timeout <= _LONGEST_IDLE:
            raise ValidationFailedError(
                "idle_timeout", f"must be above 0, {_LONGEST_IDLE:g} at most"
            )
        if len(self._uploads) + self._beginning >= MOST_UPLOADS:
            error = OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            self._jobs.fail(exchange, error, path, "write")
            return
        self._beginning += 1

        def work() -> _Upload:
            place = Place(
                path, mode=request.mode, overwrite=request.overwrite, parents=request.parents
            )
            draft = self._drafts.begin(place.folder)
            try:
                return _Upload(place, draft, place.open(draft))
            except BaseException:
                self._drafts.drop(draft)
                raise

        def done(result: object, error: BaseException | None) -> None:
            self._beginning -= 1
            if error is not None:
                self._jobs.fail(exchange, error, path, "write")
                return
            assert isinstance(result, _Upload)  # noqa: S101  what work returns
            upload = result
            upload.idle_timeout = request.idle_timeout
            upload.exchange = exchange
            self._uploads[upload.id] = upload
            self._activity.hold(f"upload {upload.id}")
            if exchange.cancelled or not exchange.is_open:
                # Nobody learns its name.
                self.abort(upload.id)
            exchange.result(FileUpload(upload_id=upload.id))
            self._look()

        self._jobs.workers.submit(work, done)

    def write_part(self, request: WritePartRequest, exchange: Exchange) -> None:
        """Write bytes of an upload, and answer when they are written."""
        upload = self._get(request.upload_id)
        if request.offset < 0:
            raise ValidationFailedError("offset", "is below zero")
        data, size = request.data, len(request.data)
        upload.touched = time.monotonic()
        upload.writing += 1

        def work() -> None:
            write_all(upload.fd, data, request.offset)

        def done(_result: object, error: BaseException | None) -> None:
            upload.writing -= 1
            upload.touched = time.monotonic()
            if error is not None:
                self._discard(upload)
                self._jobs.fail(exchange, error, upload.place.path, "write")
            else:
                upload.cover(request.offset, request.offset + size)
                exchange.result(Empty())
            self._written(upload)

        self._jobs.workers.submit(work, done, holds=size)

    def end(self, request: EndWriteRequest, exchange: Exchange) -> None:
        """Put an upload in its place, once its last part is written."""
        upload = self._get(request.upload_id)
        if upload.when_written is not None:
            raise ValidationFailedError("upload_id", "names an upload that is ending already")

        def go_on() -> None:
            if upload.is_closed:
                exchange.fail(UploadNotFoundError(upload.id))
                self._written(upload)
                return
            upload.writing += 1
            if not upload.is_whole(request.size):
                self._finish(upload)
                problem = f"is not what has come: {upload.parts}"[:200]
                exchange.fail(ValidationFailedError("size", problem))
                return
            self._jobs.workers.submit(work, done)

        def work() -> FileEntry:
            return upload.place.fill(upload.draft, upload.fd, fsync=request.fsync)

        def done(result: object, error: BaseException | None) -> None:
            self._finish(upload, is_filled=error is None)
            if error is not None:
                self._jobs.fail(exchange, error, upload.place.path, "write")
            else:
                exchange.result(result)  # type: ignore[arg-type]

        upload.touched = time.monotonic()
        upload.when_written = go_on
        self._written(upload)

    def abort(self, upload_id: str) -> None:
        """Give an upload up; one that is not known is fine."""
        upload = self._uploads.get(upload_id)
        if upload is not None:
            self._discard(upload)
            self._written(upload)

    def _get(self, upload_id: str) -> _Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.is_closed:
            raise UploadNotFoundError(upload_id[:80])
        return upload

    def _finish(self, upload: _Upload, *, is_filled: bool = False) -> None:
        upload.writing -= 1
        if is_filled:
            self._drafts.end(upload.draft)
            upload.draft = ""
        self._discard(upload)
        self._written(upload)

    def _discard(self, upload: _Upload) -> None:
        """Know an upload no more."""
        upload.is_closed = True
        if self._uploads.pop(upload.id, None) is not None:
            self._activity.let_go(f"upload {upload.id}", time.monotonic())

    def _written(self, upload: _Upload) -> None:
        """Go on when nothing of an upload is being written any more."""
        if upload.writing:
            return
        then, upload.when_written = upload.when_written, None
        if then is not None:
            then()
        elif upload.is_closed and upload.fd >= 0:
            fd, draft = upload.fd, upload.draft
            upload.fd = -1
            self._jobs.workers.submit(lambda: self._clear(fd, draft), _ignored)

    def _clear(self, fd: int, draft: str) -> None:
        os.close(fd)
        if draft:
            self._drafts.drop(draft)

    def _look(self) -> None:
        """Look for abandoned uploads, as long as there are any."""
        if not self._is_looking and self._uploads:
            self._is_looking = True
            self._loop.call_later(_LOOK_EVERY, self._look_again)

    def _look_again(self) -> None:
        self._is_looking = False
        now = time.monotonic()
        for upload in list(self._uploads.values()):
            if not upload.writing and upload.is_abandoned(now):
                self.abort(upload.id)
        self._look()


def _ignored(_result: object, _error: BaseException | None) -> None:
    """Let nobody wait for it."""
