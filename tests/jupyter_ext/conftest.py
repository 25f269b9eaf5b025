"""A stock Jupyter server on loopback, in the test's own event loop so that its sockets can be seen."""

from __future__ import annotations

import json
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

_TOKEN = "test-token"
_TAKEN = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Server:
    """A running server and how to talk to it."""

    app: ServerApp

    def _url(self, scheme: str, path: str) -> str:
        return f"{scheme}://127.0.0.1:{self.app.port}/{path}?token={_TOKEN}"

    async def start_kernel(self, name: str = "python3") -> str:
        answer = await AsyncHTTPClient().fetch(
            self._url("http", "api/kernels"), method="POST", body=json.dumps({"name": name})
        )
        return json.loads(answer.body)["id"]

    async def execute(self, kernel_id: str, code: str) -> tuple[str, Any]:
        """Run code over the kernel's WebSocket; return its stdout and the client's connection."""
        url = self._url("ws", f"api/kernels/{kernel_id}/channels")
        client = await websocket_connect(HTTPRequest(url, request_timeout=60))
        message_id = uuid.uuid4().hex
        await client.write_message(json.dumps(_execute_request(message_id, code)))
        text = ""
        while True:
            message = json.loads(await client.read_message())
            if message["parent_header"].get("msg_id") != message_id:
                continue
            if message["msg_type"] == "stream":
                text += message["content"]["text"]
            if message["content"].get("execution_state") == "idle":
                return text, client


StartServer = Callable[..., AbstractAsyncContextManager[Server]]


@pytest.fixture
def start_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StartServer:
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("SANDBOX_CONFIG", raising=False)

    @asynccontextmanager
    async def start(*arguments: str, **traits: Any) -> AsyncIterator[Server]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        # The server takes these, and keeps them when it is gone.
        handlers = {number: signal.getsignal(number) for number in _TAKEN}
        app = ServerApp(
            jpserver_extensions={"jupyter_ext": True},
            ip="127.0.0.1",
            port=port,
            open_browser=False,
            allow_root=True,
            root_dir=str(tmp_path),
            log_level="ERROR",
            **traits,
        )
        app.initialize([f"--IdentityProvider.token={_TOKEN}", *arguments], find_extensions=False)
        try:
            yield Server(app)
        finally:
            await app._cleanup()
            # Left to the garbage collector it may go before its owner, and warn.
            app.kernel_manager.context.destroy(0)
            for number, handler in handlers.items():
                signal.signal(number, handler)

    return start


def _execute_request(message_id: str, code: str) -> dict[str, Any]:
    return {
        "header": {
            "msg_id": message_id,
            "msg_type": "execute_request",
            "username": "test",
            "session": uuid.uuid4().hex,
            "date": "2025-01-01T00:00:00Z",
            "version": "5.4",
        },
        "parent_header": {},
        "metadata": {},
        "content": {"code": code, "silent": False, "store_history": False, "allow_stdin": False},
        "channel": "shell",
        "buffers": [],
    }
