"""Sans-IO WebSocket (RFC 6455) for the deprecated WebSocket transport: JSON messages as text.

`Frames` cuts and joins what both ends exchange; `WebSocketServer` and `WebSocketClient` stand where
`ServerConnection` and `ClientConnection` stand on the frame door, with the same methods.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from sandbox_kernel.errors import ProtocolViolationError, SandboxError
from sandbox_kernel.wire.codec import dump_json, load_json
from sandbox_kernel.wire.http import MAX_HEAD, WEBSOCKET_PATH, Head, read_head
from sandbox_kernel.wire.rpc import (
    INITIAL_CREDIT,
    MAX_FRAME,
    Call,
    Cancel,
    Credit,
    End,
    Failed,
    Item,
    Reply,
    Result,
    Welcome,
)
from sandbox_kernel.wire.version import PROTOCOL_VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from sandbox_kernel.wire.rpc import ChannelFrame, FrameKind, Hello, Switch

__all__ = ["MAX_MESSAGE", "Frames", "WebSocketClient", "WebSocketServer", "accept_of", "greeting"]

MAX_MESSAGE = MAX_FRAME * 4 // 3 + (64 << 10)
"""Bytes of the largest message: a frame's worth of bytes in base64, and what is around it."""

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_MAX_CONTROL = 125
_SMALL, _MEDIUM = 126, 127


def accept_of(key: str) -> str:
    """Return what a server answers to a client's key (RFC 6455, 4.2.2)."""
    from hashlib import sha1  # noqa: PLC0415  few need it

    digest = sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest()
    return b2a_base64(digest, newline=False).decode("ascii")


def greeting(key: str, sandbox_id: str, incarnation: str) -> bytes:
    """Return the answer to a request for a WebSocket, and its first message."""
    head = (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept_of(key)}\r\n\r\n"
    ).encode("latin-1")
    first = {
        "type": "welcome",
        "version": max(PROTOCOL_VERSIONS),
        "sandbox_id": sandbox_id,
        "incarnation": incarnation,
    }
    return head + encode_frame(_TEXT, dump_json(first))


def encode_frame(opcode: int, payload: bytes, mask: bytes | None = None) -> bytes:
    """Return one whole frame; a client's has a mask of four bytes."""
    size = len(payload)
    bit = 0x80 if mask is not None else 0
    if size < _SMALL:
        head = bytes((0x80 | opcode, bit | size))
    elif size < 1 << 16:
        head = bytes((0x80 | opcode, bit | _SMALL)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, bit | _MEDIUM)) + size.to_bytes(8, "big")
    if mask is None:
        return head + payload
    return head + mask + _masked(payload, mask)


