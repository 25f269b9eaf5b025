"""A plain client for the routes of REST, which sends what it is told, however odd."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.ws_connection import JupyterServer

__all__ = ["Answer", "RestClient"]


@dataclass(frozen=True)
class Answer:
    """An answer that has come whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The answer's JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error, whose form is checked."""
        said = self.value
        wanted = {"code", "message", "hint", "context", "http_status", "timestamp"}
        assert set(said) == wanted, said
        assert said["http_status"] == self.status, said
        return str(said["code"])


class RestClient:
    """Talks to one server below ``sandbox/api/``."""

    def __init__(self, server: JupyterServer, *, token: bool = True) -> None:
        self.server = server
        self.prefix = f"{server.base.split('/', 3)[3] if server.base.count('/') > 2 else ''}"
        self.headers = {"Authorization": f"token {server.token}"} if token else {}

    def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | Iterator[bytes] | None = None,
        timeout: float = 60,
        **headers: str,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request and return where its answer comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=timeout)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(
            method, f"/sandbox/api/{path}", body=data, headers={**self.headers, **named}
        )
        return connection, connection.getresponse()

    def __call__(self, method: str, path: str, body: Any = None, **how: Any) -> Answer:
        connection, answer = self.open(method, path, body, **how)
        with contextlib.closing(connection), answer:
            data = answer.read()
            return Answer(answer.status, dict(answer.headers), data)

    def lines(self, method: str, path: str, body: Any = None, **how: Any) -> list[dict[str, Any]]:
        """Return the events of a stream, to its end."""
        answer = self(method, path, body, Accept="application/x-ndjson", **how)
        assert answer.status == 200, answer
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer.body.splitlines() if line]
