"""Sans-IO HTTP/1.1 for the HTTP transport: one call per request, one request at a time.

The two classes stand where `ServerConnection` and `ClientConnection` stand on the frame door, with
the same methods, so that both doors end in the same dispatch.  Only what the transport needs is
understood; whatever else a request holds is refused, never guessed at.
"""

from __future__ import annotations

from sandbox_kernel.errors import ProtocolViolationError, SandboxError, ValidationFailedError
from sandbox_kernel.wire.codec import dump_json, load_json, pack, unpack
from sandbox_kernel.wire.rpc import (
    MAX_FRAME,
    Call,
    End,
    Failed,
    FrameKind,
    FrameReader,
    Hello,
    Item,
    Reply,
    Result,
    Switch,
    encode_frame,
)
from sandbox_kernel.wire.version import PROTOCOL_VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from sandbox_kernel.wire.rpc import Cancel, ChannelFrame, Credit, Welcome

__all__ = [
    "JSON_TYPE",
    "MAX_HEAD",
    "MESSAGE_TYPE",
    "PATH",
    "STREAM_TYPE",
    "Head",
    "HttpClient",
    "HttpServer",
    "read_head",
]

PATH = "/operations/"
"""What an operation's name follows in a request's target."""

WEBSOCKET_PATH = "/websocket"

JSON_TYPE = "application/json"
"""A JSON object and no bytes."""

MESSAGE_TYPE = "application/vnd.sandbox.message"
"""A JSON object and bytes, as in the frames' payload: u32 length, JSON, bytes."""

STREAM_TYPE = "application/vnd.sandbox.stream"
"""The frames ITEM, END and ERROR, as on the frame door."""

MAX_HEAD = 32 << 10
"""Bytes of the longest head, which is its first line and its fields."""

_MAX_FIELDS = 64
_NO_LIMIT = 1 << 62
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    413: "Content Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    507: "Insufficient Storage",
}
_NAME = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class Head:
    """The first line of a message, in its three parts, and its fields with names in small letters.

    Parameters
    ----------
    line : list of str
        Method, target and version, or version, status and reason.
    fields : mapping of str to str
        No name comes twice.
    """

    def __init__(self, line: list[str], fields: Mapping[str, str]) -> None:
        self.line = line
        self.fields = fields

    def length(self) -> int:
        """Return the size of the content that follows.

        Raises
        ------
        ProtocolViolationError
            It is no number, above the limit, or the content comes in a coding of its own.
        """
        if "transfer-encoding" in self.fields:
            raise ProtocolViolationError("a request without Content-Length")
        text = self.fields.get("content-length", "0")
        if not text.isdecimal() or not text.isascii() or len(text) > 10 or int(text) > MAX_FRAME:
            raise ProtocolViolationError(f"a Content-Length above {MAX_FRAME}, or no number")
        return int(text)


def read_head(data: bytes | bytearray) -> tuple[Head, int] | None:
    """Return the head that `data` begins with and its size; None if it is not complete.

    Raises
    ------
    ProtocolViolationError
        It is none, or too long.
    """
    end = data.find(b"\r\n\r\n", 0, MAX_HEAD)
    if end < 0:
        if len(data) >= MAX_HEAD:
            raise ProtocolViolationError(f"a head of more than {MAX_HEAD} bytes")
        return None
    lines = data[:end].decode("latin-1").split("\r\n")
    line = lines[0].split(" ", 2)
    if len(line) != 3 or not all(line[:2]) or len(lines) > _MAX_FIELDS:
        raise ProtocolViolationError("a first line that is not HTTP, or too many fields")
    fields: dict[str, str] = {}
    for each in lines[1:]:
        name, colon, value = each.partition(":")
        key = name.lower()
        # A name twice, a folded line and a lone control character: each is how two readers come
        # to understand one message differently.
        if not colon or not name or not _NAME.issuperset(name) or key in fields:
            raise ProtocolViolationError("a field that is malformed, or comes twice")
        if any((ord(letter) < 32 and letter != "\t") or letter == "\x7f" for letter in value):
            raise ProtocolViolationError("a field with a control character")
        fields[key] = value.strip(" \t")
    return Head(line, fields), end + 4


def _response(status: int, kind: str, content: bytes, *fields: str) -> bytes:
    lines = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(content)}",
        *fields,
    )
    return "\r\n".join((*lines, "", "")).encode("latin-1") + content


