"""What a terminal has said, to tell a viewer: the very bytes, or the screen that they made."""

from __future__ import annotations

import re

from sandbox_runtime.kept_output import KeptOutput
from sandbox_runtime.screen import SCROLLBACK, Screen
from sandbox_runtime.screen_boundaries import Boundaries
from sandbox_runtime.screen_line import Look
from sandbox_runtime.screen_looks import rendition
from sandbox_runtime.screen_serialize import serialize
from sandbox_runtime.terminal_queries import without_queries

__all__ = ["LARGEST_SCREEN", "Replay", "Snapshot", "TerminalLog", "without_queries"]

LARGEST_SCREEN = 256 << 10
"""Bytes of a replay that is a screen, at most."""

_LONGEST_OPEN = 64 << 10  # of a sequence that does not end; what is beyond is given up
_MOST_PENDING = 16 << 10  # bytes that need drawing and wait for it
_MOST_PLAIN = 1 << 20  # bytes that wait because they will probably never be drawn
_TRIM = 256 << 10

_C1 = re.compile(rb"\xc2[\x80-\x9f]")
_PLAIN = b"mK"  # finals of sequences that leave it to the text to move the rows
_NOT_PLAIN = re.compile(rb"\x1b(?!\[[0-9;:]*[mK]|\(B)")
_NOT_COLOURED = re.compile(rb"\x1b(?!\[[0-9;:]*[mK])")
_SPARSE = 32  # bytes for each sequence, on average, from which on looking at each is cheaper
_SAMPLE = 2048  # bytes that show how many sequences there are
_FRAME = b"mKHfABCDGdJX"  # finals of sequences whose effect ends when the screen is cleared
_CLEARS = (b"\x1b[H\x1b[2J", b"\x1b[2J\x1b[H", b"\x1b[H\x1b[J")
_RENDITION = re.compile(rb"\x1b\[([0-9;:]*)m")


class Replay:
    """What a viewer is given first.

    Attributes
    ----------
    kind : str
        ``exact``: the bytes from the cursor on; ``screen``: a reset and all there is to see.
    data : bytes
        To be written to the viewer's terminal.
    offset : int
        The log offset from which live output continues.
    truncated : bool
        Whether output that the viewer asked for is no longer there.
    """

    __slots__ = ("data", "kind", "offset", "truncated")

    def __init__(self, kind: str, data: bytes, offset: int, *, truncated: bool) -> None:
        self.kind = kind
        self.data = data
        self.offset = offset
        self.truncated = truncated

    def __repr__(self) -> str:
        cut = ", truncated" if self.truncated else ""
        return f"<Replay {self.kind}, {len(self.data)} bytes, then {self.offset}{cut}>"


class Snapshot:
    """What is on a terminal's screen, for programs.

    Attributes
    ----------
    cols, rows : int
    lines : list[str]
        The rows of the screen, without blanks at their ends.
    cursor : tuple[int, int]
        Column and row, from 0.
    title : str
    is_alternate : bool
        Whether a full-screen program shows its own page.
    modes : dict[str, bool | int]
    offset : int
        Log offset after the last byte that is drawn.
    """

    __slots__ = ("cols", "cursor", "is_alternate", "lines", "modes", "offset", "rows", "title")

    def __init__(self, screen: Screen, offset: int) -> None:
        page, modes = screen.page, screen.modes
        self.cols, self.rows = screen.cols, screen.rows
        self.lines = [page.row(y).text() for y in range(screen.rows)]
        self.cursor = (min(page.x, screen.cols - 1), page.y)
        self.title = screen.title
        self.is_alternate = screen.is_alternate
        self.offset = offset
        self.modes: dict[str, bool | int] = {
            "cursor_visible": modes.cursor_visible,
            "application_cursor": modes.application_cursor,
            "application_keypad": modes.application_keypad,
            "bracketed_paste": modes.bracketed_paste,
            "mouse": modes.mouse,
            "mouse_encoding": modes.mouse_encoding,
            "focus": modes.focus,
            "wrap": modes.wrap,
        }


