"""Signals that count only if they come from outside of the sandbox.

To the first process of a process namespace, signals from inside mean nothing unless it has a
handler for them, and the runtime has one for TERM, as a container's engine ends it that way.  So
the signal is kept from being delivered, and a thread that waits for it looks at who has sent it.
"""

from __future__ import annotations

import _thread

from sandbox_runtime.quick import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["heed_outside_only"]

_STACK = 256 << 10
_BY_KILL = (0, 0x80)
"""Codes of a signal that a process, or the system, has sent in the usual way: only there does the
system itself say who it was."""


def heed_outside_only(numbers: Collection[int], tell: Callable[[int], None]) -> None:
    """Block signals in this process, and tell of those that another namespace has sent.

    Parameters
    ----------
    numbers : collection of int
        The signals.
    tell : callable
        Called with the number, from a thread.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def wait() -> None:
        while True:
            came = signal.sigwaitinfo(numbers)
            # A sender that has no number here is outside.
            if came.si_pid == 0 and came.si_code in _BY_KILL:
                tell(came.si_signo)

    before = _thread.stack_size(_STACK)
    try:
        _thread.start_new_thread(wait, ())
    except RuntimeError:
        # No thread is to be had: then everybody is heard.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    finally:
        _thread.stack_size(before)
