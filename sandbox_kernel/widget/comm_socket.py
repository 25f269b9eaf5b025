"""A browser's socket whose frames travel as messages of a widget.

`js/packages/widget/src/kernel_socket.ts` is the other end and has the form of the messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sandbox_kernel.client.terminal_protocol import TOO_BIG, Acknowledged, Close
from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.widget.pace import PIECE, Pace

if TYPE_CHECKING:
    from sandbox_kernel.client.terminal_protocol import Message
    from sandbox_kernel.client.terminal_socket import Bridge

__all__ = ["MAX_INPUT", "CommSocket"]

MAX_INPUT = 4 << 20
"""Bytes of input that may wait for the sandbox; beyond it the socket is closed."""


class CommSocket:
    """One view of a widget; all methods are for the thread of `loop`.

    Parameters
    ----------
    name : str
        As the page calls it.
    publish : callable
        Sends a message with buffers to the page; may be called from the loop's thread.
    pace : Pace
        Shared by all that publish through one kernel.
    loop : asyncio.AbstractEventLoop
        Whose clock and timers are used.
    """

    def __init__(
        self,
        name: str,
        publish: Callable[[dict[str, Any], list[bytes]], object],
        pace: Pace,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._name = name
        self._publish = publish
        self._pace = pace
        self._loop = loop
        self._bridge: Bridge | None = None
        self._outbox: deque[str | bytes] = deque()
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._on_room: list[Callable[[], object]] = []
        self._inbox: deque[str | bytes] = deque()
        self._inbox_bytes = 0
        self._pump: asyncio.Task[None] | None = None
        self._closing: Close | None = None
        self._is_closed = False
        self.heard_at = loop.time()
        """When the page last said something, by the loop's clock."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._is_closed or self._closing is not None

    # --- to the page ---

    def open(self) -> None:
        """Tell the page that somebody is here."""
        self._say({"open": True})

    def send(self, messages: Sequence[Message]) -> Callable[[Callable[[], object]], object] | None:
        """Send messages, nothing in between; see `sandbox_kernel.client.terminal_socket.Socket`."""
        for message in messages:
            if isinstance(message, Close):
                self._closing = message
                break
            # Views are on a buffer that is used again.
            kept = message if isinstance(message, str) else bytes(message)
            self._outbox.append(kept)
            self._waiting += len(kept)
        self._schedule()
        return self._on_room.append if self._waiting > PIECE and not self.is_closed else None

    def _schedule(self) -> None:
        if self._timer is None and not self._is_closed:
            delay = self._pace.delay(self._loop.time())
            self._timer = self._loop.call_later(delay, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._pace.delay(self._loop.time()) > 0:
            self._schedule()  # another terminal's turn came first
            return
        frames: list[str | None] = []
        buffers: list[bytes] = []
        size = 0
        while self._outbox and (not frames or size + len(self._outbox[0]) <= PIECE):
            frame = self._outbox.popleft()
            size += len(frame)
            if isinstance(frame, str):
                frames.append(frame)
            else:
                frames.append(None)
                buffers.append(frame)
        if frames:
            self._waiting -= size
            self._pace.sent(self._loop.time(), size)
            self._say({"frames": frames}, buffers)
        if self._outbox:
            self._schedule()
        elif self._closing is not None:
            self._say({"close": self._closing.code, "reason": self._closing.reason})
            self.end()
        if self._waiting <= PIECE:
            waiting, self._on_room = self._on_room, []
            for go_on in waiting:
                go_on()

    def _say(self, message: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        self._publish({"type": "socket", "socket": self._name, **message}, buffers or [])

    # --- from the page ---

    def receive_into(self, bridge: Bridge) -> None:
        """Hand on what the page says; see `sandbox_kernel.client.terminal_socket.Socket`."""
        self._bridge = bridge
        if self._is_closed:
            bridge.closed()
        else:
            self._work()

    def take(self, message: str | bytes) -> None:
        """Take a message of the page; they are handed on in order, each when there is room."""
        self.heard_at = self._loop.time()
        if self._is_closed:
            return
        self._inbox.append(message)
        self._inbox_bytes += len(message)
        if self._inbox_bytes > MAX_INPUT:
            self._inbox.clear()
            self._inbox_bytes = 0
            error = ValidationFailedError("input", f"exceeds {MAX_INPUT} bytes with what waits")
            self.send([*Acknowledged().refused(error), Close(TOO_BIG, "too much input waits")])
            return
        self._work()

    def _work(self) -> None:
        if self._bridge is None or self._pump is not None:
            return
        while self._inbox:
            message = self._inbox.popleft()
            self._inbox_bytes -= len(message)
            wait = self._bridge.message(message)
            if wait is not None:
                self._pump = self._loop.create_task(self._go_on(wait))
                return

    async def _go_on(self, wait: Any) -> None:
        try:
            await wait
        finally:
            self._pump = None
        self._work()

    def end(self) -> None:
        """Leave the terminal; nothing is said.  A second time is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self._inbox.clear()
        self._outbox.clear()
        self._on_room.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._bridge is not None:
            self._bridge.closed()