def _message(value: dict[str, Any], body: bytes) -> tuple[str, bytes]:
    """Return the type and the content of a JSON object and bytes."""
    if "body" in value:
        return MESSAGE_TYPE, pack(value, body)
    return JSON_TYPE, dump_json(value)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class HttpServer:
    """The runtime's end: requests in, events out; stands in for `ServerConnection`.

    Every request is introduced by a `Hello` with its token, which the owner checks before it asks
    for the next event; only then is its content looked at.
    """

    space = None
    is_channel = False
    can_become_channel = False

    def __init__(self) -> None:
        self.is_over = False
        self._buffer = bytearray()
        self._call = 0
        self._is_answering = False
        self._is_streaming = False
        self._incarnation = ""
        self._head: Head | None = None
        self._key: str | None = None

    def receive(
        self, data: bytes | memoryview
    ) -> Iterator[Hello | Call | Cancel | Credit | ChannelFrame | Reply | Switch]:
        """Yield the events in `data`, each to be acted on before the next is asked for.

        Raises
        ------
        ProtocolViolationError
            The client broke the protocol; send `failed(0, error)` and close.
        """
        self._buffer += data
        while True:
            if self._is_answering:
                # Who sends on before the answer has not read it, so cannot know what it asks for.
                if self._buffer:
                    raise ProtocolViolationError("a request before the last one was answered")
                return
            if self._head is None:
                found = read_head(self._buffer)
                if found is None:
                    return
                self._head, size = found
                del self._buffer[:size]
                yield self._hello(self._head)
                if self._key is not None:
                    yield Switch(rest=bytes(self._buffer))
                    return
                if self._head.fields.get("expect", "").lower() == "100-continue":
                    yield Reply(data=b"HTTP/1.1 100 Continue\r\n\r\n")
            head = self._head
            size = head.length()
            if len(self._buffer) < size:
                return
            content = bytes(memoryview(self._buffer)[:size])
            del self._buffer[:size]
            self._head = None
            self.is_over = head.fields.get("connection", "").lower() == "close"
            # What is malformed is told by an answer, so none may have begun.
            request = self._request(head, content)
            self._is_answering = isinstance(request, Call)
            yield request

    def received(self, count: int) -> Iterator[Call]:
        """Take nothing: there is no `space` to fill."""
        raise RuntimeError(f"{count} bytes for a space that was not given")

    def _hello(self, head: Head) -> Hello:
        method, _, version = head.line
        if version != "HTTP/1.1" or not method.isalpha():
            raise ProtocolViolationError("a request that is not HTTP/1.1")
        scheme, _, token = head.fields.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token = ""
        self._key = self._wanted_socket(head)
        return Hello(
            versions=list(PROTOCOL_VERSIONS),
            token=token.strip(" "),
            client=head.fields.get("user-agent", "")[:200],
        )

    def _wanted_socket(self, head: Head) -> str | None:
        """Return the key of a request for a WebSocket, or None if it is not one."""
        if head.fields.get("upgrade", "").lower() != "websocket":
            return None
        key = head.fields.get("sec-websocket-key", "")
        if (
            head.line[:2] != ["GET", WEBSOCKET_PATH]
            or head.fields.get("sec-websocket-version") != "13"
            or len(key) != 24
        ):
            raise ProtocolViolationError("a WebSocket request that is malformed")
        return key

    def _request(self, head: Head, content: bytes) -> Call | Reply:
        method, target, _ = head.line
        if not target.startswith(PATH) or "?" in target:
            return self._no_call(404, f"There is nothing at {target[:200]!r}.")
        if method != "POST":
            return self._no_call(405, "Operations are called by POST.")
        kind = head.fields.get("content-type", "").partition(";")[0].strip().lower()
        if kind == MESSAGE_TYPE:
            value, body = unpack(content)
        elif kind == JSON_TYPE or not content:
            value, body = load_json(content) if content else {}, b""
        else:
            return self._no_call(400, f"The content's type must be {JSON_TYPE} or {MESSAGE_TYPE}.")
        self._call += 1
        return Call(
            call=self._call,
            operation=target.removeprefix(PATH),
            incarnation=head.fields.get("sandbox-incarnation"),
            credit=_NO_LIMIT,
            params=value,
            body=body,
        )

    def _no_call(self, status: int, message: str) -> Reply:
        error = ValidationFailedError("request", message)
        error.message = message
        return Reply(data=_response(status, JSON_TYPE, dump_json(error.to_wire())))

    # --- answers ------------------------------------------------------------------------------

    def welcome(self, _version: int, sandbox_id: str, incarnation: str) -> bytes:
        """Accept the client; only a WebSocket is told."""
        self._incarnation = incarnation
        if self._key is None:
            return b""
        from sandbox_kernel.wire.websocket import greeting  # noqa: PLC0415  few need it

        return greeting(self._key, sandbox_id, incarnation)

    def credit(self, call: int) -> int:
        """Bytes a stream may send: as many as the connection takes, for HTTP has no other word."""
        return _NO_LIMIT if self._is_answering and call == self._call else 0

    def result(self, _call: int, value: dict[str, Any], body: bytes = b"") -> bytes:
        """Answer a call."""
        self._is_answering = False
        kind, content = _message(value, body)
        return _response(200, kind, content, f"Sandbox-Incarnation: {self._incarnation}")

    def item(self, _call: int, value: dict[str, Any], body: bytes = b"") -> bytes:
        """Send one event of a stream."""
        return self._begin() + _chunk(encode_frame(FrameKind.ITEM, 0, pack(value, body)))

    def item_parts(self, call: int, value: dict[str, Any], body: bytes = b"") -> tuple[bytes, ...]:
        """Do as `item`, whose bytes are one part here."""
        return (self.item(call, value, body),)

    def end(self, _call: int, value: dict[str, Any], body: bytes = b"") -> bytes:
        """End a stream."""
        return self._last(encode_frame(FrameKind.END, 0, pack(value, body)))

    def failed(self, call: int, error: SandboxError) -> bytes:
        """End a call, or with call 0 the connection, with an error."""
        if call == 0:
            self.is_over = True
            # Inside an answer nothing can be said any more; that it is cut says enough.
            return b"" if self._is_answering else self._error(error, "Connection: close")
        if self._is_streaming:
            return self._last(encode_frame(FrameKind.ERROR, 0, pack(error.to_wire())))
        self._is_answering = False
        return self._error(error)

    def _error(self, error: SandboxError, *fields: str) -> bytes:
        # What is the server's fault on the frame door is, in HTTP's words, the client's.
        violation = isinstance(error, ProtocolViolationError)
        status = 400 if violation else error.http_status
        return _response(status, JSON_TYPE, dump_json(error.to_wire()), *fields)

    def _begin(self) -> bytes:
        if self._is_streaming:
            return b""
        self._is_streaming = True
        return (
            f"HTTP/1.1 200 OK\r\nContent-Type: {STREAM_TYPE}\r\nTransfer-Encoding: chunked\r\n"
            f"Sandbox-Incarnation: {self._incarnation}\r\n\r\n"
        ).encode("latin-1")

    def _last(self, frame: bytes) -> bytes:
        data = self._begin() + _chunk(frame) + b"0\r\n\r\n"
        self._is_streaming = self._is_answering = False
        return data

    def become_channel(self) -> None:
        """Refuse: channels are the frame door's."""
        raise RuntimeError("HTTP carries no channels")


