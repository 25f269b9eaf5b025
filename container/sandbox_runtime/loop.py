"""One epoll loop: readiness callbacks, deadlines, and signals as plain events.

Everything in the runtime runs on this loop's one thread, so no callback may block.  Events may be
stale (a descriptor closed and its number reused within one wake-up), so callbacks act on what the
non-blocking call says, never on the event.
"""

from __future__ import annotations

import heapq
import os
import select
import time

from sandbox_runtime.quick import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Callback = Callable[[int], None]

__all__ = ["READ", "WRITE", "Loop", "Timer"]

READ = select.EPOLLIN
WRITE = select.EPOLLOUT

_FIRST_SWEEP = 64
_LONGEST_WAIT = 86400.0
"""epoll refuses to wait for more than some weeks; timers may be later than that."""


class Timer:
    """A callback due at a monotonic time; `cancel` twice is fine."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when

    def cancel(self) -> None:
        """Forget the callback."""
        self.callback = None


class Loop:
    """Waits for descriptors, timers and signals; calls what was registered for them."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callback] = {}
        self._timers: list[Timer] = []
        self._sweep_at = _FIRST_SWEEP
        self._soon: list[Callable[[], object]] = []
        self._signals: dict[int, Callable[[], None]] = {}
        self._wakeup, self._wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.add(self._wakeup, READ, self._on_wakeup)
        self._take_signals()
        self._running = False

    def close(self) -> None:
        """Give the loop's own descriptors back."""
        self._leave_signals()
        self._epoll.close()
        os.close(self._wakeup)
        os.close(self._wakeup_write)

    def add(self, fd: int, events: int, callback: Callback) -> None:
        """Call `callback(events)` whenever `fd` is ready; errors and hang-ups are always told."""
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def modify(self, fd: int, events: int) -> None:
        """Change which events `fd` is watched for."""
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        """Stop watching `fd`; call it before closing the descriptor."""
        del self._callbacks[fd]
        self._epoll.unregister(fd)

    def remove_if_added(self, fd: int) -> None:
        """Stop watching `fd` if it is watched."""
        if fd in self._callbacks:
            self.remove(fd)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once `time.monotonic()` has reached `when`."""
        if len(self._timers) >= self._sweep_at:
            # Cancelled timers far in the future would pile up, one for each command with a limit.
            self._timers = [each for each in self._timers if each.callback is not None]
            heapq.heapify(self._timers)
            self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._timers))
        timer = Timer(when, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` in `delay` seconds."""
        return self.call_at(time.monotonic() + delay, callback)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the next turn, after the descriptors that are ready by then."""
        self._soon.append(callback)

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Call `callback` from the loop after the signal; several may be told as one."""
        self._signals[number] = callback
        # A Python handler must exist, or the system's default would act; the pipe does the work.
        signal.signal(number, _ignore)
        signal.siginterrupt(number, False)

    def tell_signal(self, number: int) -> None:
        """Act as if a signal had come; from any thread."""
        try:
            os.write(self._wakeup_write, bytes((number,)))
        except BlockingIOError:
            return  # It is full of news nobody has read yet.

    def _take_signals(self) -> None:
        """Have every signal with a Python handler told through the pipe."""
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)

    def _leave_signals(self) -> None:
        signal.set_wakeup_fd(-1)

    def _on_wakeup(self, _events: int) -> None:
        try:
            numbers = set(os.read(self._wakeup, 4096))
        except BlockingIOError:
            return
        for number in numbers:
            callback = self._signals.get(number)
            if callback is not None:
                # Contained for itself: the pipe must go on being watched.
                self._call(callback)

    def stop(self) -> None:
        """Let `run` return after the present turn."""
        self._running = False

    def run(self) -> None:
        """Serve until `stop`."""
        self._running = True
        poll, callbacks = self._epoll.poll, self._callbacks
        patience = self._run_timers()
        while self._running:
            for fd, events in poll(patience):
                callback = callbacks.get(fd)
                if callback is not None:
                    try:
                        callback(events)
                    except Exception:  # noqa: BLE001  one client's trouble must not end the sandbox
                        self._report()
                        self._remove_faulty(fd)
            if self._soon:
                due, self._soon = self._soon, []
                for each in due:
                    self._call(each)
            patience = self._run_timers()

    def _run_timers(self) -> float | None:
        """Call what is due, and return how long to wait for descriptors at most."""
        if not self._timers:
            return 0 if self._soon else None
        now = time.monotonic()
        while self._timers:
            first = self._timers[0]
            if first.callback is None:
                heapq.heappop(self._timers)
            elif first.when <= now:
                heapq.heappop(self._timers)
                self._call(first.callback)
            elif self._soon:
                return 0
            else:
                # epoll counts in milliseconds; rounding up keeps the loop from spinning before a
                # deadline.
                return min(first.when - now + 0.0005, _LONGEST_WAIT)
        return 0 if self._soon else None

    def _call(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception:  # noqa: BLE001  likewise
            self._report()

    def _report(self) -> None:
        try:
            import traceback  # noqa: PLC0415  never needed while all is well

            self._log(f"fault in the runtime:\n{traceback.format_exc()}")
        except Exception:  # noqa: BLE001  a fault that cannot be told must not end the sandbox either
            return

    def _remove_faulty(self, fd: int) -> None:
        """Stop watching a descriptor whose callback failed, maybe after closing it."""
        try:
            self.remove_if_added(fd)
        except OSError:
            return


def _ignore(_number: int, _frame: object) -> None:
    """Let the wake-up pipe tell the loop."""
