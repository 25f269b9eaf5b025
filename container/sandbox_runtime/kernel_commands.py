"""Runs ``!command`` of a cell: output as it comes, nothing to read, ended by an interrupt."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios

__all__ = ["system"]

_CHUNK = 1 << 16
_GRACE = 1.0
_LEFT = 64
"""Reads after a command's end; a terminal holds less than that."""


def system(command: str) -> int:
    """Run a shell command and print what it prints; return its exit status.

    The command writes to a terminal of 80 columns, so that programs print as they go, in colour;
    the terminal adds no carriage returns.  Its standard input is empty, and it has no controlling
    terminal: a program that asks something ends by itself.  It stays in the kernel's process
    group, which is what an interrupt goes to.

    Returns
    -------
    int
        The exit status; minus the signal's number if a signal ended the command.
    """
    master, slave = os.openpty()
    try:
        modes = termios.tcgetattr(slave)
        modes[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = subprocess.Popen(
            [shutil.which("sh") or "/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
        )
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    os.set_blocking(master, False)
    pidfd = os.pidfd_open(process.pid)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        _copy(master, pidfd, decoder, None)
    except KeyboardInterrupt:
        _interrupt(process, master, pidfd, decoder)
    finally:
        os.close(master)
        os.close(pidfd)
    sys.stdout.write(decoder.decode(b"", final=True))
    status = process.wait()
    # A shell says 128 and more for a signal that ended what it ran.
    return 128 - status if status > 128 else status


def _copy(
    master: int, pidfd: int, decoder: codecs.IncrementalDecoder, timeout: float | None
) -> bool:
    """Print until the command has ended and its output is read; False if time is over."""
    poll = select.poll()  # a cell may have more descriptors open than select can name
    poll.register(master, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    left = _LEFT
    while True:
        ready = {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)}
        if not ready:
            return False
        if pidfd in ready:
            left -= 1
            if master not in ready or left == 0:
                # What it has left in the background may go on, and go on writing.
                return True
        try:
            data = os.read(master, _CHUNK)
        except BlockingIOError:
            continue
        except OSError:  # EIO: nobody has the terminal open any more
            data = b""
        sys.stdout.write(decoder.decode(data))
        if not data:
            poll.unregister(master)


def _interrupt(
    process: subprocess.Popen[bytes], master: int, pidfd: int, decoder: codecs.IncrementalDecoder
) -> None:
    """Interrupt the command, if the signal did not reach it already; insist after a moment."""
    with contextlib.suppress(KeyboardInterrupt):  # the impatient press twice
        process.send_signal(signal.SIGINT)
        if _copy(master, pidfd, decoder, _GRACE):
            return
    process.terminate()
    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
        process.wait(_GRACE)
        return
    process.kill()
