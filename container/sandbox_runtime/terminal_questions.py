"""What programs ask of a terminal while nobody looks, kept for the first who can answer.

An answer goes to whatever runs in the foreground.  It must be the program that asked: a shell would
take the answer for keys.
"""

from __future__ import annotations

from sandbox_runtime import pty
from sandbox_runtime.terminal_queries import queries_in

__all__ = ["Questions"]

_MOST = 1024
"""Bytes of questions that are kept."""

# The position in /proc/PID/stat after the name, which may hold anything.
_FAULTS_OF_CHILDREN = 8


class Questions:
    """The questions of one terminal's programs that nobody has answered.

    Parameters
    ----------
    is_shell : bool
        Whether the first program reads commands from the terminal.
    """

    def __init__(self, *, is_shell: bool) -> None:
        self._is_shell = is_shell
        self._asked = b""
        self._asked_by = 0
        self._group = 0
        self._waited_for = b""

    def look(self, master: int, leader: int) -> bool:
        """Look who is in the foreground; return whether a program may have come and gone.

        Parameters
        ----------
        master : int
            Our end of the terminal.
        leader : int
            The pid of the terminal's first program.

        Notes
        -----
        The page faults of children count once a child has been waited for, and none ends without
        some.  A shell waits for its command before it takes the foreground back.  What a script
        waits for is part of it: it asks after ``stty``, say, and has no prompt for the answer.
        """
        group, waited_for = pty.foreground_group(master), _waited_for(leader)
        if group != leader:
            # In another shell there may be more of them; as long as it stays, it counts as well.
            waited_for += b" " + _waited_for(group)
        is_same = group == self._group
        before = self._waited_for
        self._group, self._waited_for = group, waited_for
        if group == leader and not self._is_shell:
            return False
        if is_same:
            return waited_for != before
        return waited_for.partition(b" ")[0] != before.partition(b" ")[0]

    def note(self, data: bytes, master: int, leader: int) -> None:
        """Remember what is asked in new output that nobody sees.

        Of what was read when its program may have gone nothing is remembered.
        """
        has_gone = self.look(master, leader)
        if len(self._asked) >= _MOST:
            return
        questions = queries_in(data)
        if not questions or has_gone:
            return
        if self._group != self._asked_by:
            self._asked, self._asked_by = b"", self._group
        for each in questions:
            if len(self._asked) + len(each) <= _MOST:
                self._asked += each

    def take(self, master: int) -> bytes:
        """Return, once, what is asked and still waited for."""
        questions, self._asked = self._asked, b""
        if master < 0 or pty.foreground_group(master) != self._asked_by:
            return b""
        return questions


def _waited_for(pid: int) -> bytes:
    """Return what differs as soon as a process has waited for a child; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[_FAULTS_OF_CHILDREN]
    except (OSError, IndexError):
        return b""
