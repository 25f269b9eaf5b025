"""Pseudo-terminals: the only module that knows of their devices, modes and ioctls.

GOTCHAS.md says what is odd about them.
"""

from __future__ import annotations

import os
import sys
import termios
from fcntl import ioctl

from sandbox_runtime.children import signal_group
from sandbox_runtime.quick import signal

__all__ = [
    "discard_input",
    "foreground_group",
    "interrupt",
    "open_pty",
    "overtakes",
    "set_size",
]

# Python's termios lacks these two; both have one number on all that Linux runs on but MIPS.
_IUTF8 = getattr(termios, "IUTF8", 0o40000)
_TIOCSIG = getattr(termios, "TIOCSIG", 0x40045436)

_IFLAG, _LFLAG, _CC = 0, 3, 6


def open_pty(cols: int, rows: int) -> tuple[int, int, str]:
    """Return both ends of a new terminal of this size, and the path of the program's end.

    Our end does not block.  Neither is inherited, nor becomes our controlling terminal.

    Raises
    ------
    OSError
        There are no terminals, descriptors or memory left.
    """
    master, slave = os.openpty()
    try:
        path = os.ttyname(slave)
        set_size(master, cols, rows)
        modes = termios.tcgetattr(slave)
        # Ctrl-S and Ctrl-Q belong to programs, and erase takes whole characters.
        modes[_IFLAG] = (modes[_IFLAG] & ~termios.IXON) | _IUTF8
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        os.set_blocking(master, False)
    except BaseException:
        os.close(master)
        os.close(slave)
        raise
    return master, slave, path


def set_size(master: int, cols: int, rows: int) -> None:
    """Give a terminal a size; a change is told to its foreground programs.

    Raises
    ------
    OSError
        The terminal is gone.
    """
    size = b"".join(each.to_bytes(2, sys.byteorder) for each in (rows, cols, 0, 0))
    ioctl(master, termios.TIOCSWINSZ, size)


def foreground_group(master: int) -> int:
    """Return the process group in the foreground; 0 if there is none."""
    try:
        return max(0, os.tcgetpgrp(master))
    except OSError:
        return 0


def interrupt(master: int) -> bytes:
    """Interrupt what runs in the foreground; return what must be typed to that end.

    The signal reaches the foreground group also where its program has switched the interrupt
    character off.  Without such a group the character is all that is left.
    """
    group = foreground_group(master)
    if group:
        try:
            ioctl(master, _TIOCSIG, int(signal.SIGINT))
        except OSError:
            signal_group(group, signal.SIGINT)
        return b""
    try:
        character: bytes = termios.tcgetattr(master)[_CC][termios.VINTR]
    except termios.error:
        return b"\x03"
    return character


def overtakes(master: int, typed: bytes) -> int:
    """Return the position after an interrupt character that discards what waits; 0 if none.

    A terminal acts on one as it comes in, and forgets the input before it; one that stands in a
    queue of ours must be given the same effect.
    """
    try:
        modes = termios.tcgetattr(master)
    except termios.error:
        return 0
    if not modes[_LFLAG] & termios.ISIG or modes[_LFLAG] & termios.NOFLSH:
        return 0
    return typed.rfind(modes[_CC][termios.VINTR]) + 1


def discard_input(slave: int) -> None:
    """Forget what was typed and not read yet."""
    termios.tcflush(slave, termios.TCIFLUSH)
