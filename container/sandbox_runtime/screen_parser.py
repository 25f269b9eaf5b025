"""Reads decoded terminal output and tells a screen what it says, one call per thing."""

from __future__ import annotations

import re

from sandbox_runtime.screen_grammar import (
    CSI_IGNORE,
    CSI_STATES,
    ESCAPE,
    ESCAPE_INTERMEDIATE,
    GROUND,
    OSC,
    state_after,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Sink(Protocol):
        """What is told of the stream."""

        work: int
        """What all of it has cost up to now, in any unit."""

        def print_text(self, text: str) -> None:
            """Draw printable characters."""

        def control(self, char: str) -> None:
            """Obey one control character."""

        def csi(self, name: str, params: str) -> None:
            """Obey a control sequence: prefix, intermediates and final character; parameters."""

        def esc(self, name: str) -> None:
            """Obey an escape sequence: intermediates and final character."""

        def osc(self, text: str) -> None:
            """Obey an operating system command."""

        def interrupt(self) -> None:
            """Something was read that is neither printed nor obeyed, but ends a cluster."""


__all__ = ["ENDLESS", "Parser"]

ENDLESS = float("inf")
"""Work without a limit."""

# No token costs much, so that it is never too late to stop after one.
_TOKEN = re.compile(
    "([ -~\xa0-\U0010ffff]{1,4096})"
    "|\x1b\\[([<-?]?)([0-9:;]*)([ -/]*)([@-~])"
    "|([\x00-\x17\x19\x1c-\x1f]{1,1024})"
    "|\x1b((?:[ -/]+[0-~])|[0-OQ-WYZ\\\\`-~])"
    "|\x1b\\]([^\x00-\x1f\x80-\x9f]*)(?:\x07|\x1b\\\\|\x9c)"
)

_LONGEST_OSC = 64 << 10
_LONGEST_PARAMS = 4 << 10
_OBEYED_ANYWHERE = "\x84\x85\x88"


class Parser:
    """Takes text in any pieces; keeps at most 64 KiB of a sequence that is not complete."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.state = GROUND
        self._collected: list[str] = []
        self._size = 0

    def reset(self) -> None:
        """Forget a sequence that is not complete."""
        self.state = GROUND

    def feed(self, text: str, most: float = ENDLESS) -> int:
        """Read the next piece, until the sink has done so much work; return how far that is.

        Where it stops before the end, nothing is open.
        """
        sink = self._sink
        match_token = _TOKEN.match
        at, end = 0, len(text)
        if self.state != GROUND:
            at = self._by_character(text, at)
        while at < end:
            if at and sink.work >= most:
                break
            token = match_token(text, at)
            if token is None:
                at = self._by_character(text, at)
                continue
            at = token.end()
            kind = token.lastindex
            if kind == 1:
                sink.print_text(token[1])
            elif kind == 5:
                prefix, params, between, final = token.group(2, 3, 4, 5)
                sink.csi(prefix + between + final, params)
            elif kind == 6:
                for char in token[6]:
                    sink.control(char)
            elif kind == 7:
                sink.esc(token[7])
            else:
                if len(token[8]) <= _LONGEST_OSC:
                    sink.osc(token[8])
                sink.interrupt()
        return at

    def _by_character(self, text: str, at: int) -> int:
        """Read until nothing is open, and return how far that was."""
        state = self.state
        for index in range(at, len(text)):
            char = text[index]
            new = state_after(state, char)
            self._step(state, new, char)
            state = new
            if state == GROUND:
                self.state = GROUND
                return index + 1
        self.state = state
        return len(text)

    def _step(self, state: int, new: int, char: str) -> None:
        sink = self._sink
        if state == OSC and new != OSC:
            if char in "\x07\x1b\x9c" and self._size <= _LONGEST_OSC:
                sink.osc("".join(self._collected))
            sink.interrupt()
        if new != state and (char < " " or "\x80" <= char < "\xa0" or state == ESCAPE):
            self._begin()
        if char < " ":
            if state <= CSI_IGNORE and char != "\x1b":
                sink.control(char)
        elif "\x80" <= char < "\xa0":
            if char in _OBEYED_ANYWHERE:
                sink.control(char)
            sink.interrupt()
        elif state == GROUND:
            pass  # DEL: neither printed nor obeyed
        elif state == OSC:
            self._collect(char, _LONGEST_OSC)
        elif state in (ESCAPE, ESCAPE_INTERMEDIATE):
            if new == ESCAPE_INTERMEDIATE:
                if char != "\x7f":
                    self._collect(char, _LONGEST_PARAMS)
            elif new == GROUND and char < "\x7f":
                sink.esc("".join(self._collected) + char)
        elif state in CSI_STATES and char < "\x7f":
            if new == GROUND:
                if state != CSI_IGNORE:
                    self._end_csi(char)
            else:
                self._collect(char, _LONGEST_PARAMS)

    def _begin(self) -> None:
        self._collected.clear()
        self._size = 0

    def _collect(self, char: str, limit: int) -> None:
        self._size += 1
        if self._size <= limit:
            self._collected.append(char)

    def _end_csi(self, final: str) -> None:
        text = "".join(self._collected)
        prefix = text[:1] if text[:1] in ("<", "=", ">", "?") else ""
        params = text[len(prefix) :].rstrip(" !\"#$%&'()*+,-./")
        self._sink.csi(prefix + text[len(prefix) + len(params) :] + final, params)
