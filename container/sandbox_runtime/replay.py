"""What a terminal has said, to tell a viewer: the very bytes, or the screen that they made."""

from __future__ import annotations

import re

from sandbox_runtime.kept_output import KeptOutput
from sandbox_runtime.screen import SCROLLBACK, Screen
from sandbox_runtime.screen_boundaries import Boundaries
from sandbox_runtime.screen_line import Look
from sandbox_runtime.screen_looks import rendition
from sandbox_runtime.screen_serialize import serialize
from sandbox_runtime.terminal_cuts import cut_at
from sandbox_runtime.terminal_queries import without_queries

__all__ = ["LARGEST_SCREEN", "TURN", "Replay", "Snapshot", "TerminalLog", "without_queries"]

LARGEST_SCREEN = 256 << 10
"""Bytes of a replay that is a screen, at most."""

TURN = 2500
"""Work (see `Screen.work`) that is done at once, at most; only one sequence's may go beyond it.

It is some milliseconds, for which everything else in the sandbox waits.
"""

_LONGEST_OPEN = 64 << 10  # of a sequence that does not end; what is beyond is given up
_MOST_PENDING = 16 << 10  # bytes that need drawing and wait for it
_LEAST_PENDING = 1 << 10  # likewise, where they are dear to draw
_MOST_PLAIN = 512 << 10  # bytes that wait because they will probably never be drawn
_MOST_LEFT = 96 << 10  # bytes that a viewer is given to draw for itself
_PIECE = 64 << 10
_OF_LOOK = 4 * TURN  # enough for what waits, unless it is dear; and the next look finds it so
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

    Output may be dear to draw: a few bytes are enough to change each cell of a large screen.  No
    call does more than a turn's work (`TURN`).  What is left waits: while the log `is_behind`, its
    owner lets other work have its turn, calls `catch_up`, and does not read from the program, which
    is thereby slowed down to what can be drawn.  A viewer who comes meanwhile gets the screen that
    has been drawn, and the output after it to draw for itself.

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
        self._patience = _MOST_PENDING
        self._resized = 0  # work of this turn
        self._size_to_take: tuple[int, int] | None = None
        self._last_screen: tuple[int, bytes] | None = None

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
        return self._screen.cols if self._size_to_take is None else self._size_to_take[0]

    @property
    def rows(self) -> int:
        """Rows."""
        return self._screen.rows if self._size_to_take is None else self._size_to_take[1]

    @property
    def title(self) -> str:
        """The title that the program has set, as far as its output is drawn."""
        self._look()
        return self._screen.title

    @property
    def is_behind(self) -> bool:
        """Whether `catch_up` should be called in the next turn, and `feed` not before."""
        # Once output was dear, none waits until somebody looks, who would have to wait for it.
        patience = self._patience if self._patience == _MOST_PENDING else 0
        return (
            self._size_to_take is not None
            or min(self._plain, self.safe_end) - self._drawn > patience
            or self.end - self._drawn > _MOST_PLAIN
        )

    @property
    def appetite(self) -> int:
        """Bytes of output that should be fed at once, at most: few where they are dear to draw."""
        return _PIECE if self._patience == _MOST_PENDING else self._patience

    def catch_up(self) -> None:
        """Do a turn's work of what waits."""
        self._resized = 0
        if self._size_to_take is not None:
            size, self._size_to_take = self._size_to_take, None
            self.resize(*size)
        elif self.is_behind:
            self._relieve()

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
        if self._last_screen is not None and self.end - self._last_screen[0] > _MOST_LEFT:
            self._last_screen = None
        if self.end - self._drawn > self._patience:
            self._relieve()
        if self._kept.start + _TRIM < self.end - self._size:
            self._trim()

    def resize(self, cols: int, rows: int) -> None:
        """Give the terminal another size; output fed before was meant for the old one.

        Of output that is dear to draw, what is left after a turn's work is drawn in the new one.
        Of many sizes in one turn, the last one is taken in the next turn.
        """
        if self._size_to_take is not None or self._resized > TURN:
            self._size_to_take = (cols, rows)
            return
        self._last_screen = None
        self._draw(TURN)
        before = self._screen.work
        self._screen.resize(cols, rows)
        self._resized += self._screen.work - before

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
        offset, data = self._screen_and_rest()
        truncated = since is not None and since < self.start
        return Replay("screen", data, offset, truncated=truncated)

    def snapshot(self) -> Snapshot:
        """Return what is on the screen, as far as the output is drawn."""
        self._look()
        return Snapshot(self._screen, self._drawn)

    def _screen_and_rest(self) -> tuple[int, bytes]:
        """Return what shows the screen at an offset, and that."""
        to = self.safe_end
        last = self._last_screen
        if last is None or to - last[0] > min(_MOST_LEFT, LARGEST_SCREEN - len(last[1])):
            self._look()
            most = LARGEST_SCREEN - (_MOST_LEFT if self._drawn < to else 0)
            last = (self._drawn, serialize(self._screen, most))
            # Many viewers may want one; made for each, it would be dear as well.
            self._last_screen = last
        drawn, screen = last
        # Like the screen, the rest asks nothing: it was asked when it came.
        return to, screen + without_queries(self._kept.read(drawn, to))

    def _look(self) -> None:
        """Bring the screen up to date, or so far that a viewer can be given the rest."""
        size, self._size_to_take = self._size_to_take, None
        if size is not None:
            self._draw(TURN)
            self._screen.resize(*size)
        elif not self.is_behind:
            self._draw(_OF_LOOK)
        while self.safe_end - self._drawn > _MOST_LEFT:
            self._draw(TURN)

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

    def _relieve(self) -> None:
        """Draw what waits, or forget it where it will never be seen."""
        drawn = self._drawn
        if self._plain - drawn > self._patience or self._patience < _MOST_PENDING:
            self._skip_frames()
            self._draw(TURN)
        elif self.end - drawn > _MOST_PLAIN:
            self._skip(self.safe_end, self._screen.work + TURN)
            if self._drawn == drawn:
                self._draw(TURN)

    def _draw(self, work: int) -> None:
        """Draw what waits, as far as it is complete and not too much work."""
        to, most = self.safe_end, self._screen.work + work
        if to <= self._drawn:
            return
        self._skip(to, most)
        drawn = self._drawn
        is_done = self._draw_to(to, most)
        # What waits, and is still to be drawn when a flood is over, is to be little.
        least = self._patience if is_done else _LEAST_PENDING
        self._patience = min(_MOST_PENDING, max(least, 2 * (self._drawn - drawn)))

    def _draw_to(self, to: int, most: int) -> bool:
        """Draw up to an offset, or until the screen's work has come to `most`."""
        screen = self._screen
        while self._drawn < to:
            if screen.work >= most:
                return False
            piece = self._kept.read(self._drawn, min(to, self._drawn + _PIECE))
            if self._drawn + len(piece) < to:
                piece = piece[: cut_at(piece)]
            self._drawn += screen.feed(piece, most)
        return True

    def _skip(self, to: int, most: int) -> None:
        """Leave out plain text that will have left the scrollback by offset `to`."""
        screen = self._screen
        plain_from = max(self._plain, self._drawn)
        keep = (0 if screen.is_alternate else SCROLLBACK) + screen.rows
        if to - plain_from < keep:
            return
        if not self._draw_to(plain_from, most):
            return
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
        needed = self._drawn if self._last_screen is None else self._last_screen[0]
        for piece in self._kept.forget(min(self.end - self._size, needed)):
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
