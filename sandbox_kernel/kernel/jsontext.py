"""JSON that came out of a sandbox: read within limits, written so that every client can read it."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from sandbox_kernel.wall.verdicts import Refused

__all__ = ["MAX_DEPTH", "MAX_ELEMENTS", "MAX_TEXT", "Refused", "read", "write"]

MAX_DEPTH = 100
"""Deepest nesting of a message; a notebook's own outputs stay far below."""

MAX_TEXT = 128 << 20
"""Bytes of one JSON text, so that an image or a page of tens of megabytes passes."""

MAX_ELEMENTS = 2_000_000
"""Brackets, commas and colons of a text, those inside strings aside.  Each may stand for an object
in memory, of fifty times its own size; a figure of a million points stays below."""

_SLOW_TEXT = 16 << 20
_SLOW_ELEMENTS = 250_000
"""What Python's own decoder may take: a second at most for what orjson does in a moment."""

_STRUCTURE = (b"[", b"{", b",", b":")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read(data: bytes, *, at_most: int = MAX_TEXT, depth: int = MAX_DEPTH) -> Any:
    """Decode JSON from a sandbox.

    What stock kernels let slip (NaN, infinities, lone surrogates, integers beyond 64 bits, bytes
    that are not UTF-8) becomes null, a replacement character or a float: the user's output is not
    lost for it, and no client meets it.

    Parameters
    ----------
    data : bytes
        The text.
    at_most : int
        How many bytes of it are read; no more than `MAX_TEXT`.
    depth : int
        How many levels it may nest; no more than `MAX_DEPTH`.

    Raises
    ------
    Refused
        It is not JSON, is larger than `at_most`, has more than `MAX_ELEMENTS`, or nests more than
        `depth` levels.  Texts that take the slow way have tighter limits.
    """
    depth = min(depth, MAX_DEPTH)
    _check_size(data, min(at_most, MAX_TEXT), MAX_ELEMENTS)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _read_slowly(data, depth)
    # Each level takes an opening and a closing byte.
    if len(data) > 2 * depth and _depth_exceeds(value, depth):
        raise Refused("it nests too deeply")
    return value


def write(value: object) -> bytes:
    """Encode a value that `read` returned, or one of our own."""
    return orjson.dumps(value)


def _check_size(data: bytes, most_bytes: int, most_elements: int) -> None:
    """Refuse what would take long to read, by what can be counted without reading it."""
    if len(data) > most_bytes:
        raise Refused(f"a JSON text of more than {most_bytes} bytes")
    if len(data) > most_elements and _has_more_elements(data, most_elements):
        raise Refused(f"a JSON text of more than {most_elements} elements")


def _has_more_elements(data: bytes, most: int) -> bool:
    if sum(map(data.count, _STRUCTURE)) <= most:
        return False
    # Perhaps they stand in strings, as in a page with scripts.  Without what is escaped, quotes
    # only begin and end strings, and every second piece between them lies outside.
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') // 2 > most:
        return True
    outside = b"".join(bare.split(b'"')[::2])
    return sum(map(outside.count, _STRUCTURE)) > most


def _read_slowly(data: bytes, depth: int) -> Any:
    _check_size(data, _SLOW_TEXT, _SLOW_ELEMENTS)
    try:
        value = json.loads(
            data.decode("utf-8", "replace"), parse_constant=lambda _: None, parse_int=_number
        )
    except RecursionError:
        raise Refused("it nests too deeply") from None
    except ValueError:
        raise Refused("it is not JSON") from None
    return _clean(value, depth)


def _number(text: str) -> int | float:
    # 18 digits always fit 64 bits; JavaScript reads the rest as a float anyway.
    return int(text) if len(text) <= 18 else float(text)


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        # Pairs have been joined; one that is left stands alone.
        return value if value.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list | dict) and depth == 0:
        raise Refused("it nests too deeply")
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {_clean(key, depth): _clean(item, depth - 1) for key, item in value.items()}
    return value


_CONTAINERS = frozenset({dict, list})


def _depth_exceeds(value: object, depth: int) -> bool:
    level = [value]
    while level:
        if depth == 0:
            return True
        below: list[object] = []
        for item in level:
            if type(item) is dict:
                below += [child for child in item.values() if type(child) in _CONTAINERS]
            elif type(item) is list:
                below += [child for child in item if type(child) in _CONTAINERS]
        level, depth = below, depth - 1
    return False
