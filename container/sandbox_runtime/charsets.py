"""Character sets that a program may switch to: line drawing and the national variants of ASCII."""

from __future__ import annotations

__all__ = ["CHARSETS"]

_LINE_DRAWING = dict(
    zip(
        "`abcdefghijklmnopqrstuvwxyz{|}~",
        "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·",
        strict=True,
    )
)

# The replaced positions, and what stands there in each set.
_VARIANTS = {
    "A": ("#", "£"),
    "4": ("#@[\\]{|}~", "£¾i½|¨f¼\u00b4"),
    "C": ("[\\]^`{|}~", "ÄÖÅÜéäöåü"),
    "R": ("#@[\\]{|}~", "£à°ç§éùè¨"),
    "Q": ("@[\\]^`{|}~", "àâçêîôéùèû"),
    "K": ("@[\\]{|}~", "§ÄÖÜäöüß"),
    "Y": ("#@[\\]`{|}~", "£§°çéùàòèì"),
    "E": ("@[\\]^`{|}~", "ÄÆØÅÜäæøåü"),
    "Z": ("#@[\\]{|}", "£§¡Ñ¿°ñç"),
    "H": ("@[\\]^`{|}~", "ÉÄÖÅÜéäöåü"),
    "=": ("#@[\\]^_`{|}~", "ùàéçêîèôäöüû"),
}
_ALIASES = {"5": "C", "6": "E", "7": "H"}

CHARSETS: dict[str, dict[int, str] | None] = {
    "0": {ord(char): drawn for char, drawn in _LINE_DRAWING.items()},
    "B": None,
    **{
        name: {ord(char): drawn for char, drawn in zip(chars, drawn_as, strict=True)}
        for name, (chars, drawn_as) in _VARIANTS.items()
    },
}
"""By final character of the designating sequence: a table for `str.translate`; None is ASCII."""

CHARSETS.update({alias: CHARSETS[name] for alias, name in _ALIASES.items()})
