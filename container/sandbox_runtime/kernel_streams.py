"""sys.stdout and sys.stderr of a kernel, and what reaches descriptors 1 and 2 past them."""

from __future__ import annotations

import codecs
import contextvars
import fcntl
import os
import struct
import termios
import threading
from threading import local
from time import monotonic

from ipykernel.iostream import OutStream as _OutStream

from sandbox_runtime.kernel_pipe import KernelPipe, Text, widen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Capture", "OutStream"]

_CHUNK = 1 << 16
_CAPTURE = 256 << 10
_LINE = 4096
_PAUSE = 100e-6
"""Seconds between two prints in which a child may have written: none has an answer sooner."""

_DRAIN_WAIT = 0.05
"""Seconds; whoever drains needs less, unless it is stopped."""


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    msg = f"write() argument must be str, not {type(value)}"
    raise TypeError(msg)


class Capture:
    """Puts a pipe in the place of a descriptor and hands on what programs and C code write to it.

    Two threads drain it: the kernel's pipe whenever there is something, and the main thread at the
    end of a cell, so that nothing a cell waited for comes after the cell's end.  The pipe is a
    wide one, because C code may write while it holds the interpreter's lock, when no thread of
    ours can read.

    Parameters
    ----------
    fd : int
        1 or 2; children inherit it.
    stream : OutStream
        Gets the text, as if the cell that runs had printed it.
    """

    def __init__(self, fd: int, stream: OutStream) -> None:
        self._stream = stream
        self._read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        widen(self._read_fd, _CAPTURE)
        os.set_blocking(self._read_fd, False)
        os.dup2(write_fd, fd)
        os.close(write_fd)
        self._lock = threading.RLock()
        self._is_busy = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._read: list[bytes] = []

    @property
    def read_fd(self) -> int:
        """Where to read what was written."""
        return self._read_fd

    def drain_if_free(self) -> bool:
        """Hand on what is there now, unless the main thread does so; on the pipe's thread.

        Whatever keeps the main thread, the kernel must not become mute with it.
        """
        # Another thread than the main one: no interrupt comes between the two steps.
        if self._lock.acquire(timeout=_DRAIN_WAIT):
            try:
                self._hand_on()
            finally:
                self._lock.release()
        return True

    def drain(self) -> None:
        """Hand on what is there now; on the main thread."""
        with self._lock:
            self._hand_on()

    def _hand_on(self) -> None:
        if self._is_busy:
            return  # a signal's handler prints, and has interrupted this very code
        self._is_busy = True
        try:
            # Only what is there at the start: a child may write faster than this loop reads.
            count = fcntl.ioctl(self._read_fd, termios.FIONREAD, b"\0\0\0\0")
            (waiting,) = struct.unpack("i", count)
            while waiting > 0 or self._read:
                if waiting > 0:
                    # In one step of the interpreter: an interrupt between the read and keeping
                    # its result would lose bytes.
                    self._read.extend(map(os.read, (self._read_fd,), (min(waiting, _CHUNK),)))
                    waiting -= min(waiting, _CHUNK)
                while self._read:
                    text = self._decoder.decode(self._read[0])
                    self._stream.write_captured(text)
                    del self._read[0]
        finally:
            self._is_busy = False


class OutStream(_OutStream):
    """Text file whose text goes out as stream messages, in one queue with all other messages.

    Writing never waits for another thread, and holds no lock; only a full queue makes it wait.
    """

    def __init__(self, session: Any, pipe: KernelPipe, name: str, fd: int) -> None:
        # The base's __init__ starts a thread and opens sockets, which we replace.
        self.session = session
        self.name = name
        self.topic = b"stream." + name.encode()
        self.pub_thread: Any = pipe  # what `closed` looks at
        self.echo = None
        self._pipe = pipe
        self._text = Text(name)
        self._fd = fd
        self._parent_header: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar(
            "parent_header"
        )
        self._parent_header.set({})
        self._parent_header_global: dict[str, Any] = {}
        self._master_pid = os.getpid()
        self._is_forked = False
        self._line = ""
        self._isatty = False
        self._should_watch = False
        self._wrote_at = 0.0
        self._local = local()
        self.capture = Capture(fd, self)

    def write(self, string: str) -> int:
        """Queue text; returns its length."""
        if type(string) is not str:
            string = _as_text(string)
        if self.pub_thread is None:
            msg = "I/O operation on closed file"
            raise ValueError(msg)
        if self._is_forked:
            self._write_as_child(string)
            return len(string)
        now = monotonic()
        if now - self._wrote_at > _PAUSE:
            self._take_in_first()
        self._wrote_at = now
        try:
            parent = self._parent_header.get()
        except LookupError:  # a thread of the user's own
            parent = self._parent_header_global
        self._pipe.put_text(self._text, parent, string)
        return len(string)

    def _take_in_first(self) -> None:
        """Let what children have written meanwhile come before what is written now."""
        if threading.current_thread() is threading.main_thread():
            self._take_in()

    def _take_in(self) -> None:
        self.capture.drain()
        # Only now, when the pipe's thread, which makes the room, may drain as well.
        self._pipe.make_way()

    def write_captured(self, text: str) -> None:
        """Queue text that came through the descriptor."""
        if text:
            self._pipe.put_captured(self._text, self._parent_header_global, text)

    def _write_as_child(self, string: str) -> None:
        """Write whole lines to the descriptor; the parent sends them: one process speaks."""
        self._line += string
        if "\n" in string or "\r" in string or len(self._line) > _LINE:
            self._write_line()

    def _write_line(self) -> None:
        line, self._line = self._line, ""
        view = memoryview(line.encode(errors="backslashreplace"))
        while view:
            view = view[os.write(self._fd, view) :]

    def flush(self) -> None:
        """Take in what was written to the descriptor; everything else is on its way already."""
        if self._is_forked:
            self._write_line()
        elif threading.current_thread() is threading.main_thread():
            self._take_in()

    def fileno(self) -> int:
        """Return the descriptor; what a child writes to it appears in the cell."""
        return self._fd

    def close(self) -> None:
        """Refuse further text."""
        self.pub_thread = None

    def after_fork(self) -> None:
        """Become the stream of a forked child."""
        self._is_forked = True
        os.close(self.capture.read_fd)

    def _flush(self) -> None:
        self.flush()
