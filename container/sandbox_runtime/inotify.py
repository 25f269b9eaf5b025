"""inotify(7): which files change, as the kernel tells it."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ATTRIB",
    "CREATE",
    "DELETE",
    "DELETE_SELF",
    "IGNORED",
    "ISDIR",
    "MODIFY",
    "MOVED_FROM",
    "MOVED_TO",
    "MOVE_SELF",
    "OVERFLOW",
    "Inotify",
]

MODIFY = 0x2
ATTRIB = 0x4
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
DELETE_SELF = 0x400
MOVE_SELF = 0x800
UNMOUNT = 0x2000
OVERFLOW = 0x4000
IGNORED = 0x8000
ISDIR = 0x40000000

_ONLYDIR = 0x01000000
_DONT_FOLLOW = 0x02000000
_EXCL_UNLINK = 0x04000000
_WANTED = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
_HEAD = struct.Struct("iIII")
_READ = 64 << 10

_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """One instance; its descriptor is readable when something has happened."""

    def __init__(self) -> None:
        self.fd = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), None)

    def add(self, path: str, *, top: bool = False) -> int:
        """Watch a folder (or, as the top one, a file; then a link is followed)."""
        flags = _WANTED | _EXCL_UNLINK
        if not top:
            flags |= _ONLYDIR | _DONT_FOLLOW
        name = ctypes.c_char_p(os.fsencode(path))
        return _checked(_libc.inotify_add_watch(self.fd, name, ctypes.c_uint32(flags)), path)

    def remove(self, watch: int) -> None:
        """Watch a folder no more; it may be gone already."""
        _libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[tuple[int, int, int, str]]:
        """Yield (watch, mask, cookie, name) of what has happened since; nothing if nothing has."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            watch, mask, cookie, size = _HEAD.unpack_from(data, position)
            position += _HEAD.size
            name = data[position : position + size].rstrip(b"\0")
            position += size
            yield watch, mask, cookie, os.fsdecode(name)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)


def _checked(result: int, path: str | None) -> int:
    if result < 0:
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number), path)
    return result
