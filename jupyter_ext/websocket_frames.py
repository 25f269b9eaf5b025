"""Frames of WebSockets (RFC 6455), as a server reads them: bytes in, messages out, no socket.

Strict: what breaks the protocol ends the connection, by the code that section 7.4.1 has for it.
There are no extensions.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CLOSE", "PING", "PONG", "FrameError", "FrameParser", "close_payload", "read_close"]

_CONTINUATION, _TEXT, _BINARY = 0, 1, 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

_FINAL, _RESERVED, _OPCODE, _MASKED, _SIZE = 0x80, 0x70, 0x0F, 0x80, 0x7F
_CONTROL = 8
_MOST_OF_CONTROL = 125

_PROTOCOL_ERROR, _NOT_TEXT, _TOO_BIG = 1002, 1007, 1009
_NO_CODE = 1005


class FrameError(Exception):
    """The other end does not keep to the protocol.

    Attributes
    ----------
    code : int
        To close with.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class FrameParser:
    """Makes messages of what a browser sends.

    Parameters
    ----------
    max_message : int
        Bytes of a message, at most; no more than that is ever held.
    """

    def __init__(self, max_message: int) -> None:
        self._max_message = max_message
        self._rest = bytearray()
        self._need = 0  # bytes of the rest without which nothing can be made of it
        self._kind = 0  # of the message whose fragments have come so far
        self._message = bytearray()

    def feed(self, data: bytes) -> list[str | bytes | tuple[int, bytes] | FrameError]:
        """Add what has come; return what is complete now.

        Texts and bytes are messages, pairs are control frames with their opcode.  An error is the
        last of all: nothing may be fed after it.
        """
        if not self._rest and not self._kind:
            size = len(data) - 6
            if 0 <= size < 126 and data[0] == _FINAL | _BINARY and data[1] == _MASKED | size:
                return [_unmasked(data[2:6], data[6:])]  # a key, nearly always
        rest = self._rest
        rest += data
        if len(rest) < self._need:
            return []
        found: list[str | bytes | tuple[int, bytes] | FrameError] = []
        at = 0
        try:
            while after := self._frame(at, found):
                at = after
        except FrameError as error:
            found.append(error)
            rest.clear()
            return found
        del rest[:at]
        self._need -= at
        return found

    def _frame(self, at: int, found: list[str | bytes | tuple[int, bytes] | FrameError]) -> int:
        """Take the frame at a position; return the position after it, 0 if it is not complete."""
        rest = self._rest
        if not self._has(at, 2):
            return 0
        first, second = rest[at], rest[at + 1]
        opcode, size, head = first & _OPCODE, second & _SIZE, 6
        self._check(first, second)
        if size >= 126:
            width = 2 if size == 126 else 8
            head += width
            if not self._has(at, 2 + width):
                return 0
            size = int.from_bytes(rest[at + 2 : at + 2 + width], "big")
            if size < (126 if width == 2 else 1 << 16):
                raise FrameError(_PROTOCOL_ERROR, "a length in more bytes than needed")
            if size >> 63:
                raise FrameError(_PROTOCOL_ERROR, "a length with its highest bit set")
        if opcode < _CONTROL and len(self._message) + size > self._max_message:
            raise FrameError(_TOO_BIG, "message too big")
        if not self._has(at, head + size):
            return 0
        begin = at + head
        payload = _unmasked(rest[begin - 4 : begin], rest[begin : begin + size])
        if opcode >= _CONTROL:
            found.append((opcode, payload))
        else:
            self._data(opcode, payload, found, is_final=bool(first & _FINAL))
        return begin + size

    def _has(self, at: int, size: int) -> bool:
        self._need = at + size
        return len(self._rest) >= self._need

    def _check(self, first: int, second: int) -> None:
        opcode = first & _OPCODE
        if first & _RESERVED:
            raise FrameError(_PROTOCOL_ERROR, "an extension that was not agreed on")
        if not second & _MASKED:
            raise FrameError(_PROTOCOL_ERROR, "a frame without a mask")
        if opcode >= _CONTROL:
            if opcode > PONG:
                raise FrameError(_PROTOCOL_ERROR, "an unknown opcode")
            if not first & _FINAL or second & _SIZE > _MOST_OF_CONTROL:
                raise FrameError(_PROTOCOL_ERROR, "a control frame that is long or in fragments")
        elif opcode > _BINARY:
            raise FrameError(_PROTOCOL_ERROR, "an unknown opcode")
        elif (opcode == _CONTINUATION) != bool(self._kind):
            raise FrameError(_PROTOCOL_ERROR, "fragments out of order")

    def _data(
        self,
        opcode: int,
        payload: bytes,
        found: list[str | bytes | tuple[int, bytes] | FrameError],
        *,
        is_final: bool,
    ) -> None:
        kind = opcode or self._kind
        if not is_final:
            self._kind = kind
            self._message += payload
            return
        if self._kind:
            self._message += payload
            payload, self._message, self._kind = bytes(self._message), bytearray(), 0
        if kind == _BINARY:
            found.append(payload)
            return
        try:
            found.append(payload.decode())
        except UnicodeDecodeError:
            raise FrameError(_NOT_TEXT, "text that is not UTF-8") from None


def _unmasked(mask: bytes | bytearray, payload: bytes | bytearray) -> bytes:
    size = len(payload)
    if not any(mask):
        return bytes(payload)
    key = (bytes(mask) * (size // 4 + 1))[:size]
    found = int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")
    return found.to_bytes(size, "little")


def read_close(payload: bytes) -> tuple[int, str]:
    """Return code and reason of a close frame; 1005 stands for none.

    Raises
    ------
    FrameError
        There cannot be such a frame.
    """
    if not payload:
        return _NO_CODE, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (
        (1000 <= code <= 1014 and code not in (1004, 1005, 1006)) or 3000 <= code < 5000
    ):
        raise FrameError(_PROTOCOL_ERROR, "a close code that must not be sent")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError:
        raise FrameError(_NOT_TEXT, "a reason that is not UTF-8") from None


def close_payload(code: int | None, reason: str | None) -> bytes:
    """Return what a close frame holds; the reason is cut where there is no room."""
    if code is None and not reason:
        return b""
    room = _MOST_OF_CONTROL - 2
    text = (reason or "").encode(errors="replace")[:room].decode(errors="ignore")
    return (code or 1000).to_bytes(2, "big") + text.encode()
