"""A client's end of the channel of one connection to a port, blocking."""

from __future__ import annotations

import time

from sandbox_kernel.wire.port_operations import (
    PIECE,
    PortConnection,
    PortEvent,
    PortOrder,
    port_event,
    told,
)
from sandbox_kernel.wire.rpc import ChannelFrame, FrameKind
from tests.support.runtime_child import DEADLINE, Client

__all__ = ["PortLink"]


class PortLink:
    """What came over a connection, in order.

    Attributes
    ----------
    data : bytes
        All that the program has sent so far.
    events : list of PortEvent
        What else was told.
    """

    def __init__(self, client: Client, port: int) -> None:
        self.client = client
        self.data = b""
        self.events: list[PortEvent] = []
        call = client.begin("port.connect", port=port)
        client.protocol.become_channel()
        self.opening: PortConnection = client.finish(call)
        self.offset = 0

    def frame(self, kind: FrameKind, payload: bytes) -> None:
        self.client.send(self.client.protocol.channel_frame(kind, payload))

    def send(self, data: bytes) -> None:
        for begin in range(0, len(data), PIECE):
            self.frame(FrameKind.INPUT, data[begin : begin + PIECE])

    def order(self, what: PortOrder) -> None:
        self.frame(FrameKind.CONTROL, told(what))

    def step(self, timeout: float = DEADLINE) -> bytes:
        """Take one frame; return the bytes in it.  `EOFError` when the channel is closed."""
        frame = self.client.next_event(timeout)
        assert isinstance(frame, ChannelFrame)
        payload = bytes(frame.payload)  # type: ignore[call-overload]
        if frame.kind is FrameKind.EVENT:
            event = port_event(payload)
            assert event is not None
            self.events.append(event)
            return b""
        assert frame.kind is FrameKind.DATA
        assert int.from_bytes(payload[:8], "big") == self.offset, "a gap or a repeat"
        self.offset += len(payload) - 8
        return payload[8:]

    def read(self, size: int, timeout: float = DEADLINE) -> bytes:
        """Read until so many bytes are there; return and forget them."""
        deadline = time.monotonic() + timeout
        parts, have = [self.data], len(self.data)
        while have < size:
            part = self.step(max(0.01, deadline - time.monotonic()))
            parts.append(part)
            have += len(part)
        whole = b"".join(parts)
        self.data = whole[size:]
        return whole[:size]

    def wait_for(self, event: PortEvent, timeout: float = DEADLINE) -> bytes:
        """Read until something is told; return and forget the bytes before it."""
        deadline = time.monotonic() + timeout
        parts = [self.data]
        while event not in self.events:
            parts.append(self.step(max(0.01, deadline - time.monotonic())))
        self.data = b""
        return b"".join(parts)

    def wait_closed(self, timeout: float = DEADLINE) -> None:
        deadline = time.monotonic() + timeout
        try:
            while True:
                self.step(max(0.01, deadline - time.monotonic()))
        except EOFError:
            return
