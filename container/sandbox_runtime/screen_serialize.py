"""Turns a screen into output that makes a viewer's terminal the same, whatever it showed before.

The output is: reset, scrollback and screen of the normal page, the alternate page where it is
shown, then cursor and modes.  Nothing in it makes a terminal answer, but for the focus report that
switching mode 1004 on makes browsers send: that is news, not an answer to an old question.

Rows are written one after the other and wrap where they wrapped, so that a viewer can wrap them
anew later, and each begins and ends without colours, so that any number of the oldest may be left
out.  Empty cells stay empty: they are skipped or erased, not written as blanks.

What output cannot bring about, and a viewer therefore does not get: which rows wrapped on a screen
of one row; empty cells that are underlined or inverse (they become blanks); the columns that a
narrower alternate page has lost (the program draws them again); the row of a saved cursor that has
left the screen; a link that restoring the cursor has hidden, if colours were changed since.
"""

from __future__ import annotations

from sandbox_runtime.charsets import CHARSETS
from sandbox_runtime.screen_grammar import resume
from sandbox_runtime.screen_line import (
    BLINK,
    BOLD,
    DEFAULT_LOOK,
    DIM,
    EXTENDED,
    INVERSE,
    INVISIBLE,
    ITALIC,
    NO_EXTRA,
    OVERLINE,
    PROTECTED,
    STRIKE,
    TAIL,
    UNDERLINE,
    Line,
    Look,
    cell_width,
)
from sandbox_runtime.screen_page import Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_runtime.screen import Screen

__all__ = ["serialize"]

# CAN ends whatever sequence the viewer may have been left in, without its being obeyed.  A full
# reset leaves some things alone: cursor visibility, new-line mode, colours.
_RESET = "\x18\x1bc\x1b[?25h\x1b[20l\x1b]104\x07\x1b]110\x07\x1b]111\x07\x1b]112\x07"

_NOTHING = "\x1b[?7h"  # wrapping is on while rows are written

_FLAGS = (
    (BOLD, "1"),
    (DIM, "2"),
    (ITALIC, "3"),
    (BLINK, "5"),
    (INVERSE, "7"),
    (INVISIBLE, "8"),
    (STRIKE, "9"),
    (OVERLINE, "53"),
)
_SHIFTS = ("\x0f", "\x0e", "\x1bn", "\x1bo")
_DESIGNATORS = "()*+"

_MOST_KNOWN = 1024
_known_looks: dict[Look, str] = {}
"""A screen has few looks, and thousands of changes between them."""


def serialize(screen: Screen, most: int) -> bytes:
    """Return the output for a viewer, of at most `most` bytes.

    The oldest rows of the scrollback are left out first, then colours of the upper rows of the
    screen, then these rows' text.
    """
    head = _RESET + _titles_and_colours(screen)
    tail = _normal_state(screen)
    alternate = ""
    normal = screen.normal
    finish = _final_state(screen) + resume(screen.parser.state).decode()
    room = most - _size(head) - _size(tail) - _size(finish) - 512
    if screen.is_alternate:
        tail += _switch(normal)
        rows = _screen_rows(screen, screen.alternate.lines, room)
        alternate = "".join(rows)
        room -= _size(alternate)
    shown = _screen_rows(screen, normal.lines[normal.base :], room, _before(normal))
    room -= sum(map(_size, shown))
    above: list[str] = []
    for at in range(normal.base - 1, -1, -1):
        row = _row(screen, normal.lines, at, first=at == 0)
        room -= _size(row)
        if room < 0:
            break
        above.append(row)
    above.reverse()
    if above and len(above) < normal.base:
        # The first row kept goes on from one that is left out.
        above[0] = _row(screen, normal.lines, normal.base - len(above), first=True)
    elif not above and normal.base:
        shown[0] = _without_lead(screen, normal, shown[0])
    text = "".join((head, *above, *shown, tail, alternate, finish))
    return text.encode("utf-8", "ignore")


def _without_lead(screen: Screen, page: Page, row: str) -> str:
    """Return the first row of a screen as it is when the rows above are left out."""
    if row.startswith("\r\n"):
        return row[2:]
    alone = _row(screen, page.lines, page.base, first=True)
    return alone if _size(alone) <= _size(row) else ""


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "ignore"))


def _before(page: Page) -> Line | None:
    return page.lines[page.base - 1] if page.base else None


# Rows.


