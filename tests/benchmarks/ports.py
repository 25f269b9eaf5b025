"""What a connection to a sandbox's port costs beside one to a port of this machine.

    python tests/benchmarks/ports.py [--rounds 5] [--json FILE]

The same program serves both, the same client of asyncio's streams asks both, and the two take
turns, so that what else the machine does falls on both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings

PORT = 28431
BULK = 200_000_000
PIECE = 1 << 18

SERVER = f"""
import socket, threading
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    what = c.recv(1)
    if what == b"e":
        while data := c.recv(65536):
            c.sendall(data)
    elif what == b"d":
        piece = bytes({PIECE})
        for _ in range({BULK} // {PIECE}):
            c.sendall(piece)
    elif what == b"u":
        memory = bytearray({PIECE})
        while c.recv_into(memory):
            pass
        c.sendall(b"!")
    c.close()
server = socket.create_server(("127.0.0.1", {PORT}), backlog=300)
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], AbstractAsyncContextManager[Streams]]


@asynccontextmanager
async def direct():
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT, limit=1 << 18)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def round_trip(connect: Connect) -> float:
    """Return seconds for one byte there and back."""
    async with connect() as (reader, writer):
        writer.write(b"ex")
        await reader.readexactly(1)
        begin = time.perf_counter()
        for _ in range(500):
            writer.write(b"x")
            await reader.readexactly(1)
        return (time.perf_counter() - begin) / 500


async def first_byte(connect: Connect) -> float:
    """Return seconds for a new connection and one byte there and back."""
    begin = time.perf_counter()
    for _ in range(30):
        async with connect() as (reader, writer):
            writer.write(b"ex")
            await reader.readexactly(1)
    return (time.perf_counter() - begin) / 30


async def download(connect: Connect) -> float:
    """Return seconds for the bulk from the program."""
    async with connect() as (reader, writer):
        begin = time.perf_counter()
        writer.write(b"d")
        left = BULK // PIECE * PIECE
        while left:
            left -= len(await reader.read(1 << 20))
        return time.perf_counter() - begin


async def upload(connect: Connect) -> float:
    """Return seconds for the bulk to the program, until it has all."""
    async with connect() as (reader, writer):
        begin = time.perf_counter()
        writer.write(b"u")
        piece = bytes(PIECE)
        for _ in range(BULK // PIECE):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        await reader.readexactly(1)
        return time.perf_counter() - begin


async def together(connect: Connect) -> float:
    """Return seconds for 200 connections at once, each with one byte there and back."""

    async def one() -> None:
        async with connect() as (reader, writer):
            writer.write(b"ex")
            await reader.readexactly(1)

    begin = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(200)))
    return time.perf_counter() - begin


ROWS: tuple[tuple[str, str, Callable[[Connect], Awaitable[float]]], ...] = (
    ("one byte there and back", "ms", round_trip),
    ("new connection and a byte there and back", "ms", first_byte),
    ("200 connections at once", "ms", together),
    ("200 MB from the program", "MB/s", download),
    ("200 MB to the program", "MB/s", upload),
)


async def measure(rounds: int, data_dir: Path) -> dict[str, dict[str, float]]:
    manager = Manager(Settings(data_dir=data_dir))
    table = {}
    try:
        async with get_sandbox("bench", manager=manager) as sandbox:
            process = await sandbox.start_process(["python", "-c", SERVER])
            await process.wait_for_port(PORT, timeout=20)
            for title, unit, work in ROWS:
                ours, theirs = [], []
                for _ in range(rounds):
                    theirs.append(await work(direct))
                    ours.append(await work(lambda: sandbox.connect_port(PORT)))
                one, other = statistics.median(ours), statistics.median(theirs)
                if unit == "MB/s":
                    one, other = BULK / one / 1e6, BULK / other / 1e6
                else:
                    one, other = one * 1e3, other * 1e3
                table[f"{title}, {unit}"] = {
                    "sandbox": round(one, 3),
                    "direct": round(other, 3),
                    "ratio": round(one / other, 2),
                }
            await sandbox.destroy()
    finally:
        manager.close()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with (
        subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as host,
        tempfile.TemporaryDirectory() as folder,
    ):
        assert host.stdout is not None
        host.stdout.readline()
        try:
            table = asyncio.run(measure(arguments.rounds, Path(folder) / "sandbox"))
        finally:
            host.kill()
    for name, row in table.items():
        print(f"{name:48}", *(f"{key} {value}" for key, value in row.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
