"""A thread with an event loop, for callers that have none or must not block theirs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from sandbox_kernel.errors import OperationError

__all__ = ["Caller", "LoopThread"]

T = TypeVar("T")

_END = object()

_Asked = tuple[Callable[[], object], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Caller:
    """A thread that waits for work in the loop, and meanwhile calls what the work asks it to.

    So functions of its own run where everybody expects them to: there they may block, use the
    blocking names, and be interrupted.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self.is_asked = False
        """Whether there is anything that it may be asked to call."""

    def here(self, function: Callable[..., object] | None) -> Callable[..., object] | None:
        """Return a coroutine function that has this thread call a function."""
        if function is None:
            return None
        self.is_asked = True

        async def ask(*arguments: object) -> None:
            await self._ask(lambda: function(*arguments))

        return ask

    def source(self, given: Any) -> Any:  # what it is given, or an iterable of the same
        """Return bytes, text, files and asynchronous iterables as they are; others as the latter.

        What this thread then takes of an iterable, the loop gets.
        """
        is_whole = isinstance(given, str | bytes | bytearray | memoryview | os.PathLike)
        if is_whole or hasattr(given, "read") or not isinstance(given, Iterable):
            return given
        self.is_asked = True
        return self._pieces(given)

    async def _pieces(self, source: Iterable[T]) -> AsyncGenerator[T, None]:
        """Iterate in the loop over what this thread takes of a source."""
        steps = iter(source)
        while (piece := await self._ask(lambda: next(steps, _END))) is not _END:
            yield piece

    async def _ask(self, call: Callable[[], Any]) -> Any:  # what the caller's function returns
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._asked.put((call, loop, answer))
        return await answer

    def serve(self, work: Future[T]) -> T:
        """Make the calls until the work has ended, and return its result."""
        work.add_done_callback(lambda _work: self._asked.put(None))
        while (asked := self._asked.get()) is not None:
            call, loop, answer = asked
            result, error = None, None
            try:
                result = call()
            except Exception as raised:  # noqa: BLE001  the work ends by it, and so does the call
                error = raised
            loop.call_soon_threadsafe(_settle, answer, result, error)
        return work.result()


def _settle(answer: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


class LoopThread:
    """The event loop that does the work; started at first use, and anew in a forked child."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Of a kind that a finalizer may take again which runs while it is held.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._thread: threading.Thread | None = None
        self._finishing: set[asyncio.Task[Any]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                # A daemon: the end of the program must not wait for a sandbox.
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop

    @property
    def is_here(self) -> bool:
        """Whether the present thread is the loop's own, which must wait for nothing."""
        return self._thread is threading.current_thread() and self._pid == os.getpid()

    def run(self, work: Coroutine[Any, Any, T], caller: Caller | None = None) -> T:
        """Do the work in the loop and return its result; an interrupt here cancels it there.

        Parameters
        ----------
        work : coroutine
            What to do.
        caller : Caller, optional
            What the work may ask this thread to call meanwhile.

        Raises
        ------
        OperationError
            This is the loop's own thread, which would wait for itself.
        """
        if self.is_here:
            work.close()
            raise OperationError(
                "A blocking call was made in the thread that does the work of all of them.",
                hint="Use the asynchronous names of sandbox_kernel there, or another thread.",
            )
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return (
                future.result() if caller is None or not caller.is_asked else caller.serve(future)
            )
        except BaseException:
            future.cancel()
            raise

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work as `run` does; in the loop's own thread, where finalizers may run, soon."""
        if not self.is_here:
            self.run(work)
            return
        assert self._loop is not None  # noqa: S101  this is its thread
        task = self._loop.create_task(work)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    def post(self, call: Callable[..., object], *arguments: object) -> None:
        """Have the loop call a function soon, in the order of posting."""
        self.loop.call_soon_threadsafe(call, *arguments)
