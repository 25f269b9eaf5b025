"""The WebSockets of terminals: who may connect, and to which terminal.

Everything else is `Sandbox.terminal` and `Terminal.connect`.  `docs/terminals.md` describes what
is spoken on them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.websocket import WebSocketHandler, WebSocketProtocol, WebSocketProtocol13

from jupyter_ext.detached_socket import DetachedSocket, detach
from jupyter_ext.handles import handle
from sandbox_kernel.client.terminal_protocol import (
    MAX_MESSAGE,
    TROUBLE,
    Acknowledged,
    Dialect,
    Message,
    Preview,
    Stable,
)
from sandbox_kernel.client.terminal_socket import Bridge, HandlerSocket, frames_of, refused
from sandbox_kernel.errors import SandboxError, TerminalNotFoundError, ValidationFailedError
from sandbox_kernel.wire.record import Record
from sandbox_kernel.wire.terminal import check_size

__all__ = [
    "SessionSocketRequest",
    "SessionTerminalHandler",
    "TerminalHandler",
    "TerminalSocketRequest",
]

_READ_BYTES = 8 << 10

_KNOWN = frozenset(("ack", "cols", "cursor", "rows", "session", "start", "token"))
"""What the query of an address may have."""

_SILENT = 1001
"""Close code for a browser that answers no ping; browsers come again after it."""

_RECONNECTING = 45.0
"""Seconds within which the stable addon comes again: its longest pause is 32 s and a tenth."""

_REMEMBERED = 1024
"""Browsers remembered that were let go; the oldest is forgotten first."""


class TerminalSocketRequest(Record):
    """View a terminal, from a cursor or anew; starts nothing.

    A viewer that acknowledges what it has drawn says ``ack=1``.
    """

    terminal_id: str
    cursor: str | None = None
    cols: int | None = None
    rows: int | None = None
    ack: bool = False


class SessionSocketRequest(Record):
    """View the terminal of a session; with ``start=0`` no sandbox is started."""

    session: str = "default"
    cursor: str | None = None
    cols: int = 80
    rows: int = 24
    ack: bool = False
    start: bool = True


class _LetGo:
    """Of which sessions browsers were just let go because of trouble: they may come again.

    Not of which user: one that shows a token is a new user each time.
    """

    def __init__(self) -> None:
        self._at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def note(self, who: tuple[str, str], now: float) -> None:
        """Remember one."""
        self._at.pop(who, None)
        self._at[who] = now
        if len(self._at) > _REMEMBERED:
            self._at.popitem(last=False)

    def is_reconnecting(self, who: tuple[str, str], now: float) -> bool:
        """Whether a connection of now may be one that nobody asked for."""
        return now - self._at.get(who, -_RECONNECTING) < _RECONNECTING


_let_go = _LetGo()


class _Protocol(WebSocketProtocol13):
    """tornado's protocol, with three differences.

    Once the browser has its terminal, the socket is served without tornado, where that is possible
    (`detached_socket.py`).

    Where it is not, it takes from its stream all that is there, once for each wake-up; tornado asks
    three times for a keystroke's frame, each time by way of a future.  The one method in between is
    not public: should it go, reading is as it was, and nobody is let go.

    And it lets go of a browser only when nothing at all has come for a whole interval in which it
    was listened to.  A pong stands in line behind what was typed or pasted, which may take long to
    come, and is not read while it waits for its program.
    """

    detached: DetachedSocket | None = None
    _ahead = b""
    _at = 0
    _waiting_since: float | None = None  # for the browser to say anything

    async def _read_bytes(self, n: int) -> bytes:
        at = self._at
        if len(self._ahead) - at < n:
            stream = self.stream
            # Keys are short, and each read makes a new buffer of this size.
            stream.read_chunk_size = _READ_BYTES
            pieces = [self._ahead[at:]]
            missing = n - len(pieces[0])
            while missing > 0:
                self._waiting_since = time.monotonic()
                piece = await stream.read_bytes(max(missing, _READ_BYTES), partial=True)
                self._waiting_since = None
                pieces.append(piece)
                missing -= len(piece)
            self._ahead, at = b"".join(pieces), 0
        self._at = at + n
        self._wire_bytes_in += n
        return self._ahead[at : at + n]

    async def periodic_ping(self) -> None:
        """Ping; let go of a browser that has been silent since the ping before."""
        pinged_at: float | None = None
        while True:
            await asyncio.sleep(self.ping_interval)
            detached = self.detached
            since = self._waiting_since if detached is None else detached.waiting_since
            if pinged_at is not None and since is not None and since <= pinged_at:
                self.close(_SILENT, "no answer to pings")
                # One that is not there would not answer the close either.
                if detached is None:
                    self.stream.close()
                else:
                    detached.abort()
                return
            pinged_at = time.monotonic()
            self.write_ping(b"")

    def write_ping(self, data: bytes) -> None:
        """Ask for a sign of life."""
        if self.detached is None:
            super().write_ping(data)
        else:
            self.detached.ping(data)

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Begin to close, or end it when nothing is left to close."""
        if self.detached is None or self.detached.ended.done():
            super().close(code, reason)
        else:
            self.detached.close(code, reason)

    def _abort(self) -> None:
        if self.detached is not None:
            self.detached.abort()
        super()._abort()

    async def _receive_frame_loop(self) -> None:
        detached = self.detached
        if detached is None:
            await super()._receive_frame_loop()
            return
        try:
            await asyncio.wait([detached.ended])
        finally:
            self.close_code, self.close_reason = detached.close_code, detached.close_reason
            self._abort()
            self.handler.on_ws_connection_close(self.close_code, self.close_reason)


