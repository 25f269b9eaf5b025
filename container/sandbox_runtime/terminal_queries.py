"""The questions a program asks its terminal, and output without them."""

from __future__ import annotations

import re

__all__ = ["only_queries", "without_queries"]

_QUERY = re.compile(
    rb"\x05"  # ENQ
    rb"|(?:\x1b\[|\xc2\x9b)(?:"
    rb"[>=?]?[0-9;]*c"  # device attributes
    rb"|\??[0-9;]*n"  # status, cursor position
    rb"|\??[0-9;]*\$p"  # is a mode set
    rb"|>[0-9;]*q"  # name and version
    rb"|[0-9;]*x"  # parameters
    rb"|(?:1[1-689]|2[01])[0-9;]*t"  # window reports
    rb"|\?[0-9;]*u"  # keyboard protocol
    rb"|\?[0-9;]*S"  # graphics
    rb"|[0-9;]*\$w|[0-9;]*\*y|\?[0-9;]*m|\?[0-9;]*g"  # presentation, checksum, key modifiers
    rb")"
    rb"|(?:\x1bP|\xc2\x90)[0-9;]*[$+][^\x07\x18\x1a\x1b]*(?:\x1b\\|\xc2\x9c)"  # settings, termcap
    rb"|(?:\x1b\]|\xc2\x9d)(?:[^\x07\x18\x1a\x1b\xc2]|\xc2(?!\x9c))*(?:\x07|\x1b\\|\xc2\x9c)"
)

_COMMAND = re.compile(rb"(?:\x1b\]|\xc2\x9d)(.*?)(?:\x07|\x1b\\|\xc2\x9c)", re.DOTALL)
_WITH_ANSWERS = frozenset(
    b"4 5 7 10 11 12 13 14 15 16 17 18 19 21 50 52 60 61 66 99 702 777 1337 5522".split()
)


def without_queries(data: bytes) -> bytes:
    """Return terminal output without what a viewer would answer.

    For viewers that cannot keep their answers to themselves while old output is drawn.  Commands
    that merely contain a question mark, such as a title, stay.

    Parameters
    ----------
    data : bytes
        Output that begins and ends between sequences.
    """
    if b"\x1b" not in data and b"\x05" not in data and b"\xc2" not in data:
        return data
    return _QUERY.sub(_kept, data)


def _kept(match: re.Match[bytes]) -> bytes:
    command = _COMMAND.fullmatch(match[0])
    if command is None:
        return b""
    fields = command[1].split(b";")
    is_query = fields[0] in _WITH_ANSWERS and any(field in (b"?", b"q") for field in fields[1:])
    return b"" if is_query else match[0]


def only_queries(data: bytes) -> bytes:
    """Return what `without_queries` leaves out."""
    if b"\x1b" not in data and b"\x05" not in data and b"\xc2" not in data:
        return b""
    return b"".join(each[0] for each in _QUERY.finditer(data) if not _kept(each))
