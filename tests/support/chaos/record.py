"""What a client has begun and how it ended: a line each, written before anything goes on.

The file outlives its writer, so that a client that was killed has told the truth up to its end.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from sandbox_kernel.errors import ProtocolViolationError, SandboxError, ValidationFailedError

__all__ = ["DEADLINE", "Record", "WrongError", "lines_of"]

T = TypeVar("T")

DEADLINE = 60.0
"""Seconds within which any call has a result or an error, on a machine that others use, too."""

_UNEXPECTED = ProtocolViolationError, ValidationFailedError
"""Errors of ours that say that somebody of us has made a mistake."""


class WrongError(Exception):
    """What came is not what should have come."""


class Record:
    """The calls of one client."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._numbers = itertools.count(1)

    def note(self, **facts: Any) -> None:
        """Write a line."""
        os.write(self._fd, json.dumps(facts).encode() + b"\n")

    def problem(self, text: str) -> None:
        """Write down something that must not be."""
        self.note(problem=text[:4000])

    async def call(
        self,
        what: str,
        work: Awaitable[T],
        *,
        also: tuple[type[Exception], ...] = (),
        **facts: Any,
    ) -> T:
        """Do something, and write down that it begins and how it ends.

        Parameters
        ----------
        also : tuple of type
            Errors of others that are documented for it.
        """
        begun = time.monotonic()
        number = self._begin(what, facts)
        limit = asyncio.timeout(DEADLINE)
        try:
            async with limit:
                value = await work
        except Exception as error:
            if limit.expired():
                stacks = [repr(each.get_stack()) for each in asyncio.all_tasks()]
                self.problem(f"{what} {facts}: no end within {DEADLINE:g} s: {stacks}")
            self._end(number, what, begun, error, also)
            raise
        self._end(number, what, begun, None, also)
        return value

    def do(self, what: str, work: Callable[[], T], **facts: Any) -> T:
        """Do something that waits by itself, and write down likewise."""
        begun = time.monotonic()
        number = self._begin(what, facts)
        try:
            value = work()
        except Exception as error:
            self._end(number, what, begun, error, ())
            raise
        self._end(number, what, begun, None, ())
        return value

    def _begin(self, what: str, facts: dict[str, Any]) -> int:
        number = next(self._numbers)
        self.note(begin=number, what=what, **facts)
        return number

    def _end(
        self,
        number: int,
        what: str,
        begun: float,
        error: Exception | None,
        also: tuple[type[Exception], ...],
    ) -> None:
        took = time.monotonic() - begun
        outcome = "result"
        if isinstance(error, SandboxError):
            outcome = error.code
            if isinstance(error, _UNEXPECTED) or type(error) is SandboxError:
                self.problem(f"{what}: {error!r} {error.context}")
        elif isinstance(error, also):
            outcome = type(error).__name__
        elif error is not None:
            outcome = "untyped"
            self.problem(f"{what}: " + "".join(traceback.format_exception(error))[-3500:])
        if took > DEADLINE + 5:
            self.problem(f"{what}: took {took:.1f} s")
        said = {} if error is None else {"said": str(error)[:300]}
        self.note(end=number, took=round(took, 3), outcome=outcome, **said)


def lines_of(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the whole lines of a record from an offset on, and the offset behind them."""
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)
