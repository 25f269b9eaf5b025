"""Sizes, times and counts as people write them, for every option alike."""

from __future__ import annotations

import argparse

__all__ = ["cores", "count", "port", "positive_seconds", "seconds", "size"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def size(text: str) -> int:
    """Return bytes; the units are powers of 1024, as those of other tools that set limits."""
    number = text.upper().removesuffix("B").removesuffix("I")
    power = "KMGT".find(number[-1:]) + 1 if number else 0
    return max(1, int(_above_zero(text, number[:-1] if power else number) * 1024**power))


def cores(text: str) -> float:
    """Return processor time, in processors."""
    return _above_zero(text, text)


def count(text: str) -> int:
    """Return a whole number above zero."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text} is no whole number above zero")
    return int(text)


def port(text: str) -> int:
    """Return the number of a port."""
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text} is no port")
    return int(text)


def seconds(text: str) -> float:
    """Return seconds from a number of them, or from text such as ``30s``, ``10m`` or ``1h``."""
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    try:
        value = float(text.removesuffix(unit)) * _UNITS.get(unit, 1.0)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no time; write it like 1.5, 30s, 10m or 1h")
    return value


def positive_seconds(text: str) -> float:
    """Return seconds as `seconds` does, but not none."""
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError("it must be more than no time")
    return value


def _above_zero(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no amount; write it like 512M, 2G or 1.5")
    return value
