"""A client written from PROTOCOL.md alone: it shares no code with the product."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

HELLO, WELCOME, CALL, RESULT, ITEM, END, ERROR, CANCEL, CREDIT = range(1, 10)
INPUT, DATA, ACK, CONTROL, EVENT = range(16, 21)


class PlainError(Exception):
    """What an ERROR frame said."""

    def __init__(self, head: dict[str, Any]) -> None:
        super().__init__(head["message"])
        self.code = head["code"]


class PlainClient:
    """One connection; one call at a time."""

    def __init__(self, path: str, token: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.last_call = 0
        self.send(HELLO, 0, message({"versions": [1], "token": token}))
        kind, _, payload = self.receive()
        if kind == ERROR:
            self.close()
            raise PlainError(parse(payload)[0])
        assert kind == WELCOME
        self.welcome = parse(payload)[0]

    def close(self) -> None:
        self.socket.close()

    def send(self, kind: int, call: int, payload: bytes = b"") -> None:
        self.socket.sendall(struct.pack(">IBI", 5 + len(payload), kind, call) + payload)

    def receive(self) -> tuple[int, int, bytes]:
        length, kind, call = struct.unpack(">IBI", self.exactly(9))
        return kind, call, self.exactly(length - 5)

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def ask(self, operation: str, params: dict[str, Any], body: bytes | None = None) -> None:
        self.last_call += 1
        if body is not None:
            params = {**params, "body": True}
        head = {"op": operation, "params": params}
        self.send(CALL, self.last_call, message(head, body or b""))

    def call(self, operation: str, params: dict[str, Any], body: bytes | None = None) -> Any:
        """Do an operation of kind call or channel; return the head of its RESULT."""
        self.ask(operation, params, body)
        kind, call, payload = self.receive()
        assert call == self.last_call
        if kind == ERROR:
            raise PlainError(parse(payload)[0])
        assert kind == RESULT
        return parse(payload)[0]

    def stream(
        self, operation: str, params: dict[str, Any], body: bytes | None = None
    ) -> Iterator[tuple[int, dict[str, Any], bytes]]:
        """Do an operation of kind stream; yield (kind, head, body) of ITEMs and the END."""
        self.ask(operation, params, body)
        while True:
            kind, call, payload = self.receive()
            assert call == self.last_call
            head, data = parse(payload)
            if kind == ERROR:
                raise PlainError(head)
            yield kind, head, data
            if kind == END:
                return
            self.send(CREDIT, call, struct.pack(">I", len(payload)))


def message(head: dict[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(head).encode()
    return struct.pack(">I", len(text)) + text + body


def parse(payload: bytes) -> tuple[dict[str, Any], bytes]:
    (size,) = struct.unpack_from(">I", payload)
    return json.loads(payload[4 : 4 + size]), payload[4 + size :]
