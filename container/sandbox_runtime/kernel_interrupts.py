"""Interrupts of a kernel: they cut short what it answers and nothing else; a reply always comes."""

# mypy: disable-error-code="no-untyped-call, union-attr, assignment, attr-defined, override"
# ipykernel is annotated in part; what it takes and gives is proved by tests instead.

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from inspect import isawaitable
from types import coroutine

from sandbox_runtime.kernel_debug import LazyDebugger
from sandbox_runtime.kernel_session import Outlet
from sandbox_runtime.kernel_wakeups import Waker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from typing import Any

__all__ = ["InterruptibleCells"]


_RAISED_AGAIN = 0.1
"""Seconds in which another interrupt of the same request is noted only: time enough to leave what
the first one has cut short, so that no second one is met outside of it."""


class InterruptibleCells(LazyDebugger):
    """A kernel in which an interrupt cannot get lost, nor take a reply along.

    While nothing runs the signal is ignored, as in ipykernel.  From the arrival of a request to its
    begin it is noted, and raised at the begin; after its code it is too late for it.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._interrupted = False
        self._may_raise = False
        self._raised_at = 0.0
        self._waiting: asyncio.Task[Any] | None = None
        self._idle_handler: Any = signal.SIG_IGN
        self._waker = Waker()
        super().__init__(**kwargs)
        for msg_type, handler in self.shell_handlers.items():
            if msg_type != "execute_request":
                self.shell_handlers[msg_type] = partial(self._handle_interruptibly, handler)

    def start(self) -> None:
        """Register the handlers; on the main thread."""
        super().start()
        self._waker.start()

    def pre_handler_hook(self) -> None:
        """Note interrupts; only what is meant to be cut short is interrupted by an exception."""
        if threading.current_thread() is threading.main_thread():
            self._interrupted = False
            self._raised_at = 0.0
            self._idle_handler = signal.signal(signal.SIGINT, self._note_interrupt)
            self._waker.listen()

    def post_handler_hook(self) -> None:
        """Ignore interrupts again."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._idle_handler)

    def _note_interrupt(self, *_: object) -> None:
        self._interrupted = True
        waiting = self._waiting
        if waiting is not None:
            waiting.get_loop().call_soon_threadsafe(self._cancel, waiting)
        elif self._may_raise and time.monotonic() - self._raised_at > _RAISED_AGAIN:
            self._raised_at = time.monotonic()
            raise KeyboardInterrupt

    def _cancel(self, waiting: asyncio.Task[Any]) -> None:
        if self._waiting is waiting and self._interrupted:
            waiting.cancel()

    # --- requests that are no cells -----------------------------------------------------------

    async def _handle_interruptibly(
        self, handler: Any, stream: Any, identities: Any, parent: Any
    ) -> None:
        """Answer a request; an interrupt ends it, and its reply says so."""
        if threading.current_thread() is not threading.main_thread():
            answer = handler(stream, identities, parent)
            if isawaitable(answer):
                await answer
            return
        last = _LastWord(self, stream)
        try:
            await self._in_steps(lambda: handler(last, identities, parent))
        except KeyboardInterrupt:
            self._may_raise = False
            msg_type = parent["header"]["msg_type"]
            self.log.error("%s: interrupted", msg_type)  # noqa: TRY400  there is nothing to trace
            if msg_type.endswith("_request") and not last.is_said:
                error = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
                content = {"status": "error", **error}
                reply_type = msg_type.removesuffix("request") + "reply"
                self.session.send(stream, reply_type, content, parent, ident=identities)

    @coroutine
    def _in_steps(self, handler: Callable[[], Any]) -> Generator[Any, Any, None]:
        """Await what a handler returns; an interrupt is an exception inside its steps only.

        Between the steps the loop runs, and an exception there would end it, and the interpreter;
        an interrupt then cancels what is waited for.
        """
        if self._take_interrupt():
            raise KeyboardInterrupt
        answer = self._step(handler)
        if not isawaitable(answer):
            return
        steps: Any = answer.__await__()
        step = partial(next, steps)
        while True:
            try:
                future = self._step(step)
            except StopIteration:
                return
            self._waiting = task = asyncio.current_task()
            if self._interrupted and task is not None:
                task.cancel()
            try:
                yield future
            except BaseException as error:  # noqa: BLE001  whatever it is, it is the handler's
                if self._interrupted and task is not None and task.cancelling():
                    task.uncancel()
                step = partial(steps.throw, error)
            else:
                step = partial(next, steps)
            finally:
                self._waiting = None
            if self._take_interrupt():
                step = partial(steps.throw, KeyboardInterrupt())

    def no_more_interrupts(self) -> None:
        """Let it be too late for an interrupt of the request: its reply goes out."""
        self._may_raise = False

    def _take_interrupt(self) -> bool:
        """Return whether an interrupt was noted, and forget it."""
        interrupted, self._interrupted = self._interrupted, False
        return interrupted

    def _step(self, step: Callable[[], Any]) -> Any:
        try:
            self._may_raise = True
            return step()
        finally:
            self._may_raise = False

    # --- cells --------------------------------------------------------------------------------

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if self._interrupted:
                raise KeyboardInterrupt
            yield
        finally:
            signal.signal(signal.SIGINT, self._note_interrupt)

    def _end_interrupts(self) -> None:
        """Note interrupts from now on, even if one has cut short the attempt to do so."""
        while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            with suppress(KeyboardInterrupt):
                signal.signal(signal.SIGINT, self._note_interrupt)

    @contextmanager
    def _cancel_on_sigint(self, future: Any) -> Iterator[None]:
        with super()._cancel_on_sigint(future):
            cancel: Any = signal.getsignal(signal.SIGINT)
            loop = asyncio.get_running_loop()

            def cancel_and_wake(*args: Any) -> None:
                cancel(*args)
                # The base schedules the cancelling as code on the loop does, which wakes no loop
                # that is waiting: it would be met at the next event only.
                loop.call_soon_threadsafe(_do_nothing)

            signal.signal(signal.SIGINT, cancel_and_wake)
            yield

    async def do_execute(self, code: str, silent: bool, *args: Any, **kwargs: Any) -> Any:  # noqa: FBT001 - the base's signature
        """Run a cell; an interrupt always ends in a reply."""
        try:
            with self._interruptible():
                return await super().do_execute(code, silent, *args, **kwargs)
        except KeyboardInterrupt:
            self._end_interrupts()
            return self._interrupted_reply()

    def _interrupted_reply(self) -> dict[str, Any]:
        """Say that the interrupt came where no traceback could be made of it."""
        traceback = ["\x1b[31mKeyboardInterrupt\x1b[39m: "]
        error = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": traceback}
        self.send_response(self.iopub_socket, "error", error)
        self.shell.payload_manager.clear_payload()
        return {
            "status": "error",
            **error,
            "execution_count": self.shell.execution_count - 1,
            "user_expressions": {},
            "payload": [],
        }


class _LastWord(Outlet):
    """The outlet for a request's reply; after it there is nothing left to interrupt."""

    def __init__(self, kernel: InterruptibleCells, outlet: Outlet) -> None:
        self.is_said = False
        self._kernel = kernel
        self._outlet = outlet

    def send_parts(self, identities: Sequence[bytes], parts: Sequence[Any]) -> None:
        """Queue the reply."""
        self._kernel.no_more_interrupts()
        self.is_said = True
        self._outlet.send_parts(identities, parts)

    def release(self) -> None:
        """Let it go at once."""
        self._outlet.release()


def _do_nothing() -> None:
    """Be called."""
