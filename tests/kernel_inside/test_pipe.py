"""The queue between a kernel's threads and its pipe, interrupted at every point."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_runtime.kernel_pipe import ROOM, KernelPipe, Text
from sandbox_runtime.kernel_streams import Capture

_TEXT = Text("stdout")
_LARGE = "x" * 100_000


_SEND = """
import os, random, signal, sys, time
for _ in range(20000):
    time.sleep(random.random() * 0.002)
    os.kill(int(sys.argv[1]), signal.SIGUSR1)
"""


class Cut(BaseException):
    """What a signal's handler raises, as an interrupt does."""


class Stream:
    """Takes what a capture has read."""

    def __init__(self, pipe: KernelPipe) -> None:
        self.pipe = pipe

    def write_captured(self, text: str) -> None:
        self.pipe.put_captured(_TEXT, {}, text)


class Reader:
    """Reads what the pipe writes, and counts it."""

    def __init__(self, source: socket.socket) -> None:
        self.source = source
        self.count = 0
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        memory = bytearray(1 << 20)
        while count := self.source.recv_into(memory):
            self.count += count


@pytest.fixture
def pipe() -> Iterator[KernelPipe]:
    """A pipe whose output is read as fast as it comes."""
    requests, taken = socket.socketpair()
    said, saying = socket.socketpair()
    pipe = KernelPipe(taken.detach(), saying.fileno(), lambda _: b"{}")
    pipe.start(lambda *_: None, lambda *_: None)
    reader = Reader(said)
    yield pipe
    requests.close()
    pipe.thread.join(10)
    saying.close()
    reader.thread.join(10)
    said.close()


@pytest.fixture
def capture(pipe: KernelPipe, tmp_path: Path) -> Iterator[tuple[Capture, int]]:
    """A capture, and the descriptor that it captures."""
    fd = os.open(tmp_path / "captured", os.O_WRONLY | os.O_CREAT)
    capture = Capture(fd, Stream(pipe))  # type: ignore[arg-type]  all of a stream that it uses
    pipe.watch(capture.read_fd, capture.drain_if_free)
    yield capture, fd
    os.close(fd)


class Cuts:
    """Raises `Cut` in the main thread again and again, each time it is armed."""

    def __init__(self) -> None:
        self.count = 0
        self.armed = False
        self._earlier = signal.signal(signal.SIGUSR1, self._cut)
        self._sender = subprocess.Popen([sys.executable, "-c", _SEND, str(os.getpid())])

    def _cut(self, *_: object) -> None:
        if self.armed:
            self.armed = False
            self.count += 1
            raise Cut

    def end(self) -> None:
        self._sender.kill()
        self._sender.wait()
        signal.signal(signal.SIGUSR1, self._earlier)


def test_interrupts_anywhere_leave_a_pipe_that_moves_and_a_bounded_queue(
    pipe: KernelPipe, capture: tuple[Capture, int]
) -> None:
    """Whatever an interrupt cuts short in the thread that prints, all others go on."""
    captured, fd = capture
    most = 0
    cuts = Cuts()
    try:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            try:
                cuts.armed = True
                while True:
                    os.write(fd, b"of a child")
                    captured.drain()
                    for _ in range(80):
                        pipe.put_text(_TEXT, {}, _LARGE)
            except Cut:
                most = max(most, pipe._produced - pipe._consumed)
    finally:
        cuts.end()

    assert cuts.count > 100
    assert most < 16 * ROOM, "each interrupt lets one text pass, and no more"
    assert pipe.flush(10)
