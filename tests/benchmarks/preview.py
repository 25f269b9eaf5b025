"""Previews of programs in a sandbox beside jupyter-server-proxy, in one interleaved run.

    pip install --no-deps --target FOLDER -r tests/benchmarks/jupyter-server-proxy.txt
    JUPYTER_SERVER_PROXY=FOLDER python tests/benchmarks/preview.py [--rounds N] [--only WORD ...]

The same program serves both: for the peer on this machine, for us in bubblewrap without network.
Each has a Jupyter server of its own.  The peer stays out of the environment, where it would be
part of every server.  See README.md beside this file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from websockets.sync.client import connect as websocket

sys.path.insert(0, str(Path(__file__).parents[2]))

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.benchmark_table import Row, run_table
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

PEER, OURS = "proxy", "preview"
SANDBOX, TOKEN, PORT = "bench", "bench_token", 28441
BULK = 100_000_000
REQUESTS, MESSAGES = 150, 200

PROGRAM = f"""
import asyncio, tornado.web, tornado.websocket
class Small(tornado.web.RequestHandler):
    def get(self):
        self.write(bytes(1024))
class Bulk(tornado.web.RequestHandler):
    async def get(self):
        self.set_header("Content-Length", {BULK})
        piece = bytes(1_000_000)
        for _ in range({BULK} // 1_000_000):
            self.write(piece)
            await self.flush()
@tornado.web.stream_request_body
class Upload(tornado.web.RequestHandler):
    count = 0
    def prepare(self):
        self.request.connection.set_max_body_size(1 << 40)
    def data_received(self, data):
        self.count += len(data)
    def post(self):
        self.write(str(self.count))
class Echo(tornado.websocket.WebSocketHandler):
    def check_origin(self, origin):
        return True
    def open(self):
        self.set_nodelay(True)
    def on_message(self, message):
        self.write_message(message, binary=isinstance(message, bytes))
async def main():
    routes = [("/small", Small), ("/bulk", Bulk), ("/upload", Upload), ("/echo", Echo)]
    tornado.web.Application(routes).listen({PORT}, "127.0.0.1")
    await asyncio.Event().wait()
asyncio.run(main())
"""


class Way:
    """A way to the program: a Jupyter server, and where in it the program is."""

    def __init__(self, server: JupyterServer, prefix: str, host: str, *headers: str) -> None:
        self.port = server.port
        self.prefix = prefix
        self.host = host
        self.headers = [f"Host: {host}", *headers]

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def ask(self, connection: socket.socket, method: str, path: str, *headers: str) -> None:
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", *self.headers, *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode())

    def read(self, connection: socket.socket) -> int:
        """Read an answer with a length; return the bytes of its body."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(1 << 16)
            assert piece, "no answer"
            data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0], head
        lines = head.lower().split(b"\r\n")
        (length,) = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
        count, memory = len(rest), bytearray(1 << 20)
        while count < length:
            got = connection.recv_into(memory)
            assert got, "cut"
            count += got
        return count


def small(way: Way) -> float:
    """Return milliseconds of a GET of 1 KB, the median of one connection's."""
    times = []
    with way.connect() as connection:
        for _ in range(REQUESTS):
            begin = time.perf_counter()
            way.ask(connection, "GET", "/small")
            assert way.read(connection) == 1024
            times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def bulk(way: Way) -> float:
    """Return MB/s of a download."""
    with way.connect() as connection:
        begin = time.perf_counter()
        way.ask(connection, "GET", "/bulk")
        assert way.read(connection) == BULK
        return BULK / (time.perf_counter() - begin) / 1e6


def upload(way: Way) -> float:
    """Return MB/s of an upload."""
    piece = bytes(1_000_000)
    with way.connect() as connection:
        begin = time.perf_counter()
        way.ask(connection, "POST", "/upload", f"Content-Length: {BULK}")
        for _ in range(BULK // len(piece)):
            connection.sendall(piece)
        way.read(connection)
        return BULK / (time.perf_counter() - begin) / 1e6


def echo(way: Way) -> float:
    """Return milliseconds of a WebSocket's message there and back."""
    headers = dict(each.split(": ", 1) for each in way.headers[1:])
    times = []
    with websocket(
        f"ws://{way.host}{way.prefix}/echo",
        sock=way.connect(),
        additional_headers=headers,
        compression=None,
    ) as client:
        for number in range(MESSAGES):
            begin = time.perf_counter()
            client.send(b"%032d" % number)
            client.recv()
            times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


ROWS: tuple[tuple[str, str, float | None, bool, Callable[[Way], float]], ...] = (
    ("GET of 1 KB", "ms", 1.5, False, small),
    ("GET of 100 MB", "MB/s", 0.8, True, bulk),
    ("POST of 100 MB", "MB/s", None, True, upload),
    ("WebSocket message there and back", "ms", None, False, echo),
)


async def begin(data_dir: Path) -> None:
    manager = Manager(Settings(data_dir=data_dir))
    try:
        async with get_sandbox(SANDBOX, manager=manager, keep_alive=True) as sandbox:
            await sandbox.write_file("/workspace/program.py", PROGRAM)
            process = await sandbox.start_process(["python", "program.py"])
            await process.wait_for_port(PORT, timeout=30)
            await sandbox.expose_port(PORT, token=TOKEN)
    finally:
        manager.close()


@contextlib.contextmanager
def ways(root: Path) -> Iterator[dict[str, Way]]:
    peer = os.environ["JUPYTER_SERVER_PROXY"]
    home, other = JupyterHome(root / "a").create(), JupyterHome(root / "b").create()
    extension = "--ServerApp.jpserver_extensions={'jupyter_server_proxy': True}"
    path = f"{peer}:{os.environ.get('PYTHONPATH', '')}"
    with (
        subprocess.Popen([sys.executable, "-c", PROGRAM]) as program,
        JupyterServer(home) as server,
        JupyterServer(other, extension, PYTHONPATH=path) as proxy,
    ):
        try:
            asyncio.run(begin(home.sandboxes))
            host = f"{PORT}-{SANDBOX}-{TOKEN}.localhost:{server.port}"
            yield {
                PEER: Way(
                    proxy,
                    f"/proxy/{PORT}",
                    f"127.0.0.1:{proxy.port}",
                    f"Authorization: token {proxy.token}",
                ),
                OURS: Way(server, "", host),
            }
        finally:
            program.kill()
            home.destroy_named_sandboxes()


def measure(rounds: int, only: list[str]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="bp") as folder, ways(Path(folder)) as both:
        for title, unit, goal, at_least, work in ROWS:
            if only and not any(word in work.__name__ for word in only):
                continue
            values: dict[str, list[float]] = {PEER: [], OURS: []}
            for way in both.values():
                work(way)
            for number in range(rounds):
                for name in (PEER, OURS) if number % 2 else (OURS, PEER):
                    values[name].append(work(both[name]))
            yield Row(title, unit, goal, values, at_least=at_least)


if __name__ == "__main__":
    sys.exit(run_table(__doc__, (PEER, OURS), measure))
