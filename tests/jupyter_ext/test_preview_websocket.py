"""WebSockets through a preview, beside the same ones without it: what comes back is the same.

The cases are of the kinds that conformance suites of the protocol have: frames of each kind and
size, fragments, pings between them, text that is no UTF-8, codes to close with, limits, and what
breaks the rules.  They are written as frames, since no library would send most of them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import sync
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

pytestmark = pytest.mark.timeout(180)

PORT, LABEL = 28451, "28451-echo-ws_token"
MASK = b"\x11\x22\x33\x44"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

PROGRAM = """
import asyncio, sys
from websockets.asyncio.server import serve
async def echo(socket):
    async for message in socket:
        if message == "close 3999":
            await socket.close(3999, "as asked")
        elif message == "fragments":
            await socket.send(["a", "b", "", "c"])
        elif message == "vanish":
            socket.transport.abort()
        else:
            await socket.send(message)
async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1]), max_size=2**20, ping_interval=None):
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def frame(opcode: int, payload: bytes = b"", *, final: bool = True, more: int = 0) -> bytes:
    """Return a client's frame; `more` are bits to set in its first byte."""
    first = (0x80 if final else 0) | opcode | more
    size = len(payload)
    if size < 126:
        head = bytes([first, 0x80 | size])
    elif size < 1 << 16:
        head = bytes([first, 0xFE]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, 0xFF]) + size.to_bytes(8, "big")
    mask = (MASK * (size // 4 + 1))[:size]
    masked = (int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")).to_bytes(size, "big")
    return head + MASK + masked


def fragments(opcode: int, *payloads: bytes, between: bytes = b"") -> bytes:
    data = frame(opcode, payloads[0], final=False) + between
    for payload in payloads[1:-1]:
        data += frame(CONTINUATION, payload, final=False) + between
    return data + frame(CONTINUATION, payloads[-1])


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big") + reason)


END = closing(1000)
LAST = b"the last"
GREEK = "κόσμε".encode()

CASES: dict[str, bytes] = {
    **{
        f"{name} of {size} bytes": frame(opcode, b"*" * size) + END
        for name, opcode in (("text", TEXT), ("binary", BINARY))
        for size in (0, 1, 125, 126, 127, 128, 65535, 65536, 65537, 1 << 20)
    },
    "binary that is no text": frame(BINARY, b"\x00\xff\x80") + END,
    "text of all widths": frame(TEXT, "é漢😀".encode()) + END,
    **{f"ping of {size} bytes": frame(PING, b"p" * size) + END for size in (0, 1, 125)},
    "ping of 126 bytes": frame(PING, b"p" * 126),
    "ten pings": b"".join(frame(PING, b"%d" % number) for number in range(10)) + END,
    "a pong nobody asked for": frame(PONG, b"x") + frame(TEXT, b"on") + END,
    **{f"reserved bits {bits:x}": frame(TEXT, b"x", more=bits) for bits in (0x10, 0x20, 0x40)},
    **{f"opcode {code}": frame(code, b"x") for code in (3, 7, 11, 15)},
    "fragmented ping": frame(PING, b"x", final=False) + frame(CONTINUATION, b"y"),
    "two fragments": fragments(TEXT, b"one", b"two") + END,
    "empty fragments": fragments(TEXT, b"", b"", b"") + END,
    "ping between fragments": fragments(TEXT, b"one", b"two", between=frame(PING, b"!")) + END,
    "1 MB in 100 fragments": fragments(BINARY, *[b"*" * 10_000] * 100) + END,
    "continuation of nothing": frame(CONTINUATION, b"x"),
    "a message inside of fragments": frame(TEXT, b"a", final=False) + frame(TEXT, b"b"),
    "text cut inside of a letter": fragments(TEXT, GREEK[:3], GREEK[3:]) + END,
    "text in single bytes": fragments(TEXT, *[bytes([each]) for each in GREEK]) + END,
    **{
        f"no UTF-8 {data.hex()}": frame(TEXT, data)
        for data in (
            b"\xff",
            b"\xce",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\xc0\x80",
            GREEK + b"\xed\xa0\x80" + b"edited",
        )
    },
    **{
        f"close {code}": closing(code)
        for code in (1000, 1001, 1002, 1003, 1007, 1009, 1011, 3000, 3999, 4000, 4999)
    },
    **{f"close {code}": closing(code) for code in (0, 999, 1004, 1005, 1006, 1016, 2999, 5000)},
    "close without a code": frame(CLOSE),
    "close with half a code": frame(CLOSE, b"\x03"),
    "close with a reason": closing(1000, "bye é".encode()),
    "close with the longest reason": closing(1000, b"r" * 123),
    "close with a reason too long": closing(1000, b"r" * 124),
    "close with a reason that is no UTF-8": closing(1000, b"\xce\xba\xe1"),
    "text after the close": END + frame(TEXT, b"late"),
    "two closes": END + END,
    "closed by the program": frame(TEXT, b"close 3999") + frame(CLOSE, (3999).to_bytes(2, "big")),
    "fragments of the program": frame(TEXT, b"fragments") + END,
    "larger than is taken": frame(BINARY, b"*" * ((1 << 20) + 1)),
    "unmasked": b"\x81\x01x",
    "a length in too many bytes": b"\x82\xfe\x00\x01" + MASK + b"x" + END,
    "many small messages": b"".join(frame(TEXT, b"%d" % number) for number in range(1000)) + END,
    "the program breaks the connection": frame(TEXT, b"vanish"),
}


class Ways:
    def __init__(self, direct: int, server: int) -> None:
        self._direct = direct
        self._server = server

    def direct(self, *headers: str) -> socket.socket:
        return upgraded(self._direct, f"localhost:{self._direct}", *headers)[0]

    def preview(self, *headers: str) -> socket.socket:
        return upgraded(self._server, f"{LABEL}.localhost:{self._server}", *headers)[0]


def upgraded(port: int, host: str, *headers: str) -> tuple[socket.socket, str]:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    lines = [
        *("GET / HTTP/1.1", f"Host: {host}", f"Origin: http://{host}", "Upgrade: websocket"),
        *("Connection: Upgrade", "Sec-WebSocket-Version: 13"),
        *("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", *headers, "", ""),
    ]
    connection.sendall("\r\n".join(lines).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    assert head.startswith(b"HTTP/1.1 101 "), head
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    return connection, head.decode("latin-1")


def transcript(connection: socket.socket, data: bytes, size: int | None = None) -> bytes:
    """Return all that comes back, up to the end of the connection, whichever way it ends.

    A close that is well meant is sent when all before it has been answered.
    """
    is_echoed = data.endswith(END) and data != END and not data.endswith(END + END)
    if is_echoed:
        data = data.removesuffix(END) + frame(TEXT, LAST)
    got = b""
    with connection:
        with contextlib.suppress(ConnectionError):
            step = size or len(data)
            for at in range(0, len(data), step):
                connection.sendall(data[at : at + step])
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(1 << 16):
                got += piece
                if is_echoed and got.endswith(LAST):
                    connection.sendall(END)
    return got


@pytest.fixture(scope="module")
def ways() -> Iterator[Ways]:
    with (
        tempfile.TemporaryDirectory(prefix="pw") as folder,
        socket.create_server(("127.0.0.1", 0)) as probe,
    ):
        port = probe.getsockname()[1]
        probe.close()
        home = JupyterHome(Path(folder)).create()
        manager = Manager(Settings(data_dir=home.sandboxes))
        with (
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(port)], stdout=subprocess.PIPE
            ) as host,
            JupyterServer(home) as server,
            sync.get_sandbox("echo", manager=manager, keep_alive=True) as sandbox,
        ):
            try:
                sandbox.write_file("/workspace/program.py", PROGRAM)
                process = sandbox.start_process(["python", "program.py", str(PORT)])
                process.wait_for_port(PORT, timeout=30)
                sandbox.expose_port(PORT, token="ws_token")
                assert host.stdout is not None
                host.stdout.readline()
                yield Ways(port, server.port)
            finally:
                host.kill()
                home.destroy_named_sandboxes()
        manager.close()


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_answered_as_without_the_preview(ways: Ways, name: str) -> None:
    """Byte by byte: kinds, fragments, pings, close codes and reasons."""
    data = CASES[name]
    assert transcript(ways.preview(), data) == transcript(ways.direct(), data)


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize(
    "name", ["text of all widths", "ping between fragments", "text cut inside of a letter"]
)
def test_it_does_not_matter_how_frames_are_cut(ways: Ways, name: str, size: int) -> None:
    """The same in pieces of some bytes."""
    data = CASES[name]
    assert transcript(ways.preview(), data, size) == transcript(ways.direct(), data)


def test_what_the_two_agree_on_is_theirs(ways: Ways) -> None:
    """An extension is offered to the program, and its answer is passed on."""
    offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
    for connect in (ways.direct, ways.preview):
        with connect(offer) as connection:
            connection.sendall(frame(TEXT, b"plain"))
            assert connection.recv(100)[:1] == b"\xc1"  # compressed


def test_a_program_waits_for_a_page_that_does_not_read(ways: Ways) -> None:
    """Echoes that nobody takes let the page's own messages wait, and none is lost."""
    piece = frame(BINARY, os.urandom(1 << 16))
    received = 0
    with ways.preview() as connection:
        connection.settimeout(0.5)
        sent, left = 0, b""
        with contextlib.suppress(TimeoutError):
            while sent < 1000 * len(piece):
                left = left or piece
                done = connection.send(left)
                sent, left = sent + done, left[done:]
        assert sent < 60 << 20
        connection.setblocking(False)
        deadline = time.monotonic() + 60
        expected = (sent + len(left)) // len(piece) * (len(piece) - len(MASK))
        while received < expected:
            assert time.monotonic() < deadline
            if left:
                with contextlib.suppress(BlockingIOError):
                    left = left[connection.send(left) :]
            with contextlib.suppress(BlockingIOError):
                received += len(connection.recv(1 << 18))
    assert received == expected
