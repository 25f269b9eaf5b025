from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from sandbox_kernel.errors import (
    CommandNotFoundError,
    ContainerUnavailableError,
    OperationInterruptedError,
    ProtocolViolationError,
    StaleProcessHandleError,
    TransportError,
    UnauthorizedError,
)
from sandbox_kernel.transports import link as link_module
from sandbox_kernel.transports.endpoint import Endpoint
from sandbox_kernel.transports.http import HttpTransport
from sandbox_kernel.transports.link import Link, row_of
from sandbox_kernel.transports.rpc import RpcTransport
from sandbox_kernel.wire.codec import encode
from sandbox_kernel.wire.operations import (
    Empty,
    ExecRequest,
    ExecResult,
    Health,
    KernelInfo,
    KernelRequest,
    Kind,
    OutputEvent,
    ProcessRequest,
    StartProcessRequest,
    WaitRequest,
)
from sandbox_kernel.wire.rpc import (
    Call,
    Cancel,
    ChannelFrame,
    ClientConnection,
    Credit,
    FrameKind,
    Hello,
    ServerConnection,
)

HEALTH = Health(sandbox_id="a", incarnation="i", pid=1, uptime=1.0, idle_for=0.0)


class Peer:
    """The other end of one connection: real frames, answers as a test dictates."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.protocol = ServerConnection()
        self._events: list[object] = []

    async def next(self) -> object:
        while not self._events:
            data = await self.reader.read(1 << 16)
            if not data:
                raise EOFError
            self._events.extend(self.protocol.receive(data))
        return self._events.pop(0)

    async def welcome(self) -> None:
        assert isinstance(await self.next(), Hello)
        self.writer.write(self.protocol.welcome(1, "a", "i"))

    def answer(self, call: Call, record) -> None:
        self.writer.write(self.protocol.result(call.call, *encode(record)))

    def item(self, call: Call, data: bytes) -> None:
        event = OutputEvent(stream="stdout", cursor="c", timestamp=0.0, data=data)
        self.writer.write(self.protocol.item(call.call, *encode(event)))

    def end(self, call: Call) -> None:
        result = ExecResult(process_id="p", exit_code=0, duration=0.0)
        self.writer.write(self.protocol.end(call.call, *encode(result)))


@contextlib.asynccontextmanager
async def scripted(
    folder: Path, script: Callable[[Peer], Awaitable[None]]
) -> AsyncIterator[RpcTransport]:
    """Yield a transport whose peer is a script, run anew for each connection."""

    async def serve(reader, writer):
        try:
            await script(Peer(reader, writer))
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()

    path = str(folder / "s")
    async with await asyncio.start_unix_server(serve, path):
        endpoint = Endpoint(sandbox_id="a", socket=path, token="secret")
        async with RpcTransport(endpoint) as transport:
            yield transport


@pytest.fixture
async def transport(manager):
    running = await asyncio.to_thread(manager.ensure, "a")
    async with RpcTransport(running.endpoint) as made:
        yield made


async def test_many_calls_share_one_connection(transport):
    """Calls at the same time are told apart, and there is one socket for them."""
    await transport.call("runtime.health", Empty())
    gc.collect()  # what earlier tests left
    before = len(os.listdir("/proc/self/fd"))
    answers = await asyncio.gather(*(transport.call("runtime.health", Empty()) for _ in range(50)))

    assert {answer.sandbox_id for answer in answers} == {"a"}
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_stream_yields_events_and_then_its_end(transport):
    """The end is there when the events are exhausted."""
    async with transport.stream("exec", ExecRequest(argv=["echo", "hi"])) as events:
        assert events.end is None
        data = b"".join([event.data async for event in events])

    assert data == b"hi\n"
    assert events.end.exit_code == 0


async def test_a_consumer_that_stops_taking_delays_no_other_call(transport):
    """An endless writer is held up by its credit, and calls beside it are answered."""
    async with transport.stream("exec", ExecRequest(argv=["cat", "/dev/zero"])) as events:
        await anext(events)

        async with asyncio.timeout(10):
            for _ in range(20):
                await transport.call("runtime.health", Empty())
        assert events._pending.waiting_bytes <= 2 << 20


async def test_leaving_a_stream_early_cancels_it(transport):
    """The command of a stream that nobody reads any more is killed."""
    async with transport.stream("exec", ExecRequest(argv=["sleep", "100"])):
        listed = await transport.call("process.list", Empty())

    async with asyncio.timeout(10):
        while (listed := await transport.call("process.list", Empty())).processes:
            if all(info.status != "running" for info in listed.processes):
                break


async def test_cancelling_a_call_gives_it_up_at_the_other_end(tmp_path):
    """CANCEL is sent for a call that is cancelled, and the connection goes on."""
    cancelled = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        await peer.welcome()
        call = await peer.next()
        cancel = await peer.next()
        cancelled.set_result((call.call, cancel))
        # An answer that comes all the same has nobody to go to.
        peer.answer(call, HEALTH)
        peer.answer(await peer.next(), HEALTH)
        await peer.next()

    async with scripted(tmp_path, script) as transport:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await transport.call("process.wait", WaitRequest(process_id="p"))
        answer = await transport.call("runtime.health", Empty())

    number, cancel = await cancelled
    assert isinstance(cancel, Cancel)
    assert cancel.call == number
    assert answer == HEALTH


async def test_credit_is_granted_as_events_are_taken(tmp_path):
    """Only what a consumer has taken is granted anew."""
    granted: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.welcome()
        call = await peer.next()
        credit = call.credit
        sent = 0
        while sent < 8 << 20:
            while peer.protocol.credit(call.call) <= 0:
                event = await peer.next()
                assert isinstance(event, Credit)
                granted.append(event.amount)
            peer.item(call, bytes(65536))
            sent += 65536
        assert sent > credit
        peer.end(call)
        await peer.next()

    async with (
        scripted(tmp_path, script) as transport,
        transport.stream("exec", ExecRequest(argv=["x"])) as events,
    ):
        taken = sum([len(event.data) async for event in events])

    assert taken == 8 << 20
    assert 0 < len(granted) < 64


async def test_a_peer_beyond_its_credit_is_cut_off(tmp_path):
    """A runtime that floods us in spite of its credit cannot fill our memory."""

    async def script(peer: Peer) -> None:
        await peer.welcome()
        call = await peer.next()
        while True:
            peer.item(call, bytes(1 << 20))
            await peer.writer.drain()

    async with (
        scripted(tmp_path, script) as transport,
        transport.stream("exec", ExecRequest(argv=["x"])) as events,
    ):
        with pytest.raises(ProtocolViolationError):
            async with asyncio.timeout(30):
                await asyncio.shield(events._pending.answer)
        with pytest.raises(ProtocolViolationError):
            async for _ in events:
                pass


@pytest.mark.parametrize("when", ["after the call", "between calls"])
async def test_a_broken_connection(tmp_path, when):
    """A call under way is interrupted and never repeated; the next call connects anew."""
    connections = 0
    received: list[str] = []

    async def script(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        await peer.welcome()
        call = await peer.next()
        received.append(call.operation)
        if connections == 1 and when == "after the call":
            return
        peer.answer(call, HEALTH)
        if connections == 1:
            return
        await peer.next()

    async with scripted(tmp_path, script) as transport:
        if when == "after the call":
            with pytest.raises(OperationInterruptedError, match=r"runtime\.health"):
                await transport.call("runtime.health", Empty())
        else:
            await transport.call("runtime.health", Empty())
        assert await transport.call("runtime.health", Empty()) == HEALTH

    assert connections == 2
    assert len(received) == 2


async def test_a_call_that_the_runtime_never_read_is_told_apart(tmp_path):
    """Who ended before reading a call has not begun it: it may be sent to another incarnation."""

    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.answer(await peer.next(), HEALTH)
        # Nothing more is read, and then the socket is closed with the second call in it.
        peer.writer.transport.pause_reading()
        await called.wait()
        peer.writer.transport.abort()

    called = asyncio.Event()
    async with scripted(tmp_path, script) as transport:
        await transport.call("runtime.health", Empty())
        second = asyncio.create_task(transport.call("runtime.health", Empty()))
        await asyncio.sleep(0.01)
        called.set()
        with pytest.raises(ContainerUnavailableError, match="before it took"):
            await second


async def test_a_broken_connection_ends_streams_with_what_came(tmp_path):
    """Events that arrived before the break are handed out, then the error."""

    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.item(await peer.next(), b"one")

    async with (
        scripted(tmp_path, script) as transport,
        transport.stream("exec", ExecRequest(argv=["x"])) as events,
    ):
        assert (await anext(events)).data == b"one"
        with pytest.raises(OperationInterruptedError, match="exec"):
            await anext(events)


async def test_garbage_is_a_protocol_violation(tmp_path):
    """A peer that is no runtime gives a typed error at once."""

    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.next()
        peer.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.next()

    async with scripted(tmp_path, script) as transport:
        with pytest.raises(ProtocolViolationError):
            await transport.call("runtime.health", Empty())


async def test_nobody_listens(tmp_path):
    """A missing, a dead and a silent socket are an unavailable container."""
    path = tmp_path / "s"
    transport = RpcTransport(Endpoint(sandbox_id="a", socket=str(path), token="x"))
    with pytest.raises(ContainerUnavailableError):
        await transport.call("runtime.health", Empty())
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(ContainerUnavailableError):
        await transport.call("runtime.health", Empty())

    async def script(peer: Peer) -> None:
        return

    path.unlink()
    async with scripted(tmp_path, script) as closing:
        with pytest.raises(ContainerUnavailableError, match="before it answered"):
            await closing.call("runtime.health", Empty())
    await transport.aclose()


async def test_a_call_after_the_end_of_a_connection_waits_for_nothing(tmp_path):
    """The runtime may be killed between its welcome and the call that it is for."""

    async def script(peer: Peer) -> None:
        await peer.welcome()

    async with scripted(tmp_path, script) as transport:
        link = await Link.open(transport.endpoint)
        await asyncio.wait([link._reader])
        with pytest.raises(ContainerUnavailableError):
            link.begin(row_of("runtime.health", Kind.CALL), Empty(), None)


async def test_a_connection_that_nobody_waits_for_any_more_is_closed(tmp_path, monkeypatch):
    """Also one that a thread makes, and one that is given up before it is read."""
    ours, theirs = socket.socketpair()
    is_cancelled = threading.Event()

    def connect(*_args, **_options):
        assert is_cancelled.wait(10)
        return ours

    monkeypatch.setattr(link_module, "connect", connect)
    endpoint = Endpoint(sandbox_id="a", socket=str(tmp_path / "none"), token="secret")
    opening = asyncio.create_task(Link.open(endpoint))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    is_cancelled.set()
    await asyncio.to_thread(theirs.recv, 1)
    assert ours.fileno() == -1
    theirs.close()

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    link = Link(endpoint, ours, ClientConnection())
    link.abandon()
    await asyncio.wait([link._reader])
    theirs.setblocking(False)
    while theirs.recv(1 << 16):
        pass
    assert ours.fileno() == -1
    theirs.close()


async def test_whoever_knew_us_has_ended_when_another_listens(manager):
    """A restart is no question of rights, whether a new connection or a new request tells it."""
    running = await asyncio.to_thread(manager.ensure, "a")
    for kind in (RpcTransport, HttpTransport):
        async with kind(running.endpoint) as transport:
            await transport.open()
            await asyncio.to_thread(manager.stop, "a", grace=0)
            running = await asyncio.to_thread(manager.ensure, "a")
            for _ in range(2):
                with pytest.raises(ContainerUnavailableError):
                    await transport.call("runtime.health", Empty())
                with pytest.raises(ContainerUnavailableError):
                    await transport.open()


async def test_a_wrong_token_is_refused_before_anything_is_sent(manager):
    """Another incarnation's token opens nothing."""
    running = await asyncio.to_thread(manager.ensure, "a")
    endpoint = Endpoint(sandbox_id="a", socket=running.endpoint.socket, token="0" * 64)

    async with RpcTransport(endpoint) as transport:
        for _ in range(2):
            with pytest.raises(UnauthorizedError):
                await transport.call("runtime.health", Empty())