class _BrowserSocket(HandlerSocket):
    """The handler's WebSocket, which is detached from tornado once there is a terminal."""

    def __init__(self, handler: _TerminalWebSocket) -> None:
        super().__init__(handler)
        self._browser = handler
        self._protocol = handler.ws_connection
        self._detached: DetachedSocket | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return super().is_closed if self._detached is None else self._detached.is_closed

    def send(self, messages: Sequence[Message]) -> Callable[[Callable[[], object]], object] | None:
        """Write messages in one piece; see `Socket.send`."""
        detached = self._detached
        if detached is None:
            return super().send(messages)
        parts, closing = frames_of(messages)
        if parts:
            detached.write(parts)
        if closing is not None:
            self._browser.close(closing.code, closing.reason or None)
            return None
        return None if detached.is_written else detached.when_written

    def receive_into(self, bridge: Bridge) -> None:
        """Let messages and the end come to a bridge; another one takes the place of the last."""
        super().receive_into(bridge)
        if self._detached is not None:
            self._detached.on_message = bridge.message
        elif isinstance(self._protocol, _Protocol) and not self.is_closed:
            self._detached = self._protocol.detached = detach(self._protocol, bridge.message)


class _TerminalWebSocket(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """What both routes share: authentication, authorisation, origin, pings, and the address."""

    auth_resource = "sandboxes"

    # Twice what is taken, so that what is too long can be refused with a word.
    max_message_size = 2 * MAX_MESSAGE

    @property
    def ping_interval(self) -> float:
        """Seconds between two pings; 0 for none.

        The server's setting is in milliseconds.
        """
        return float(super().ping_interval) / 1000

    @property
    def ping_timeout(self) -> float:
        """Seconds until a ping must be answered."""
        return self.ping_interval

    def get_websocket_protocol(self) -> WebSocketProtocol | None:
        """Return tornado's own, with our reading and our pings."""
        protocol = super().get_websocket_protocol()
        if type(protocol) is WebSocketProtocol13:
            protocol = _Protocol(self, mask_outgoing=False, params=protocol.params)
        return protocol

    async def get(self, *args: str, **kwargs: str) -> None:
        """Decide who may connect, before anything is made."""
        user = self.current_user
        if user is None:
            raise web.HTTPError(403)
        if not await ensure_async(
            self.authorizer.is_authorized(self, user, "execute", self.auth_resource)
        ):
            raise web.HTTPError(403)
        await super().get(*args, **kwargs)

    async def open(self, *args: str, **_: str) -> None:
        """Join the browser and its terminal; messages wait in the socket until that is done."""
        # Not the mixin's `open`, which would begin pings of its own.
        self.sandbox_id = args[0]
        try:
            self._is_acknowledged = self._flag("ack")
            self._check_names()
            await self.join(*args, *self._size())
        except SandboxError as error:
            self._is_malformed = isinstance(error, ValidationFailedError)
            refused(_BrowserSocket(self), self.dialect(), error)

    async def join(self, *args: Any) -> None:
        """Hand the browser over."""
        raise NotImplementedError

    def dialect(self) -> Dialect:
        """Return what a refusal is said in."""
        raise NotImplementedError

    @property
    def is_acknowledged(self) -> bool:
        """Whether the browser speaks the acknowledged protocol."""
        return getattr(self, "_is_acknowledged", False)

    def on_message(self, message: str | bytes) -> None:
        """Take nothing: messages that count go to the terminal, not here."""

    def _check_names(self) -> None:
        """Refuse a name that is misspelt, which would be left unheeded in silence.

        Pages add names of their own to addresses, and so do others on the way.
        """
        for name in self.request.query_arguments:
            if name not in _KNOWN:
                meant = get_close_matches(name.lower(), _KNOWN, n=1, cutoff=0.7)
                if meant:
                    raise ValidationFailedError(
                        name[:80], f"is not known here; {meant[0]} is, and may be meant"
                    )

    def _flag(self, name: str, default: str = "0") -> bool:
        value = self._given(name, default)
        if value not in ("0", "1"):
            raise ValidationFailedError(name, "must be 0 or 1")
        return value == "1"

    def _size(self) -> tuple[int, int] | tuple[None, None]:
        cols, rows = (self._whole(name) for name in ("cols", "rows"))
        if cols is None and rows is None:
            return None, None
        if cols is None or rows is None:
            raise ValidationFailedError("cols" if cols is None else "rows", "is missing")
        check_size(cols, rows)
        return cols, rows

    def _given(self, name: str, default: str = "") -> str:
        """Return what the address says of `name`; the upgrade is done, so tornado's 400 is late."""
        try:
            return self.get_query_argument(name, default)
        except web.HTTPError:
            raise ValidationFailedError(name, "is not valid UTF-8") from None

    def _whole(self, name: str) -> int | None:
        if name not in self.request.query_arguments:
            return None
        text = self._given(name)
        if re.fullmatch("[0-9]{1,9}", text) is None:
            raise ValidationFailedError(name, "must be an integer")
        return int(text)

    @property
    def cursor(self) -> str | None:
        """What the browser has drawn already."""
        return self._given("cursor") or None


class SessionTerminalHandler(_TerminalWebSocket):
    """``terminal?session=&cols=&rows=``: the one terminal of a session, made when there is none."""

    async def join(self, sandbox_id: str, cols: int | None, rows: int | None) -> None:
        """Join the session's terminal.

        With ``start=0`` nobody has asked for a sandbox to be started: a page brings back what it
        showed before.  A browser of the stable protocol does not say that it comes again by itself,
        which it does after every end.  One that was let go because of trouble, such as a sandbox
        that was stopped, does not start that sandbox for as long as it keeps trying.
        """
        start = self._flag("start", "1") and (
            self.is_acknowledged or not _let_go.is_reconnecting(self._who, time.monotonic())
        )
        await handle(sandbox_id).terminal(
            _BrowserSocket(self),
            session_id=self._session,
            cols=80 if cols is None else cols,
            rows=24 if rows is None else rows,
            cursor=self.cursor,
            acknowledged=self.is_acknowledged,
            start=start,
        )

    def dialect(self) -> Dialect:
        """Return what a refusal is said in."""
        return Acknowledged() if self.is_acknowledged else Stable()

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close, and remember whom, if it was for trouble with what had been there."""
        malformed = getattr(self, "_is_malformed", False)
        if code == TROUBLE and not self.is_acknowledged and not malformed:
            with contextlib.suppress(ValidationFailedError):  # of the session, which has no name
                _let_go.note(self._who, time.monotonic())
        super().close(code, reason)

    @property
    def _session(self) -> str:
        return self._given("session") or "default"

    @property
    def _who(self) -> tuple[str, str]:
        return self.sandbox_id, self._session


class TerminalHandler(_TerminalWebSocket):
    """``terminals/{id}/connect?cursor=&cols=&rows=``: one terminal; starts nothing."""

    async def join(
        self, sandbox_id: str, terminal_id: str, cols: int | None, rows: int | None
    ) -> None:
        """Join the terminal, if there is one."""
        terminal = await handle(sandbox_id).get_terminal(terminal_id)
        if terminal is None:
            raise TerminalNotFoundError(terminal_id)
        await terminal.connect(
            _BrowserSocket(self),
            cursor=self.cursor,
            cols=cols,
            rows=rows,
            acknowledged=self.is_acknowledged,
        )

    def dialect(self) -> Dialect:
        """Return what a refusal is said in."""
        return Acknowledged() if self.is_acknowledged else Preview()
