"""The bridge between a browser and a channel, when the channel's connection breaks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sandbox_kernel.client import terminal_socket
from sandbox_kernel.client.terminal_protocol import Acknowledged, Close, Preview, Stable
from sandbox_kernel.client.terminal_socket import serve
from sandbox_kernel.errors import ContainerUnavailableError, TransportError
from sandbox_kernel.wire.operations import TerminalInfo
from sandbox_kernel.wire.rpc import ChannelFrame, FrameKind
from sandbox_kernel.wire.terminal import Exited, Live, Replay, Screen, Size, event

INFO = TerminalInfo(
    terminal_id="t-1",
    pid=2,
    argv=["bash"],
    cwd="/",
    status="running",
    cols=80,
    rows=24,
    created_at=1.0,
    cursor="c",
    incarnation="0" * 16,
)


class FakeChannel:
    """The sandbox's end, as a test has it."""

    opening = INFO

    def __init__(self) -> None:
        self.sent: list[tuple[FrameKind, bytes]] = []
        self.has_lost_input = False
        self.is_closed = False
        self.room = asyncio.Event()
        self.room.set()
        self.is_heard = asyncio.Event()
        self._take: Any = None
        self._rested: Any = None

    def post(self, kind: FrameKind, *parts: bytes) -> bool:
        self.sent.append((kind, b"".join(parts)))
        return self.room.is_set()

    async def send(self, kind: FrameKind, *parts: bytes) -> None:
        self.post(kind, *parts)
        await self.room.wait()

    async def drained(self) -> None:
        await self.room.wait()

    def listen(self, take: Any, rested: Any) -> None:
        self._take, self._rested = take, rested
        self.is_heard.set()

    def pause(self) -> None:
        pass

    resume = pause

    def close(self) -> None:
        self.is_closed = True

    close_when_sent = close

    # --- what a test does ---

    def say(self, *said: Any) -> None:
        """Say records, and output as its end and its bytes, so that they come together."""
        for each in said:
            if isinstance(each, tuple):
                kind, payload = FrameKind.DATA, each[0].to_bytes(8, "big") + each[1]
            else:
                kind, payload = event(each)
            self._take(ChannelFrame(kind=kind, payload=memoryview(payload)))
        self._rested()

    def output(self, offset: int, data: bytes) -> None:
        self.say((offset, data))

    def begin(self, kind: str, offset: int, data: bytes) -> None:
        self.say(Replay(kind=kind, offset=offset, truncated=kind == "screen"))
        self.output(offset, data)
        self.say(Live())

    def breaks(self) -> None:
        self._take(None)

    def typed(self) -> bytes:
        return b"".join(data for kind, data in self.sent if kind is FrameKind.INPUT)


