"""A socket whose frames travel as messages of a widget."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox_kernel.client.terminal_protocol import Close
from sandbox_kernel.widget.comm_socket import MAX_INPUT, CommSocket
from sandbox_kernel.widget.pace import PIECE, Pace


class Page:
    """The other end: what came, in order."""

    def __init__(self) -> None:
        self.messages: list[tuple[dict[str, Any], list[bytes]]] = []
        self.came = asyncio.Event()

    def publish(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        assert (message.pop("type"), message.pop("socket")) == ("socket", "s")
        self.messages.append((message, buffers))
        self.came.set()

    async def next(self) -> tuple[dict[str, Any], list[bytes]]:
        async with asyncio.timeout(5):
            while not self.messages:
                self.came.clear()
                await self.came.wait()
        return self.messages.pop(0)


class Bridge:
    """What stands for the terminal: takes messages, and can be told to be slow."""

    def __init__(self) -> None:
        self.messages: list[str | bytes] = []
        self.is_closed = False
        self.gate: asyncio.Event | None = None
        self.has_three = asyncio.Event()

    def message(self, message: str | bytes):
        self.messages.append(message)
        if len(self.messages) == 3:
            self.has_three.set()
        return None if self.gate is None else self.gate.wait()

    def closed(self) -> None:
        self.is_closed = True


@pytest.fixture
async def page():
    return Page()


@pytest.fixture
async def sock(page):
    return CommSocket("s", page.publish, Pace(), asyncio.get_running_loop())


async def test_what_is_sent_together_travels_together(sock, page):
    """Text and bytes keep their order in one message."""
    assert sock.send(["a", memoryview(b"12"), b"", "b"]) is None

    assert await page.next() == ({"frames": ["a", None, None, "b"]}, [b"12", b""])


async def test_a_view_on_a_buffer_is_copied(sock, page):
    """The buffer is used again before the message goes."""
    buffer = bytearray(b"one")
    sock.send([memoryview(buffer)])
    buffer[:] = b"two"

    assert (await page.next())[1] == [b"one"]


async def test_output_waits_for_its_turn(sock, page):
    """More than a piece is sent in several messages, and the terminal is told to wait meanwhile."""
    room = asyncio.Event()
    wait = sock.send([bytes(PIECE), bytes(PIECE), b"end"])
    assert wait is not None
    wait(room.set)
    first = await page.next()
    async with asyncio.timeout(5):
        await room.wait()
    rest = [await page.next(), await page.next()]

    assert [len(buffers[0]) for _, buffers in [first, *rest]] == [PIECE, PIECE, 3]


async def test_the_last_words_come_before_the_close(sock, page):
    """A close goes behind what waits, and ends the socket."""
    sock.send(["exit", Close(1000, "ended")])
    assert sock.is_closed

    assert await page.next() == ({"frames": ["exit"]}, [])
    assert await page.next() == ({"close": 1000, "reason": "ended"}, [])


async def test_input_waits_for_the_terminal_and_keeps_its_order(sock):
    """What is typed before the terminal is there, or while it is slow, comes later and in order."""
    bridge = Bridge()
    bridge.gate = asyncio.Event()
    sock.take(b"1")
    sock.receive_into(bridge)
    sock.take("2")
    sock.take(b"3")
    assert bridge.messages == [b"1"]
    bridge.gate.set()
    async with asyncio.timeout(5):
        await bridge.has_three.wait()

    assert bridge.messages == [b"1", "2", b"3"]


async def test_too_much_input_ends_it(sock, page):
    """Memory is bounded when nobody takes what the page sends; the page is told the bound."""
    for _ in range(5):
        sock.take(bytes(MAX_INPUT // 4))

    assert str(MAX_INPUT) in (await page.next())[0]["frames"][0]
    assert (await page.next())[0]["close"] == 1009


async def test_leaving_leaves_the_terminal(sock, page):
    """The end is told to the terminal once it is there, and nothing is said to the page."""
    bridge, late = Bridge(), Bridge()
    sock.receive_into(bridge)
    sock.send(["x"])
    sock.end()
    sock.end()
    sock.take(b"y")
    sock.receive_into(late)
    await asyncio.sleep(0.05)

    assert bridge.is_closed
    assert late.is_closed
    assert not page.messages
    assert not bridge.messages
