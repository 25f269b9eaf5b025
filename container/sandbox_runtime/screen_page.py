"""One of a terminal's two pages: rows, cursor, margins, tab stops and the saved cursor."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from sandbox_runtime.screen_line import DEFAULT_LOOK, Line, Look

__all__ = ["Page"]

_TAB = 8


class Page:
    """Rows above and on the screen, the oldest first.

    Parameters
    ----------
    cols, rows : int
        Size of the screen.
    scrollback : int
        How many rows are kept above it; 0 on the alternate page.
    """

    def __init__(self, cols: int, rows: int, scrollback: int) -> None:
        self.cols = cols
        self.rows = rows
        self.scrollback = scrollback
        self.lines: list[Line] = []
        self.x = 0
        """Column of the cursor; `cols` after a character in the last one, until the next."""
        self.y = 0
        self.top = 0
        self.bottom = rows - 1
        self.tabs = list(range(0, cols, _TAB))
        """Columns of the tab stops, in order; some may lie beyond the screen."""
        self.saved_x = 0
        self.saved_y = 0  # counted from the oldest row, so it moves with its text
        self.saved_look: Look = DEFAULT_LOOK
        self.saved_charset: dict[int, str] | None = None

    @property
    def base(self) -> int:
        """How many rows are above the screen."""
        return max(len(self.lines) - self.rows, 0)

    def row(self, y: int) -> Line:
        """Return a row of the screen."""
        return self.lines[len(self.lines) - self.rows + y]

    def fill(self, look: Look = DEFAULT_LOOK) -> None:
        """Make the screen's rows where there are none."""
        if not self.lines:
            self.lines = [Line(self.cols, look) for _ in range(self.rows)]

    def clear(self) -> None:
        """Forget the rows, the margins and the tab stops; the saved cursor stays."""
        self.lines = []
        self.x = self.y = 0
        self.reset_margins()
        self.tabs = list(range(0, self.cols, _TAB))

    def reset_margins(self) -> None:
        """Let the whole screen scroll."""
        self.top = 0
        self.bottom = self.rows - 1

    def scroll(self, look: Look, *, wrapped: bool = False) -> None:
        """Move what is between the margins up by a row.

        With the upper margin at the top of the screen, the row that leaves goes to the scrollback.
        """
        lines = self.lines
        base = len(lines) - self.rows
        line = Line(self.cols, look)
        line.wrapped = wrapped
        lines.insert(base + self.bottom + 1, line)
        if self.top:
            del lines[base + self.top]
        elif base >= self.scrollback:
            del lines[0]

    def shift(self, first: int, count: int, look: Look) -> None:
        """Insert rows at `first` (or, with a negative count, delete them), down to the margin."""
        height = self.bottom - first + 1
        base = self.base
        below = base + self.bottom + 1
        if count > 0:
            count = min(count, height)
            del self.lines[below - count : below]
            at = base + first
        else:
            count = min(-count, height)
            del self.lines[base + first : base + first + count]
            at = below - count
        self.lines[at:at] = [Line(self.cols, look) for _ in range(count)]

    def drop_scrollback(self) -> None:
        """Forget the rows above the screen."""
        del self.lines[: max(self.base, 0)]

    def next_tab(self, count: int = 1) -> int:
        """Return the column of the next tab stop but so many, or the last one."""
        last = self.cols - 1
        at = bisect_right(self.tabs, self.x) + count - 1
        return min(self.tabs[at], last) if at < len(self.tabs) else last

    def previous_tab(self, x: int, count: int = 1) -> int:
        """Return the column of the tab stop so many before a column, or the first one."""
        at = bisect_left(self.tabs, x) - count
        return self.tabs[at] if at >= 0 else 0

    def set_tab(self) -> None:
        """Put a tab stop at the cursor."""
        at = bisect_left(self.tabs, self.x)
        if self.tabs[at : at + 1] != [self.x]:
            self.tabs.insert(at, self.x)

    def clear_tab(self) -> None:
        """Take away the tab stop at the cursor, if there is one."""
        at = bisect_left(self.tabs, self.x)
        if self.tabs[at : at + 1] == [self.x]:
            del self.tabs[at]

    def extend_tabs(self) -> None:
        """Put tab stops on columns that have come into being."""
        start = self.cols if self.cols in self.tabs else self.previous_tab(self.cols)
        self.tabs = sorted({*self.tabs, *range(start, self.cols, _TAB)})
