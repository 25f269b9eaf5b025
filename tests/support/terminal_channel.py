"""A viewer's end of a terminal channel, blocking."""

from __future__ import annotations

import time
from typing import Any

from sandbox_kernel.wire import terminal as wire
from sandbox_kernel.wire.operations import TerminalInfo
from sandbox_kernel.wire.record import Record
from sandbox_kernel.wire.rpc import ChannelFrame, FrameKind
from tests.support.runtime_child import DEADLINE, Client

__all__ = ["PROMPT", "TerminalChannel", "run_in_foreground"]

PROMPT = b"\x1b[?2004h"
"""What bash writes when it begins to read a line."""


class TerminalChannel:
    """What a viewer has been told and sent, in order.

    Attributes
    ----------
    data : bytes
        All bytes to draw, the replay included.
    events : list of Record
        All frames as events.
    """

    def __init__(
        self, client: Client, terminal_id: str, *, acknowledging: bool = True, **fields: Any
    ) -> None:
        self.client = client
        self.acknowledging = acknowledging
        # A flood is not copied for each of its pieces, nor searched from its beginning.
        self._data = bytearray()
        self.offset = 0
        self.events: list[Record] = []
        fields.setdefault("acknowledges", acknowledging)
        call = client.begin("terminal.connect", terminal_id=terminal_id, **fields)
        client.protocol.become_channel()
        self.info: TerminalInfo = client.finish(call)

    @property
    def data(self) -> bytes:
        return bytes(self._data)

    @data.setter
    def data(self, value: bytes) -> None:
        self._data = bytearray(value)

    def _send(self, frame: tuple[FrameKind, bytes]) -> None:
        self.client.send(self.client.protocol.channel_frame(*frame))

    def type(self, data: bytes) -> None:
        self._send((FrameKind.INPUT, data))

    def acknowledge(self, offset: int) -> None:
        self._send(wire.acknowledge(offset))

    def order(self, record: Record) -> None:
        self._send(wire.control(record))

    def resize(self, cols: int, rows: int) -> None:
        self.order(wire.Resize(cols=cols, rows=rows))

    def step(self, timeout: float = DEADLINE) -> Record:
        """Take one frame, and acknowledge it if it is output."""
        while True:
            frame = self.client.next_event(timeout)
            assert isinstance(frame, ChannelFrame)
            event = wire.viewer_event(frame.kind, frame.payload)  # type: ignore[arg-type]
            if event is not None:
                break
        self.events.append(event)
        if isinstance(event, wire.Output):
            assert event.offset >= self.offset
            self._data += event.data
            self.offset = event.offset
            if self.acknowledging:
                self.acknowledge(event.offset)
        return event

    def read_until(self, wanted: bytes, timeout: float = DEADLINE) -> bytes:
        """Read until something is in `data`; return all up to and with it, and forget that."""
        deadline = time.monotonic() + timeout
        searched = 0
        while (begin := self._data.find(wanted, searched)) < 0:
            searched = max(0, len(self._data) - len(wanted) + 1)
            try:
                self.step(max(0.01, deadline - time.monotonic()))
            except TimeoutError:
                raise TimeoutError(f"no {wanted!r} in {self.data[-2000:]!r}") from None
        end = begin + len(wanted)
        found = bytes(self._data[:end])
        del self._data[:end]
        return found

    def wait_for(self, kind: type[Record], timeout: float = DEADLINE) -> Any:
        """Read until an event of a kind comes; return it."""
        deadline = time.monotonic() + timeout
        while True:
            event = self.step(max(0.01, deadline - time.monotonic()))
            if isinstance(event, kind):
                return event

    def seen(self, kind: type[Record]) -> list[Any]:
        """Return the events of a kind so far."""
        return [each for each in self.events if isinstance(each, kind)]

    def quiet(self, period: float) -> None:
        """Read until nothing comes for a while."""
        try:
            while True:
                self.step(period)
        except TimeoutError:
            return


def run_in_foreground(view: TerminalChannel, command: bytes, then: bytes = b"") -> None:
    """Type a command at a shell's prompt, and wait until it has the foreground.

    Keys that come while the shell is still preparing it go to nobody.
    """
    view.read_until(PROMPT)
    view.type(b"sh -c 'echo begun$((1)); exec %s'%s\r" % (command, then))
    view.read_until(b"begun1\r\n")
