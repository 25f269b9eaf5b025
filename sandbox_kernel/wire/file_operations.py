"""The operations on files: reading, writing, folders, and watching them.

Paths are text with the bytes that are no UTF-8 as lone surrogates; a relative one begins at the
sandbox's default folder.  Symbolic links are followed as a shell does, within the sandbox.
"""

from __future__ import annotations

from sandbox_kernel.wire.operations import Empty, Kind, Operation
from sandbox_kernel.wire.record import Record

__all__ = ["ROWS"]


class FileEntry(Record):
    """What is known of a file, folder or link."""

    path: str
    """In a listing relative to the folder listed, else absolute."""
    type: str
    """``file``, ``directory``, ``symlink`` or ``other``."""
    size: int
    modified_at: float
    mode: int
    """Permission bits, at most 0o7777."""
    permissions: str
    """What the sandbox's user may do: ``rwx`` with ``-`` in the place of what they may not."""
    target: str | None = None
    """Where a symbolic link leads, as it is written in it."""


class ReadFileRequest(Record):
    """Read a regular file from `offset` on, at most `length` bytes.

    What is appended while it is read is not sent, but for files without a size (``/proc``).
    """

    path: str
    offset: int = 0
    length: int | None = None


class FileData(Record):
    """Bytes of a file; the first event says in `entry` what it is, and there is always one."""

    entry: FileEntry | None = None
    data: bytes = b""


class ReadFileEnd(Record):
    """The end of a file's bytes."""

    size: int
    """How many were sent."""


class WriteFileRequest(Record):
    """Replace a file, or make it, all at once: it has the old content or the new.

    `mode` of None is that of the file that is replaced, or 0o644.  Without `overwrite` an existing
    file is refused.  With `parents` missing folders are made.  With `fsync` it is on the disk when
    answered.
    """

    path: str
    mode: int | None = None
    overwrite: bool = True
    parents: bool = True
    fsync: bool = False
    data: bytes = b""


class BeginWriteRequest(Record):
    """Begin to replace or make a file of any size; see `WriteFileRequest`.

    It is given up when nothing comes for `idle_timeout` seconds, and 30 seconds after the loss of
    the connection that began it unless something comes.
    """

    path: str
    mode: int | None = None
    overwrite: bool = True
    parents: bool = True
    idle_timeout: float = 600.0


class FileUpload(Record):
    """An upload that has begun."""

    upload_id: str


class WritePartRequest(Record):
    """Bytes of an upload and where they belong; in any order, and again is fine."""

    upload_id: str
    offset: int
    data: bytes = b""


class EndWriteRequest(Record):
    """Put an upload in its place; refused unless exactly the bytes before `size` have come."""

    upload_id: str
    size: int
    fsync: bool = False


class AbortWriteRequest(Record):
    """Give an upload up; nothing has changed.  One that is not known is fine."""

    upload_id: str


class MakeFolderRequest(Record):
    """Make a folder; with `parents` those above it too, and one that exists is fine."""

    path: str
    parents: bool = False
    mode: int | None = None


class DeleteFileRequest(Record):
    """Delete a file or link, never what a link leads to; a folder only if `recursive`."""

    path: str
    recursive: bool = False


class RenameFileRequest(Record):
    """Give a file or folder another path on the same file system, at once."""

    path: str
    new_path: str
    overwrite: bool = True


class MoveFileRequest(Record):
    """Move a file or folder, into `new_path` if that is a folder, also across file systems."""

    path: str
    new_path: str
    overwrite: bool = True


class MovedFile(Record):
    """Where something was moved to."""

    path: str


class MakeLinkRequest(Record):
    """Make a symbolic link that leads to `target`; with `overwrite` in the place of a file."""

    path: str
    target: str
    overwrite: bool = False


class ChangeModeRequest(Record):
    """Set the permission bits of a file or folder; links are followed."""

    path: str
    mode: int


class FileRequest(Record):
    """Names a file; without `follow_symlinks` the link itself."""

    path: str
    follow_symlinks: bool = True


class FileExists(Record):
    """Whether something is there."""

    exists: bool


class ListFilesRequest(Record):
    """List a folder, with `recursive` all below it; links are listed, never entered.

    A folder comes before what is in it; there is no other order.
    """

    path: str
    recursive: bool = False
    include_hidden: bool = False


class FileList(Record):
    """Some of the entries; `path` is the folder's own, absolute, its links not resolved."""

    path: str
    entries: list[FileEntry]


class ListFilesEnd(Record):
    """The end of a listing."""

    path: str
    count: int
    unreadable: list[str] = []  # noqa: RUF012  records are frozen
    """Folders below it that could not be read; the first 100."""


class PackFolderRequest(Record):
    """Send a folder with everything in it: each entry, and the bytes of regular files."""

    path: str


