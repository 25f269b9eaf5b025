"""Wakes a kernel's main thread for an interrupt that it would notice only after what it waits for.

A handler written in Python runs on the main thread, between two of its steps.  A signal ends what
that thread waits for in the system only if it comes during the waiting, and to this thread.  One
that comes in the moment before, when the thread has looked for signals and does not wait yet, or
that the system gives to another thread, is noticed once the waiting is over by itself.  On a busy
machine the moment is long: the thread may have to wait for a processor in it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

__all__ = ["Waker"]

_NUDGE = signal.SIGURG
"""Nobody uses it, and a program that knows nothing of it ignores it."""

_PAUSES = (0.002, 0.01, 0.04, 0.1, 0.2, 0.4)
"""Seconds between an interrupt and the nudges after it, which may come too early as well."""


class Waker:
    """Nudges the main thread after an interrupt until it has looked for signals."""

    def __init__(self) -> None:
        self._write_fd = -1
        self._has_looked = False

    def start(self) -> None:
        """Begin; on the main thread, once."""
        read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._write_fd, False)  # as signals demand
        signal.signal(_NUDGE, self._look)
        os.register_at_fork(after_in_child=_stop_listening)
        thread = threading.Thread(
            target=self._run, args=(read_fd,), name="Kernel waker", daemon=True
        )
        # A debugger that stops every thread must leave this one alone.
        thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
        thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]
        thread.start()

    def listen(self) -> None:
        """Be told of signals, unless a program of the user's is; on the main thread."""
        other = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        if other not in (-1, self._write_fd):
            with contextlib.suppress(ValueError, OSError):  # it has been closed
                signal.set_wakeup_fd(other)

    def _look(self, *_: object) -> None:
        # Handlers run in the order of their numbers: that of the interrupt has run.
        self._has_looked = True

    def _run(self, read_fd: int) -> None:
        while True:
            if signal.SIGINT in os.read(read_fd, 512):
                self._insist()

    def _insist(self) -> None:
        self._has_looked = False
        main: int = threading.main_thread().ident  # type: ignore[assignment]
        for pause in _PAUSES:
            time.sleep(pause)
            if self._has_looked or signal.getsignal(_NUDGE) != self._look:
                return
            signal.pthread_kill(main, _NUDGE)


def _stop_listening() -> None:
    """Leave the signals of a forked child to itself."""
    with contextlib.suppress(ValueError):  # a thread forked
        signal.set_wakeup_fd(-1)
