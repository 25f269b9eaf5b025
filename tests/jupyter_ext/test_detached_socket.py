"""A WebSocket that was taken from tornado: its messages, its bounds, and its end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from tornado.iostream import IOStream, SSLIOStream
from websockets.frames import Close, Frame, Opcode

from jupyter_ext.detached_socket import BACKLOG, DetachedSocket, detach

MOST = 1 << 20
SECONDS = 20


def frame(opcode: int, payload: bytes = b"", *, mask: bool = True) -> bytes:
    return Frame(Opcode(opcode), payload).serialize(mask=mask)


class Browser:
    """The other end, and what our end was told."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.loop = asyncio.get_running_loop()
        self.heard: list[str | bytes] = []
        self.news = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.socket: DetachedSocket

    def take(self, message: str | bytes) -> Awaitable[None] | None:
        self.heard.append(message)
        self.news.set()
        return self._wait(self.gate) if self.gate is not None else None

    @staticmethod
    async def _wait(gate: asyncio.Event) -> None:
        await gate.wait()

    async def say(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.client, data)

    async def hear(self, count: int) -> list[str | bytes]:
        async with asyncio.timeout(SECONDS):
            while len(self.heard) < count:
                self.news.clear()
                await self.news.wait()
        return self.heard

    async def read(self, size: int) -> bytes:
        data = b""
        async with asyncio.timeout(SECONDS):
            while len(data) < size:
                piece = await self.loop.sock_recv(self.client, size - len(data))
                if not piece:
                    break
                data += piece
        return data

    async def ended(self) -> None:
        await asyncio.wait_for(asyncio.shield(self.socket.ended), SECONDS)


def protocol_of(stream: object) -> SimpleNamespace:
    params = SimpleNamespace(compression_options=None, max_message_size=MOST)
    return SimpleNamespace(stream=stream, params=params)


@asynccontextmanager
async def browser(early: bytes = b"") -> AsyncIterator[Browser]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    stream = IOStream(ours)
    if early:
        # As when a browser speaks before its terminal is there: tornado reads ahead.
        theirs.send(b"GET\n" + early)
        await stream.read_until(b"\n")
    it = Browser(theirs)
    detached = detach(protocol_of(stream), it.take)
    assert detached is not None
    it.socket = detached
    try:
        yield it
    finally:
        it.socket.abort()
        stream.close()
        theirs.close()


async def test_messages_come_in_order_and_each_is_done_before_the_next() -> None:
    """Also those that came in one piece, and behind one that takes long."""
    async with browser() as it:
        it.gate = asyncio.Event()
        await it.say(frame(1, b"one") + frame(2, b"two") + frame(2, b"three"))
        await it.hear(1)
        await asyncio.sleep(0.05)
        assert it.heard == ["one"]
        assert it.socket.waiting_since is None
        it.gate.set()
        assert await it.hear(3) == ["one", b"two", b"three"]
        await it.say(frame(9))
        assert await it.read(2) == frame(10, mask=False)
        assert it.socket.waiting_since is not None


async def test_what_tornado_has_read_already_is_not_lost() -> None:
    """A browser need not wait for its terminal."""
    async with browser(frame(2, b"early")) as it:
        assert await it.hear(1) == [b"early"]


async def test_what_waits_is_sent_in_order_and_told_when_it_is() -> None:
    """A browser that does not read gets everything later, and those who wait hear of it once."""
    async with browser() as it:
        written, told = [], asyncio.Event()
        for number in range(20):
            it.socket.write([bytes([number]) * (64 << 10)])
        assert not it.socket.is_written
        it.socket.when_written(lambda: (written.append(1), told.set()))
        data = await it.read(20 * (64 << 10))
        assert data == b"".join(bytes([number]) * (64 << 10) for number in range(20))
        await asyncio.wait_for(told.wait(), SECONDS)
        assert it.socket.is_written
        assert written == [1]


