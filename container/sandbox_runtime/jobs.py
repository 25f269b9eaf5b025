"""From a generator to the answer of a call: its steps in threads, its events as they are taken."""

from __future__ import annotations

import time
from posixpath import basename

from sandbox_kernel.errors import OperationInterruptedError, SandboxError
from sandbox_runtime.dispatch import answer_with
from sandbox_runtime.drafts import is_draft
from sandbox_runtime.file_errors import explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import cast

    from sandbox_kernel.wire.record import Record
    from sandbox_runtime.activity import Activity
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.workers import Workers

else:

    def cast(_kind, value):  # noqa: ANN001, ANN202
        """Return the value; only type checkers need to know."""
        return value


__all__ = ["Jobs"]


class Job:
    """One operation under way.

    A step is taken only while the client has room for an event, and only one at a time, so one
    event is the most that waits here.
    """

    def __init__(
        self,
        jobs: Jobs,
        exchange: Exchange,
        steps: Generator[Record | None, None, Record],
        *,
        operation: str,
        path: str,
        action: str,
        is_stream: bool,
        holds: int = 0,
    ) -> None:
        self._holds = holds
        self._jobs = jobs
        self._exchange = exchange
        self._steps = steps
        self._operation = operation
        self._path = path
        self._action = action
        self._is_stream = is_stream
        self._is_stepping = False
        self._is_cancelled = False
        exchange.on_cancel = self._cancel
        if is_stream:
            exchange.on_writable = self.go_on
        jobs.activity.hold(operation)

    def go_on(self) -> None:
        """Take the next step, unless one is under way or the client has no room."""
        if self._is_stepping or self._is_cancelled:
            return
        if not self._is_stream or self._exchange.writable:
            self._is_stepping = True
            self._jobs.workers.submit(self._step, self._stepped, holds=self._holds)

    def _step(self) -> tuple[Record | None, Record | None]:
        try:
            return next(self._steps), None
        except StopIteration as stop:
            return None, stop.value

    def _stepped(self, result: object, error: BaseException | None) -> None:
        self._is_stepping = False
        if error is not None:
            self._finish(error)
            return
        event, last = cast("tuple[Record | None, Record | None]", result)
        if self._is_cancelled and last is None:
            self._close()
            return
        if last is not None:
            self._end(last)
            return
        if event is not None:
            self._exchange.item(event)
        self.go_on()

    def _end(self, last: Record) -> None:
        self._jobs.activity.let_go(self._operation, time.monotonic())
        if self._is_stream:
            self._exchange.end(last)
        else:
            self._exchange.result(last)

    def _finish(self, error: BaseException) -> None:
        self._jobs.activity.let_go(self._operation, time.monotonic())
        self._jobs.fail(self._exchange, error, self._path, self._action)

    def _cancel(self) -> None:
        self._is_cancelled = True
        if not self._is_stepping:
            self._close()

    def _close(self) -> None:
        """Give up between two steps; what the generator holds is let go in a thread, too."""
        self._is_stepping = True
        self._jobs.workers.submit(self._steps.close, self._closed)

    def _closed(self, _result: object, error: BaseException | None) -> None:
        cancelled = OperationInterruptedError(self._operation, "it was cancelled")
        self._finish(cancelled if error is None else error)


class Jobs:
    """Runs operations on files."""

    def __init__(self, workers: Workers, activity: Activity, log: Callable[[str], None]) -> None:
        self.workers = workers
        self.activity = activity
        self._log = log

    def stream(
        self,
        exchange: Exchange,
        steps: Generator[Record | None, None, Record],
        operation: str,
        path: str,
        action: str,
    ) -> None:
        """Answer a stream with the records a generator yields, and its end with what it returns."""
        job = Job(
            self,
            exchange,
            steps,
            operation=operation,
            path=path,
            action=action,
            is_stream=True,
        )
        job.go_on()

    def steps(
        self,
        exchange: Exchange,
        steps: Generator[Record | None, None, Record],
        operation: str,
        path: str,
        action: str,
        *,
        holds: int = 0,
    ) -> None:
        """Answer a call with what a generator returns; `holds` is how many bytes it keeps."""
        job = Job(
            self,
            exchange,
            steps,
            operation=operation,
            path=path,
            action=action,
            is_stream=False,
            holds=holds,
        )
        job.go_on()

    def call(
        self,
        exchange: Exchange,
        work: Callable[[], Record],
        path: str,
        action: str,
        *,
        holds: int = 0,
    ) -> None:
        """Answer a call with what a function returns; it is done also when nobody waits."""
        holder = f"file ({action})"
        self.activity.hold(holder)

        def done(result: object, error: BaseException | None) -> None:
            self.activity.let_go(holder, time.monotonic())
            if error is None:
                exchange.result(result)  # type: ignore[arg-type]
            else:
                self.fail(exchange, error, path, action)

        self.workers.submit(work, done, holds=holds)

    def fail(self, exchange: Exchange, error: BaseException, path: str, action: str) -> None:
        """Tell the client what went wrong."""
        if isinstance(error, OSError):
            exchange.fail(explain(error, _shown(error.filename, path), action))
        elif isinstance(error, SandboxError):
            exchange.fail(error)
        else:
            answer_with(exchange, lambda: _raise(error), self._log)


def _shown(found: object, asked: str) -> str:
    """Return the path to name: the one the system complains of, if the caller can know it."""
    if isinstance(found, str) and found.startswith("/") and not is_draft(basename(found)):
        return found
    return asked


def _raise(error: BaseException) -> None:
    raise error