def _screen_rows(
    screen: Screen, lines: list[Line], room: int, before: Line | None = None
) -> list[str]:
    """Return the rows of a screen, from the last one up as well as there is room for them."""
    all_lines = lines if before is None else [before, *lines]
    skip = len(all_lines) - len(lines)
    rows: list[str] = []
    # What does not fit is not tried again for each row above: making it takes the time.
    is_plain = is_bare = False
    for at in range(len(all_lines) - 1, skip - 1, -1):
        # Two bytes are enough for the end of each row above.
        left = room - 2 * (at - skip)
        row = "" if is_bare else _row(screen, all_lines, at, first=at == 0, plain=is_plain)
        if not is_plain and _size(row) > left:
            is_plain = True
            row = _row(screen, all_lines, at, first=at == 0, plain=True)
        if is_bare or _size(row) > left:
            is_bare = True
            row = "" if at == 0 else "\r\n"
        room -= _size(row)
        rows.append(row)
    rows.reverse()
    return rows


def _row(screen: Screen, lines: list[Line], at: int, *, first: bool, plain: bool = False) -> str:
    """Return one row, with what leads to it from the row above."""
    line = lines[at]
    cols = len(line)
    out: list[str] = []
    x = 0
    if first:
        pass
    elif line.wrapped and not plain:
        lead, x = _lead(screen, lines[at - 1], line)
        out.append(lead)
    else:
        out.append("\r\n")
    if line.is_empty():
        return "".join(out)
    chars, looks = line.chars, line.looks
    now = DEFAULT_LOOK
    while x < cols:
        look = looks[x]
        content = chars[x]
        end = x + 1
        if content == TAIL:
            if not x or cell_width(chars[x - 1]) != 2:
                out.append(_right(1))  # inserting columns has torn a wide character
            x = end
            continue
        if content == "" and not _is_drawn(look):
            while end < cols and chars[end] == "" and looks[end] == look:
                end += 1
            if look[1] == 0 or plain:
                if end < cols:
                    out.append(_right(end - x))
            else:
                blank = (0, look[1], 0, NO_EXTRA)
                out.append(_change(screen, now, blank))
                now = blank
                # In the first column, erasing to the end would undo the wrapping.
                whole = end == cols and x > 0
                out.append("\x1b[K" if whole else f"\x1b[{end - x}X{_right(end - x)}")
            x = end
            continue
        while end < cols and looks[end] == look and chars[end]:
            end += 1
        if plain:
            look = DEFAULT_LOOK
        elif look != now:
            out.append(_change(screen, now, look))
            now = look
        if content == "":
            if end == cols and at + 1 < len(lines) and _is_left(line, lines[at + 1]):
                break
            out.append(" ")  # empty, and yet underlined or inverse
            end = x + 1
        else:
            out.append(_text(chars[x:end]))
        x = end
    out.append(_change(screen, now, DEFAULT_LOOK))
    return "".join(out)


def _is_left(line: Line, after: Line) -> bool:
    """Whether a row's last cell is empty because the wide character after it did not fit."""
    return (
        after.wrapped
        and line.chars[-1] == ""
        and cell_width(after.chars[0]) == 2
        and line.looks[-1] == after.looks[0]
    )


def _is_drawn(look: Look) -> bool:
    """Whether an empty cell of this look is to be written as a blank, as it cannot be erased to."""
    return look[0] != 0 or look[2] != 0


def _text(chars: list[str]) -> str:
    text = "".join(chars)
    if text.isascii() and TAIL not in text:
        return text
    parts = []
    for content in chars:
        if content == TAIL:
            continue
        if cell_width(content) == 0:
            parts.append(_NOTHING)  # so that a mark that stands by itself stays so
        parts.append(content)
    return "".join(parts)


def _lead(screen: Screen, above: Line, line: Line) -> tuple[str, int]:
    """Return what makes a viewer wrap from one row to the next, and the columns that it wrote.

    The cursor is after the row above: behind its last column, if that is not empty.
    """
    cols = len(above.chars)
    first, look = line.chars[0], line.looks[0]
    empty = f"\r\x1b[m\x1b[{cols}X"
    back = ""
    to_end = ""
    is_left = _is_left(above, line)
    if is_left or (above.chars[-1] == "" and not _is_drawn(above.looks[-1])):
        to_end = f"\x1b[{cols}G"
        if not is_left:
            # Something is written into the last column to make it wrap, and taken away again.
            to_end += "-"
            background = (0, above.looks[-1][1], 0, NO_EXTRA)
            back = f"\x1b[A\x1b[{cols}G{_sgr(background)}\x1b[X\x1b[m\x1b[B"
    if back and screen.rows == 1:
        return "\r\n", 0  # there is no way back up
    if back or first in ("", TAIL) or cell_width(first) == 0:
        return f"{to_end}-{back}{empty}", 0
    lead = to_end + _change(screen, DEFAULT_LOOK, look) + first
    lead += _change(screen, look, DEFAULT_LOOK)
    # A row that scrolling brings in has the background of the moment.
    return lead + ("\x1b[K" if look[1] else ""), cell_width(first)


