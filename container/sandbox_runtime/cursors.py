"""Output cursors: opaque text over incarnation, process and offset."""

from __future__ import annotations

from sandbox_kernel.errors import InvalidProcessCursorError

__all__ = ["make_cursor", "read_cursor"]


def make_cursor(incarnation: str, serial: int, offset: int) -> str:
    """Return the cursor of an offset in the output of the process with this serial number."""
    return f"{incarnation}-{serial:x}-{offset:x}"


def read_cursor(
    cursor: str, incarnation: str, serial: int, *, process_id: str, start: int, end: int
) -> int:
    """Return the offset a cursor names.

    Raises
    ------
    InvalidProcessCursorError
        It was made for another process or incarnation, was altered, or names output that is no
        longer held.
    """
    try:
        offset = int(cursor.rpartition("-")[2], 16)
    except ValueError:
        raise InvalidProcessCursorError(process_id) from None
    # Comparing with the one spelling we make refuses signs, spaces and leading zeros as well.
    if cursor != make_cursor(incarnation, serial, offset) or not start <= offset <= end:
        raise InvalidProcessCursorError(process_id)
    return offset
