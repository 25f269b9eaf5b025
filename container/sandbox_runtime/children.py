"""Child processes: who waits for which, and how a process group is ended."""

from __future__ import annotations

import os

from sandbox_runtime.quick import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_runtime.loop import Loop

__all__ = ["Children", "signal_group"]


def signal_group(pid: int, number: int) -> bool:
    """Signal the process group a child leads; return whether there was anybody to signal."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Members that changed their user are beyond reach; the rest has got it.
        return True
    return True


class Children:
    """Reaps every child, own and adopted, and tells whoever watches it."""

    adopts_orphans = True
    """Whether descendants become our children when their own parent ends."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._watchers: dict[int, Callable[[int], None]] = {}
        self._strays: dict[int, int] = {}
        self._expected = 0
        self._ending: set[int] = set()
        loop.on_signal(signal.SIGCHLD, self.reap)

    def __len__(self) -> int:
        return len(self._watchers)

    def watch(self, pid: int, callback: Callable[[int], None]) -> None:
        """Call `callback(wait status)` once, from the loop, after the child has ended."""
        self._watchers[pid] = callback

    def expect(self) -> None:
        """Remember who ends from now on: another process starts a child for us.

        Such a child may have ended before we learn its pid.
        """
        self._expected += 1

    def expected(self, pid: int | None, callback: Callable[[int], None]) -> None:
        """Watch the child that was expected; None if none came of it."""
        status = None if pid is None else self._strays.pop(pid, None)
        self._expected -= 1
        if not self._expected:
            # Numbers are used again; what ended earlier must not be taken for a later child.
            self._strays.clear()
        if status is not None:
            self._loop.call_soon(lambda: callback(status))
        elif pid is not None:
            self._watchers[pid] = callback

    def reap(self) -> None:
        """Collect all children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            callback = self._watchers.pop(pid, None)
            if callback is not None:
                callback(status)
                continue
            if self._expected:
                self._strays[pid] = status

    def end_group(self, pid: int, grace: float) -> None:
        """Ask a child's group to end, and kill what is left of it after `grace` seconds.

        The group may outlive its leader; its number stays taken as long as it has members.
        """
        if not signal_group(pid, signal.SIGTERM if grace > 0 else signal.SIGKILL):
            return
        if grace <= 0:
            return
        # A stopped process acts on TERM only when it goes on.
        signal_group(pid, signal.SIGCONT)
        if pid not in self._ending:
            self._ending.add(pid)
            self._loop.call_later(grace, lambda: self._kill(pid))

    def _kill(self, pid: int) -> None:
        if pid in self._ending:
            self._ending.discard(pid)
            signal_group(pid, signal.SIGKILL)

    def adopted(self) -> list[int]:
        """Return the children nobody watches: what commands have left in the background."""
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
                return [pid for pid in map(int, file.read().split()) if pid not in self._watchers]
        except (OSError, ValueError):
            # Not every kernel lists them; they end with the sandbox all the same.
            return []

    def end_adopted(self, number: int) -> None:
        """Signal the children nobody watches, each by itself; none is reaped meanwhile."""
        for pid in self.adopted():
            try:
                os.kill(pid, number)
            except OSError:
                continue

    def check_group(self, pid: int) -> None:
        """Forget about killing a group that has no members left, before its number is reused."""
        if pid in self._ending and not signal_group(pid, 0):
            self._ending.discard(pid)