def _right(count: int) -> str:
    return "\x1b[C" if count == 1 else f"\x1b[{count}C" if count else ""


# Looks.


def _colour(colour: int, base: int) -> str:
    kind, value = colour >> 24, colour & 0xFFFFFF
    if kind == 3:
        return f"{base + 8};2;{value >> 16};{value >> 8 & 255};{value & 255}"
    if kind == 2 or base == 50:
        return f"{base + 8};5;{value & 255}"
    return str((base + 60 if value & 8 else base) + (value & 7))


def _sgr(look: Look) -> str:
    """Return the sequence that leads from no look at all to this one, but for link, protection."""
    found = _known_looks.get(look)
    if found is None:
        if len(_known_looks) >= _MOST_KNOWN:
            _known_looks.clear()
        found = _known_looks[look] = _sequence_of(look)
    return found


def _sequence_of(look: Look) -> str:
    fg, bg, flags, extra = look
    parts = [code for flag, code in _FLAGS if flags & flag]
    if flags & UNDERLINE:
        style = extra[0] if flags & EXTENDED else 1
        parts.append("4" if style <= 1 else "21" if style == 2 else f"4:{style}")
    if fg:
        parts.append(_colour(fg, 30))
    if bg:
        parts.append(_colour(bg, 40))
    if extra[1]:
        parts.append(_colour(extra[1], 50))
    return f"\x1b[{';'.join(parts)}m" if parts else ""


def _change(screen: Screen, now: Look, look: Look) -> str:
    """Return what leads from one look to another."""
    if now == look:
        return ""
    out = ""
    if now[:2] != look[:2] or now[2] != look[2] or now[3][:2] != look[3][:2]:
        out = ("\x1b[m" if now != DEFAULT_LOOK else "") + _sgr(look)
        if look[2] & PROTECTED:
            out += '\x1b[1"q'
    if now[3][2] != look[3][2]:
        out += _link(screen, look[3][2])
    return out


def _link(screen: Screen, number: int) -> str:
    if not number:
        return "\x1b]8;;\x07"
    name, uri = screen.links.target(number)
    # Rows are written one by one, so a link without a name gets one to stay a single link.
    return f"\x1b]8;id={name or f'_{number}'};{uri}\x07"


# State.


def _titles_and_colours(screen: Screen) -> str:
    out = [f"\x1b]2;{title}\x07\x1b[22;2t" for title in screen.titles]
    if screen.title or screen.titles:
        out.append(f"\x1b]2;{screen.title}\x07")
    colours = screen.colours
    out.extend(f"\x1b]4;{index};{colour}\x07" for index, colour in colours.palette.items())
    out.extend(f"\x1b]{code};{colour}\x07" for code, colour in colours.special.items())
    return "".join(out)


def _at(x: int, y: int) -> str:
    return f"\x1b[{y + 1};{x + 1}H"


def _page_state(page: Page) -> str:
    """Return what sets tab stops, saved cursor and margins; the cursor moves, the look is reset."""
    out = []
    if [tab for tab in page.tabs if tab < page.cols] != list(range(0, page.cols, 8)):
        out.append("\x1b[3g")
        out.extend(f"\x1b[{tab + 1}G\x1bH" for tab in page.tabs if tab < page.cols)
    out.append(_saved_cursor(page))
    if (page.top, page.bottom) != (0, page.rows - 1):
        out.append(f"\x1b[{page.top + 1};{page.bottom + 1}r")
    return "".join(out)


def _saved_cursor(page: Page) -> str:
    fg, bg, flags, _ = page.saved_look
    x = min(page.saved_x, page.cols - 1)
    y = min(max(page.saved_y - page.base, 0), page.rows - 1)
    charset = _charset_name(page.saved_charset)
    if (x, page.saved_y, fg, bg, flags, charset) == (0, 0, 0, 0, 0, "B"):
        return ""
    # Whether styles and links are in use is saved, which ones is not.
    extended = flags & EXTENDED
    style = 3 if extended and flags & UNDERLINE else 0
    link = extended and not style
    parts = (
        (_at(x, y), True),
        ("\x1b]8;;x:\x07", link),
        (_sgr((fg, bg, flags, (style, 0, 0))), True),
        ('\x1b[1"q', flags & PROTECTED),
        (f"\x1b({charset}", charset != "B"),
        ("\x1b7\x1b[m", True),
        ("\x1b(B", charset != "B"),
        ("\x1b]8;;\x07", link),
    )
    return "".join(text for text, wanted in parts if wanted)


