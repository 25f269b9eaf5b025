"""Who reads a terminal's output: viewers on channels, and streams of events.

Each has its own place in the log, which is the only copy of what it has not been sent.  Overflow
rule: a reader that falls out of the log, or a viewer that lags too far behind its end, is not
waited for; the viewer gets a screen, the stream is told what it has missed.  `viewers.py` says when
the terminal waits.
"""

from __future__ import annotations

import time

from sandbox_kernel.errors import ProtocolViolationError, SandboxError
from sandbox_kernel.wire.operations import TerminalOutputEnd, TerminalOutputEvent
from sandbox_kernel.wire.rpc import FrameKind, frame_header
from sandbox_kernel.wire.terminal import (
    Acknowledge,
    ChannelFailed,
    Exited,
    Input,
    Interrupt,
    Live,
    Replay,
    Resize,
    Screen,
    Size,
    Terminate,
    View,
    event,
    order,
    output_head,
)
from sandbox_runtime.connection import STREAM_MARK
from sandbox_runtime.terminal_cuts import cut_at
from sandbox_runtime.terminal_queries import without_queries
from sandbox_runtime.viewers import MOST_LAG, MOST_QUEUED, WINDOW, Flow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_kernel.wire.record import Record
    from sandbox_runtime.connection import Connection, Exchange
    from sandbox_runtime.replay import TerminalLog
    from sandbox_runtime.terminals import Terminal

__all__ = ["MOST_INPUT", "MOST_INPUT_OF_ALL", "InputShare", "OutputStream", "Viewer"]

MOST_INPUT = 256 << 10
"""What may wait of one viewer's input for its program, however much waits of others'."""

MOST_INPUT_OF_ALL = 32 << 20
"""What may wait of all viewers' input; then those that have more than their share are not read.

As long as a viewer is read, a Ctrl-C behind a paste that nobody takes is seen, and acts at once.
"""

_ENTRY = 256
"""What a piece of input costs beside its bytes, roughly."""

SCREEN_PAUSE = 0.1
"""Seconds between two screens for one viewer: each costs the sandbox some milliseconds."""

_CHUNK = 64 << 10


class InputShare:
    """What waits of the input of all viewers in a sandbox, and who is not read because of it."""

    def __init__(self) -> None:
        self.choked: list[Viewer] = []
        self._waiting = 0

    @property
    def is_used_up(self) -> bool:
        """Whether those that have more than their own share are not read."""
        return self._waiting > MOST_INPUT_OF_ALL

    def take(self, size: int) -> None:
        """Note that more waits."""
        self._waiting += size

    def give(self, size: int) -> None:
        """Note that less waits, and let those go on who waited for that."""
        was_used_up = self.is_used_up
        self._waiting -= size
        if was_used_up and not self.is_used_up:
            for each in list(self.choked):
                each.check_choked()


