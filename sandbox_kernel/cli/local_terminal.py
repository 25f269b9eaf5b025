"""The terminal that the command was typed at: its modes, its size, and writing to it."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import termios
import threading
import time
import tty
from collections.abc import Callable
from typing import Any, Self

__all__ = ["LocalTerminal", "is_local_terminal", "without_full_reset"]

_INPUT, _OUTPUT = 0, 1

_DEFAULT_MODES = (
    "\x18"  # CAN: whatever sequence was cut short is over
    "\x1b[<99u"  # keyboard protocol of this page
    "\x1b[?1047l"  # the normal page
    "\x1b[!p"  # soft reset: margins, look, character sets, cursor, keypad
    "\x1b7\x1b[?69l\x1b[r\x1b8"  # margins, where there is no soft reset; moves the cursor
    "\x1b[0m\x1b(B\x1b)B\x0f\x1b[?7h\x1b[?25h\x1b[4l\x1b[20l\x1b[?1l\x1b[?5l\x1b[?45l\x1b>"
    "\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l"  # mouse, focus
    "\x1b[?1015l\x1b[?1016l\x1b[?2004l\x1b[?2026l"  # mouse, paste, synchronised output
    "\x1b[<99u\x1b[>4m"  # keyboard protocols of the normal page
    "\x1b[0 q\x1b]8;;\x1b\\"  # shape of the cursor, link
    "\x1b]104\x07\x1b]110\x07\x1b]111\x07\x1b]112\x07"  # colours
)
"""Undoes what programs set; a full reset would forget the lines that were there before us."""

_FULL_RESET = b"\x18\x1bc"
_KEEP_TITLE, _RETURN_TITLE = "\x1b[22;0t", "\x1b[23;0t"
_ASK_ATTRIBUTES = "\x1b[c"

_ANSWERS = 0.25
"""Seconds that a terminal has to answer, and to go on answering."""
_ALL_ANSWERS = 2.0
"""Seconds after which answers are not waited for any more."""
_SILENCE = 0.03
"""Seconds without input, after an answer like the last one, for which nothing more is expected."""
_LAST_LINES = 0.5
"""Seconds that the terminal has to take what is not written yet."""


def is_local_terminal() -> bool:
    """Whether standard input and output both are a terminal."""
    return os.isatty(_INPUT) and os.isatty(_OUTPUT)


def without_full_reset(screen: bytes) -> bytes:
    """Return a screen that begins with a full reset in a form that keeps the lines before it."""
    if not screen.startswith(_FULL_RESET):
        return screen
    return _DEFAULT_MODES.encode() + b"\x1b[H\x1b[2J" + screen[len(_FULL_RESET) :]


class LocalTerminal:
    """Our terminal in raw mode, from entering to leaving the context.

    Drawing happens on a thread: a terminal that is held up holds up neither keys nor signals.  The
    drawer is told what is drawn and acknowledges it, so that only so much waits here.
    """

    def __init__(self) -> None:
        self._saved: list[Any] = []
        self._waiting: queue.SimpleQueue[tuple[bytes, Callable[[OSError | None], None]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._draw, name="terminal", daemon=True)
        self.at_bottom = False
        """Whether the last line, and not where the cursor is, is where others go on."""

    def __enter__(self) -> Self:
        self._saved = termios.tcgetattr(_INPUT)
        self.set_raw()
        self._thread.start()
        self._later(_KEEP_TITLE)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._later(_DEFAULT_MODES + _RETURN_TITLE)
            if self.at_bottom:
                self._later("\x1b[999;1H\r\n")
            self._later(_ASK_ATTRIBUTES)
            self._waiting.put(None)
            self._thread.join(_LAST_LINES)
            if not self._thread.is_alive():
                _discard_answers()
        finally:
            with contextlib.suppress(termios.error):
                # Not after the output has drained: that may be never.
                termios.tcsetattr(_INPUT, termios.TCSANOW, self._saved)

    def set_raw(self) -> None:
        """Pass every key on as it is; also after somebody else has set other modes."""
        with contextlib.suppress(termios.error):
            tty.setraw(_INPUT, termios.TCSANOW)

    @property
    def size(self) -> tuple[int, int] | None:
        """Columns and rows, if the terminal has a size."""
        try:
            cols, rows = os.get_terminal_size(_OUTPUT)
        except OSError:
            return None
        return (cols, rows) if cols and rows else None

    def read(self) -> bytes:
        """Return what was typed, once there is something; nothing if the terminal has gone."""
        try:
            return os.read(_INPUT, 64 << 10)
        except OSError:
            return b""

    def make_room(self) -> None:
        """Move what the terminal shows out of the way of a whole screen; it can be scrolled to."""
        _, rows = self.size or (80, 24)
        self._later("\x1b[999;1H" + "\n" * rows + "\x1b[H")

    def draw(self, data: bytes, drawn: Callable[[OSError | None], None]) -> None:
        """Write; then `drawn` is called, on another thread, with the error if the terminal went."""
        self._waiting.put((data, drawn))

    def _later(self, text: str) -> None:
        self.draw(text.encode(), lambda _: None)

    def _draw(self) -> None:
        error: OSError | None = None
        while (entry := self._waiting.get()) is not None:
            rest, drawn = entry
            while rest and error is None:
                try:
                    rest = rest[os.write(_OUTPUT, rest) :]
                except OSError as failure:
                    error = failure
            drawn(error)


def _discard_answers() -> None:
    """Read what the terminal still answers to questions of the sandbox's programs.

    The next one to read would be the user's shell, which takes answers for commands.  The answer
    to a question of our own comes last.
    """
    end, answers = time.monotonic() + _ALL_ANSWERS, b""
    while time.monotonic() < end:
        # One "c" may be the answer to an earlier question like ours: the silence is what counts.
        patience = _SILENCE if answers.endswith(b"c") else _ANSWERS
        try:
            if not select.select([_INPUT], [], [], patience)[0]:
                return
            answers = os.read(_INPUT, 4096)
        except OSError:
            return
        if not answers:
            return
