"""Where a stream of terminal output may be cut: between characters and escape sequences."""

from __future__ import annotations

import re

from sandbox_runtime.screen_grammar import GROUND, STRING_STATES, state_after

__all__ = ["Boundaries"]

# What leads to a state of its own whatever came before: ESC, and the C1 controls in UTF-8.
_INTRODUCER = re.compile(rb"\x1b|\xc2[\x90\x98\x9b\x9d-\x9f]")
_COMPLETE = re.compile(
    rb"\x1b\[[<-?]?[0-9:;]*[ -/]*[@-~]|\x1b[0-OQ-WYZ\\`-~]|\x1b[ -/]+[0-~]|\x1b\][ -~]*\x07"
)
# Whatever may end a string, so that the rest of it needs no look at each character.
_MAY_END = re.compile(rb"[\x07\x18\x1a\x1b\x80-\xff]")
_MAY_END_TEXT = re.compile("[\x07\x18\x1a\x1b\x80-\U0010ffff]")
_TRIES = 64


class Boundaries:
    """Follows a stream and knows the last place where it may be cut.

    The cost of a piece does not grow with its plain text: only what follows its last introducer
    is read character by character.

    Parameters
    ----------
    offset : int
        Absolute offset of the first byte that will be fed.
    """

    def __init__(self, offset: int = 0) -> None:
        self.end = offset
        self.safe = offset
        """The last offset that lies neither inside a character nor inside a sequence."""
        self.state = GROUND
        self._partial = b""  # the beginning of a character whose rest is still to come

    @property
    def partial(self) -> int:
        """How many bytes at the end are the beginning of a character."""
        return len(self._partial)

    def copy(self) -> Boundaries:
        """Return another one at the same place of the stream."""
        other = Boundaries(self.end)
        other.safe, other.state, other._partial = self.safe, self.state, self._partial
        return other

    def feed(self, data: bytes) -> None:
        """Read the next bytes."""
        offset = self.end - len(self._partial)  # of the first byte of `data`, from here on
        self.end += len(data)
        was_ground = self.state == GROUND
        if self._partial:
            data = self._partial + data
        cut = len(data) - _partial_length(data)
        self._partial = data[cut:]
        data = data[:cut]

        introducers = self._introducers(data)
        at = introducers[0]
        if at < 0:
            self.state = self._run(data)
            if self.state == GROUND:
                self.safe = offset + cut
            elif was_ground:
                self.safe = offset
            return
        if _ends_in_ground(data, at):
            self.state = GROUND
            self.safe = offset + cut
            return
        before = self.state
        self.state = _state_from(data[at:])
        if self.state == GROUND:
            self.safe = offset + cut
            return
        # The sequence at `at` is open.  It may be cut before it, if nothing was open there.
        for introducer, previous in zip(introducers, introducers[1:], strict=False):  # noqa: RUF007  itertools is not loaded
            if previous < 0:
                self.state, last = before, self.state
                if self._run(data[:introducer]) == GROUND:
                    self.safe = offset + introducer
                elif was_ground:
                    self.safe = offset
                self.state = last
                return
            if _state_from(data[previous:introducer]) == GROUND:
                self.safe = offset + introducer
                return
        if was_ground:
            self.safe = offset

    def _introducers(self, data: bytes) -> list[int]:
        """Return where the last introducers are, the last one first; -1 stands for none before."""
        if b"\x1b" not in data and b"\xc2" not in data:
            return [-1]
        found: list[int] = []
        stop = len(data)
        while len(found) < _TRIES:
            escape = data.rfind(b"\x1b", 0, stop)
            control = data.rfind(b"\xc2", max(escape, 0), stop)
            while control >= 0 and not _INTRODUCER.match(data, control):
                control = data.rfind(b"\xc2", max(escape, 0), control)
            stop = max(escape, control)
            found.append(stop)
            if stop <= 0:
                if stop == 0:
                    found.append(-1)
                break
            if len(found) == 1 and _ends_in_ground(data, stop):
                break  # which is nearly always so
        return found

    def _run(self, data: bytes) -> int:
        """Return the state after bytes without an introducer."""
        if self.state == GROUND or (self.state in STRING_STATES and not _MAY_END.search(data)):
            return self.state
        return _state_from(data, self.state)


def _ends_in_ground(data: bytes, at: int) -> bool:
    """Whether a well-formed sequence begins at `at` and ends within the data."""
    return _COMPLETE.match(data, at) is not None


def _state_from(data: bytes, state: int = GROUND) -> int:
    """Return the state after bytes with no introducer but, at most, their first character."""
    text = data.decode("utf-8", "ignore").replace("\ufeff", "")
    at, end = 0, len(text)
    while at < end:
        if state in STRING_STATES:
            ending = _MAY_END_TEXT.search(text, at)
            if ending is None:
                break
            at = ending.start()
        state = state_after(state, text[at])
        if state == GROUND:
            break  # and plain text from here on
        at += 1
    return state


def _partial_length(data: bytes) -> int:
    """Return how many bytes at the end are the beginning of a character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 1 + (byte >= 0xC2) + (byte >= 0xE0) + (byte >= 0xF0) if byte <= 0xF4 else 1
        return back if need > back else 0
    return 0
