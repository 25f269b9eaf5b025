"""Time limits that callers give, as they travel: JSON has neither infinity nor NaN."""

from __future__ import annotations

from sandbox_kernel.arguments import number

__all__ = ["check_limit", "limit_to_send"]

_NO_LIMIT = 999_999_999.0


def check_limit(timeout: float | None, name: str = "timeout") -> float | None:
    """Return a time limit that one can wait for.

    Raises
    ------
    ValidationFailedError
        It is no number, or below zero.
    """
    return None if timeout is None else number(name, timeout)


def limit_to_send(timeout: float | None, name: str = "timeout") -> float | None:
    """Return a time limit as the runtime takes it; infinity is 30 years.

    Raises
    ------
    ValidationFailedError
        It is no number, or below zero.
    """
    checked = check_limit(timeout, name)
    return _NO_LIMIT if checked is not None and checked >= _NO_LIMIT else checked
