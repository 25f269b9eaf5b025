"""Two properties of this process that only prctl(2) sets."""

from __future__ import annotations

__all__ = ["adopt_orphans", "hide_memory"]

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    if _call(option, value) != 0:
        raise OSError(f"prctl option {option} was refused")


def _call(option: int, value: int) -> int:
    arguments = (option, value, 0, 0, 0)
    try:
        # The C half of ctypes is enough; the Python half costs ten milliseconds of the first
        # command.
        import _ctypes  # noqa: PLC0415

        function = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        return int(_ctypes.call_function(function, arguments))
    except (ImportError, AttributeError, TypeError):
        import ctypes  # noqa: PLC0415

        return int(ctypes.CDLL(None).prctl(*map(ctypes.c_ulong, arguments)))


def hide_memory() -> None:
    """Keep programs of the same user from reading this process's memory, hence the token."""
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
