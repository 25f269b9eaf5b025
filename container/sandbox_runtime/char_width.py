"""How many columns a character takes: Unicode 6, as @xterm/xterm counts unless told otherwise.

A page may give its terminal other widths (an addon for graphemes).  What was on a line is sent to
it as text, not column by column, so such a terminal lays it out by its own rule.
"""

from __future__ import annotations

import re

__all__ = ["ODD", "char_width"]

# Pairs of first and last code point, in hexadecimal: combining marks and invisible characters of
# Unicode 6, by the rule of Markus Kuhn's wcwidth that terminals have followed since.
_ZERO = """
300-36F 483-486 488-489 591-5BD 5BF 5C1-5C2 5C4-5C5 5C7 600-603 610-615 64B-65E 670 6D6-6E4 6E7-6E8
6EA-6ED 70F 711 730-74A 7A6-7B0 7EB-7F3 901-902 93C 941-948 94D 951-954 962-963 981 9BC 9C1-9C4 9CD
9E2-9E3 A01-A02 A3C A41-A42 A47-A48 A4B-A4D A70-A71 A81-A82 ABC AC1-AC5 AC7-AC8 ACD AE2-AE3 B01 B3C
B3F B41-B43 B4D B56 B82 BC0 BCD C3E-C40 C46-C48 C4A-C4D C55-C56 CBC CBF CC6 CCC-CCD CE2-CE3 D41-D43
D4D DCA DD2-DD4 DD6 E31 E34-E3A E47-E4E EB1 EB4-EB9 EBB-EBC EC8-ECD F18-F19 F35 F37 F39 F71-F7E
F80-F84 F86-F87 F90-F97 F99-FBC FC6 102D-1030 1032 1036-1037 1039 1058-1059 1160-11FF 135F
1712-1714 1732-1734 1752-1753 1772-1773 17B4-17B5 17B7-17BD 17C6 17C9-17D3 17DD 180B-180D 18A9
1920-1922 1927-1928 1932 1939-193B 1A17-1A18 1B00-1B03 1B34 1B36-1B3A 1B3C 1B42 1B6B-1B73 1DC0-1DCA
1DFE-1DFF 200B-200F 202A-202E 2060-2063 206A-206F 20D0-20EF 302A-302F 3099-309A A806 A80B A825-A826
FB1E FE00-FE0F FE20-FE23 FEFF FFF9-FFFB 10A01-10A03 10A05-10A06 10A0C-10A0F 10A38-10A3A 10A3F
1D167-1D169 1D173-1D182 1D185-1D18B 1D1AA-1D1AD 1D242-1D244 E0001 E0020-E007F E0100-E01EF
"""
_WIDE = """
1100-115F 2329-232A 2E80-303E 3040-A4CF AC00-D7A3 F900-FAFF FE10-FE19 FE30-FE6F FF00-FF60 FFE0-FFE6
20000-2FFFD 30000-3FFFD
"""


def _class_of(pairs: str) -> str:
    ranges = (pair.partition("-") for pair in pairs.split())
    return "".join(
        f"{chr(int(first, 16))}-{chr(int(last or first, 16))}" for first, _, last in ranges
    )


_is_zero = re.compile(f"[{_class_of(_ZERO)}]").match
_is_wide = re.compile(f"[{_class_of(_WIDE)}]").match

ODD = re.compile(f"[{_class_of(_ZERO)}{_class_of(_WIDE)}]")
"""Matches a character that does not take exactly one column."""

_KNOWN_MOST = 1 << 14
_known: dict[str, int] = {}


def char_width(char: str) -> int:
    """Return the columns of one printable character: 0, 1 or 2."""
    width = _known.get(char)
    if width is None:
        width = 0 if _is_zero(char) else 2 if _is_wide(char) else 1
        if len(_known) >= _KNOWN_MOST:
            _known.clear()
        _known[char] = width
    return width
