"""Functions of the caller that are told of something while a call is under way."""

from __future__ import annotations

import inspect
from collections.abc import Callable

__all__ = ["tell"]


async def tell(told: Callable[..., object] | None, *arguments: object) -> None:
    """Call a function, if there is one, and await it if it is a coroutine function."""
    if told is None:
        return
    answer = told(*arguments)
    if inspect.isawaitable(answer):
        await answer