async def test_another_sandboxes_token_is_refused(manager):
    """One sandbox's secret does not open another."""
    one = await asyncio.to_thread(manager.ensure, "a")
    other = await asyncio.to_thread(manager.ensure, "b")
    endpoint = Endpoint(sandbox_id="b", socket=other.endpoint.socket, token=one.endpoint.token)

    async with RpcTransport(endpoint) as transport:
        with pytest.raises(UnauthorizedError):
            await transport.call("runtime.health", Empty())


async def test_an_older_incarnation_is_stale(transport):
    """A call for another incarnation is refused by the runtime."""
    info = await transport.call("process.start", StartProcessRequest(argv=["sleep", "60"]))
    request = ProcessRequest(process_id=info.process_id)

    assert await transport.call("process.get", request, incarnation=info.incarnation) == info
    with pytest.raises(StaleProcessHandleError):
        await transport.call("process.get", request, incarnation="0" * 16)


async def test_a_runtime_that_lets_nobody_in_is_given_up(tmp_path, monkeypatch):
    """It accepts, or its backlog does, and never answers: an error with a way out, no leak."""
    monkeypatch.setattr("sandbox_kernel.transports.link.WELCOME_TIMEOUT", 0.2)
    left: asyncio.Queue[object] = asyncio.Queue()

    async def script(peer: Peer) -> None:
        hello = await peer.next()
        try:
            await peer.next()
        except EOFError:
            left.put_nowait(hello)

    async with asyncio.timeout(10), scripted(tmp_path, script) as transport:
        with pytest.raises(ContainerUnavailableError, match="nobody in") as caught:
            await transport.call("runtime.health", Empty())
        assert "jupyter sandbox stop a" in caught.value.hint
        with pytest.raises(ContainerUnavailableError):
            await transport.connect("kernel.connect", KernelRequest(kernel_id="k"))
        assert isinstance(await left.get(), Hello)
        assert isinstance(await left.get(), Hello)


