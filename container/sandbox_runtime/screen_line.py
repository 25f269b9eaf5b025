"""One row of a screen: what stands in each cell, and how it looks."""

from __future__ import annotations

from sandbox_runtime.char_width import char_width

__all__ = [
    "BLINK",
    "BOLD",
    "DEFAULT_LOOK",
    "DIM",
    "EXTENDED",
    "INVERSE",
    "INVISIBLE",
    "ITALIC",
    "NO_EXTRA",
    "OVERLINE",
    "PROTECTED",
    "STRIKE",
    "TAIL",
    "UNDERLINE",
    "Extra",
    "Line",
    "Look",
    "cell_width",
]

TAIL = "\0"
"""The content of the second cell of a wide character; an empty cell holds the empty string."""

(
    BOLD,
    DIM,
    ITALIC,
    UNDERLINE,
    BLINK,
    INVERSE,
    INVISIBLE,
    STRIKE,
    OVERLINE,
    PROTECTED,
    EXTENDED,  # the look's last member counts
) = (1 << bit for bit in range(11))

Extra = tuple[int, int, int]
"""Underline style, underline colour, link."""

Look = tuple[int, int, int, Extra]
"""Foreground, background, flags, extra.

A colour is 0 for the terminal's own, else its kind in bits 24 and 25 (1: one of 16, 2: one of 256,
3: RGB) and its value in the lower bits.
"""

NO_EXTRA: Extra = (0, 0, 0)
DEFAULT_LOOK: Look = (0, 0, 0, NO_EXTRA)


def cell_width(content: str) -> int:
    """Return the columns of a cell's content: 2 for the first cell of a wide character, 0 after."""
    if content < "\u0300":
        return 0 if content == TAIL else 1
    return char_width(content[0])


class Line:
    """A row.  `wrapped` says that it goes on where the row above ends.

    The methods take the look that emptied cells get, and keep wide characters whole: half of one
    becomes an empty cell.
    """

    __slots__ = ("chars", "looks", "wrapped")

    def __init__(self, cols: int, look: Look = DEFAULT_LOOK) -> None:
        self.chars = [""] * cols
        self.looks = [look] * cols
        self.wrapped = False

    def clear(self, at: int, look: Look) -> None:
        """Empty one cell."""
        self.chars[at] = ""
        self.looks[at] = look

    def insert(self, at: int, count: int, look: Look) -> None:
        """Push what stands from `at` on to the right; what leaves the row is lost."""
        cols = len(self.chars)
        at %= cols
        count = min(count, cols - at)
        if at and cell_width(self.chars[at - 1]) == 2:
            self.clear(at - 1, look)
        self.chars[at:at] = [""] * count
        self.looks[at:at] = [look] * count
        del self.chars[cols:], self.looks[cols:]
        if cell_width(self.chars[-1]) == 2:
            self.clear(cols - 1, look)

    def delete(self, at: int, count: int, look: Look) -> None:
        """Pull what stands after the deleted cells to the left."""
        cols = len(self.chars)
        at %= cols
        count = min(count, cols - at)
        del self.chars[at : at + count], self.looks[at : at + count]
        self.chars += [""] * count
        self.looks += [look] * count
        if at and cell_width(self.chars[at - 1]) == 2:
            self.clear(at - 1, look)
        if self.chars[at] == TAIL:
            self.clear(at, look)

    def erase(self, start: int, end: int, look: Look, *, keep_protected: bool = False) -> None:
        """Empty the cells from `start` to before `end`."""
        chars, looks = self.chars, self.looks
        cols = len(chars)
        if (
            start
            and cell_width(chars[start - 1]) == 2
            and not (keep_protected and looks[start - 1][2] & PROTECTED)
        ):
            self.clear(start - 1, look)
        if (
            0 < end < cols
            and cell_width(chars[end - 1]) == 2
            and not (keep_protected and looks[end][2] & PROTECTED)
        ):
            self.clear(end, look)
        end = min(end, cols)
        if keep_protected and start < end:
            # A row of one look, as most are, is not gone through cell by cell.
            first = looks[start]
            keep_protected = bool(first[2] & PROTECTED) or looks.count(first) < cols
        if keep_protected:
            for at in range(start, end):
                if not looks[at][2] & PROTECTED:
                    self.clear(at, look)
        elif start < end:
            chars[start:end] = [""] * (end - start)
            looks[start:end] = [look] * (end - start)

    def used(self) -> int:
        """Return the columns up to the end of the last character."""
        chars = self.chars
        for at in range(len(chars) - 1, -1, -1):
            content = chars[at]
            if content and content != TAIL:
                return at + cell_width(content)
        return 0

    def resize(self, cols: int) -> None:
        """Cut the row, or lengthen it with empty cells."""
        more = cols - len(self.chars)
        if more > 0:
            self.chars += [""] * more
            self.looks += [DEFAULT_LOOK] * more
        else:
            del self.chars[cols:], self.looks[cols:]

    def text(self) -> str:
        """Return the characters, empty cells as blanks, without blanks at the end."""
        return "".join(content or " " for content in self.chars if content != TAIL).rstrip(" ")