async def test_a_browser_that_asks_and_does_not_read_is_not_read() -> None:
    """Answers to its pings would pile up else."""
    async with browser() as it:
        it.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        it.socket.write([bytes(4 << 20)])

        async def ask() -> None:
            while True:
                await it.say(frame(9, b"x" * 125) * 100)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(), 3)
        assert it.socket.waiting_since is None
        assert it.socket._waiting_bytes < (4 << 20) + 2 * BACKLOG


async def test_a_ping_is_answered() -> None:
    """With what it said."""
    async with browser() as it:
        await it.say(frame(9, b"there?"))
        assert await it.read(8) == frame(10, b"there?", mask=False)


async def test_a_close_is_answered_and_ends_it() -> None:
    """By its own code, after all that was to be sent."""
    async with browser() as it:
        it.socket.write([bytes(1 << 20)])
        await it.say(frame(2, b"last") + frame(8, Close(1001, "away").serialize()))
        assert len(await it.read(1 << 20)) == 1 << 20
        assert await it.read(4) == frame(8, b"\x03\xe9", mask=False)
        await it.ended()
        assert it.heard == [b"last"]
        assert (it.socket.close_code, it.socket.close_reason) == (1001, "away")


async def test_our_close_waits_for_theirs() -> None:
    """What comes meanwhile is not heard, nothing more is sent."""
    async with browser() as it:
        it.socket.close(1000, "done")
        it.socket.write([b"late"])
        assert it.socket.is_closed
        assert await it.read(8) == frame(8, Close(1000, "done").serialize(), mask=False)
        await it.say(frame(2, b"typed"))
        await asyncio.sleep(0.05)
        assert not it.socket.ended.done()
        await it.say(frame(8, b"\x03\xe8"))
        await it.ended()
        assert it.heard == []


async def test_a_close_that_is_not_answered_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that is gone holds nothing."""
    monkeypatch.setattr("jupyter_ext.detached_socket._CLOSE_TIME", 0.1)
    async with browser() as it:
        it.socket.close(1000)
        await it.ended()


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"\x82\x01x", 1002), (frame(1, b"\xff"), 1007), (frame(8, b"\x00\x00"), 1002)],
)
async def test_a_broken_protocol_is_told(data: bytes, code: int) -> None:
    """And nothing after it is heard."""
    async with browser() as it:
        await it.say(data + frame(2, b"more"))
        answer = await it.read(4)
        assert answer[0] == 0x88
        assert int.from_bytes(answer[2:4], "big") == code
        assert it.heard == []
        it.client.close()
        await it.ended()


async def test_a_message_that_cannot_be_handled_ends_it() -> None:
    """The loop hears of the fault, and the browser may come again."""
    faults: list[object] = []
    async with browser() as it:
        it.loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
        it.socket.on_message = lambda _message: 1 // 0
        await it.say(frame(2, b"x"))
        await it.ended()
        assert isinstance(faults[0], ZeroDivisionError)


async def test_a_browser_that_has_gone_ends_it() -> None:
    """Without a word."""
    async with browser() as it:
        it.client.close()
        await it.ended()
        it.socket.write([b"x"])


async def test_tornado_keeps_what_cannot_be_taken() -> None:
    """TLS, a stream in use, compression, and streams that we do not know."""
    ours, theirs = socket.socketpair()
    stream = IOStream(ours)
    try:
        deflating = protocol_of(stream)
        deflating.params.compression_options = {}
        assert detach(deflating, lambda _: None) is None
        assert detach(protocol_of(object()), lambda _: None) is None
        reading = stream.read_bytes(1)
        assert detach(protocol_of(stream), lambda _: None) is None
        theirs.send(b"x")
        await reading
        secure = SSLIOStream.__new__(SSLIOStream)
        secure._read_buffer = bytearray()
        assert detach(protocol_of(secure), lambda _: None) is None
    finally:
        stream.close()
        theirs.close()
    assert detach(protocol_of(stream), lambda _: None) is None