class HttpClient:
    """The client's end of one connection; stands in for `ClientConnection`."""

    space = None
    needs_welcome = False
    has_credit = False
    is_channel = False

    def __init__(self) -> None:
        self._token = ""
        self._client = ""
        self._last_call = 0
        self._is_waiting = False
        self._buffer = bytearray()
        self._head: Head | None = None
        self._frames = FrameReader(MAX_FRAME)
        self._is_closing = False

    @property
    def is_free(self) -> bool:
        """Whether the next call may be made on this connection."""
        return not self._is_waiting and not self._is_closing

    def hello(self, token: str, client: str) -> bytes:
        """Keep what every request will say of this client; nothing is sent for it."""
        if not token.isprintable() or not token.isascii():
            raise ValidationFailedError("token", "cannot be sent in a field of HTTP")
        self._token, self._client = token, client
        return b""

    def call(
        self,
        operation: str,
        params: dict[str, Any],
        body: bytes = b"",
        *,
        incarnation: str | None = None,
        credit: int = 0,  # noqa: ARG002  the reading is held back in its place
    ) -> tuple[int, bytes]:
        """Return the new call's id and the bytes that ask for it."""
        if not self.is_free:
            raise RuntimeError("one request at a time")
        self._is_waiting = True
        self._last_call += 1
        kind, content = _message(params, body)
        lines = [
            f"POST {PATH}{operation} HTTP/1.1",
            "Host: sandbox",
            f"User-Agent: {self._client}",
            f"Authorization: Bearer {self._token}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(content)}",
        ]
        if incarnation is not None:
            lines.append(f"Sandbox-Incarnation: {incarnation}")
        return self._last_call, "\r\n".join((*lines, "", "")).encode("latin-1") + content

    def cancel(self, _call: int) -> bytes:
        """Say nothing: only the end of the connection gives a request up."""
        self._is_closing = True
        return b""

    def grant(self, _call: int, _amount: int) -> bytes:
        """Say nothing: see `has_credit`."""
        return b""

    def become_channel(self) -> None:
        """Refuse: channels are the frame door's."""
        raise RuntimeError("HTTP carries no channels")

    def channel_frame(self, kind: FrameKind, *_parts: bytes | memoryview) -> bytes:
        """Refuse: channels are the frame door's."""
        raise RuntimeError(f"HTTP carries no channels, so no {kind.name}")

    def received(self, count: int) -> list[Welcome | Result | Item | End | Failed | ChannelFrame]:
        """Take nothing: there is no `space` to fill."""
        raise RuntimeError(f"{count} bytes for a space that was not given")

    def receive(
        self, data: bytes | memoryview
    ) -> list[Welcome | Result | Item | End | Failed | ChannelFrame]:
        """Return the events in `data`.

        Raises
        ------
        ProtocolViolationError
            The server broke the protocol; close the connection.
        """
        self._buffer += data
        events: list[Welcome | Result | Item | End | Failed | ChannelFrame] = []
        while self._advance(events):
            pass
        return events

    def _advance(self, events: list[Welcome | Result | Item | End | Failed | ChannelFrame]) -> bool:
        """Take the next piece that is complete; return whether there was one."""
        if self._head is None:
            found = read_head(self._buffer)
            if found is None:
                return False
            if not self._is_waiting:
                raise ProtocolViolationError("an answer that nobody waits for")
            self._head, size = found
            del self._buffer[:size]
            return True
        if self._head.fields.get("transfer-encoding", "").lower() == "chunked":
            return self._take_chunk(events)
        return self._take_answer(self._head, events)

    def _take_answer(
        self,
        head: Head,
        events: list[Welcome | Result | Item | End | Failed | ChannelFrame],
    ) -> bool:
        size = head.length()
        if len(self._buffer) < size:
            return False
        content = bytes(memoryview(self._buffer)[:size])
        self._finish(head, size)
        status = head.line[1]
        if head.fields.get("content-type") == MESSAGE_TYPE:
            value, body = unpack(content)
        else:
            value, body = load_json(content), b""
        if not isinstance(value, dict):
            raise ProtocolViolationError("an answer that is no object")
        if status == "200":
            events.append(Result(call=self._last_call, value=value, body=body))
        else:
            events.append(Failed(call=self._last_call, error=SandboxError.from_wire(value)))
        return True

    def _take_chunk(
        self, events: list[Welcome | Result | Item | End | Failed | ChannelFrame]
    ) -> bool:
        end = self._buffer.find(b"\r\n", 0, 16)
        if end < 0:
            if len(self._buffer) >= 16:
                raise ProtocolViolationError("a chunk without its size")
            return False
        try:
            size = int(bytes(self._buffer[:end]), 16)
        except ValueError as error:
            raise ProtocolViolationError("a chunk without its size") from error
        if not 0 <= size <= MAX_FRAME + 16:
            raise ProtocolViolationError(f"a chunk of {size} bytes")
        if len(self._buffer) < end + 2 + size + 2:
            return False
        data = bytes(memoryview(self._buffer)[end + 2 : end + 2 + size])
        assert self._head is not None  # noqa: S101  the caller has looked
        if not size:
            self._finish(self._head, end + 4)
            return True
        del self._buffer[: end + 2 + size + 2]
        for kind, _, payload in self._frames.feed(data):
            value, body = unpack(payload)
            if kind is FrameKind.ITEM:
                size = len(payload)
                events.append(Item(call=self._last_call, value=value, body=body, size=size))
            elif kind is FrameKind.END:
                events.append(End(call=self._last_call, value=value, body=body))
            elif kind is FrameKind.ERROR:
                why = SandboxError.from_wire(value)
                events.append(Failed(call=self._last_call, error=why))
            else:
                raise ProtocolViolationError(f"frame {kind.name} in a stream")
        return True

    def _finish(self, head: Head, size: int) -> None:
        del self._buffer[:size]
        self._head = None
        self._is_waiting = False
        if head.fields.get("connection", "").lower() == "close":
            self._is_closing = True
