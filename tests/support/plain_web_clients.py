"""Clients of the HTTP and WebSocket doors, written from PROTOCOL.md alone over others' libraries."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import websockets.sync.client

ITEM, END, ERROR = 5, 6, 7
JSON, MESSAGE = "application/json", "application/vnd.sandbox.message"
STREAM = "application/vnd.sandbox.stream"


class DoorError(Exception):
    """An error that was answered."""

    def __init__(self, value: dict[str, Any], status: int = 0) -> None:
        super().__init__(value["message"])
        self.code = value["code"]
        self.status = status


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("sandbox", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class HttpDoor:
    """One connection that is kept between requests."""

    def __init__(self, path: str, token: str) -> None:
        self.connection = _UnixConnection(path)
        self.token = token

    def close(self) -> None:
        self.connection.close()

    def ask(
        self, operation: str, params: dict[str, Any], body: bytes | None = None, **headers: str
    ) -> http.client.HTTPResponse:
        content, kind = json.dumps(params).encode(), JSON
        if body is not None:
            head = json.dumps({**params, "body": True}).encode()
            content, kind = struct.pack(">I", len(head)) + head + body, MESSAGE
        fields = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, **headers}
        self.connection.request("POST", f"/operations/{operation}", content, fields)
        response = self.connection.getresponse()
        if response.status != 200:
            raise DoorError(json.loads(response.read()), response.status)
        return response

    def call(self, operation: str, params: dict[str, Any], body: bytes | None = None) -> Any:
        return json.loads(self.ask(operation, params, body).read())

    def stream(
        self, operation: str, params: dict[str, Any], body: bytes | None = None
    ) -> Iterator[tuple[int, dict[str, Any], bytes]]:
        response = self.ask(operation, params, body)
        assert response.headers["Content-Type"] == STREAM
        while head := response.read(4):
            (size,) = struct.unpack(">I", head)
            frame = response.read(size)
            kind = frame[0]
            (length,) = struct.unpack(">I", frame[5:9])
            value = json.loads(frame[9 : 9 + length])
            if kind == ERROR:
                raise DoorError(value)
            yield kind, value, frame[9 + length :]


class WebSocketDoor:
    """One WebSocket; one call at a time."""

    def __init__(self, path: str, token: str) -> None:
        self._stack = contextlib.ExitStack()
        self.socket = self._stack.enter_context(
            websockets.sync.client.unix_connect(
                path,
                "ws://sandbox/websocket",
                additional_headers={"Authorization": f"Bearer {token}"},
                compression=None,
                max_size=None,
            )
        )
        self.welcome = json.loads(self.socket.recv())
        self.last = 0

    def close(self) -> None:
        self._stack.close()

    def stream(
        self, operation: str, params: dict[str, Any], body: bytes | None = None
    ) -> Iterator[tuple[str, dict[str, Any], bytes]]:
        self.last += 1
        message = {"type": "call", "id": self.last, "operation": operation, "params": params}
        if body is not None:
            message["params"] = {**params, "body": True}
            message["body"] = base64.b64encode(body).decode()
        self.socket.send(json.dumps(message))
        while True:
            text = self.socket.recv()
            answer = json.loads(text)
            if answer["type"] == "error":
                raise DoorError(answer["error"])
            yield answer["type"], answer["value"], base64.b64decode(answer.get("body", ""))
            if answer["type"] != "item":
                return
            credit = {"type": "credit", "id": self.last, "amount": len(text)}
            self.socket.send(json.dumps(credit))

    def call(self, operation: str, params: dict[str, Any], body: bytes | None = None) -> Any:
        ((_, value, _),) = self.stream(operation, params, body)
        return value