async def test_errors_are_the_classes_of_the_other_end(transport):
    """What the runtime raises arrives as the same class, with its facts."""
    with pytest.raises(CommandNotFoundError) as caught:
        await transport.call("process.start", StartProcessRequest(argv=["no-such-cmd"]))

    assert caught.value.context["program"] == "no-such-cmd"
    with pytest.raises(TransportError):
        await transport.call("exec", ExecRequest(argv=["true"]))


async def test_a_channel_has_a_connection_of_its_own(tmp_path):
    """Frames go both ways, in order, even those that come along with the opening answer."""
    got: list[tuple[FrameKind, bytes]] = []

    async def script(peer: Peer) -> None:
        await peer.welcome()
        call = await peer.next()
        info = KernelInfo(
            kernel_id="k", pid=1, existing=True, acked=0, started_at=0.0, incarnation="i"
        )
        opening = peer.protocol.result(call.call, *encode(info))
        peer.protocol.become_channel()
        frames = [peer.protocol.channel_frame(FrameKind.DATA, b"%d" % n) for n in range(500)]
        peer.writer.write(opening + b"".join(frames))
        for _ in range(2):
            frame = await peer.next()
            assert isinstance(frame, ChannelFrame)
            got.append((frame.kind, bytes(frame.payload)))

    async with scripted(tmp_path, script) as transport:
        channel = await transport.connect("kernel.connect", KernelRequest(kernel_id="k"))
        assert channel.opening.kernel_id == "k"
        await channel.send(FrameKind.INPUT, b"in", b"put")
        await channel.send(FrameKind.ACK, b"\0" * 8)
        frames = []
        while (frame := await channel.receive()) is not None:
            frames.append(frame)
        assert await channel.receive() is None
        await channel.aclose()
        await channel.aclose()

    assert [bytes(payload) for _, payload in frames] == [b"%d" % n for n in range(500)]
    assert got == [(FrameKind.INPUT, b"input"), (FrameKind.ACK, b"\0" * 8)]


async def test_closing_interrupts_and_leaves_nothing(manager):
    """aclose ends calls under way, and no task or descriptor stays."""
    running = await asyncio.to_thread(manager.ensure, "a")
    tasks, descriptors = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
    transport = RpcTransport(running.endpoint)
    info = await transport.call("process.start", StartProcessRequest(argv=["sleep", "60"]))
    waiting = asyncio.create_task(
        transport.call("process.wait", WaitRequest(process_id=info.process_id))
    )
    await transport.call("runtime.health", Empty())
    await transport.aclose()
    await transport.aclose()

    with pytest.raises(OperationInterruptedError):
        await waiting
    with pytest.raises(ContainerUnavailableError):
        await transport.call("runtime.health", Empty())
    assert len(asyncio.all_tasks()) == tasks
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_loop_that_ends_takes_the_connection_along(manager):
    """Who never closes a transport gets no warning and leaks no socket."""
    running = manager.ensure("a")
    gc.collect()  # what earlier tests left
    before = len(os.listdir("/proc/self/fd"))
    kept = []

    async def main():
        transport = RpcTransport(running.endpoint)
        kept.append(transport)
        await transport.call("runtime.health", Empty())

    asyncio.run(main())
    assert len(os.listdir("/proc/self/fd")) == before
