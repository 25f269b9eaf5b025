"""Interrupts of a kernel: only a cell can be cut short, and it always ends in a reply."""

# mypy: disable-error-code="no-untyped-call, union-attr, assignment, attr-defined, override"
# ipykernel is annotated in part; what it takes and gives is proved by tests instead.

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager

from sandbox_runtime.kernel_debug import LazyDebugger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["InterruptibleCells"]


class InterruptibleCells(LazyDebugger):
    """A kernel in which an interrupt cannot get lost, nor take a reply along.

    While nothing runs the signal is ignored, as in ipykernel.  From the arrival of a cell to its
    begin it is noted, and raised at the begin; after the cell's code it is too late for it.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._interrupted = False
        self._idle_handler: Any = signal.SIG_IGN
        super().__init__(**kwargs)

    def pre_handler_hook(self) -> None:
        """Note interrupts; only the cell itself may be interrupted by an exception."""
        if threading.current_thread() is threading.main_thread():
            self._interrupted = False
            self._idle_handler = signal.signal(signal.SIGINT, self._note_interrupt)
            if self.get_parent("shell").get("msg_type") != "execute_request":
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def post_handler_hook(self) -> None:
        """Ignore interrupts again."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._idle_handler)

    def _note_interrupt(self, *_: object) -> None:
        self._interrupted = True

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


def _do_nothing() -> None:
    """Be called."""
