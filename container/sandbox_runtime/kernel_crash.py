"""Last words: what an interpreter printed before it crashed leaves the process all the same."""

from __future__ import annotations

import ctypes
import functools
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

__all__ = ["deliver_last_words"]

_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
_PATIENCE = 0.5
_LIMIT = 2

_kept: list[Any] = []


def deliver_last_words(flush: Callable[[float], object]) -> None:
    """Call `flush` before a crash, or os._exit, ends this process.

    A handler of Python's own kind never runs after a crash: the interpreter would have to go on
    first.  This one is called by the C library, on the thread that crashed, and hands over to the
    handler that was there before.  It lets other threads run while it waits, and an alarm ends
    the process if even that is too much for what is left of it.

    Parameters
    ----------
    flush : callable
        Gets how many seconds it may take.
    """
    # Calls that keep the interpreter's lock: nothing may happen between them.
    libc = ctypes.PyDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    before: dict[int, int | None] = {}

    def crashed(number: int) -> None:
        libc.signal(signal.SIGALRM, None)
        libc.alarm(_LIMIT)
        for each, handler in before.items():
            libc.signal(each, handler)
        flush(_PATIENCE)
        # Delivered when this handler returns, also if no faulty instruction is met again.
        libc["raise"](number)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(crashed)
    _kept.append(handler)
    for number in _SIGNALS:
        before[number] = libc.signal(number, ctypes.cast(handler, ctypes.c_void_p))

    leave = os._exit
    pid = os.getpid()

    @functools.wraps(leave)
    def leave_after_flush(status: int) -> NoReturn:
        if os.getpid() == pid:
            flush(_PATIENCE)
        leave(status)

    os._exit = leave_after_flush
