"""Two properties of this process that only prctl(2) sets."""

from __future__ import annotations

__all__ = ["adopt_orphans", "hide_memory"]

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    # ctypes takes milliseconds to import, which the first answer of a runtime need not wait for.
    import ctypes  # noqa: PLC0415

    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl option {option} was refused")


def hide_memory() -> None:
    """Keep programs of the same user from reading this process's memory, hence the token."""
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