class TerminalLog:
    """The last bytes of a terminal's output by absolute offset, and the screen they made.

    Drawing is put off until somebody looks or 16 KiB wait for it; a flood of lines that will leave
    the scrollback before anybody looks is never drawn.  Feeding such a flood therefore costs about
    as much as copying it.

    Parameters
    ----------
    cols, rows : int
        Size of the terminal.
    size : int
        Bytes that are kept, at least.
    """

    def __init__(self, cols: int, rows: int, size: int = 1 << 20) -> None:
        self._size = size
        self._screen = Screen(cols, rows)
        self._kept = KeptOutput()
        self._drawn = 0  # offset up to which the screen has been drawn
        self._plain = 0  # offset from which on all is plain, up to `_judged`
        self._judged = 0
        self._ascii_set = 0  # offset after which the ASCII set is not chosen, up to `_judged`
        self._tail = Boundaries()  # at the first byte kept
        self._head = Boundaries()  # at the end

    @property
    def start(self) -> int:
        """The oldest offset kept."""
        return max(self._kept.start, self.end - self._size)

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self._head.end

    @property
    def safe_end(self) -> int:
        """The last offset that is not inside a character or an escape sequence.

        Of a sequence that is longer than 64 KiB, or than the log, the end counts as safe.
        """
        safe = self._head.safe
        if self.end - safe > _LONGEST_OPEN or safe < self.start:
            return self.end
        return safe

    @property
    def cols(self) -> int:
        """Columns."""
        return self._screen.cols

    @property
    def rows(self) -> int:
        """Rows."""
        return self._screen.rows

    @property
    def title(self) -> str:
        """The title that the program has set."""
        self._draw()
        return self._screen.title

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from an offset on that is kept; empty at the end only.

        Raises
        ------
        ValueError
            The offset is not kept.
        """
        if not self.start <= offset <= self.end:
            raise ValueError(f"offset {offset} outside {self.start} to {self.end}")
        return self._kept.read(offset, min(offset + size, self.end))

    def feed(self, data: bytes) -> None:
        """Append output."""
        if not data:
            return
        # Pieces end where nothing is split, so that each can be looked at by itself.
        self._kept.append(data, self._head.safe)
        self._head.feed(data)
        self._note_plain()
        pending = self.end - self._drawn
        if pending > _MOST_PENDING:
            self._relieve(pending)
        if self._kept.start + _TRIM < self.end - self._size:
            self._trim()

    def resize(self, cols: int, rows: int) -> None:
        """Give the terminal another size; output fed before was meant for the old one."""
        self._draw()
        self._screen.resize(cols, rows)

    def is_safe(self, offset: int) -> bool:
        """Whether a replay may begin at an offset of the log."""
        if not self.start <= offset <= self.end:
            return False
        probe = self._tail.copy()
        probe.feed(self._kept.read(self._kept.start, offset))
        return probe.safe == offset

    def replay(self, since: int | None) -> Replay:
        """Return what brings a viewer up to date.

        Parameters
        ----------
        since : int or None
            The offset up to which the viewer has everything; None for a viewer that has nothing.

        Raises
        ------
        ValueError
            `since` has not been reached yet.
        """
        if since is not None:
            if since > self.end:
                raise ValueError(f"offset {since} after the end {self.end}")
            if since <= self.safe_end and self.is_safe(since):
                data = self._kept.read(since, self.safe_end)
                return Replay("exact", data, since + len(data), truncated=False)
        offset = self._draw()
        data = serialize(self._screen, LARGEST_SCREEN)
        truncated = since is not None and since < self.start
        return Replay("screen", data, offset, truncated=truncated)

    def snapshot(self) -> Snapshot:
        """Return what is on the screen."""
        return Snapshot(self._screen, self._draw())

    def _note_plain(self) -> None:
        """Keep `_plain` after the last thing that is not plain."""
        # Up to where nothing is split; what is, is looked at when its end has come.
        safe, begin = self.safe_end, self._judged
        if safe <= begin:
            return
        self._judged = safe
        for piece in self._kept.pieces(begin, safe):
            if _is_coloured(piece):
                continue
            if _is_plain(piece):
                self._ascii_set = safe
            else:
                self._plain = safe

    def _relieve(self, pending: int) -> None:
        """Draw what waits, or forget it where it will never be seen."""
        plain_from = max(self._plain, self._drawn)
        if plain_from - self._drawn > _MOST_PENDING:
            self._skip_frames()
            self._draw()
        elif pending > _MOST_PLAIN:
            drawn = self._drawn
            self._skip(self.safe_end)
            if self._drawn == drawn:
                self._draw()

    def _draw(self) -> int:
        """Draw what waits, as far as it is complete, and return that offset."""
        to = self.safe_end
        if to > self._drawn:
            self._skip(to)
            self._screen.feed(self._kept.read(self._drawn, to))
            self._drawn = to
        return to

    def _skip(self, to: int) -> None:
        """Leave out plain text that will have left the scrollback by offset `to`."""
        screen = self._screen
        plain_from = max(self._plain, self._drawn)
        keep = (0 if screen.is_alternate else SCROLLBACK) + screen.rows
        if to - plain_from < keep:
            return
        if plain_from > self._drawn:
            self._screen.feed(self._kept.read(self._drawn, plain_from))
            self._drawn = plain_from
        page = screen.page
        if (page.top, page.bottom) != (0, screen.rows - 1):
            return
        skipped = _without_last_rows(self._kept.pieces(plain_from, to), keep)
        if not _has_rows(skipped, screen.rows):
            return  # the cursor may not have come to the last row
        look: Look = (*screen.pen[:3], screen.extra)
        ascii_first_set = False
        if any(b"\x1b" in piece for piece in skipped):
            ascii_first_set = self._ascii_set > plain_from and any(
                b"\x1b(B" in piece for piece in skipped
            )
            look = _look_after(look, skipped)
        screen.forget(look, ascii_first_set=ascii_first_set)
        self._drawn = plain_from + sum(map(len, skipped))

    def _skip_frames(self) -> None:
        """Leave out what a full-screen program drew before it last cleared the screen."""
        screen = self._screen
        if not screen.is_alternate or screen.modes.origin:
            return
        waiting = self._kept.read(self._drawn, self.safe_end)
        cleared = max(map(waiting.rfind, _CLEARS))
        if cleared <= 0:
            return
        skipped = waiting[:cleared]
        shown, hidden = skipped.count(b"\x1b[?25h"), skipped.count(b"\x1b[?25l")
        if not _has_only(skipped, _FRAME, shown + hidden):
            return
        if shown or hidden:
            is_shown = skipped.rfind(b"\x1b[?25h") > skipped.rfind(b"\x1b[?25l")
            screen.modes.cursor_visible = is_shown
        look = _look_after((*screen.pen[:3], screen.extra), [skipped])
        screen.overlook(look, ascii_first_set=b"\x1b(B" in skipped)
        self._drawn += cleared

    def _trim(self) -> None:
        """Forget bytes that are beyond the size, and drawn."""
        if self._drawn < self.end - self._size:
            self._draw()
        for piece in self._kept.forget(min(self.end - self._size, self._drawn)):
            self._tail.feed(piece)


def _without_last_rows(pieces: list[bytes], count: int) -> list[bytes]:
    """Return what comes before the last `count` lines, and some of those before; [] if nothing."""
    left, number, at = count + 1, len(pieces), 0
    while left and number:
        number -= 1
        piece = pieces[number]
        at = len(piece)
        while left and (at := piece.rfind(b"\n", 0, at)) >= 0:
            left -= 1
    if left:
        return []
    # Where a line begins in the first column.
    before = [*pieces[:number], pieces[number][:at]]
    while before:
        last = before.pop()
        stop = last.rfind(b"\r\n") + 2
        if stop > 1:
            return [*before, last[:stop]]
    return []


def _has_rows(pieces: list[bytes], count: int) -> bool:
    """Whether there are so many ends of lines."""
    for piece in pieces:
        at = 0
        while count and (at := piece.find(b"\n", at) + 1):
            count -= 1
    return not count


def _is_coloured(data: bytes) -> bool:
    """Whether there is nothing but text, and what colours and erases it: nearly all output."""
    if _is_dense(data):
        return b"\x1b(" not in data and _has_only(data, _PLAIN)
    return not _shifts(data) and _NOT_COLOURED.search(data) is None


def _is_plain(data: bytes) -> bool:
    """Whether a flood of this may be forgotten once it has left the scrollback."""
    if _is_dense(data):
        return _has_only(data, _PLAIN)
    return not _shifts(data) and _NOT_PLAIN.search(data) is None


def _is_dense(data: bytes) -> bool:
    sample = min(_SAMPLE, len(data))
    return data.count(b"\x1b", 0, sample) * _SPARSE > sample


def _shifts(data: bytes) -> bool:
    """Whether there is a control character that changes more than the place of the cursor."""
    return b"\x0e" in data or b"\x0f" in data or (b"\xc2" in data and bool(_C1.search(data)))


def _has_only(data: bytes, finals: bytes, others: int = 0) -> bool:
    """Whether there are no sequences but CSI with these finals, the ASCII set and `others`.

    Counting costs the same however many there are; see `_SPARSE`.
    """
    if _shifts(data):
        return False
    if b"\x1b" not in data:
        return True
    if b"\x1b7" in data or b"\x1b8" in data:
        return False  # which are no CSI without their digit
    bare = data.translate(None, b"0123456789;:")
    known = sum(bare.count(b"\x1b[%c" % final) for final in finals)
    return known + data.count(b"\x1b(B") + others == bare.count(b"\x1b")


def _look_after(look: Look, pieces: list[bytes]) -> Look:
    """Return the look that the colours in pieces of output lead to."""
    number, reset = len(pieces), -1
    while number and reset < 0:
        number -= 1
        reset = pieces[number].rfind(b"\x1b[0m")
        reset = max(reset, pieces[number].rfind(b"\x1b[m", reset + 1))
    for piece in pieces[number:]:
        for sequence in _RENDITION.finditer(piece, max(reset, 0)):
            look = rendition(look, sequence[1].decode())
        reset = 0
    return look