class FakeSocket:
    """The browser's end."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.news = asyncio.Event()
        self.is_closed = False

    def send(self, messages: Any) -> None:
        for each in messages:
            if isinstance(each, Close):
                self.is_closed = True
            shown = json.loads(each) if isinstance(each, str) else each
            self.messages.append(bytes(shown) if isinstance(shown, memoryview) else shown)
        self.news.set()

    def receive_into(self, bridge: Any) -> None:
        pass

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(5):
            while not condition(self.messages):
                self.news.clear()
                await self.news.wait()

    def take(self) -> list[Any]:
        """Return what came since, without cursors, which are opaque."""
        taken, self.messages = self.messages, []
        for each in taken:
            if isinstance(each, dict):
                each.pop("cursor", None)
        return taken


class Scene:
    """A browser at a terminal, its channel, and the one it gets in the place of that."""

    def __init__(self, dialect: Any) -> None:
        self.socket = FakeSocket()
        self.channels = [FakeChannel()]
        self.next = FakeChannel()
        self.requests: list[Any] = []
        self.fails: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        dialect.request("t-1", 80, 24)
        self.bridge = serve(
            self.channels[0], dialect, self.socket, sandbox_id="s", resume=self._resume
        )

    async def _resume(self, request: Any) -> FakeChannel:
        self.requests.append(request)
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        self.channels.append(self.next)
        return self.next

    async def taken_up(self) -> FakeChannel:
        async with asyncio.timeout(5):
            await self.next.is_heard.wait()
        return self.next


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        (Stable, [b"all", b"on"]),
        (
            Preview,
            [
                {"type": "truncated"},
                {"type": "chunk", "byteLength": 3},
                b"all",
                {"type": "chunk", "byteLength": 2},
                b"on",
            ],
        ),
        (
            Acknowledged,
            [
                {"type": "screen", "byteLength": 3},
                b"all",
                {"type": "chunk", "byteLength": 2},
                b"on",
            ],
        ),
    ],
)
async def test_what_is_gone_meanwhile_is_a_screen(dialect, words):
    """In the words of each protocol; never a second ready, live or replay."""
    scene = Scene(dialect())
    scene.channels[0].begin("screen", 5, b"first")
    scene.socket.take()
    scene.channels[0].breaks()
    channel = await scene.taken_up()
    channel.begin("screen", 900, b"all")
    channel.output(902, b"on")

    assert scene.socket.take() == words
    assert scene.channels[0].is_closed
    assert scene.requests[0].strip_queries


async def test_a_break_before_the_first_byte_begins_anew():
    """Nothing was shown, so the browser gets its replay as if nothing had been."""
    scene = Scene(Acknowledged())
    scene.channels[0].breaks()
    channel = await scene.taken_up()
    channel.begin("screen", 5, b"first")

    ready, *rest = scene.socket.take()
    assert ready["type"] == "ready"
    assert rest == [
        {"type": "truncated"},
        {"type": "replay", "kind": "screen", "byteLength": 5},
        b"first",
        {"type": "live"},
    ]
    assert scene.requests[0].cursor is None


async def test_what_is_said_during_a_break_comes_later():
    """Typing and orders in their order; what was drawn is of no use to the new channel."""
    scene = Scene(Acknowledged())
    scene.channels[0].begin("screen", 5, b"first")
    scene.gate.clear()
    scene.channels[0].breaks()
    await asyncio.sleep(0)
    typing = scene.bridge.message(b"ls\r")
    assert typing is not None
    assert scene.bridge.message('{"type":"ack","bytes":5}') is None
    assert scene.bridge.message('{"type":"ping"}') is None
    assert scene.socket.messages[-1] == {"type": "pong"}
    waiting = asyncio.create_task(typing)
    resize = asyncio.create_task(scene.bridge.message('{"type":"resize","cols":90,"rows":30}'))
    scene.gate.set()
    channel = await scene.taken_up()
    async with asyncio.timeout(5):
        await waiting
        await resize

    assert channel.typed() == b"ls\r"
    assert [kind for kind, _ in channel.sent] == [FrameKind.INPUT, FrameKind.CONTROL]


async def test_lost_input_is_told():
    """By an error that leaves the connection as it is."""
    scene = Scene(Preview())
    scene.channels[0].begin("screen", 5, b"first")
    scene.socket.take()
    scene.channels[0].has_lost_input = True
    scene.channels[0].breaks()
    await scene.taken_up()

    (told,) = scene.socket.take()
    assert told["code"] == "OPERATION_INTERRUPTED"
    assert not scene.socket.is_closed


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ContainerUnavailableError("s", "it has stopped"), "CONTAINER_UNAVAILABLE"),
        (TransportError("It broke."), "RPC_TRANSPORT_ERROR"),
        (RuntimeError("a mistake"), "RPC_TRANSPORT_ERROR"),
    ],
)
async def test_what_cannot_be_taken_up_ends_with_a_word(error, code):
    """Also a mistake of ours: no browser is left that looks connected and is deaf."""
    mistakes: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: mistakes.append(context))
    scene = Scene(Stable())
    scene.channels[0].begin("screen", 5, b"first")
    scene.fails = error
    scene.channels[0].breaks()
    await scene.socket.until(lambda messages: Close in map(type, messages))
    await asyncio.sleep(0)

    told, close = scene.socket.messages[-2:]
    assert told["code"] == code
    assert close.code == 1011
    assert len(mistakes) == isinstance(error, RuntimeError)


async def test_a_browser_that_leaves_is_not_waited_for():
    """Its channel is not opened again."""
    scene = Scene(Stable())
    scene.gate.clear()
    scene.channels[0].breaks()
    await asyncio.sleep(0.01)
    scene.bridge.closed()
    scene.gate.set()
    await asyncio.sleep(0.01)

    assert len(scene.channels) == 1


@pytest.mark.parametrize("data", [b"x", b"x" * 300_000])
async def test_a_browser_whose_input_waits_is_shown_a_sign_of_life(monkeypatch, data):
    """Its own questions stand behind that input."""
    monkeypatch.setattr(terminal_socket, "REASSURE_EVERY", 0.01)
    scene = Scene(Acknowledged())
    channel = scene.channels[0]
    channel.begin("screen", 5, b"first")
    scene.socket.take()
    channel.room.clear()
    typing = asyncio.create_task(scene.bridge.message(data))
    await scene.socket.until(lambda messages: len(messages) >= 2)
    channel.room.set()
    async with asyncio.timeout(5):
        await typing
    scene.socket.take()
    await asyncio.sleep(0.05)

    assert scene.socket.take() == []
    assert channel.typed() == data


async def test_output_that_comes_together_is_one_message():
    """Each costs the server some time, which it lacks if they wait; nothing else is joined."""
    scene = Scene(Acknowledged())
    channel = scene.channels[0]
    channel.begin("screen", 5, b"first")
    scene.socket.take()
    channel.say((6, b"a"), (8, b"bc"), Size(cols=90, rows=30), (9, b"d"))
    channel.say((10, b"e"), Screen(offset=900), (900, b"all"), (901, b"f"), (902, b"g"))

    assert scene.socket.take() == [
        {"type": "chunk", "byteLength": 3},
        b"abc",
        {"type": "size", "cols": 90, "rows": 30},
        {"type": "chunk", "byteLength": 1},
        b"d",
        {"type": "chunk", "byteLength": 1},
        b"e",
        {"type": "screen", "byteLength": 3},
        b"all",
        {"type": "chunk", "byteLength": 2},
        b"fg",
    ]


async def test_output_before_a_break_is_passed_on():
    """It came, and the new channel goes on behind it."""
    scene = Scene(Stable())
    channel = scene.channels[0]
    channel.begin("screen", 5, b"first")
    channel._take(  # together with the end
        ChannelFrame(kind=FrameKind.DATA, payload=memoryview((6).to_bytes(8, "big") + b"x"))
    )
    channel.breaks()
    await scene.taken_up()

    assert scene.socket.messages[-1] == b"x"


async def test_the_runtime_is_not_told_of_each_keystroke_that_was_drawn():
    """As long as all is drawn but little; once it is not, of each step until it is again."""
    scene = Scene(Acknowledged())
    channel = scene.channels[0]
    channel.begin("screen", 0, b"")

    def drawn(count: int) -> list[int]:
        channel.sent.clear()
        assert scene.bridge.message(f'{{"type":"ack","bytes":{count}}}') is None
        assert {kind for kind, _ in channel.sent} <= {FrameKind.ACK}
        return [int.from_bytes(offset, "big") for _, offset in channel.sent]

    channel.output(1, b"x")
    assert drawn(1) == []
    channel.output(1024, b"x" * 1023)
    assert drawn(1024) == []
    channel.output(1025, b"x")
    assert drawn(1025) == [1025]
    channel.output(2000, b"x" * 975)
    assert drawn(2000) == []
    channel.output(5000, b"x" * 3000)
    channel.output(5001, b"x")
    assert drawn(5000) == [5000]
    assert drawn(5001) == [5001]
    channel.output(5002, b"x")
    assert drawn(5002) == []


@pytest.mark.parametrize("order", ["terminate", "interrupt"])
async def test_a_viewer_kept_after_the_end_is_told_that_nothing_is_left_to_end(order):
    """Rather than nothing; it may still type Enter, and orders that change nothing are taken."""
    scene = Scene(Stable())
    scene.channels[0].begin("screen", 5, b"first")
    scene.channels[0].say(Exited(exit_code=0, signal=None, reason=None, offset=5))
    scene.socket.take()
    scene.socket.is_closed = False
    scene.bridge.message('{"type":"resize","cols":90,"rows":30}')
    assert scene.socket.take() == []
    scene.bridge.message(f'{{"type":"{order}"}}')

    (told,) = scene.socket.take()
    assert told["code"] == "TERMINAL_CONTROL_ERROR"
    assert order in told["message"]
    assert not scene.socket.is_closed
