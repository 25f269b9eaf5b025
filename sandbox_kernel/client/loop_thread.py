"""A thread with an event loop, for callers that have none or must not block theirs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """The event loop that does the work; started at first use, and anew in a forked child."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Of a kind that a finalizer may take again which runs while it is held.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                # A daemon: the end of the program must not wait for a sandbox.
                threading.Thread(
                    target=self._loop.run_forever, name=self._name, daemon=True
                ).start()
            return self._loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in the loop and return its result; an interrupt here cancels it there."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def post(self, call: Callable[..., object], *arguments: object) -> None:
        """Have the loop call a function soon, in the order of posting."""
        self.loop.call_soon_threadsafe(call, *arguments)
