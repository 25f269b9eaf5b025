"""When a file of a layer came to be, which `os.stat` does not tell on Linux."""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["made_at_ns"]

# Numbers and offsets of statx(2); struct statx is 256 bytes with its spare fields.
_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_CTIME = 0x80
_STATX_BTIME = 0x800
_STATX_SIZE = 256
_BTIME_OFFSET = 80

_statx = getattr(ctypes.CDLL(None), "statx", None)


def made_at_ns(parent: int, name: str) -> int:
    """Return when the entry came to be, in ns since the epoch.

    For a file changed in place in a sandbox this is the moment the overlay copied it up, for one
    that was replaced the moment of the replacement.  Where the file system keeps no time of birth
    it is the last change of the inode, which may be later.
    """
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    wanted = _STATX_BTIME | _STATX_CTIME
    if (
        _statx is None
        or _statx(parent, os.fsencode(name), _AT_SYMLINK_NOFOLLOW, wanted, buffer) != 0
        or not int.from_bytes(buffer.raw[0:4], sys.byteorder) & _STATX_BTIME
    ):
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_ctime_ns
    birth = buffer.raw[_BTIME_OFFSET:]
    seconds = int.from_bytes(birth[0:8], sys.byteorder, signed=True)
    nanoseconds = int.from_bytes(birth[8:12], sys.byteorder)
    return seconds * 1_000_000_000 + nanoseconds
