"""Which processes belong to a terminal, and how all of them are ended.

Members are those of its session, whatever process group they made for themselves; the descendants
of these; and whoever carries the terminal's id in its environment, such as a daemon that has left
the session and its parent.  Out of reach is only who has given up all three.
"""

from __future__ import annotations

import os

from sandbox_runtime.quick import signal
from sandbox_runtime.spare import SpareDescriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_runtime.loop import Loop

__all__ = ["VARIABLE", "Ending", "find_members"]

VARIABLE = "SANDBOX_TERMINAL"
"""Name of the variable that holds a terminal's id."""

_spare = SpareDescriptor()

_LOOK_AGAIN = 0.02
_MOST_KILLS = 50
"""How often KILL is repeated, for members that were being forked meanwhile."""

# Positions in /proc/PID/stat after the name, which may hold anything.
_STATE, _PARENT, _SESSION = 0, 1, 3


def find_members(session: int | None, terminal_id: str) -> list[int]:
    """Return the pids of a terminal's members.

    Parameters
    ----------
    session : int, optional
        The session; None where its number may be somebody else's by now.
    terminal_id : str
        What `VARIABLE` holds.
    """
    # Terminals must end also where they have taken all descriptors.
    with _spare:
        return _find_members(session, terminal_id)


def _find_members(session: int | None, terminal_id: str) -> list[int]:
    parents: dict[int, int] = {}
    members: set[int] = set()
    mark = f"{VARIABLE}={terminal_id}".encode("utf-8", "surrogateescape")
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        pid = int(name)
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            if fields[_STATE] in (b"Z", b"X"):
                continue
            parents[pid] = int(fields[_PARENT])
            if session is not None and int(fields[_SESSION]) == session:
                members.add(pid)
                continue
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    members.add(pid)
        except (OSError, ValueError, IndexError):
            # It has ended meanwhile, or belongs to another user.
            continue
    while True:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        if not more:
            break
        members |= more
    members.discard(os.getpid())
    return sorted(members)


class Ending:
    """Ends all members of a terminal: HUP, TERM after half of the grace, KILL after all of it.

    Parameters
    ----------
    loop : Loop
        Where to wait.
    find : callable
        Returns the members there are now.
    grace : float
        Seconds; with zero there is KILL only.
    politely : bool
        Whether TERM waits for half of the grace; else it comes with HUP.
    done : callable
        Called once when no member is left, or nothing more can be done.
    """

    def __init__(
        self,
        loop: Loop,
        find: Callable[[], list[int]],
        grace: float,
        *,
        politely: bool,
        done: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._find = find
        self._done: Callable[[], None] | None = done
        self._kills = 0
        self._grace = grace
        self._politely = politely

    def begin(self) -> None:
        """Send the first signals; `done` may be called at once."""
        grace, loop = self._grace, self._loop
        if grace <= 0:
            self._kill()
            return
        self._send(signal.SIGHUP)
        if self._politely:
            loop.call_later(grace / 2, self._terminate)
        else:
            self._send(signal.SIGTERM)
        # A stopped process acts on neither until it goes on.
        self._send(signal.SIGCONT)
        loop.call_later(grace, self._kill)
        self._look()

    def hurry(self) -> None:
        """Wait no longer: KILL at once."""
        self._kill()

    def _send(self, number: int) -> bool:
        members = self._find()
        for pid in members:
            try:
                os.kill(pid, number)
            except OSError:
                continue
        return bool(members)

    def _terminate(self) -> None:
        if self._done is not None:
            self._send(signal.SIGTERM)
            self._send(signal.SIGCONT)

    def _kill(self) -> None:
        if self._done is None:
            return
        self._kills += 1
        if self._send(signal.SIGKILL) and self._kills < _MOST_KILLS:
            self._loop.call_later(_LOOK_AGAIN, self._kill)
        else:
            self._finish()

    def _look(self) -> None:
        if self._done is None or self._kills:
            return
        if self._find():
            self._loop.call_later(_LOOK_AGAIN, self._look)
        else:
            self._finish()

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()
