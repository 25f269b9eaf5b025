"""A few threads for what may wait for a disk: jobs are done there, and the loop tells the outcome.

A thread's memory is this process's, so jobs touch only what is theirs, and they use absolute paths
or descriptors: the loop's thread borrows the working directory to start programs.
"""

from __future__ import annotations

import _thread
import os
import sys
from _queue import Empty, SimpleQueue

from sandbox_runtime.loop import READ
from sandbox_runtime.quick import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_runtime.loop import Loop

    Done = Callable[[object, BaseException | None], object]
    Job = tuple[Callable[[], object], Done, int]

__all__ = ["MOST_HELD", "MOST_THREADS", "Workers"]

MOST_THREADS = 4
"""How many jobs may wait for a disk at once; the others wait for them."""

MOST_HELD = 64 << 20
"""Bytes of clients that may wait for a thread; beyond that the loop does the job itself."""

_IDLE = 10.0
_STACK = 256 << 10
_SWITCH = 0.0005
"""Seconds after which a thread lets the loop's go on; Python's own 5 ms could be felt in typing."""


class Workers:
    """Runs jobs in threads that come when needed and go when idle.

    The queue is bounded by what clients may have under way, and by the bytes that jobs hold: above
    `MOST_HELD` of them the loop itself does what comes, and reads nothing from anybody meanwhile.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._finished: deque[tuple[Done, int, object, BaseException | None]] = deque()
        self._threads = 0
        self._under_way = 0
        self._held = 0
        self._lock = _thread.allocate_lock()
        self._news, self._tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        loop.add(self._news, READ, self._collect)
        sys.setswitchinterval(_SWITCH)

    def submit(self, work: Callable[[], object], done: Done, *, holds: int = 0) -> None:
        """Do `work` in a thread, then call `done(result, error)` from the loop; one is None.

        `holds` is how many bytes it keeps in memory until then.
        """
        self._under_way += 1
        self._held += holds
        if self._held > MOST_HELD:
            self._take((work, done, holds))
            return
        self._jobs.put((work, done, holds))
        with self._lock:
            if self._threads < min(self._under_way, MOST_THREADS) and not self._start():
                # No thread can be had, as in a sandbox whose processes have used up the limit.
                self._take(self._jobs.get_nowait())

    def _start(self) -> bool:
        """Start a thread; return whether there is any."""
        before = _thread.stack_size(_STACK)
        try:
            _thread.start_new_thread(self._serve, ())
        except RuntimeError:
            return self._threads > 0
        finally:
            _thread.stack_size(before)
        self._threads += 1
        return True

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE)
            except Empty:
                with self._lock:
                    # A job may have come since; whoever brought it counted this thread in.
                    if not self._jobs.empty():
                        continue
                    self._threads -= 1
                    return
            self._take(job)

    def _take(self, job: Job) -> None:
        work, done, holds = job
        result: object = None
        problem: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  it is told to whoever asked
            problem = error
        self._finished.append((done, holds, result, problem))
        try:  # noqa: SIM105  contextlib costs two milliseconds
            os.write(self._tell, b"\0")
        except BlockingIOError:
            pass  # It is full of news nobody has read yet.

    def _collect(self, _events: int) -> None:
        try:
            os.read(self._news, 4096)
        except BlockingIOError:
            return
        while self._finished:
            done, holds, result, error = self._finished.popleft()
            self._under_way -= 1
            self._held -= holds
            # By the loop, which contains a fault: the pipe must go on being watched.
            self._loop.call_soon(lambda d=done, r=result, e=error: d(r, e))  # type: ignore[misc]
