"""Cancelling a piece of work at each point at which it waits."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Generator
from typing import Any

__all__ = ["CancelledAt"]

_PATIENCE = 0.3


class CancelledAt:
    """Work that is cancelled at the n-th point where it waits; await it in a task of its own.

    Parameters
    ----------
    work : awaitable
        What to do.
    at : int
        Which of the points where its own task waits, from 1.
    late : bool
        Cancel when what it waits for is there, but before it has been told; by default at once.
    """

    def __init__(self, work: Awaitable[Any], at: int, *, late: bool) -> None:
        self._work = work
        self._at = at
        self._late = late
        self.waits = 0
        """How often it has waited."""

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._work.__await__()
        step: Any = functools.partial(next, steps)
        while True:
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value
            self.waits += 1
            if self.waits == self._at:
                self._cancel(task, waits_for)
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001  the work gets it
                step = functools.partial(steps.throw, error)  # type: ignore[attr-defined]
            else:
                step = functools.partial(next, steps)

    def _cancel(self, task: asyncio.Task[Any], waits_for: Any) -> None:
        loop = asyncio.get_running_loop()
        if self._late and waits_for is not None:
            # Before the task's own callback, so that it finds both the result and the wish.
            waits_for.add_done_callback(lambda _: task.cancel())
            loop.call_later(_PATIENCE, task.cancel)
        else:
            loop.call_soon(task.cancel)
