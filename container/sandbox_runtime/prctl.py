"""Properties of this process and thread that only prctl(2) and unshare(2) set."""

from __future__ import annotations

__all__ = ["adopt_orphans", "hide_memory", "own_folder"]

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_FS = 0x200


def _prctl(option: int, value: int) -> None:
    if _call("prctl", option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl option {option} was refused")


def _call(name: str, *arguments: int) -> int:
    try:
        # The C half of ctypes is enough; the Python half costs ten milliseconds of the first
        # command.
        import _ctypes  # noqa: PLC0415

        function = _ctypes.dlsym(_ctypes.dlopen(None, 0), name)  # type: ignore[arg-type]
        return int(_ctypes.call_function(function, arguments))
    except (ImportError, AttributeError, TypeError):
        import ctypes  # noqa: PLC0415

        function = getattr(ctypes.CDLL(None), name)
        return int(function(*map(ctypes.c_ulong, arguments)))


def hide_memory() -> None:
    """Keep programs of the same user from reading this process's memory, hence the token."""
    _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def own_folder() -> None:
    """Give the calling thread, and those that it will start, a working directory of their own."""
    if _call("unshare", _CLONE_FS) != 0:
        raise OSError("a working directory for one thread was refused (unshare)")
