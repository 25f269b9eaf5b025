"""The grammar of terminal output: in which state a character leaves the reader of the stream.

It is the one of DEC's VT500 parser as @xterm/xterm 6 reads it, so that what is called complete
here is complete there, malformed sequences included.
"""

from __future__ import annotations

__all__ = [
    "CSI_ENTRY",
    "CSI_IGNORE",
    "CSI_INTERMEDIATE",
    "CSI_PARAM",
    "CSI_STATES",
    "DCS_PASS",
    "ESCAPE",
    "ESCAPE_INTERMEDIATE",
    "GROUND",
    "OSC",
    "STRING_STATES",
    "resume",
    "state_after",
]

(
    GROUND,
    ESCAPE,
    ESCAPE_INTERMEDIATE,
    CSI_ENTRY,
    CSI_PARAM,
    CSI_INTERMEDIATE,
    CSI_IGNORE,
    OSC,
    DCS_ENTRY,
    DCS_PARAM,
    DCS_INTERMEDIATE,
    DCS_IGNORE,
    DCS_PASS,
    STRING,  # SOS, PM and APC: read to their end, never used
) = range(14)

CSI_STATES = frozenset((CSI_ENTRY, CSI_PARAM, CSI_INTERMEDIATE, CSI_IGNORE))
STRING_STATES = frozenset((OSC, DCS_IGNORE, DCS_PASS, STRING))
_KEEP_BEYOND_ASCII = frozenset((OSC, CSI_IGNORE, DCS_IGNORE, DCS_PASS))

_AFTER_ESCAPE = {"[": CSI_ENTRY, "]": OSC, "P": DCS_ENTRY, "X": STRING, "^": STRING, "_": STRING}
_AFTER_C1 = {
    "\x90": DCS_ENTRY,
    "\x98": STRING,
    "\x9b": CSI_ENTRY,
    "\x9d": OSC,
    "\x9e": STRING,
    "\x9f": STRING,
}

# Per state: the state after an intermediate (0x20 to 0x2f), after a digit, colon or semicolon,
# after one of <=>? and after a final character (0x40 to 0x7e).
_STEPS = {
    ESCAPE_INTERMEDIATE: (ESCAPE_INTERMEDIATE, GROUND, GROUND, GROUND),
    CSI_ENTRY: (CSI_INTERMEDIATE, CSI_PARAM, CSI_PARAM, GROUND),
    CSI_PARAM: (CSI_INTERMEDIATE, CSI_PARAM, CSI_IGNORE, GROUND),
    CSI_INTERMEDIATE: (CSI_INTERMEDIATE, CSI_IGNORE, CSI_IGNORE, GROUND),
    CSI_IGNORE: (CSI_IGNORE, CSI_IGNORE, CSI_IGNORE, GROUND),
    DCS_ENTRY: (DCS_INTERMEDIATE, DCS_PARAM, DCS_PARAM, DCS_PASS),
    DCS_PARAM: (DCS_INTERMEDIATE, DCS_PARAM, DCS_IGNORE, DCS_PASS),
    DCS_INTERMEDIATE: (DCS_INTERMEDIATE, DCS_IGNORE, DCS_IGNORE, DCS_PASS),
}

_RESUME = {
    OSC: b"\x1b] ",  # a blank is no number, so the rest is read and dropped
    STRING: b"\x1bX",
    DCS_IGNORE: b"\x1bP0<",
    DCS_PASS: b"\x1bPz",
}


def state_after(state: int, char: str) -> int:
    """Return the state in which `char`, read in `state`, leaves the reader."""
    if char == "\x1b":
        return ESCAPE
    if char in "\x18\x1a":
        return GROUND
    if "\x80" <= char < "\xa0":
        return _AFTER_C1.get(char, GROUND)
    if state == GROUND:
        return GROUND
    if char >= "\xa0":
        return state if state in _KEEP_BEYOND_ASCII else GROUND
    if state == OSC:
        return GROUND if char == "\x07" else OSC
    if char < " " or char == "\x7f" or state in STRING_STATES:
        return state
    if state == ESCAPE:
        return ESCAPE_INTERMEDIATE if char < "0" else _AFTER_ESCAPE.get(char, GROUND)
    step = 0 if char < "0" else 1 if char < "<" else 2 if char < "@" else 3
    return _STEPS[state][step]


def resume(state: int) -> bytes:
    """Return bytes that bring a reader from ground to within such a sequence, to be dropped.

    For a sequence so long that its beginning is not kept: what follows ends it as it would have.
    """
    if state == GROUND:
        return b""
    return _RESUME.get(state, b"\x1b[0<<")
