"""JSON that came out of a sandbox: read within limits, written so that every client can read it."""

from __future__ import annotations

import json
from typing import Any

import orjson

__all__ = ["MAX_DEPTH", "Refused", "read", "write"]

MAX_DEPTH = 100
"""Deepest nesting of a message; a notebook's own outputs stay far below."""


class Refused(ValueError):  # noqa: N818  a verdict on the sandbox's message, not a failure of ours
    """A message from the sandbox that is not passed on; says why."""


def read(data: bytes) -> Any:
    """Decode JSON from a sandbox.

    What stock kernels let slip (NaN, infinities, lone surrogates, integers beyond 64 bits, bytes
    that are not UTF-8) becomes null, a replacement character or a float: the user's output is not
    lost for it, and no client meets it.

    Raises
    ------
    Refused
        It is not JSON, or nests more than `MAX_DEPTH` levels.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _read_slowly(data)
    # Each level takes an opening and a closing byte.
    if len(data) > 2 * MAX_DEPTH and _depth_exceeds(value, MAX_DEPTH):
        raise Refused("it nests too deeply")
    return value


def write(value: object) -> bytes:
    """Encode a value that `read` returned, or one of our own."""
    return orjson.dumps(value)


def _read_slowly(data: bytes) -> Any:
    try:
        value = json.loads(
            data.decode("utf-8", "replace"), parse_constant=lambda _: None, parse_int=_number
        )
    except RecursionError:
        raise Refused("it nests too deeply") from None
    except ValueError:
        raise Refused("it is not JSON") from None
    return _clean(value, MAX_DEPTH)


def _number(text: str) -> int | float:
    # 18 digits always fit 64 bits; JavaScript reads the rest as a float anyway.
    return int(text) if len(text) <= 18 else float(text)


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
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
