"""Which processes a command in a session's shell has started, by what /proc says.

Those are the shell's descendants, the members of its session in the system's sense, and whoever
carries the session's name in its environment, such as a daemon that has left both.  Of these the
command's own are the ones that began after it, and not below one that began before it: what earlier
commands left in the background is no part of it.
"""

from __future__ import annotations

import os
import time

from sandbox_runtime.quick import signal
from sandbox_runtime.spare import SpareDescriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_runtime.loop import Loop

__all__ = [
    "MANY",
    "VARIABLE",
    "Moment",
    "Strays",
    "dies_of",
    "direct_children",
    "find_members",
    "kill_members",
    "signal_members",
]

VARIABLE = "SANDBOX_SESSION"
"""Name of the variable that holds a session's id, in its shell and all that is started there."""

MANY = 512
"""From how many on members are taken to multiply faster than they can be asked to end."""

_MOST_ROUNDS = 8

_spare = SpareDescriptor()

# Positions in /proc/PID/stat after the name, which may hold anything.
_STATE, _PARENT, _SESSION, _START = 0, 1, 3, 19


class Moment:
    """A moment that can be compared with the beginning of a process.

    The system tells beginnings in ticks of ten milliseconds; within one, the number of the process
    decides.
    """

    __slots__ = ("pid", "ticks")

    def __init__(self) -> None:
        self.ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        try:
            with open("/proc/loadavg", "rb") as file:
                self.pid = int(file.read().split()[-1])
        except (OSError, ValueError, IndexError):
            self.pid = 0

    def precedes(self, ticks: int, pid: int) -> bool:
        """Whether a process with this beginning and number began after the moment."""
        return ticks > self.ticks or (ticks == self.ticks and pid > self.pid)


def find_members(
    shell: int, session_id: str, since: Moment | None = None, until: Moment | None = None
) -> list[int]:
    """Return the pids of what was started in a session, but for the shell itself.

    Parameters
    ----------
    shell : int
        The shell's pid; 0 if that may be somebody else's by now, so that only names count.
    session_id : str
        The session's; empty for a process that has none, so that no names count.
    since, until : Moment, optional
        Only what a command has started that began and ended then, with all below it.
    """
    # Commands must end also where no descriptors are left.
    with _spare:
        return _find_members(shell, session_id, since, until)


def _find_members(
    shell: int, session_id: str, since: Moment | None, until: Moment | None
) -> list[int]:
    parents: dict[int, int] = {}
    after: set[int] = set()
    later: set[int] = set()
    members: set[int] = set()
    named: set[int] = set()
    mark = f"{VARIABLE}={session_id}".encode("utf-8", "surrogateescape")
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
            if since is None or since.precedes(int(fields[_START]), pid):
                later.add(pid)
            if until is not None and until.precedes(int(fields[_START]), pid):
                after.add(pid)
            if shell and int(fields[_SESSION]) == shell:
                members.add(pid)
            elif session_id and pid in later:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        named.add(pid)
        except (OSError, ValueError, IndexError):
            # It has ended meanwhile, or belongs to another user.
            continue
    # Another runtime that shares our view of processes has sessions of the same names.
    members |= named & _with_descendants({os.getpid()}, parents)
    if shell:
        members.add(shell)
    members = _with_descendants(members, parents) - {shell, os.getpid()}
    # What was there before keeps what it starts now.
    own = members & later - _with_descendants(members - later, parents)
    return sorted(_with_descendants(own - after, parents) & own if until is not None else own)


def _with_descendants(pids: set[int], parents: dict[int, int]) -> set[int]:
    """Return processes with all that descends from them."""
    found = set(pids)
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def direct_children(pid: int) -> list[int]:
    """Return the children of a process, at once; none where the system does not tell."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []


def dies_of(pid: int, number: int) -> bool:
    """Return whether a process lives that a signal will end: it leaves that to the system."""
    bit = 1 << (number - 1)
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            fields = dict(line.split(b":\t", 1) for line in file if b":\t" in line)
        if fields[b"State"][:1] in b"ZX":
            return False
        return not any(int(fields[each], 16) & bit for each in (b"SigBlk", b"SigIgn", b"SigCgt"))
    except (OSError, ValueError, KeyError):
        return False


class Strays:
    """What descends from a process and is in another group than it; found before that one ends."""

    def __init__(self, pid: int) -> None:
        found = ((each, _start_of(each)) for each in find_members(pid, "") if _leaves(each, pid))
        self._starts = {each: start for each, start in found if start is not None}

    def end(self, loop: Loop, grace: float) -> None:
        """Ask them to end, and kill those that are left after `grace` seconds."""
        if not self._starts:
            return
        if grace > 0:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
            loop.call_later(grace, lambda: self._signal(signal.SIGKILL))
        else:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        # A number may be somebody else's by now; the beginning tells.
        left = [pid for pid, start in self._starts.items() if _start_of(pid) == start]
        signal_members(left, number)


def _start_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[_START])
    except (OSError, ValueError, IndexError):
        return None


def _leaves(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) != group
    except OSError:
        return False


def kill_members(find: Callable[[], list[int]]) -> None:
    """Kill all that `find` returns, also if they multiply meanwhile.

    They are stopped before the first is killed: a stopped one starts no other, and keeps the place
    that another would be started in.
    """
    stopped: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        new = [pid for pid in find() if pid not in stopped]
        if not new:
            break
        signal_members(new, signal.SIGSTOP)
        stopped.update(new)
    signal_members(list(stopped), signal.SIGKILL)


def signal_members(pids: list[int], number: int) -> None:
    """Signal each by itself; one that has ended meanwhile, or is out of reach, gets nothing."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue
