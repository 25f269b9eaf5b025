"""How the commands speak: errors, tables, JSON, and text that nobody may trust."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from sandbox_kernel.cli.exit_codes import BUSY, FAILED, NO_ENGINE, NOT_FOUND, STORAGE, USAGE
from sandbox_kernel.errors import (
    EngineError,
    SandboxBusyError,
    SandboxConfigurationError,
    SandboxError,
    SandboxNotFoundError,
    SandboxRunningError,
    StorageError,
    StorageFullError,
    ValidationFailedError,
)

__all__ = [
    "duration_text",
    "exit_code_of",
    "print_json",
    "print_json_line",
    "print_table",
    "printable",
    "report_error",
    "report_os_error",
    "size_text",
    "time_text",
    "warn",
]

_CODES: tuple[tuple[type[SandboxError], int], ...] = (
    (SandboxNotFoundError, NOT_FOUND),
    (SandboxBusyError, BUSY),
    (SandboxRunningError, BUSY),
    (EngineError, NO_ENGINE),
    (SandboxConfigurationError, USAGE),
    (StorageError, STORAGE),
    (StorageFullError, STORAGE),
    (ValidationFailedError, USAGE),
)


def exit_code_of(error: SandboxError) -> int:
    """Return the exit code of a command that ended with this error."""
    return next((code for cls, code in _CODES if isinstance(error, cls)), FAILED)


def report_error(error: SandboxError, *, as_json: bool) -> int:
    """Print an error and what to do about it, and return the exit code."""
    if as_json:
        print_json({"error": error.to_wire()})
    else:
        warn(error.message)
        if error.hint:
            print(printable(error.hint, keep="\n"), file=sys.stderr)
    return exit_code_of(error)


def report_os_error(error: OSError) -> int:
    """Print what the system refused, such as output to a full disk, and return the exit code."""
    reason = error.strerror or str(error)
    with suppress(OSError):  # standard error may be on that disk too
        warn(f"{error.filename}: {reason}" if error.filename else reason)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # What is left cannot be written; Python would try once more at exit, and complain.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
    return STORAGE


def warn(text: str) -> None:
    """Print one line, or a few, to standard error under the command's name."""
    print(f"jupyter sandbox: {printable(text, keep=chr(10))}", file=sys.stderr)


def print_json(value: Any) -> None:  # any JSON value
    """Print one JSON document."""
    json.dump(value, sys.stdout, indent=2)
    print()


def print_json_line(value: Any) -> None:  # any JSON value
    """Print one JSON value in one line, of answers that come bit by bit; it is read at once."""
    print(json.dumps(value, separators=(",", ":")), flush=True)


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns, as wide as they must be."""
    lines = [tuple(head), *(tuple(printable(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def printable(text: str, *, keep: str = "") -> str:
    """Return the text with every character escaped that could act on a terminal.

    Names of files and messages may come out of a sandbox.
    """
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape", "backslashreplace").decode("ascii")
        for character in text
    )


def size_text(size: int) -> str:
    """Return a size for people, such as ``1.5 MB``."""
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration_text(seconds: float | None) -> str:
    """Return a span of time for people, such as ``1 h 05 min``, or a dash."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02} h"


def time_text(seconds_since_epoch: float | None) -> str:
    """Return a moment in local time, or a dash."""
    import time  # noqa: PLC0415  start-up time

    if seconds_since_epoch is None:
        return "-"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds_since_epoch))
    except (OverflowError, ValueError, OSError):  # no time that a clock shows
        return "-"
