"""A terminal's screen, kept as @xterm/xterm 6 keeps it, so that a new viewer can be told of it.

Our own, and not pyte's: that has no alternate page, scrollback of whole rows, paste, focus and
mouse modes, cursor styles, links or underline styles, and is some ten times slower.
"""

from __future__ import annotations

import codecs

from sandbox_runtime.char_width import ODD, char_width
from sandbox_runtime.charsets import CHARSETS
from sandbox_runtime.screen_colours import Colours
from sandbox_runtime.screen_line import (
    DEFAULT_LOOK,
    EXTENDED,
    NO_EXTRA,
    PROTECTED,
    TAIL,
    Extra,
    Line,
    Look,
    cell_width,
)
from sandbox_runtime.screen_links import Links
from sandbox_runtime.screen_looks import read_params, rendition
from sandbox_runtime.screen_page import Page
from sandbox_runtime.screen_parser import ENDLESS, Parser
from sandbox_runtime.screen_reflow import resize_page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SCROLLBACK", "Modes", "Screen"]

SCROLLBACK = 1000
"""Rows kept above the screen, as many as xterm.js keeps unless told otherwise."""

_LONGEST_CLUSTER = 32
_LONGEST_TITLE = 4096
_MOST_TITLES = 10
_MOST_LOOKS = 4096
_G_SETS = {"(": 0, ")": 1, "*": 2, "+": 3, "-": 1, ".": 2}
_SHIFTS = {"n": 2, "o": 3, "|": 3, "}": 2, "~": 1}
_ERASING = frozenset(("J", "?J"))
_SHIFTING_ROWS = frozenset("LMST")
_SHIFTING_COLUMNS = frozenset((" @", " A", "'}", "'~"))
_MICE = {9: 9, 1000: 1000, 1002: 1002, 1003: 1003}


class Modes:
    """What a program switches on and off, with the values after a reset."""

    def __init__(self) -> None:
        self.cursor_visible = True
        self.convert_eol = False
        self.cursor_blink: bool | None = None  # mode 12; None until a program says so
        self.soft_reset()
        self.mouse = 0
        """0, or the number of the mode that reports the mouse: 9, 1000, 1002 or 1003."""
        self.mouse_encoding = 0
        """0, or 1006 or 1016."""

    def soft_reset(self) -> None:
        """Restore what a soft reset restores too."""
        self.insert = False
        self.application_cursor = False
        self.application_keypad = False
        self.bracketed_paste = False
        self.origin = False
        self.reverse_wrap = False
        self.focus = False
        self.synchronized = False
        self.wrap = True
        self.cursor_style = 0
        """Parameter of DECSCUSR; 0 is the viewer's own."""