class PackedFiles(Record):
    """Some entries and the bytes of files, one after the other.

    The first `more` bytes belong to the last file of the event before; then come, for each of
    `entries`, as many bytes as `sizes` says.  A file may send fewer bytes than its entry says, if
    it changes meanwhile.
    """

    entries: list[FileEntry] = []  # noqa: RUF012
    sizes: list[int] = []  # noqa: RUF012
    more: int = 0
    data: bytes = b""


class PackFolderEnd(Record):
    """The end of a folder."""

    path: str
    count: int


class UnpackFolderRequest(Record):
    """Make or replace entries in a folder, in this order; see `PackedFiles` for the bytes.

    Of an entry count path, type, mode and target.  Folders may exist, and get the mode; those that
    entries are in must.  Each file is replaced all at once.
    """

    path: str
    entries: list[FileEntry]
    sizes: list[int]
    data: bytes = b""


class WatchFilesRequest(Record):
    """Tell what changes in a folder, or of a file.

    Patterns are those of shells for names (`*`, `?`, `[...]`); one with a slash is compared with
    the path below the folder.  With `include` only what matches is told; with `exclude` what
    matches is not, and excluded folders are not entered.  Only one of both may be given.
    """

    path: str
    recursive: bool = True
    include: list[str] = []  # noqa: RUF012
    exclude: list[str] = []  # noqa: RUF012


class WatchFilesEvent(Record):
    """``watching`` once it is set up, ``event``, ``resync``, ``error``, and ``stopped`` at the end.

    An ``event`` is ``create``, ``modify``, ``attrib``, ``delete``, ``move_from`` or ``move_to``.
    After ``resync`` events are missing, for the `reason` ``overflow``: look at the folder anew.
    """

    type: str
    watch_id: str | None = None
    event_type: str | None = None
    path: str | None = None
    is_directory: bool = False
    timestamp: float = 0.0
    reason: str | None = None


class WatchFilesEnd(Record):
    """The end of a watch."""

    reason: str
    """``cancelled``, ``deleted`` (the folder itself) or ``error``."""


class CheckChangesRequest(Record):
    """Ask whether a folder has changed since an earlier answer; None asks for a first version.

    Include and exclude as for watching.  A version is known for 10 minutes.
    """

    path: str
    since: str | None = None
    recursive: bool = True
    include: list[str] = []  # noqa: RUF012
    exclude: list[str] = []  # noqa: RUF012


class FileChanges(Record):
    """``unchanged``, ``changed``, or ``resync``: it cannot be known, for `reason`."""

    status: str
    version: str
    reason: str | None = None
    """Of ``resync``: ``expired`` or ``restarted``."""


ROWS = (
    Operation(
        "file.read", Kind.STREAM, ReadFileRequest, ReadFileEnd, event=FileData, idempotent=True
    ),
    Operation("file.write", Kind.CALL, WriteFileRequest, FileEntry),
    Operation("file.begin_write", Kind.CALL, BeginWriteRequest, FileUpload),
    Operation("file.write_part", Kind.CALL, WritePartRequest, Empty),
    Operation("file.end_write", Kind.CALL, EndWriteRequest, FileEntry),
    Operation("file.abort_write", Kind.CALL, AbortWriteRequest, Empty, idempotent=True),
    Operation("file.mkdir", Kind.CALL, MakeFolderRequest, Empty),
    Operation("file.delete", Kind.CALL, DeleteFileRequest, Empty),
    Operation("file.rename", Kind.CALL, RenameFileRequest, Empty),
    Operation("file.move", Kind.CALL, MoveFileRequest, MovedFile),
    Operation("file.symlink", Kind.CALL, MakeLinkRequest, Empty),
    Operation("file.chmod", Kind.CALL, ChangeModeRequest, Empty, idempotent=True),
    Operation("file.exists", Kind.CALL, FileRequest, FileExists, idempotent=True),
    Operation("file.stat", Kind.CALL, FileRequest, FileEntry, idempotent=True),
    Operation(
        "file.list", Kind.STREAM, ListFilesRequest, ListFilesEnd, event=FileList, idempotent=True
    ),
    Operation(
        "file.pack",
        Kind.STREAM,
        PackFolderRequest,
        PackFolderEnd,
        event=PackedFiles,
        idempotent=True,
    ),
    Operation("file.unpack", Kind.CALL, UnpackFolderRequest, Empty),
    Operation(
        "file.watch",
        Kind.STREAM,
        WatchFilesRequest,
        WatchFilesEnd,
        event=WatchFilesEvent,
        idempotent=True,
    ),
    Operation("file.check_changes", Kind.CALL, CheckChangesRequest, FileChanges, idempotent=True),
)
