"""Time limits that callers give, as they travel: JSON has neither infinity nor NaN."""

from __future__ import annotations

import math

from sandbox_kernel.errors import ValidationFailedError

__all__ = ["check_limit", "limit_to_send"]

_NO_LIMIT = 999_999_999.0


def check_limit(timeout: float | None) -> float | None:
    """Return a time limit that one can wait for.

    Raises
    ------
    ValidationFailedError
        It is no number.
    """
    if timeout is not None and math.isnan(timeout):
        raise ValidationFailedError("timeout", "must be a number of seconds")
    return timeout


def limit_to_send(timeout: float | None) -> float | None:
    """Return a time limit as the runtime takes it; infinity is 30 years.

    Raises
    ------
    ValidationFailedError
        It is no number.
    """
    checked = check_limit(timeout)
    return _NO_LIMIT if checked is not None and checked >= _NO_LIMIT else checked