def _masked(payload: bytes, mask: bytes) -> bytes:
    """Apply a mask, all at once as one large number; twice gives the payload back."""
    size = len(payload)
    pattern = (mask * (size // 4 + 1))[:size]
    number = int.from_bytes(payload, "big") ^ int.from_bytes(pattern, "big")
    return number.to_bytes(size, "big")


class Frames:
    """Cuts a byte stream into messages.

    Parameters
    ----------
    masked : bool
        Whether the other end must mask: a client must, a server must not.
    """

    def __init__(self, *, masked: bool) -> None:
        self._is_masked = masked
        self._buffer = bytearray()
        self._opcode = 0
        self._message = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[tuple[int, bytes]]:
        """Yield the messages and control frames that are complete now, as (opcode, payload).

        Raises
        ------
        ProtocolViolationError
            A frame breaks RFC 6455, or a message is longer than `MAX_MESSAGE`.
        """
        self._buffer += data
        while True:
            frame = self._frame()
            if frame is None:
                return
            is_final, opcode, payload = frame
            if opcode >= _CLOSE:
                yield opcode, payload
                continue
            if (opcode == _CONTINUATION) != bool(self._opcode):
                raise ProtocolViolationError("a fragment out of its message")
            self._opcode = self._opcode or opcode
            self._message += payload
            if len(self._message) > MAX_MESSAGE:
                raise ProtocolViolationError(f"a message of more than {MAX_MESSAGE} bytes")
            if is_final:
                message, self._message = bytes(self._message), bytearray()
                opcode, self._opcode = self._opcode, 0
                yield opcode, message

    def _frame(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        opcode, size, at = first & 0x0F, second & 0x7F, 2
        if first & 0x70 or opcode not in (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG):
            raise ProtocolViolationError("a WebSocket frame with unknown bits")
        if bool(second & 0x80) is not self._is_masked:
            raise ProtocolViolationError("a WebSocket frame whose mask is wrong")
        if opcode >= _CLOSE and (size > _MAX_CONTROL or not first & 0x80):
            raise ProtocolViolationError("a WebSocket control frame that is too long or in parts")
        if size >= _SMALL:
            at += 2 if size == _SMALL else 8
            if len(buffer) < at:
                return None
            size = int.from_bytes(buffer[2:at], "big")
            if size > MAX_MESSAGE:
                raise ProtocolViolationError(f"a message of more than {MAX_MESSAGE} bytes")
        start = at + (4 if self._is_masked else 0)
        if len(buffer) < start + size:
            return None
        payload = bytes(memoryview(buffer)[start : start + size])
        if self._is_masked:
            payload = _masked(payload, bytes(buffer[at:start]))
        del buffer[: start + size]
        return bool(first & 0x80), opcode, payload


def _body_of(message: dict[str, Any]) -> bytes:
    text = message.get("body", "")
    if not isinstance(text, str):
        raise ProtocolViolationError("a body that is no text")
    try:
        return a2b_base64(text.encode("ascii"), strict_mode=True)
    except (UnicodeEncodeError, Base64Error) as error:
        raise ProtocolViolationError("a body that is not base64") from error


def _text(message: dict[str, Any], body: bytes) -> bytes:
    if body:
        message["body"] = b2a_base64(body, newline=False).decode("ascii")
    return dump_json(message)


def _number(message: dict[str, Any], name: str) -> int:
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
        raise ProtocolViolationError(f"a message whose {name} is no number below 2**32")
    return value


class WebSocketServer:
    """The runtime's end; it begins behind the greeting."""

    space = None
    is_channel = False
    can_become_channel = False

    def __init__(self) -> None:
        self.is_over = False
        self._frames = Frames(masked=True)
        self._credit: dict[int, int] = {}

    def receive(
        self, data: bytes | memoryview
    ) -> Iterator[Hello | Call | Cancel | Credit | ChannelFrame | Reply | Switch]:
        """Yield the events in `data`, each to be acted on before the next is asked for.

        Raises
        ------
        ProtocolViolationError
            The client broke the protocol; send `failed(0, error)` and close.
        """
        for opcode, payload in self._frames.feed(data):
            if opcode == _TEXT:
                yield self._event(load_json(payload))
            elif opcode == _PING:
                yield Reply(data=encode_frame(_PONG, payload))
            elif opcode == _CLOSE:
                self.is_over = True
                yield Reply(data=encode_frame(_CLOSE, payload[:2]))
            elif opcode == _BINARY:
                raise ProtocolViolationError("a binary message")

    def received(self, count: int) -> Iterator[Call]:
        """Take nothing: there is no `space` to fill."""
        raise RuntimeError(f"{count} bytes for a space that was not given")

    def _event(self, message: object) -> Call | Cancel | Credit:
        if not isinstance(message, dict):
            raise ProtocolViolationError("a message that is no object")
        kind, call = message.get("type"), _number(message, "id")
        if kind == "cancel":
            return Cancel(call=call)
        if kind == "credit":
            amount = _number(message, "amount")
            if call in self._credit:
                self._credit[call] += amount
            return Credit(call=call, amount=amount)
        if kind != "call":
            raise ProtocolViolationError("a message of unknown type")
        operation, incarnation = message.get("operation"), message.get("incarnation")
        if call == 0 or call in self._credit:
            raise ProtocolViolationError(f"call id {call} is zero or in use")
        if not isinstance(operation, str) or not (
            incarnation is None or isinstance(incarnation, str)
        ):
            raise ProtocolViolationError("a call without operation")
        credit = _number(message, "credit") if "credit" in message else INITIAL_CREDIT
        body = _body_of(message)
        self._credit[call] = credit
        return Call(
            call=call,
            operation=operation,
            incarnation=incarnation,
            credit=credit,
            params=message.get("params", {}),
            body=body,
        )

    def welcome(self, _version: int, _sandbox_id: str, _incarnation: str) -> bytes:
        """Refuse: the greeting has said it."""
        raise RuntimeError("a WebSocket is greeted once")

    def credit(self, call: int) -> int:
        """Bytes the stream may send now; one item may overdraw it, so that any size passes."""
        return self._credit.get(call, 0)

    def result(self, call: int, value: dict[str, Any], body: bytes = b"") -> bytes:
        """Answer a call."""
        return self._last({"type": "result", "id": call, "value": value}, body)

    def item(self, call: int, value: dict[str, Any], body: bytes = b"") -> bytes:
        """Send one event of a stream and charge its credit, with the size of the message."""
        text = _text({"type": "item", "id": call, "value": value}, body)
        if call in self._credit:
            self._credit[call] -= len(text)
        return encode_frame(_TEXT, text)

    def item_parts(self, call: int, value: dict[str, Any], body: bytes = b"") -> tuple[bytes, ...]:
        """Do as `item`, whose bytes are one part here."""
        return (self.item(call, value, body),)

    def end(self, call: int, value: dict[str, Any], body: bytes = b"") -> bytes:
        """End a stream."""
        return self._last({"type": "end", "id": call, "value": value}, body)

    def failed(self, call: int, error: SandboxError) -> bytes:
        """End a call, or with call 0 the connection, with an error."""
        message = self._last({"type": "error", "id": call, "error": error.to_wire()}, b"")
        # 1002, protocol error (RFC 6455, 7.4.1).
        return message if call else message + encode_frame(_CLOSE, (1002).to_bytes(2, "big"))

    def _last(self, message: dict[str, Any], body: bytes) -> bytes:
        self._credit.pop(message["id"], None)
        return encode_frame(_TEXT, _text(message, body))

    def become_channel(self) -> None:
        """Refuse: channels are the frame door's."""
        raise RuntimeError("this WebSocket carries no channels")


class WebSocketClient:
    """The client's end; it begins with the request for a WebSocket.

    Parameters
    ----------
    random : callable
        Gives so many unpredictable bytes, such as `os.urandom`.
    """

    space = None
    needs_welcome = True
    has_credit = True
    is_channel = False

    def __init__(self, random: Callable[[int], bytes]) -> None:
        self._random = random
        self._key = b2a_base64(random(16), newline=False).decode("ascii")
        self._head = bytearray()
        self._is_open = False
        self._frames = Frames(masked=False)
        self._last_call = 0

    def hello(self, token: str, client: str) -> bytes:
        """Ask for the WebSocket; calls may only follow the `Welcome`."""
        lines = (
            f"GET {WEBSOCKET_PATH} HTTP/1.1",
            "Host: sandbox",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"User-Agent: {client}",
            f"Authorization: Bearer {token}",
            f"Sec-WebSocket-Key: {self._key}",
            "Sec-WebSocket-Version: 13",
        )
        return "\r\n".join((*lines, "", "")).encode("latin-1")

    def call(
        self,
        operation: str,
        params: dict[str, Any],
        body: bytes = b"",
        *,
        incarnation: str | None = None,
        credit: int = INITIAL_CREDIT,
    ) -> tuple[int, bytes]:
        """Return the new call's id and the bytes that ask for it."""
        self._last_call = self._last_call % 0xFFFFFFFF + 1
        message: dict[str, Any] = {
            "type": "call",
            "id": self._last_call,
            "operation": operation,
            "params": params,
        }
        if incarnation is not None:
            message["incarnation"] = incarnation
        if credit != INITIAL_CREDIT:
            message["credit"] = credit
        return self._last_call, self._say(message, body)

    def cancel(self, call: int) -> bytes:
        """Give a call up."""
        return self._say({"type": "cancel", "id": call})

    def grant(self, call: int, amount: int) -> bytes:
        """Let a stream send `amount` more bytes."""
        return self._say({"type": "credit", "id": call, "amount": amount})

    def become_channel(self) -> None:
        """Refuse: channels are the frame door's."""
        raise RuntimeError("this WebSocket carries no channels")

    def channel_frame(self, kind: FrameKind, *_parts: bytes | memoryview) -> bytes:
        """Refuse: channels are the frame door's."""
        raise RuntimeError(f"this WebSocket carries no channels, so no {kind.name}")

    def _say(self, message: dict[str, Any], body: bytes = b"") -> bytes:
        return encode_frame(_TEXT, _text(message, body), self._random(4))

    def received(
        self, count: int
    ) -> list[Welcome | Result | Item | End | Failed | ChannelFrame | Reply]:
        """Take nothing: there is no `space` to fill."""
        raise RuntimeError(f"{count} bytes for a space that was not given")

    def receive(
        self, data: bytes | memoryview
    ) -> list[Welcome | Result | Item | End | Failed | ChannelFrame | Reply]:
        """Return the events in `data`.

        Raises
        ------
        ProtocolViolationError
            The server broke the protocol; close the connection.
        """
        events: list[Welcome | Result | Item | End | Failed | ChannelFrame | Reply] = []
        if not self._is_open:
            self._head += data
            found = read_head(self._head)
            if found is None:
                return events
            head, size = found
            data = bytes(self._head[size:])
            refusal = self._refusal(head, data)
            if refusal is not None:
                return [refusal] if isinstance(refusal, Failed) else events
            self._is_open = True
        for opcode, payload in self._frames.feed(data):
            if opcode == _TEXT:
                events.append(self._event(load_json(payload), len(payload)))
            elif opcode == _PING:
                events.append(Reply(data=encode_frame(_PONG, payload, self._random(4))))
            elif opcode == _BINARY:
                raise ProtocolViolationError("a binary message")
        return events

    def _refusal(self, head: Head, content: bytes) -> Failed | bool | None:
        """Return why there is no WebSocket; True while that is not complete, None if there is."""
        if head.line[1] == "101":
            if head.fields.get("sec-websocket-accept") != accept_of(self._key):
                raise ProtocolViolationError("an answer to another key")
            return None
        if len(content) > MAX_HEAD:
            raise ProtocolViolationError("a refusal that is too long")
        if len(content) < head.length():
            return True
        value = load_json(content)
        if not isinstance(value, dict):
            raise ProtocolViolationError("a refusal that is no object")
        return Failed(call=0, error=SandboxError.from_wire(value))

    @staticmethod
    def _event(message: object, size: int) -> Welcome | Result | Item | End | Failed:
        if not isinstance(message, dict):
            raise ProtocolViolationError("a message that is no object")
        kind = message.get("type")
        if kind == "welcome":
            version = message.get("version")
            if version not in PROTOCOL_VERSIONS:
                raise ProtocolViolationError("a welcome with a version that was not offered")
            return Welcome(
                version=version,
                sandbox_id=str(message.get("sandbox_id", "")),
                incarnation=str(message.get("incarnation", "")),
            )
        call = _number(message, "id")
        if kind == "error":
            error = message.get("error")
            if not isinstance(error, dict):
                raise ProtocolViolationError("an error that is no object")
            return Failed(call=call, error=SandboxError.from_wire(error))
        value, body = message.get("value"), _body_of(message)
        if kind == "result":
            return Result(call=call, value=value, body=body)
        if kind == "item":
            return Item(call=call, value=value, body=body, size=size)
        if kind == "end":
            return End(call=call, value=value, body=body)
        raise ProtocolViolationError("a message of unknown type")
