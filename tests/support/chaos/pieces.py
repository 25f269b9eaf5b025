"""Content that says what it is: a reader sees whether it is one whole piece, and which."""

from __future__ import annotations

import hashlib

__all__ = ["content", "generation_of"]

_LONGEST_HEADER = 200


def content(name: str, generation: str, size: int) -> bytes:
    """Return the bytes of a file; no two names or generations have any in common."""
    header = f"{name} {generation} {size}\n".encode()
    return header + hashlib.shake_128(header).digest(size)


def generation_of(name: str, data: bytes) -> str | None:
    """Return which generation of a file this is; None if it is no whole one."""
    header, newline, _ = data[:_LONGEST_HEADER].partition(b"\n")
    try:
        found, generation, size = header.decode("ascii").split(" ")
        is_whole = newline and found == name and data == content(name, generation, int(size))
    except ValueError:
        return None
    return generation if is_whole else None
