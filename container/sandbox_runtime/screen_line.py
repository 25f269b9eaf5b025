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

_BLOCK = 64
_EMPTY = [""] * _BLOCK


def cell_width(content: str) -> int:
    """Return the columns of a cell's content: 2 for the first cell of a wide character, 0 after."""
    if content < "\u0300":
        return 0 if content == TAIL else 1
    return char_width(content[0])


class Line:
    """A row.  `wrapped` says that it goes on where the row above ends.

    The methods take the look that emptied cells get, and keep wide characters whole: half of one
    becomes an empty cell.

    A row whose cells are all alike has no cells until somebody asks for them: a few bytes of output
    are enough to empty or to bring in hundreds of rows, most of which nobody ever looks at.

    Attributes
    ----------
    chars : list[str]
        The content of each cell.
    looks : list[Look]
        How each cell looks.
    """

    __slots__ = ("_alike", "chars", "looks", "wrapped")

    chars: list[str]
    looks: list[Look]

    def __init__(self, cols: int, look: Look = DEFAULT_LOOK) -> None:
        self._alike: tuple[int, str, Look] | None = (cols, "", look)
        self.wrapped = False

    def __getattr__(self, name: str) -> list[str] | list[Look]:
        # Only called for a slot that is empty.
        if name not in ("chars", "looks") or self._alike is None:
            raise AttributeError(name)
        cols, content, look = self._alike
        self._alike = None
        self.chars = [content] * cols
        self.looks = [look] * cols
        return self.chars if name == "chars" else self.looks

    def __len__(self) -> int:
        return len(self.chars) if self._alike is None else self._alike[0]

    def put(self, chars: list[str], looks: list[Look]) -> None:
        """Take other cells, which are the row's from now on."""
        self._alike = None
        self.chars, self.looks = chars, looks

    def fill(self, cols: int, content: str, look: Look) -> None:
        """Make all cells alike."""
        if self._alike is None:
            del self.chars, self.looks
        self._alike = (cols, content, look)

    @property
    def is_alike(self) -> bool:
        """Whether there are no cells yet; making them costs about a microsecond for 32."""
        return self._alike is not None

    def is_empty(self, look: Look = DEFAULT_LOOK) -> bool:
        """Whether the row is known to have nothing but empty cells of this look."""
        alike = self._alike
        return alike is not None and not alike[1] and alike[2] == look

    def clear(self, at: int, look: Look) -> None:
        """Empty one cell."""
        self.chars[at] = ""
        self.looks[at] = look

    def insert(self, at: int, count: int, look: Look) -> None:
        """Push what stands from `at` on to the right; what leaves the row is lost."""
        if self.is_empty(look):
            return
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
        if self.is_empty(look):
            return
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
        if self.is_empty(look):
            return
        cols = len(self)
        if keep_protected and self._alike is not None:
            keep_protected = bool(self._alike[2][2] & PROTECTED)
        if not start and end >= cols and not keep_protected:
            self.fill(cols, "", look)
            return
        chars, looks = self.chars, self.looks
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
        elif not start and end == cols:
            self.fill(cols, "", look)
        elif start < end:
            chars[start:end] = [""] * (end - start)
            looks[start:end] = [look] * (end - start)

    def used(self) -> int:
        """Return the columns up to the end of the last character."""
        if self._alike is not None and not self._alike[1]:
            return 0
        chars = self.chars
        end = len(chars)
        while end >= _BLOCK and chars[end - _BLOCK : end] == _EMPTY:
            end -= _BLOCK
        for at in range(end - 1, -1, -1):
            content = chars[at]
            if content and content != TAIL:
                return at + cell_width(content)
        return 0

    def resize(self, cols: int) -> None:
        """Cut the row, or lengthen it with empty cells."""
        if self.is_empty():
            self.fill(cols, "", DEFAULT_LOOK)
            return
        more = cols - len(self.chars)
        if more > 0:
            self.chars += [""] * more
            self.looks += [DEFAULT_LOOK] * more
        else:
            del self.chars[cols:], self.looks[cols:]

    def text(self) -> str:
        """Return the characters, empty cells as blanks, without blanks at the end."""
        if self._alike is not None and not self._alike[1]:
            return ""
        return "".join(content or " " for content in self.chars if content != TAIL).rstrip(" ")