class Viewer:
    """One viewer on its channel."""

    def __init__(
        self,
        terminal: Terminal,
        connection: Connection,
        *,
        acknowledges: bool,
        strip_queries: bool,
    ) -> None:
        self.flow = Flow(WINDOW if acknowledges else MOST_QUEUED)
        self.sent = 0
        """Offset in the log up to which everything was sent, or a screen in its place."""
        self.known_size: tuple[int, int] | None = None
        """The terminal's size as this viewer believes it to be."""
        self._terminal = terminal
        self._connection = connection
        self._acknowledges = acknowledges
        self._strip_queries = strip_queries
        self._input_waiting = 0
        self._next_screen = 0.0
        self._waits_for_screen = False
        self._told_exit = False

    def __repr__(self) -> str:
        return f"<Viewer of {self._terminal.terminal_id} sent={self.sent} {self.flow!r}>"

    # --- to the viewer ------------------------------------------------------------------------

    def begin(self, since: int | None, size: tuple[int, int] | None) -> None:
        """Replay what was missed, in one step with what follows it."""
        terminal = self._terminal
        if size is not None:
            self.known_size = size
            terminal.viewer_resized(self, size)
        elif self.known_size is None:
            self.tell_size(terminal.sizes.size)
        replay = terminal.log.replay(since)
        terminal.watch_log()
        self.tell(Replay(kind=replay.kind, offset=replay.offset, truncated=replay.truncated))
        self.sent = replay.offset
        data = replay.data
        if self._strip_queries:
            data = without_queries(data)
        if data:
            self._send(data, replay.offset)
        self.tell(Live())
        questions = terminal.unanswered()
        if questions:
            self._send(questions, self.sent)
        terminal.read_by(self)
        self.pump()

    def tell(self, record: Record) -> None:
        """Send anything but output."""
        kind, payload = event(record)
        self._connection.send_channel(kind, payload)

    def tell_size(self, size: tuple[int, int]) -> None:
        """Send the terminal's size, if the viewer does not know it."""
        if self.known_size != size:
            self.known_size = size
            self.tell(Size(cols=size[0], rows=size[1]))

    def take(self, data: bytes, begin: int, end: int) -> bool:
        """Send new output, between two offsets; False if something comes before it."""
        if self.sent != begin or self.flow.is_full or self._connection.queued >= STREAM_MARK:
            return False
        if not self._terminal.is_answered_by(self):
            if self._terminal.is_parted:
                return False  # what is begun may be a query
            data = without_queries(data)
        self._send(data, end)
        return True

    def pump(self) -> None:
        """Send what there is beyond what was sent, as far as the viewer takes it."""
        terminal, flow = self._terminal, self.flow
        log, end = terminal.log, self._sendable_end()
        while self.sent < end and not flow.is_full and self._connection.queued < STREAM_MARK:
            terminal.fill_log()
            if end - self.sent > MOST_LAG or self.sent < log.start:
                if flow.outstanding or not self._send_screen():
                    return
            else:
                data = _piece(log, self.sent, end)
                offset = self.sent + len(data)
                if not terminal.is_answered_by(self):
                    data = without_queries(data)
                self._send(data, offset)
        if terminal.finished and self.sent >= end and not self._told_exit:
            self._told_exit = True
            self.tell(
                Exited(
                    exit_code=terminal.exit_code or 0,
                    signal=terminal.signal,
                    reason=terminal.reason,
                    offset=end,
                )
            )

    def _sendable_end(self) -> int:
        """Return how far output may be sent now.

        What it asks is answered by one viewer only, so the others get no sequence whose end, which
        tells what it is, has not come; while it has not, there is nothing to see of it.
        """
        terminal = self._terminal
        if terminal.finished or not terminal.is_parted or terminal.is_answered_by(self):
            return terminal.end
        terminal.fill_log()
        return terminal.log.safe_end

    def _send(self, data: bytes, offset: int) -> None:
        head = frame_header(FrameKind.DATA, 0, 8 + len(data)) + output_head(offset)
        self._connection.send(head, data)
        self.sent = offset
        now = time.monotonic()
        if self._acknowledges:
            self.flow.sent(len(data), offset, now)
        else:
            self.flow.measured(self._connection.queued, now)

    def _send_screen(self) -> bool:
        """Send a screen in place of output that was skipped; False if it is not time yet."""
        terminal, now = self._terminal, time.monotonic()
        if now < self._next_screen:
            if not self._waits_for_screen:
                self._waits_for_screen = True
                terminal.table.loop.call_at(self._next_screen, self._screen_is_due)
            return False
        replay = terminal.log.replay(None)
        terminal.watch_log()
        data = replay.data
        if self._strip_queries:
            data = without_queries(data)
        self.tell(Screen(offset=replay.offset))
        self._send(data, replay.offset)
        self._next_screen = time.monotonic() + SCREEN_PAUSE
        return True

    def _screen_is_due(self) -> None:
        self._waits_for_screen = False
        if self in self._terminal.readers:
            self.pump()
            self._terminal.check_pace()

    # --- from the viewer ----------------------------------------------------------------------

    def channel_frame(self, kind: FrameKind, payload: memoryview) -> None:
        """Take a frame from the viewer; an order that cannot be carried out is told to it."""
        try:
            if kind is FrameKind.INPUT:
                self._type(bytes(payload))  # the one that everybody waits for
            else:
                self._obey(order(kind, payload))
        except ProtocolViolationError:
            raise
        except SandboxError as error:
            self.tell(ChannelFailed(code=error.code, message=error.message))

    def _obey(self, said: Input | Acknowledge | Resize | Interrupt | Terminate | View) -> None:
        terminal = self._terminal
        if isinstance(said, Acknowledge):
            if said.offset > self.sent:
                raise ProtocolViolationError("an ACK of what was not sent")
            self.flow.acknowledged(said.offset, time.monotonic())
            self.pump()
            terminal.check_pace()
        elif isinstance(said, Resize):
            self.known_size = (said.cols, said.rows)
            terminal.viewer_resized(self, self.known_size)
        elif isinstance(said, View):
            self._view(said)
        elif isinstance(said, Interrupt):
            terminal.interrupt()
        elif isinstance(said, Terminate):
            terminal.terminate(said.grace)

    def _view(self, view: View) -> None:
        terminal = self._terminal
        if view.visible is not None:
            self.flow.is_visible = view.visible
            terminal.apply_size(terminal.sizes.show(self, is_visible=view.visible))
        if view.focused:
            terminal.apply_size(terminal.sizes.claim(self))
        terminal.check_pace()

    def _type(self, data: bytes) -> None:
        size = len(data) + _ENTRY
        terminal = self._terminal
        share = terminal.table.input_share

        def done(_written: bool) -> None:  # noqa: FBT001
            self._input_waiting -= size
            share.give(size)
            if self.flow.is_choked:
                self.check_choked()

        terminal.apply_size(terminal.sizes.claim(self))
        self._input_waiting += size
        share.take(size)
        terminal.type(data, self, done)
        if self._input_waiting:
            self.check_choked()

    def check_choked(self) -> None:
        """Be read, or not, as what waits demands."""
        choked = self.channel_choked()
        if choked != self.flow.is_choked:
            self.flow.is_choked = choked
            share = self._terminal.table.input_share
            if choked:
                share.choked.append(self)
            else:
                share.choked.remove(self)
                self._connection.recheck()
            self._terminal.check_pace()

    def channel_choked(self) -> bool:
        """Whether too much of the viewer's input waits for the program."""
        return self._input_waiting > MOST_INPUT and self._terminal.table.input_share.is_used_up

    def channel_writable(self) -> None:
        """Go on sending; the socket has taken something."""
        if not self._acknowledges:
            self.flow.measured(self._connection.queued, time.monotonic())
        self.pump()
        self._terminal.check_pace()

    def channel_lost(self) -> None:
        """Leave the terminal to the others."""
        if self.flow.is_choked:
            self.flow.is_choked = False
            self._terminal.table.input_share.choked.remove(self)
        self._terminal.viewer_left(self)