def _charset_name(charset: dict[int, str] | None) -> str:
    return next(name for name, table in CHARSETS.items() if table is charset)


def _normal_state(screen: Screen) -> str:
    if screen.is_alternate:
        return _page_state(screen.normal)
    # The alternate page keeps its saved cursor while it is not shown.
    saved = _saved_cursor(screen.alternate)
    return f"\x1b[?1047h{saved}\x1b[?1047l" if saved else ""


def _switch(normal: Page) -> str:
    return f"{_at(min(normal.x, normal.cols - 1), normal.y)}\x1b[?1047h\x1b[H"


def _final_state(screen: Screen) -> str:
    page, modes = screen.page, screen.modes
    out = [_page_state(page)]
    pen: Look = (*screen.pen[:3], screen.extra)
    sets = "".join(
        f"\x1b{_DESIGNATORS[number]}{name}"
        for number, name in enumerate(screen.g_sets)
        if name != "B"
    )
    sets += _SHIFTS[screen.g_level] if screen.g_level else ""
    saved = page.saved_look
    # Restoring the cursor brings back a character set without designating it, and a look without
    # the link that was open; only doing it again has these effects.
    hidden = (
        pen[3][2] != 0
        and not pen[2] & EXTENDED
        and not saved[2] & EXTENDED
        and pen[:3] == saved[:3]
    )
    restored = screen.charset is not CHARSETS[screen.g_sets[screen.g_level]]
    restored = restored and screen.charset is page.saved_charset
    if hidden:
        sets += _link(screen, pen[3][2])
    if hidden or restored:
        sets += "\x1b8" if hidden else "\x1b8\x1b[m"
    top = 0
    if modes.origin:
        out.append("\x1b[?6h")
        top = page.top
    x, y = page.x, max(page.y - top, 0)
    line = page.row(page.y)
    rejoin = behind = ""
    if screen.joins and page.x >= screen.joins:
        at = page.x - screen.joins
        if line.chars[at] and line.chars[at] != TAIL:
            rejoin = line.chars[at]
            x = at
    if not rejoin and page.x >= page.cols:
        # The cursor is behind the last column because something was drawn there.
        x = page.cols - 1
        if line.chars[x] == TAIL:
            x -= 1
        behind = _change(screen, DEFAULT_LOOK, line.looks[x]) + (line.chars[x] or " ")
        behind += _change(screen, line.looks[x], DEFAULT_LOOK) + "\x1b[m"
    place = _at(x, y) + behind
    out.append(place + sets if behind and not (hidden or restored) else sets + place)
    if not hidden:
        out.append(_pen(screen, pen))
    out.append(_modes(screen))
    if rejoin:
        # Drawn again, so that a combining mark or a repetition to come finds its character.
        if modes.insert:
            out.append(f"\x1b[{screen.joins}P")
        out.append(rejoin)
    return "".join(out)


def _pen(screen: Screen, pen: Look) -> str:
    fg, bg, flags, extra = pen
    style = extra[0] if flags & UNDERLINE else 0
    out = _sgr((fg, bg, flags, (style, extra[1], 0)))
    if flags & PROTECTED:
        out += '\x1b[1"q'
    return out + (_link(screen, extra[2]) if flags & EXTENDED and extra[2] else "")


def _modes(screen: Screen) -> str:
    modes = screen.modes
    blink = modes.cursor_blink
    parts = (
        ("\x1b[4h", modes.insert),
        ("\x1b[20h", modes.convert_eol),
        ("\x1b[?1h", modes.application_cursor),
        ("\x1b=", modes.application_keypad),
        ("\x1b[?7l", not modes.wrap),
        (f"\x1b[?12{'h' if blink else 'l'}", blink is not None),
        ("\x1b[?45h", modes.reverse_wrap),
        (f"\x1b[?{modes.mouse}h", modes.mouse),
        (f"\x1b[?{modes.mouse_encoding}h", modes.mouse_encoding),
        ("\x1b[?1004h", modes.focus),
        ("\x1b[?2004h", modes.bracketed_paste),
        (f"\x1b[{modes.cursor_style} q", modes.cursor_style),
        ("\x1b[?25l", not modes.cursor_visible),
        ("\x1b[?2026h", modes.synchronized),
    )
    return "".join(text for text, wanted in parts if wanted)
