"""What browsers and we say to each other over a terminal's WebSocket, in three dialects.

Pure: a dialect makes messages of what the runtime says, and orders of what the browser says.
`docs/terminals.md` describes the dialects; `tests/vectors/terminal_browser.json` has golden
messages, which the addon's tests read, too.

`Stable` is what the addon of the stable release speaks: bytes as they are, the replay before
``ready``.  `Preview` is the preview release's: bytes are announced, each with its cursor.
`Acknowledged` is our own addon's: as `Preview`, and the browser says how far it has drawn.
"""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from sandbox_kernel.errors import (
    SandboxError,
    StaleTerminalHandleError,
    TerminalNotFoundError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import ConnectTerminalRequest, TerminalInfo
from sandbox_kernel.wire.terminal import (
    Acknowledge,
    ChannelFailed,
    Exited,
    Interrupt,
    Live,
    Replay,
    Resize,
    Screen,
    Size,
    Terminate,
    View,
    check_size,
    encode_cursor,
)

__all__ = [
    "ACKNOWLEDGE_EVERY",
    "ENDED",
    "GONE",
    "MAX_CONTROL_TEXT",
    "MAX_MESSAGE",
    "TOO_BIG",
    "TROUBLE",
    "Acknowledged",
    "Close",
    "Dialect",
    "Message",
    "Ping",
    "Preview",
    "Stable",
    "close_code",
]

ENDED = 1000
"""Close code: the terminal's program has ended."""
GONE = 1008
"""Close code: there is no such terminal, or no such terminal any more."""
TROUBLE = 1011
"""Close code: anything else that keeps the browser from its terminal."""
TOO_BIG = 1009
"""Close code: a message, or what waits, is too long."""

MAX_MESSAGE = 16 << 20
"""Longest message of a browser, in bytes; a longer one is refused and ends the connection."""

MAX_CONTROL_TEXT = 64 << 10
"""Longest control message that is read, in characters; a longer one is refused."""

ACKNOWLEDGE_EVERY = 64 << 10
"""Bytes after which, at the latest, a browser is asked to say how far it has drawn."""

_AGAIN = b"\r\n\x1b[0m[exited with code %d; press Enter for a new shell]\r\n"
"""Shown to a viewer of the stable protocol that comes back after the end."""

_LONGEST_REASON = 120
"""Bytes of a close reason; the frame has room for 123."""


@dataclass(frozen=True)
class Close:
    """In the place of a message: close the WebSocket."""

    code: int
    reason: str = ""


@dataclass(frozen=True)
class Ping:
    """The browser asks whether anybody is there."""


Message: TypeAlias = str | bytes | memoryview | Close
Event: TypeAlias = Replay | Live | Screen | Size | Exited | ChannelFailed
Order: TypeAlias = Resize | Interrupt | Terminate | View | Acknowledge | Ping


class Dialect:
    """What the dialects share; one object for each connection of a browser.

    Parameters
    ----------
    cursor : str, optional
        What the browser has drawn already.
    """

    acknowledges = False
    strip_queries = True

    def __init__(self, cursor: str | None = None) -> None:
        self._cursor = cursor
        self._size: tuple[int | None, int | None] = (None, None)
        self._view: View | None = None
        self._info: TerminalInfo | None = None

    # --- to the runtime and the browser ---

    def request(
        self, terminal_id: str, cols: int | None, rows: int | None
    ) -> ConnectTerminalRequest:
        """Return what asks the runtime for this browser's view."""
        self._size = (cols, rows)
        return ConnectTerminalRequest(
            terminal_id=terminal_id,
            cursor=self._cursor,
            cols=cols,
            rows=rows,
            acknowledges=self.acknowledges,
            strip_queries=self.strip_queries,
        )

    def resumption(self, offset: int | None) -> ConnectTerminalRequest:
        """Return what asks the runtime for the same view, from an offset on.

        None if the browser has nothing yet.
        """
        assert self._info is not None  # noqa: S101  `opened` comes first
        cols, rows = self._size
        return ConnectTerminalRequest(
            terminal_id=self._info.terminal_id,
            cursor=self._cursor if offset is None else self.cursor(offset),
            cols=cols,
            rows=rows,
            acknowledges=self.acknowledges,
            # The browser does not learn that it is a replay, so it would answer.
            strip_queries=self.strip_queries or offset is not None,
        )

    def resumed(self) -> tuple[list[View], list[Message]]:
        """Return what the runtime, and what the browser, must be told of a view taken up again."""
        return ([] if self._view is None else [self._view]), []

    def opened(self, info: TerminalInfo) -> list[Message]:
        """Return what is said first."""
        self._info = info
        return []

    def output(self, offset: int, data: bytes | memoryview) -> list[Message]:
        """Return the messages for bytes to draw; `offset` is the position after them."""
        raise NotImplementedError

    def event(self, event: Event) -> list[Message]:
        """Return the messages for anything else the runtime says."""
        raise NotImplementedError

    def failed(self, error: SandboxError) -> list[Message]:
        """Return the messages when there is no terminal to show (any more)."""
        code = close_code(error)
        return [_error(error.code, error.message), Close(code, _reason(error.message))]

    def refused(self, error: SandboxError) -> list[Message]:
        """Return the messages for an order that makes no sense; nothing has changed."""
        return [_error(error.code, error.message)]

    def waiting(self) -> list[Message]:
        """Return what shows a browser that we are here, while we do not hear what it says."""
        return []

    def cursor(self, offset: int) -> str:
        """Return the cursor of an offset."""
        info = self._info
        assert info is not None  # noqa: S101  `opened` comes first
        return encode_cursor(info.incarnation, info.terminal_id, offset)

    # --- from the browser ---

    def order(self, text: str) -> Order | None:
        """Return what a text message asks for; None if there is nothing to do.

        Raises
        ------
        ValidationFailedError
            It makes no sense.
        """
        if len(text) > MAX_CONTROL_TEXT:
            raise ValidationFailedError("message", f"exceeds {MAX_CONTROL_TEXT} characters")
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise ValidationFailedError("message", "is not valid JSON") from None
        name = value.get("type") if isinstance(value, dict) else None
        if name == "resize":
            resize = _resize(value)
            self._size = (resize.cols, resize.rows)
            return resize
        if name == "view":
            view = View(visible=_truth(value, "visible"), focused=_truth(value, "focused"))
            self._view = view
            return view
        if name == "interrupt":
            return Interrupt()
        if name == "terminate":
            return Terminate()
        if name == "ping":
            return Ping()
        if name == "ack":
            return self.acknowledged(value.get("bytes"))
        raise ValidationFailedError(
            "type", "must be resize, view, interrupt, terminate, ack or ping"
        )

    def acknowledged(self, drawn: Any) -> Acknowledge | None:  # noqa: ARG002  see `Acknowledged`
        """Return what the runtime is told when the browser has drawn so many bytes."""
        raise ValidationFailedError("type", "ack is not for this protocol; connect with ack=1")


class Stable(Dialect):
    """Bytes as they are: first the screen, then ``ready``, then output as it comes."""

    def output(self, offset: int, data: bytes | memoryview) -> list[Message]:  # noqa: ARG002
        """Return the bytes; where they end is not said."""
        return [data]

    def event(self, event: Event) -> list[Message]:
        """Return the messages for an event; a replay and a screen speak for themselves."""
        if isinstance(event, Live):
            return ['{"type":"ready"}']
        if isinstance(event, Exited):
            said = {"type": "exit", "code": event.exit_code, **_signal_name(event.signal)}
            if self._info is not None and self._info.status == "running":
                return [_text(said), Close(ENDED)]
            # A viewer that came after the end comes again whenever it is let go: it is kept.
            return [_AGAIN % event.exit_code, _text(said)]
        if isinstance(event, ChannelFailed):
            return [_error(event.code, event.message)]
        # They begin with a full reset, which is all that such a viewer needs to know.
        return []


class Preview(Dialect):
    """``ready`` first; bytes are announced by a ``chunk`` with cursor and length."""

    def opened(self, info: TerminalInfo) -> list[Message]:
        """Return ``ready``, with the browser's own cursor."""
        self._info = info
        said = {"type": "ready"}
        if self._cursor is not None:
            said["cursor"] = self._cursor
        return [_text(said)]

    def output(self, offset: int, data: bytes | memoryview) -> list[Message]:
        """Return the bytes behind their announcement."""
        # Written out: this is the way of each keystroke's echo.  A cursor needs no escapes.
        return [
            f'{{"type":"chunk","cursor":"{self.cursor(offset)}","byteLength":{len(data)}}}',
            data,
        ]

    def event(self, event: Event) -> list[Message]:
        """Return the messages for an event; a replay is output like any other."""
        if isinstance(event, Replay) and event.truncated:
            return ['{"type":"truncated"}']
        if isinstance(event, Screen):
            # The next chunk is the screen, reset included: output before it was skipped.
            return ['{"type":"truncated"}']
        if isinstance(event, Exited):
            return self._exit(event)
        if isinstance(event, ChannelFailed):
            return [_error(event.code, event.message)]
        return []

    def _exit(self, event: Exited) -> list[Message]:
        ended: dict[str, Any] = {"code": event.exit_code}
        if event.signal is not None:
            ended["signal"] = event.signal
        ended["timedOut"] = False
        said = {"type": "exit", "cursor": self.cursor(event.offset), "exit": ended}
        return [_text(said), Close(ENDED)]


class Acknowledged(Preview):
    """As `Preview`, with the replay told from the rest, and a browser that tells what it has drawn.

    What the browser has drawn is counted in bytes of this connection, replay included; the runtime
    counts offsets.  The pairs of both that are on their way are kept, no more than the window.
    """

    acknowledges = True
    strip_queries = False

    def __init__(self, cursor: str | None = None) -> None:
        super().__init__(cursor)
        self._announced: Replay | Screen | None = None
        self._sent = 0
        self._drawn = 0
        self._on_their_way: deque[tuple[int, int]] = deque()
        self._told: tuple[int, int] | None = None

    def resumed(self) -> tuple[list[View], list[Message]]:
        """Return as `Dialect.resumed`; who connects with a size decides, which may be news."""
        orders, messages = super().resumed()
        cols, rows = self._size
        if self._told is not None and cols is not None and rows is not None:
            messages = self.event(Size(cols=cols, rows=rows))
        return orders, messages

    def opened(self, info: TerminalInfo) -> list[Message]:
        """Return ``ready``, with terminal and size."""
        self._info = info
        cols, rows = self._size
        said: dict[str, Any] = {"type": "ready"}
        if self._cursor is not None:
            said["cursor"] = self._cursor
        said["terminalId"] = info.terminal_id
        said["cols"] = info.cols if cols is None else cols
        said["rows"] = info.rows if rows is None else rows
        said["acknowledgeEvery"] = ACKNOWLEDGE_EVERY
        return [_text(said)]

    def output(self, offset: int, data: bytes | memoryview) -> list[Message]:
        """Return the bytes behind their announcement: a chunk, a replay or a screen."""
        self._sent += len(data)
        self._on_their_way.append((self._sent, offset))
        announced = self._announced
        if announced is None:
            return super().output(offset, data)
        self._announced = None
        said: dict[str, Any] = {"type": "screen"}
        if isinstance(announced, Replay):
            said = {"type": "replay", "kind": announced.kind}
        said["cursor"] = self.cursor(offset)
        said["byteLength"] = len(data)
        return [_text(said), data]

    def event(self, event: Event) -> list[Message]:
        """Return the messages for an event; a replay and a screen are announced with bytes."""
        if isinstance(event, Replay | Screen):
            self._announced = event
            return super().event(event) if isinstance(event, Replay) else []
        if isinstance(event, Live):
            # Nothing was missed, and that is told, too.
            missing = self._announced
            told = self.output(missing.offset, b"") if missing is not None else []
            return [*told, '{"type":"live"}']
        if isinstance(event, Size):
            self._told = (event.cols, event.rows)
            return [f'{{"type":"size","cols":{event.cols},"rows":{event.rows}}}']
        return super().event(event)

    def waiting(self) -> list[Message]:
        """Return the answer to the question that such a browser asks when nothing comes."""
        return ['{"type":"pong"}']

    def acknowledged(self, drawn: Any) -> Acknowledge | None:
        """Return the offset up to which everything is drawn, if it has moved."""
        _whole("bytes", drawn)
        if drawn > self._sent:
            raise ValidationFailedError("bytes", f"exceeds the {self._sent} that were sent")
        if drawn < self._drawn:
            raise ValidationFailedError("bytes", f"falls below the {self._drawn} of before")
        self._drawn = drawn
        reached = None
        while self._on_their_way and self._on_their_way[0][0] <= drawn:
            reached = self._on_their_way.popleft()[1]
        return None if reached is None else Acknowledge(offset=reached)


def close_code(error: SandboxError) -> int:
    """Return the code to close a WebSocket with that cannot be served because of an error."""
    return GONE if isinstance(error, TerminalNotFoundError | StaleTerminalHandleError) else TROUBLE


def _resize(value: dict[str, Any]) -> Resize:
    cols, rows = (_whole(name, value.get(name)) for name in ("cols", "rows"))
    check_size(cols, rows)
    return Resize(cols=cols, rows=rows)


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValidationFailedError(name, "must be an integer")
    if value < 0:
        raise ValidationFailedError(name, "must not be negative")
    return value


def _truth(value: dict[str, Any], name: str) -> bool:
    found = value.get(name)
    if not isinstance(found, bool):
        raise ValidationFailedError(name, "must be true or false")
    return found


def _signal_name(number: int | None) -> dict[str, str]:
    if number is None:
        return {}
    try:
        return {"signal": signal.Signals(number).name}
    except ValueError:
        return {"signal": f"SIG{number}"}


def _text(value: dict[str, Any]) -> str:
    return orjson.dumps(value).decode()


def _error(code: str, message: str) -> str:
    # Names of odd files come as lone surrogates, which are no text.
    shown = message.encode(errors="replace").decode()
    return _text({"type": "error", "message": shown, "code": code})


def _reason(message: str) -> str:
    return message.encode(errors="replace")[:_LONGEST_REASON].decode(errors="ignore")