class OutputStream:
    """Sends a terminal's output as events, as fast as its client grants credit."""

    def __init__(
        self, terminal: Terminal, exchange: Exchange, offset: int, *, until: int | None
    ) -> None:
        self.flow = Flow(1)
        self.sent = offset
        self._terminal = terminal
        self._exchange = exchange
        self._until = until
        self._scheduled = False
        self._done = False
        self.on_end: Callable[[], None] | None = None
        """Called once when the last word is said."""
        exchange.on_writable = self._writable
        terminal.read_by(self)

    def _writable(self) -> None:
        self.pump()
        self._terminal.check_pace()

    @staticmethod
    def take(_data: bytes, _begin: int, _end: int) -> bool:
        """Not take output as it is: events are made of the log."""
        return False

    def tell_size(self, size: tuple[int, int]) -> None:
        """Not be told: sizes are no output."""

    def pump(self) -> None:
        """Send one event, and the next one in the next turn."""
        if self._scheduled or self._done:
            return
        terminal, exchange = self._terminal, self._exchange
        end = terminal.end if self._until is None else self._until
        if self.sent < end:
            self.flow.measured(0 if exchange.writable else 1, time.monotonic())
            if not exchange.writable:
                return
            exchange.item(self._next_event(end))
            if self.sent < end:
                self._scheduled = True
                terminal.table.loop.call_soon(self._again)
                return
        if terminal.finished or self._until is not None:
            self._say_end()

    def _next_event(self, end: int) -> TerminalOutputEvent:
        terminal = self._terminal
        terminal.fill_log()
        begin = self.sent
        if begin < terminal.log.start:
            self.sent = min(terminal.log.start, end)
            return TerminalOutputEvent(
                type="truncated", cursor=terminal.cursor(self.sent), timestamp=time.time()
            )
        data = _piece(terminal.log, begin, end)
        self.sent += len(data)
        return TerminalOutputEvent(
            type="data",
            cursor=terminal.cursor(self.sent),
            timestamp=terminal.time_of(begin),
            data=data,
        )

    def _again(self) -> None:
        self._scheduled = False
        self._writable()

    def _say_end(self) -> None:
        terminal = self._terminal
        if terminal.finished and self.sent == terminal.end:
            info = terminal.info()
            self._exchange.item(
                TerminalOutputEvent(
                    type="terminal",
                    cursor=terminal.cursor(self.sent),
                    timestamp=info.ended_at or time.time(),
                    state=info.status,
                    exit_code=info.exit_code,
                    signal=info.signal,
                    error_code=info.error_code,
                    error_message=info.error_message,
                )
            )
        self.finish()

    def finish(self) -> None:
        """Say the last word, whatever is still unsent.  Twice is fine."""
        if self._done:
            return
        self._done = True
        terminal = self._terminal
        terminal.readers.remove(self)
        terminal.check_pace()
        if self.on_end is not None:
            self.on_end()
        self._exchange.end(
            TerminalOutputEnd(cursor=terminal.cursor(self.sent), info=terminal.info())
        )


def _piece(log: TerminalLog, begin: int, end: int) -> bytes:
    """Return the next bytes between two offsets, cut where they may be if there are many."""
    data = log.read(begin, min(_CHUNK, end - begin))
    return data if begin + len(data) == end else data[: cut_at(data)]