class Screen:
    """Takes a terminal's output in any pieces, and holds what is to be seen.

    No output makes it raise, and its memory has a bound.

    Parameters
    ----------
    cols, rows : int
        Size; xterm has no fewer than two columns and one row, nor has this.
    scrollback : int
        Rows kept above the screen.

    Attributes
    ----------
    work : int
        What all output has cost up to now: about a microsecond for each unit.
    """

    def __init__(self, cols: int, rows: int, scrollback: int = SCROLLBACK) -> None:
        self.cols = max(cols, 2)
        self.rows = max(rows, 1)
        self.work = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self.parser = Parser(self)
        self.modes = Modes()
        self.title = ""
        self.titles: list[str] = []
        self.colours = Colours()
        self.links = Links()
        self._scrollback = scrollback
        self._looks: dict[tuple[Look, str], Look] = {}
        self._params: dict[str, list[int]] = {}
        # The whole-screen sequence just obeyed, once more of which would change nothing.
        self._settled: tuple[str, str] | None = None
        self._joined = 0  # `joins` before the sequence that is being obeyed
        self._start()
        self._controls = self._table_of_controls()
        self._sequences = self._table_of_sequences()

    def _start(self) -> None:
        """Begin with empty pages, as a full reset does."""
        self.work += self.rows >> 1
        self.normal = Page(self.cols, self.rows, self._scrollback)
        self.normal.fill()
        self.alternate = Page(self.cols, self.rows, 0)
        self.page = self.normal
        self.pen: Look = DEFAULT_LOOK
        self.extra: Extra = NO_EXTRA
        """Underline and link that are in force, even while the pen's flags do not use them."""
        self.g_sets: list[str] = ["B"] * 4
        self.g_level = 0
        self.charset: dict[int, str] | None = None
        self.joins = 0
        """Columns of the character just printed; 0 after anything else."""

    @property
    def is_alternate(self) -> bool:
        """Whether the alternate page is shown."""
        return self.page is self.alternate

    @property
    def blank(self) -> Look:
        """The look of cells that are emptied: only the background of the pen."""
        bg = self.pen[1]
        return (0, bg, 0, NO_EXTRA) if bg else DEFAULT_LOOK

    def feed(self, data: bytes, most: float = ENDLESS) -> int:
        """Draw the next bytes of the output, until `work` has come to `most`.

        Returns
        -------
        int
            How many bytes were taken.  Where that is not all, nothing is open after them.
        """
        decoder = self._decoder
        held = decoder.getstate()[0]
        text = _without_marks(decoder.decode(data))
        taken = self.parser.feed(text, most)
        if taken == len(text):
            return len(data)
        decoder.reset()
        if data.isascii() and not held:
            return taken
        return _bytes_of(held + data, taken) - len(held)

    def resize(self, cols: int, rows: int) -> None:
        """Take another size; rows of the normal page are wrapped anew."""
        cols, rows = max(cols, 2), max(rows, 1)
        if (cols, rows) == (self.cols, self.rows):
            return
        # Each row is looked at, and those that wrap anew cell by cell.
        self.work += len(self.normal.lines) * max(cols, self.cols) >> 6
        self.cols, self.rows = cols, rows
        self._settled = None
        for page in (self.normal, self.alternate):
            resize_page(page, cols, rows)
            page.extend_tabs()

    def forget(self, pen: Look, *, ascii_first_set: bool) -> None:
        """Take it that so much plain text was drawn that all of it has left the screen.

        The cursor is at the start of the last row.
        """
        page = self.page
        page.lines = []
        page.fill()
        page.x, page.y = 0, self.rows - 1
        self.overlook(pen, ascii_first_set=ascii_first_set)

    def overlook(self, pen: Look, *, ascii_first_set: bool) -> None:
        """Take it that output was drawn of which only this is left."""
        self._settled = None
        self.joins = 0
        self._use(pen)
        if ascii_first_set:
            self._designate(0, "B")

    # What the parser tells.

    def print_text(self, text: str) -> None:
        """Draw printable characters at the cursor."""
        self._settled = None
        if self.charset is not None:
            text = text.translate(self.charset)
        if self.modes.insert or not (text.isascii() or ODD.search(text) is None):
            self._print_odd(text)
            return
        page = self.page
        cols, pen = self.cols, self.pen
        x, at, count = page.x, 0, len(text)
        self.work += 1 + (count >> 7)
        line = self._touch(page.row(page.y))
        chars, looks = line.chars, line.looks
        if x and chars[x - 1] >= "\u0300" and cell_width(chars[x - 1]) == 2:
            line.clear(x - 1, pen)
        while True:
            room = cols - x
            if room <= 0:
                if not self.modes.wrap:
                    chars[cols - 1] = text[-1]
                    looks[cols - 1] = pen
                    x = cols
                    break
                line = self._touch(self._wrap())
                chars, looks = line.chars, line.looks
                x = 0
                room = cols
            take = min(room, count - at)
            chars[x : x + take] = text[at : at + take]
            looks[x : x + take] = [pen] * take
            x += take
            at += take
            if at >= count:
                break
        if x < cols and chars[x] == TAIL:
            line.clear(x, pen)
        page.x = x
        self.joins = 1

    def _wrap(self) -> Line:
        """Go to the start of the next row, which goes on from this one."""
        page = self.page
        page.y += 1
        if page.y == page.bottom + 1:
            page.y -= 1
            page.scroll(self.blank, wrapped=True)
        else:
            page.y = min(page.y, self.rows - 1)
            page.row(page.y).wrapped = True
        return page.row(page.y)

    def _touch(self, line: Line) -> Line:
        """Count what it costs that a row is about to get cells of its own."""
        self.work += self.cols >> 5 if line.is_alike else 1
        return line

    def _print_odd(self, text: str) -> None:
        """Draw characters one by one, as wide and combining ones and insert mode want it."""
        page, modes = self.page, self.modes
        cols, pen = self.cols, self.pen
        self.work += len(text) * (1 + (cols >> 7)) if modes.insert else len(text)
        line = self._touch(page.row(page.y))
        if 0 < page.x <= cols and cell_width(line.chars[page.x - 1]) == 2:
            line.clear(page.x - 1, pen)
        for char in text:
            width = char_width(char)
            joined = width == 0 and self.joins > 0
            if joined and page.x:
                at = page.x - 1
                if line.chars[at] == TAIL and at:
                    at -= 1
                if len(line.chars[at]) < _LONGEST_CLUSTER and line.chars[at] != TAIL:
                    line.chars[at] += char
                continue
            self.joins = width
            if page.x + width > cols:
                if modes.wrap:
                    old, x = line, page.x
                    line = self._touch(self._wrap())
                    page.x = 0
                    for at in range(x, cols):
                        old.clear(at, pen)
                else:
                    page.x = cols - 1
                    if width == 2:
                        continue
            x = page.x
            if x >= cols:
                continue  # a lone combining mark after the last column: xterm loses it too
            if modes.insert and width:
                line.insert(x, width, pen)
                if cell_width(line.chars[-1]) == 2:
                    line.clear(cols - 1, pen)
            line.chars[x] = char
            line.looks[x] = pen
            if width == 2:
                line.chars[x + 1] = TAIL
                line.looks[x + 1] = pen
            page.x = x + (width or 1)
        if page.x < cols and line.chars[page.x] == TAIL:
            line.clear(page.x, pen)

    def control(self, char: str) -> None:
        """Obey one control character."""
        self.work += 1
        self._settled = None
        obey = self._controls.get(char)
        if obey is not None:
            obey()
        self.joins = 0

    def csi(self, name: str, params: str) -> None:
        """Obey a control sequence."""
        self.work += 1
        self._joined, self.joins = self.joins, 0
        settled, self._settled = self._settled, None
        if name == "m":
            self._select_rendition(params)
            return
        obey = self._sequences.get(name)
        if obey is not None:
            numbers = self._params.get(params)
            if numbers is None:
                numbers = read_params(params)[0]
                if len(self._params) >= _MOST_LOOKS:
                    self._params.clear()
                self._params[params] = numbers
            # A flood of these would otherwise cost a screenful of cells for each few bytes.
            if settled == (name, params) or (settled == ("J", "2") and name in _ERASING):
                if numbers[0] != 3:
                    self._settled = settled
                    return
            elif (
                (name in _ERASING and numbers[0] < 3)
                or (name in _SHIFTING_ROWS and numbers[0] >= self.rows)
                or (name in _SHIFTING_COLUMNS and numbers[0] >= self.cols)
            ):
                self._settled = (name, params)
            obey(numbers)

    def esc(self, name: str) -> None:
        """Obey an escape sequence."""
        self.work += 1
        self.joins = 0
        settled, self._settled = self._settled, None
        if name in ("c", "#8"):
            if settled == ("", name):
                self._settled = settled
                return
            self._settled = ("", name)
        if name[0] in _G_SETS and len(name) == 2:
            if name[1] in CHARSETS:
                self._designate(_G_SETS[name[0]], name[1])
        elif name in _SHIFTS:
            self._shift_to(_SHIFTS[name])
        elif name == "7":
            self._save_cursor()
        elif name == "8":
            self._restore_cursor()
        elif name == "D":
            self._index()
        elif name == "E":
            self._next_line()
        elif name == "H":
            self._set_tab()
        elif name == "M":
            self._reverse_index()
        elif name in "=>":
            self.modes.application_keypad = name == "="
        elif name == "c":
            self._full_reset()
        elif name in ("%@", "%G"):
            self._shift_to(0)
            self._designate(0, "B")
        elif name == "#8":
            self._align()

    def osc(self, text: str) -> None:
        """Obey an operating system command."""
        self.work += 1 + (len(text) >> 6)
        self._settled = None
        number, separator, rest = text.partition(";")
        if not number.isascii() or not number.isdigit() or len(number) > 4:
            return
        code = int(number)
        if code in (0, 2):
            self.title = rest[:_LONGEST_TITLE]
        elif code == 8 and separator:
            self._link(rest)
        else:
            self.colours.obey(code, rest)

    def interrupt(self) -> None:
        """End a cluster: a combining mark that follows stands by itself."""
        self.joins = 0

    # Cursor.

    def _confine(self, last: int | None = None) -> None:
        """Bring the cursor back between the margins (with origin mode) or onto the screen."""
        page = self.page
        page.x = min(self.cols - 1 if last is None else last, max(0, page.x))
        if self.modes.origin:
            page.y = min(page.bottom, max(page.top, page.y))
        else:
            page.y = min(self.rows - 1, max(0, page.y))

    def _go(self, x: int, y: int) -> None:
        self.page.x = x
        self.page.y = y + self.page.top if self.modes.origin else y
        self._confine()

    def _move(self, x: int, y: int) -> None:
        self._confine()
        # As xterm does it: with origin mode the upper margin is added once more.
        self._go(self.page.x + x, self.page.y + y)

    def _up(self, params: list[int]) -> None:
        room = self.page.y - self.page.top
        count = params[0] or 1
        self._move(0, -(min(room, count) if room >= 0 else count))

    def _down(self, params: list[int]) -> None:
        room = self.page.bottom - self.page.y
        count = params[0] or 1
        self._move(0, min(room, count) if room >= 0 else count)

    def _down_to_start(self, params: list[int]) -> None:
        self._down(params)
        self.page.x = 0

    def _up_to_start(self, params: list[int]) -> None:
        self._up(params)
        self.page.x = 0

    def _position(self, params: list[int]) -> None:
        self._go((params[1] or 1) - 1 if len(params) > 1 else 0, (params[0] or 1) - 1)

    def _column(self, params: list[int]) -> None:
        self._go((params[0] or 1) - 1, self.page.y)

    def _row(self, params: list[int]) -> None:
        self._go(self.page.x, (params[0] or 1) - 1)

    def _save_cursor(self, _params: list[int] | None = None) -> None:
        page = self.page
        page.saved_x = page.x
        page.saved_y = page.base + page.y
        page.saved_look = self.pen
        page.saved_charset = self.charset

    def _restore_cursor(self, _params: list[int] | None = None) -> None:
        page = self.page
        page.x = page.saved_x
        page.y = max(page.saved_y - page.base, 0)
        fg, bg, flags, _ = page.saved_look
        self._use((fg, bg, flags, self.extra))
        self.charset = page.saved_charset
        self._confine()

    # Controls.

    def _table_of_controls(self) -> dict[str, Callable[[], None]]:
        return {
            "\n": self._line_feed,
            "\v": self._line_feed,
            "\f": self._line_feed,
            "\r": self._carriage_return,
            "\b": self._backspace,
            "\t": self._tab,
            "\x0e": lambda: self._shift_to(1),
            "\x0f": lambda: self._shift_to(0),
            "\x84": self._index,
            "\x85": self._next_line,
            "\x88": self._set_tab,
        }

    def _line_feed(self) -> None:
        page = self.page
        if self.modes.convert_eol:
            page.x = 0
        page.y += 1
        if page.y == page.bottom + 1:
            page.y -= 1
            page.scroll(self.blank)
        elif page.y >= self.rows:
            page.y = self.rows - 1
        else:
            page.row(page.y).wrapped = False
        if page.x >= self.cols:
            page.x -= 1

    def _carriage_return(self) -> None:
        self.page.x = 0

    def _backspace(self) -> None:
        page = self.page
        if not self.modes.reverse_wrap:
            self._confine()
            page.x = max(page.x - 1, 0)
            return
        self._confine(self.cols)
        if page.x > 0:
            page.x -= 1
        elif page.top < page.y <= page.bottom and page.row(page.y).wrapped:
            page.row(page.y).wrapped = False
            page.y -= 1
            page.x = self.cols - 1
            if not page.row(page.y).chars[page.x]:
                page.x -= 1  # left empty by a wide character that did not fit
        self._confine()

    def _tab(self) -> None:
        if self.page.x < self.cols:
            self.page.x = self.page.next_tab()

    def _set_tab(self) -> None:
        self.page.set_tab()

    def _index(self) -> None:
        self._confine()
        page = self.page
        page.y += 1
        if page.y == page.bottom + 1:
            page.y -= 1
            page.scroll(self.blank)
        elif page.y >= self.rows:
            page.y = self.rows - 1
        self._confine()

    def _next_line(self) -> None:
        self.page.x = 0
        self._index()

    def _reverse_index(self) -> None:
        self._confine()
        page = self.page
        if page.y == page.top:
            page.shift(page.y, 1, self.blank)
        else:
            page.y -= 1
            self._confine()

    # Sequences.

    def _table_of_sequences(self) -> dict[str, Callable[[list[int]], None]]:
        return {
            "@": lambda p: self._edit_row(lambda line, x: line.insert(x, p[0] or 1, self.blank)),
            "P": lambda p: self._edit_row(lambda line, x: line.delete(x, p[0] or 1, self.blank)),
            "X": lambda p: self._edit_row(
                lambda line, x: line.erase(x, x + (p[0] or 1), self.blank)
            ),
            "A": self._up,
            "B": self._down,
            "C": lambda p: self._move(p[0] or 1, 0),
            "D": lambda p: self._move(-(p[0] or 1), 0),
            "E": self._down_to_start,
            "F": self._up_to_start,
            "G": self._column,
            "`": self._column,
            "H": self._position,
            "f": self._position,
            "I": self._tab_forward,
            "Z": self._tab_backward,
            "a": lambda p: self._move(p[0] or 1, 0),
            "d": self._row,
            "e": lambda p: self._move(0, p[0] or 1),
            "J": self._erase_display,
            "?J": lambda p: self._erase_display(p, keep_protected=True),
            "K": self._erase_line,
            "?K": lambda p: self._erase_line(p, keep_protected=True),
            "L": lambda p: self._shift_rows(p[0] or 1),
            "M": lambda p: self._shift_rows(-(p[0] or 1)),
            "S": lambda p: self._shift(self.page.top, -(p[0] or 1), self.blank),
            "T": lambda p: self._shift(self.page.top, p[0] or 1, DEFAULT_LOOK),
            " @": lambda p: self._edit_region(lambda line: line.delete(0, p[0] or 1, self.blank)),
            " A": lambda p: self._edit_region(lambda line: line.insert(0, p[0] or 1, self.blank)),
            "'}": lambda p: self._edit_region(
                lambda line: line.insert(self.page.x, p[0] or 1, self.blank)
            ),
            "'~": lambda p: self._edit_region(
                lambda line: line.delete(self.page.x, p[0] or 1, self.blank)
            ),
            "b": self._repeat,
            "g": self._clear_tab,
            "h": lambda p: self._set_modes(p, value=True),
            "l": lambda p: self._set_modes(p, value=False),
            "?h": lambda p: self._set_private_modes(p, value=True),
            "?l": lambda p: self._set_private_modes(p, value=False),
            "!p": self._soft_reset,
            " q": self._cursor_style,
            '"q': self._protect,
            "r": self._margins,
            "s": self._save_cursor,
            "u": self._restore_cursor,
            "t": self._window,
        }

    def _edit_row(self, edit: Callable[[Line, int], None]) -> None:
        self.work += self.cols >> 7
        self._confine()
        edit(self._touch(self.page.row(self.page.y)), self.page.x)

    def _edit_region(self, edit: Callable[[Line], None]) -> None:
        page = self.page
        if page.top <= page.y <= page.bottom:
            self.work += (page.bottom - page.top) * self.cols >> 9
            blank = self.blank
            for y in range(page.top, page.bottom + 1):
                line = page.row(y)
                if not line.is_empty(blank):
                    edit(self._touch(line))
                line.wrapped = False

    def _shift_rows(self, count: int) -> None:
        self._confine()
        page = self.page
        if page.top <= page.y <= page.bottom:
            self._shift(page.y, count, self.blank)
            page.x = 0

    def _shift(self, first: int, count: int, look: Look) -> None:
        self.work += min(abs(count), self.rows) >> 1
        self.page.shift(first, count, look)

    def _tab_forward(self, params: list[int]) -> None:
        if self.page.x < self.cols:
            self.page.x = self.page.next_tab(params[0] or 1)

    def _tab_backward(self, params: list[int]) -> None:
        if self.page.x < self.cols:
            self.page.x = self.page.previous_tab(self.page.x, params[0] or 1)

    def _clear_tab(self, params: list[int]) -> None:
        if params[0] == 0:
            self.page.clear_tab()
        elif params[0] == 3:
            self.page.tabs.clear()

    def _erase_display(self, params: list[int], *, keep_protected: bool = False) -> None:
        self._confine(self.cols)
        page, look = self.page, self.blank
        if params[0] == 0:
            self._erase(page.y, page.x, self.cols, page.x == 0, keep_protected)
            whole = range(page.y + 1, self.rows)
        elif params[0] == 1:
            self._erase(page.y, 0, page.x + 1, True, keep_protected)
            whole = range(page.y)
        elif params[0] == 2:
            whole = range(self.rows)
        else:
            if params[0] == 3:
                page.drop_scrollback()
            return
        self.work += len(whole) * (32 + self.cols if keep_protected else 32) >> 6
        for y in whole:
            line = page.row(y)
            line.erase(0, self.cols, look, keep_protected=keep_protected)
            line.wrapped = False

    def _erase_line(self, params: list[int], *, keep_protected: bool = False) -> None:
        self._confine(self.cols)
        page = self.page
        if params[0] == 0:
            self._erase(page.y, page.x, self.cols, page.x == 0, keep_protected)
        elif params[0] == 1:
            self._erase(page.y, 0, page.x + 1, False, keep_protected)
        elif params[0] == 2:
            self._erase(page.y, 0, self.cols, True, keep_protected)

    def _erase(self, y: int, start: int, end: int, unwrap: bool, keep_protected: bool) -> None:  # noqa: FBT001
        self.work += self.cols >> 7
        line = self._touch(self.page.row(y))
        line.erase(start, end, self.blank, keep_protected=keep_protected)
        if unwrap:
            line.wrapped = False

    def _repeat(self, params: list[int]) -> None:
        if not self._joined:
            return
        page = self.page
        at = page.x - self._joined
        text = page.row(page.y).chars[at] if 0 <= at < self.cols else ""
        if not text or text == TAIL:
            return
        # A dozen bytes must not fill the whole scrollback: beyond a screenful only the column that
        # the cursor ends in is as xterm has it.
        per_row = self.cols // self._joined
        most = self.rows * per_row
        count = params[0] or 1
        if count > most:
            count = most + count % per_row
        self.joins = self._joined
        alike = text.isascii() and self.charset is None and not self.modes.insert
        if alike and self.modes.wrap:
            count = self._repeat_rows(text, count)
        self.print_text(text * count)
        self.joins = 0

    def _repeat_rows(self, char: str, count: int) -> int:
        """Fill whole rows with a character; return how often it is still to be printed."""
        page, cols = self.page, self.cols
        first = max(cols - page.x, 0)
        if count <= first + cols:
            return count
        self.print_text(char * first)
        count -= first
        self.work += count // cols
        while count > cols:
            self._wrap().fill(cols, char, self.pen)
            count -= cols
        page.x = cols
        return count

    def _align(self) -> None:
        fg, bg, flags, _ = self.pen
        look = (fg, bg, flags & ~EXTENDED, NO_EXTRA)
        self._go(0, 0)
        # With origin mode the cursor is not at the top, and rows below the screen do not exist.
        self.work += self.rows >> 1
        for y in range(self.page.y, self.rows):
            line = self.page.row(y)
            line.fill(self.cols, "E", look)
            line.wrapped = False
        self._go(0, 0)

    def _margins(self, params: list[int]) -> None:
        top = params[0] or 1
        bottom = params[1] if len(params) > 1 else 0
        if bottom == 0 or bottom > self.rows:
            bottom = self.rows
        if bottom > top:
            self.page.top, self.page.bottom = top - 1, bottom - 1
            self._go(0, 0)

    def _window(self, params: list[int]) -> None:
        which = params[1] if len(params) > 1 else 0
        if which not in (0, 2):
            return
        if params[0] == 22:
            self.titles = [*self.titles, self.title][-_MOST_TITLES:]
        elif params[0] == 23 and self.titles:
            self.title = self.titles.pop()

    # Looks, links and character sets.

    def _select_rendition(self, params: str) -> None:
        pen = self.pen
        before = pen if pen[3] is self.extra else (pen[0], pen[1], pen[2], self.extra)
        key = (before, params)
        after = self._looks.get(key)
        if after is None:
            after = rendition(before, params)
            if len(self._looks) >= _MOST_LOOKS:
                self._looks.clear()
            self._looks[key] = after
        self._use(after)

    def _use(self, look: Look) -> None:
        self.extra = look[3]
        self.pen = look if look[2] & EXTENDED else (*look[:3], NO_EXTRA)

    def _protect(self, params: list[int]) -> None:
        fg, bg, flags, _ = self.pen
        if params[0] == 1:
            flags |= PROTECTED
        elif params[0] in (0, 2):
            flags &= ~PROTECTED
        self._use((fg, bg, flags, self.extra))

    def _link(self, text: str) -> None:
        params, separator, uri = text.partition(";")
        if not separator or (not uri and params.strip()):
            return
        link = self.links.number(self, params.strip(), uri) if uri else 0
        fg, bg, flags, _ = self.pen
        style, colour, _ = self.extra
        flags = flags | EXTENDED if style or link else flags & ~EXTENDED
        self._use((fg, bg, flags, (style, colour, link)))

    def _designate(self, number: int, name: str) -> None:
        self.g_sets[number] = name
        if number == self.g_level:
            self.charset = CHARSETS[name]

    def _shift_to(self, level: int) -> None:
        self.g_level = level
        self.charset = CHARSETS[self.g_sets[level]]

    # Modes and resets.

    def _set_modes(self, params: list[int], *, value: bool) -> None:
        for param in params:
            if param == 4:
                self.modes.insert = value
            elif param == 20:
                self.modes.convert_eol = value

    def _set_private_modes(self, params: list[int], *, value: bool) -> None:
        modes = self.modes
        for param in params:
            if param == 1:
                modes.application_cursor = value
            elif param == 2:
                if value:
                    for number in range(4):
                        self._designate(number, "B")
            elif param == 6:
                modes.origin = value
                self._go(0, 0)
            elif param == 7:
                modes.wrap = value
            elif param == 12:
                modes.cursor_blink = value
            elif param == 25:
                modes.cursor_visible = value
            elif param == 45:
                modes.reverse_wrap = value
            elif param == 66:
                modes.application_keypad = value
            elif param in _MICE:
                modes.mouse = param if value else 0
            elif param == 1004:
                modes.focus = value
            elif param in (1006, 1016):
                modes.mouse_encoding = param if value else 0
            elif param in (47, 1047, 1048, 1049):
                self._switch(param, to_alternate=value)
            elif param == 2004:
                modes.bracketed_paste = value
            elif param == 2026:
                modes.synchronized = value

    def _switch(self, mode: int, *, to_alternate: bool) -> None:
        """Show the other page, with the cursor where it is; 1048 and 1049 save and restore it."""
        here = self.page
        if to_alternate:
            if mode in (1048, 1049):
                self._save_cursor()
            if mode != 1048 and here is self.normal:
                self.work += self.rows >> 1
                self.alternate.fill(self.blank)
                self.alternate.x, self.alternate.y = here.x, here.y
                self.page = self.alternate
            return
        if mode != 1048 and here is self.alternate:
            self.normal.x, self.normal.y = here.x, here.y
            self.alternate.clear()
            self.page = self.normal
        if mode in (1048, 1049):
            self._restore_cursor()

    def _cursor_style(self, params: list[int]) -> None:
        self.modes.cursor_style = params[0] if params[0] <= 6 else self.modes.cursor_style

    def _soft_reset(self, _params: list[int]) -> None:
        page = self.page
        self.modes.cursor_visible = True
        self.modes.soft_reset()
        page.reset_margins()
        self._use(DEFAULT_LOOK)
        self.g_sets = ["B"] * 4
        self._shift_to(0)
        page.saved_x = 0
        page.saved_y = page.base
        page.saved_look = DEFAULT_LOOK
        page.saved_charset = None

    def _full_reset(self) -> None:
        """Begin anew; title, colours, cursor visibility and mode 20 stay, as xterm has it."""
        modes = Modes()
        modes.cursor_visible = self.modes.cursor_visible
        modes.convert_eol = self.modes.convert_eol
        modes.cursor_blink = self.modes.cursor_blink
        self.modes = modes
        self._start()


def _without_marks(text: str) -> str:
    """Leave out byte order marks, which xterm drops wherever they stand."""
    return text.replace("\ufeff", "") if "\ufeff" in text else text


def _bytes_of(data: bytes, count: int) -> int:
    """Return after how many bytes so many characters are read."""
    low, high = count, len(data)
    while low < high:
        middle = (low + high) // 2
        if len(_without_marks(data[:middle].decode("utf-8", "ignore"))) < count:
            low = middle + 1
        else:
            high = middle
    return low
