"""The questions a program asks its terminal, and output without them.

A question counts however it is spelled, as long as @xterm/xterm 6 understands it: with controls or
DEL within it, with leading zeros and colons, and with a string that ends where the next sequence
begins.
"""

from __future__ import annotations

import re

from sandbox_runtime.screen_boundaries import Boundaries
from sandbox_runtime.screen_grammar import GROUND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["queries_in", "without_queries"]

# Bytes that are no UTF-8 stand here as surrogates: they and marks of byte order are not even read.
_UNREAD = "\udc80-\udcff\ufeff"
_OBEYED = "\x00-\x17\x19\x1c-\x1f"
_SKIPPED = f"{_OBEYED}\x7f{_UNREAD}"  # within a sequence; what is obeyed is so at once

# No body holds an ESC or a C1 control, so no character is looked at for two candidates.  The
# commonest sequences, which ask nothing, are passed over first.
_CANDIDATE = re.compile(
    "\x05"  # ENQ
    rf"|(?:(?P<escape>\x1b(?!\[[0-9:;]*+[A-HJKhlm])[{_SKIPPED}]*+)|(?=[\x90\x9b\x9d]))(?:"
    rf"[\[\x9b](?P<sequence>[ -?{_SKIPPED}]*+[Scgmnpqtuwxy])"
    rf"|[P\x90](?P<request>[0-9:;{_SKIPPED}]*+[$+][^\x18\x1a\x1b\x80-\x9f]*+)"  # settings, termcap
    rf"(?P<request_end>\x1b\\|\x9c|(?=\x1b))"
    rf"|[\]\x9d](?P<command>[^\x07\x18\x1a\x1b\x80-\x9f]*+)"
    rf"(?P<command_end>\x07|\x1b\\|\x9c|(?=\x1b))"
    ")"
)
_ASKING = re.compile(
    r"[>=?]?[0-9:;]*c"  # device attributes
    r"|\??[0-9:;]*n"  # status, cursor position
    r"|\??[0-9:;]*\$p"  # is a mode set
    r"|>[0-9:;]*q"  # name and version
    r"|[0-9:;]*x"  # parameters
    r"|0*(?:1[1-689]|2[01])(?:[:;][0-9:;]*)?t"  # window reports
    r"|\?[0-9:;]*u"  # keyboard protocol
    r"|\?[0-9:;]*S"  # graphics
    r"|[0-9:;]*\$w|[0-9:;]*\*y|\?[0-9:;]*m|\?[0-9:;]*g"  # presentation, checksum, key modifiers
)
_ALL_SKIPPED = re.compile(f"[{_SKIPPED}]+")
_NOT_OBEYED = re.compile(rf"[^{_OBEYED}]+|\x05+")
_NOT_IN_COMMANDS = re.compile(f"[{_OBEYED}{_UNREAD}]+")
_NO_UTF8 = "".join(map(chr, range(0xDC80, 0xDD00)))
_WITH_ANSWERS = frozenset(
    "4 5 7 10 11 12 13 14 15 16 17 18 19 21 50 52 60 61 66 99 702 777 1337 5522".split()  # noqa: SIM905
)


def without_queries(data: bytes) -> bytes:
    """Return terminal output without what a viewer would answer.

    For viewers that cannot keep their answers to themselves while old output is drawn.  Commands
    that merely contain a question mark, such as a title, stay, and so do controls within a query,
    which are obeyed by themselves.

    Parameters
    ----------
    data : bytes
        Output that begins and ends between sequences.
    """
    if not _may_ask(data):
        return data
    text = data.decode("utf-8", "surrogateescape")
    kept: list[str] = []
    at = opened = 0
    for match, _ in _queries(text):
        start = match.start()
        if start > at:
            # Bytes that are no character alone could become one with what follows.
            before = text[at:start].rstrip(_NO_UTF8)
            kept.append(before)
        if len(match[0]) > 1:  # ENQ ends nothing
            if start > opened and _is_open_after(text[opened:start]):
                # What the query has ended; C1 controls end strings without effect.
                kept.append("\x1b\\" if match["escape"] else "\x18")
            opened = match.end()
            # Within a string nothing is obeyed.
            obeyed = (match["escape"] or "") + (match["sequence"] or "")
            kept.append(_NOT_OBEYED.sub("", obeyed))
        at = match.end()
    if not at:
        return data
    kept.append(text[at:])
    return "".join(kept).encode("utf-8", "surrogateescape")


def queries_in(data: bytes) -> list[bytes]:
    """Return what `without_queries` leaves out: each query by itself, in its plain spelling."""
    if not _may_ask(data):
        return []
    text = data.decode("utf-8", "surrogateescape")
    return [plain.encode("utf-8", "surrogateescape") for _, plain in _queries(text)]


def _may_ask(data: bytes) -> bool:
    return b"\x1b" in data or b"\x05" in data or b"\xc2" in data


def _queries(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each query, and how it is spelled without anything that is not part of it."""
    for match in _CANDIDATE.finditer(text):
        kind = match.lastgroup
        if kind is None:
            yield match, "\x05"
        elif kind == "sequence":
            sequence = _ALL_SKIPPED.sub("", match["sequence"])
            if _ASKING.fullmatch(sequence):
                yield match, f"\x1b[{sequence}"
        elif kind == "request_end":
            request = re.sub(f"[{_UNREAD}]+", "", match["request"])
            yield match, f"\x1bP{request}{match[kind] or chr(27) + chr(92)}"
        else:
            command = _NOT_IN_COMMANDS.sub("", match["command"])
            fields = command.split(";")
            if fields[0].lstrip("0") in _WITH_ANSWERS and ("?" in fields[1:] or "q" in fields[1:]):
                yield match, f"\x1b]{command}{match[kind] or chr(27) + chr(92)}"


def _is_open_after(text: str) -> bool:
    """Whether a sequence is not complete that begins in the text."""
    if "\x1b" not in text and text.isascii():
        return False
    boundaries = Boundaries()
    boundaries.feed(text.encode("utf-8", "surrogateescape"))
    return boundaries.state != GROUND
