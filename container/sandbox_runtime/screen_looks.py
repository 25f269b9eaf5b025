"""What "select graphic rendition" does to the look of the characters that follow."""

from __future__ import annotations

from sandbox_runtime.screen_line import (
    BLINK,
    BOLD,
    DIM,
    EXTENDED,
    INVERSE,
    INVISIBLE,
    ITALIC,
    OVERLINE,
    STRIKE,
    UNDERLINE,
    Extra,
    Look,
)

__all__ = ["read_params", "rendition"]

_SIXTEEN = 1 << 24
_PALETTE = 2 << 24
_RGB = 3 << 24

_MOST_PARAMS = 32
_LARGEST = 0x7FFFFFFF

_SET = {
    1: BOLD,
    2: DIM,
    3: ITALIC,
    5: BLINK,
    7: INVERSE,
    8: INVISIBLE,
    9: STRIKE,
    53: OVERLINE,
}
_UNSET = {
    22: BOLD | DIM,
    23: ITALIC,
    25: BLINK,
    27: INVERSE,
    28: INVISIBLE,
    29: STRIKE,
    55: OVERLINE,
}


def read_params(text: str) -> tuple[list[int], dict[int, list[int]]]:
    """Return a sequence's parameters, and the sub-parameters of those that have any.

    A parameter that is left out is 0, a sub-parameter -1.  Of more than 32 the rest is dropped.
    """
    if ":" not in text:
        fields = text.split(";", _MOST_PARAMS)[:_MOST_PARAMS]
        return [_number(field, 0) for field in fields], {}
    params: list[int] = []
    subs: dict[int, list[int]] = {}
    room = _MOST_PARAMS
    for field in text.split(";", _MOST_PARAMS)[:_MOST_PARAMS]:
        first, *rest = field.split(":", room + 1)
        if rest and room:
            subs[len(params)] = [_number(sub, -1) for sub in rest[:room]]
            room -= len(subs[len(params)])
        params.append(_number(first, 0))
    return params, subs


def _number(digits: str, default: int) -> int:
    if not digits:
        return default
    return min(int(digits[:4000].lstrip("0")[:11] or "0"), _LARGEST)


def rendition(look: Look, text: str) -> Look:
    """Return the look after the parameters of one sequence."""
    fg, bg, flags, extra = look
    params, subs = read_params(text)
    at = 0
    while at < len(params):
        p = params[at]
        if p == 0:
            fg = bg = 0
            flags, extra = _extended(0, (0, 0, extra[2]))
        elif p in _SET:
            flags |= _SET[p]
        elif p in _UNSET:
            flags &= ~_UNSET[p]
        elif p in (4, 21, 24):
            style = 2 if p == 21 else 0 if p == 24 else subs[at][0] if at in subs else 1
            style = 1 if style < 0 or style > 5 else style
            flags = flags | UNDERLINE if style else flags & ~UNDERLINE
            flags, extra = _extended(flags, (style, *extra[1:]))
        elif 30 <= p <= 37:
            fg = _SIXTEEN | (p - 30)
        elif 90 <= p <= 97:
            fg = _SIXTEEN | (p - 90) | 8
        elif 40 <= p <= 47:
            bg = _SIXTEEN | (p - 40)
        elif 100 <= p <= 107:
            bg = _SIXTEEN | (p - 100) | 8
        elif p == 39:
            fg = 0
        elif p == 49:
            bg = 0
        elif p == 59:
            flags, extra = _extended(flags, (extra[0], 0, extra[2]))
        elif p in (38, 48, 58):
            colour, more = _colour(params, subs, at)
            at += more
            if colour is None:
                pass
            elif p == 38:
                fg = colour
            elif p == 48:
                bg = colour
            else:
                extra = (extra[0], colour, extra[2])
        at += 1
    return fg, bg, flags, extra


def _extended(flags: int, extra: Extra) -> tuple[int, Extra]:
    """Say in the flags whether there is an underline style or a link."""
    return (flags | EXTENDED if extra[0] or extra[2] else flags & ~EXTENDED), extra


def _colour(params: list[int], subs: dict[int, list[int]], at: int) -> tuple[int | None, int]:
    """Return the colour that parameter 38, 48 or 58 at `at` introduces, and how many more it took.

    Both ways of writing are known, with semicolons and with colons, and their mixtures:
    kind, colour space (colons only, may be left out with kind 5), values.
    """
    values = [0, 0, -1, 0, 0, 0]
    space = 0
    more = 0
    while True:
        values[more + space] = params[at + more]
        if at + more in subs:
            for index, sub in enumerate(subs[at + more]):
                if values[1] == 5:
                    space = 1
                values[more + index + 1 + space] = sub
                if index + more + 2 + space >= len(values):
                    break
            break
        if (values[1] == 5 and more + space >= 2) or (values[1] == 2 and more + space >= 5):
            break
        if values[1]:
            space = 1
        more += 1
        if at + more >= len(params) or more + space >= len(values):
            break
    first, second, third = (max(value, 0) & 0xFF for value in values[3:])
    if values[1] == 2:
        return _RGB | first << 16 | second << 8 | third, more
    if values[1] == 5:
        return _PALETTE | first, more
    return None, more
