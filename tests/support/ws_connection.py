"""A Jupyter server of our own, and kernels behind its REST interface and WebSocket."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from typing import Any, Self

import websockets
from websockets.sync.client import connect

from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import Message

__all__ = ["JupyterServer", "WsConnection"]

_PARTS = ("header", "parent_header", "metadata", "content")

# Where it is installed, jsonschema imports a grammar of addresses that nobody here asks for: several
# seconds of processor time at each start of a server.
_RUN = (
    "import runpy, sys; sys.modules['rfc3987_syntax'] = None; del sys.argv[0];"
    " runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


def _pack(channel: str, message: Message) -> bytes:
    # v1.kernel.websocket.jupyter.org: u64 count of offsets, the offsets, the parts.
    parts = [channel.encode(), *(json.dumps(message[part]).encode() for part in _PARTS)]
    parts += message["buffers"]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)


def _unpack(data: bytes) -> Message:
    (count,) = struct.unpack_from("<Q", data)
    offsets = struct.unpack_from(f"<{count}Q", data, 8)
    parts = [data[start:end] for start, end in itertools.pairwise(offsets)]
    message: Message = dict(zip(_PARTS, map(json.loads, parts[1:5]), strict=True))
    message["channel"] = parts[0].decode()
    message["buffers"] = parts[5:]
    return message


class JupyterServer:
    """A jupyter_server process on loopback, with a token.

    Parameters
    ----------
    home : JupyterHome
        Whose server it is; its root folder is ``home.work``.
    app : str
        Module to run: ``jupyter_server``, ``jupyterlab`` or ``notebook``.
    base_url : str
        What all its addresses begin with, as behind a hub.
    options : str
        More command-line options.
    extra : str
        More environment variables.
    """

    def __init__(
        self,
        home: JupyterHome,
        *options: str,
        app: str = "jupyter_server",
        base_url: str = "/",
        **extra: str,
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.home = home
        self.token = uuid.uuid4().hex
        self.base = f"http://127.0.0.1:{self.port}{base_url.rstrip('/')}"
        self.log_path = home.root / f"server-{self.port}.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _RUN, app),
                    *("--allow-root", "--no-browser", "--ip=127.0.0.1"),
                    *(f"--port={self.port}", "--ServerApp.port_retries=0"),
                    *(
                        f"--IdentityProvider.token={self.token}",
                        f"--ServerApp.root_dir={home.work}",
                        f"--ServerApp.base_url={base_url}",
                    ),
                    *options,
                ],
                env=home.env(**extra),
                cwd=home.work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + 100
        while True:
            try:
                self.get("/api")
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"no server:\n{self.log}") from None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.05)
            else:
                break

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def call(
        self, method: str, path: str, body: Any = None, timeout: float = 60
    ) -> tuple[int, Any]:
        """Return status and JSON body of a REST call; refusals are answers too."""
        request = urllib.request.Request(  # noqa: S310 - our own server on loopback
            self.base + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
                status, data = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, data = error.code, error.read()
        return status, json.loads(data) if data else None

    def get(self, path: str) -> Any:
        status, body = self.call("GET", path)
        assert status == 200, (status, body)
        return body

    def close(self) -> None:
        """End the server, its kernels with it; may be called twice."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class WsConnection:
    """A kernel behind a server, over its WebSocket.

    Parameters
    ----------
    server : JupyterServer
        The server.
    kernel_name : str, optional
        Kernelspec to start; or give `kernel_id`.
    kernel_id : str, optional
        A kernel that runs already.
    session : str, optional
        Session id of the client; the server keeps output for a lost client under it.
    """

    def __init__(
        self,
        server: JupyterServer,
        kernel_name: str | None = None,
        *,
        kernel_id: str | None = None,
        session: str | None = None,
    ) -> None:
        self.server = server
        self.session = session or uuid.uuid4().hex
        self.owner = kernel_id is None
        if kernel_id is None:
            status, body = server.call("POST", "/api/kernels", {"name": kernel_name})
            assert status == 201, (status, body)
            kernel_id = body["id"]
        self.kernel_id: str = kernel_id
        self.open()

    def open(self) -> None:
        self._stack = contextlib.ExitStack()
        self.socket = self._stack.enter_context(
            connect(
                f"{self.server.base.replace('http', 'ws', 1)}/api/kernels/{self.kernel_id}/channels"
                f"?session_id={self.session}",
                additional_headers={"Authorization": f"token {self.server.token}"},
                subprotocols=[websockets.Subprotocol("v1.kernel.websocket.jupyter.org")],
                compression=None,
                max_size=None,
                # Several seconds of a test may pass between two reads.
                ping_interval=None,
            )
        )

    def send(self, channel: str, message: Message) -> None:
        self.socket.send(_pack(channel, message))

    def receive(self, timeout: float) -> list[Message]:
        try:
            data = self.socket.recv(timeout)
        except TimeoutError:
            return []
        assert isinstance(data, bytes), data
        return [_unpack(data)]

    def interrupt(self) -> None:
        status, body = self.server.call("POST", f"/api/kernels/{self.kernel_id}/interrupt")
        assert status == 204, (status, body)

    def restart(self) -> None:
        status, body = self.server.call("POST", f"/api/kernels/{self.kernel_id}/restart")
        assert status == 200, (status, body)

    def is_alive(self) -> bool:
        return self.server.call("GET", f"/api/kernels/{self.kernel_id}")[0] == 200

    def disconnect(self) -> None:
        """Close the WebSocket and leave the kernel."""
        self._stack.close()

    def close(self) -> None:
        self.disconnect()
        if self.owner and self.server.process.poll() is None:
            self.server.call("DELETE", f"/api/kernels/{self.kernel_id}")
