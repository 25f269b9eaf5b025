"""Parts of the standard library without the modules that wrap them.

`signal` and `collections` import `enum` and `functools`, 6 to 10 ms of every start of a sandbox;
what is needed of them is in C modules that are there already.  Type checkers see the usual ones.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections import deque
else:
    import _signal as signal
    from _collections import deque

__all__ = ["deque", "signal"]
