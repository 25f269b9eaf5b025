"""The colours that a program has given the terminal in place of the viewer's own."""

from __future__ import annotations

import re

__all__ = ["Colours"]

_COLOUR = re.compile(r"#[0-9a-fA-F]{3,12}|rgb:[0-9a-fA-F]{1,4}(?:/[0-9a-fA-F]{1,4}){2}")
_SPECIAL = (10, 11, 12)  # foreground, background, cursor
_NO_INDEX = -1


class Colours:
    """Colours by index, and those of text, background and cursor."""

    def __init__(self) -> None:
        self.palette: dict[int, str] = {}
        self.special: dict[int, str] = {}

    def obey(self, code: int, text: str) -> None:
        """Take a command that sets colours (4, 10 to 12) or gives them back (104, 110 to 112)."""
        if code == 4:
            fields = text.split(";")
            for index, colour in zip(fields[::2], fields[1::2], strict=False):
                if _COLOUR.fullmatch(colour) and 0 <= _index(index) < 256:
                    self.palette[_index(index)] = colour
        elif code in _SPECIAL:
            for number, colour in zip(range(code, 13), text.split(";"), strict=False):
                if _COLOUR.fullmatch(colour):
                    self.special[number] = colour
        elif code == 104:
            if not text:
                self.palette.clear()
            for index in text.split(";"):
                self.palette.pop(_index(index), None)
        elif code - 100 in _SPECIAL:
            self.special.pop(code - 100, None)


def _index(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 9 else _NO_INDEX
