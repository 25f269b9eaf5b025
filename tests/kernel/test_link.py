"""The stream by cursor: whatever happens to connections, each record comes once and whole."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import ContainerUnavailableError, InvalidProcessCwdError
from sandbox_kernel.kernel.link import Attached, Ended, Event, Link, Lost, Record, Superseded
from sandbox_kernel.wire.kernel import Channel, encode_record
from sandbox_kernel.wire.operations import StartKernelRequest
from sandbox_kernel.wire.rpc import FrameKind, encode_frame
from tests.support.fake_runtime import FakeRuntime


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    runtime = FakeRuntime(tmp_path)
    yield runtime
    runtime.close()


@pytest.fixture
def link(runtime: FakeRuntime) -> Iterator[Link]:
    link = Link(runtime.endpoint, StartKernelRequest(kernel_id="k"))
    link.open()
    thread = runtime.in_background(runtime.accept)
    link.attach(link.wait_until_started(timeout=10))
    thread.join()
    assert [type(event) for event in collect(link, 1)] == [Attached]
    yield link
    link.close()


def collect(link: Link, count: int, timeout: float = 10.0) -> list[Event]:
    """Receive until so many events have come."""
    events: list[Event] = []
    deadline = time.monotonic() + timeout
    while len(events) < count:
        assert time.monotonic() < deadline, events
        events += link.receive()
        link.flush()
    return events


def records_of(events: list[Any]) -> list[bytes]:
    return [bytes(event.parts[0]) for event in events if isinstance(event, Record)]


def record(text: bytes) -> bytes:
    return encode_record(Channel.META, [], [text])


def test_records_come_whole_however_they_are_cut(link: Link, runtime: FakeRuntime) -> None:
    stream = record(b"a") + record(b"b" * 1000)
    events: list[Event] = []
    for at in range(0, len(stream), 7):
        runtime.data(at, stream[at : at + 7])
        events += link.receive()
    events += collect(link, 2 - len(events))

    assert records_of(events) == [b"a", b"b" * 1000]
    assert [event.end for event in events if isinstance(event, Record)][-1] == len(stream)


def test_a_new_connection_goes_on_without_gap_or_repeat(link: Link, runtime: FakeRuntime) -> None:
    """The runtime repeats what was not acknowledged; the link knows what it has."""
    stream = record(b"one") + record(b"two") + record(b"three")
    cut = len(record(b"one")) + 4
    runtime.data(0, stream[:cut])
    assert records_of(collect(link, 1)) == [b"one"]
    runtime.drop()
    assert isinstance(collect(link, 1)[0], Lost)

    link.reconnect()
    runtime.accept()
    runtime.data(0, stream)
    assert records_of(collect(link, 3)) == [b"two", b"three"]
    link.done_with(link.offset)
    link.acknowledge()
    runtime.take()
    assert runtime.acked == len(stream)


def test_a_gap_in_the_stream_is_not_papered_over(link: Link, runtime: FakeRuntime) -> None:
    runtime.data(5, b"xxxx")
    (lost,) = collect(link, 1)

    assert isinstance(lost, Lost)
    assert not lost.broken


@pytest.mark.parametrize("data", [b"\xff" * 64, bytes(64)])
def test_broken_records_end_the_stream(link: Link, runtime: FakeRuntime, data: bytes) -> None:
    runtime.data(0, data)
    (lost,) = collect(link, 1)

    assert isinstance(lost, Lost)
    assert not lost.broken
    assert "record" in lost.reason


def test_what_was_sent_in_part_is_sent_again_whole(link: Link, runtime: FakeRuntime) -> None:
    """A record of many socket buffers, cut by a broken connection, arrives on the next one."""
    large = b"x" * (12 << 20)
    link.send(Channel.SHELL, [], [large])
    link.send(Channel.SHELL, [], [b"behind"])
    assert link.wants_write
    runtime.drop()
    link.flush()
    while not any(isinstance(event, Lost) for event in link.receive()):
        pass
    link.reconnect()
    runtime.accept()
    received: list[tuple[Channel, list[bytes]]] = []
    while len(received) < 2:
        link.receive()
        link.flush()
        received += runtime.take()

    assert [parts for _, parts in received] == [[large], [b"behind"]]
    assert link.queued == 0


def test_a_signal_overtakes_what_waits(link: Link, runtime: FakeRuntime) -> None:
    """An interrupt does not wait behind a large message that is not begun."""
    link.send(Channel.SHELL, [], [b"x" * (12 << 20)])
    link.send(Channel.SHELL, [], [b"y" * (1 << 20)])
    link.signal(2)
    received: list[tuple[Channel, list[bytes]]] = []
    while not runtime.orders:
        link.flush()
        received += runtime.take()

    assert runtime.orders == [{"type": "signal", "signal": 2}]
    assert len(received) <= 1


def test_an_acknowledgement_rides_on_the_next_message(link: Link, runtime: FakeRuntime) -> None:
    runtime.data(0, record(b"a"))
    collect(link, 1)
    link.done_with(link.offset)
    link.send(Channel.SHELL, [b"id"], [b"next"])

    assert runtime.take() == [(Channel.SHELL, [b"next"])]
    assert runtime.acked == len(record(b"a"))
    assert not link.unacked


def test_the_kernels_fate_is_told_once_everything_is_read(link: Link, runtime: FakeRuntime) -> None:
    runtime.data(0, record(b"last"))
    runtime.event(type="exit", exit_code=137, signal=9, reason="memory_limit", stderr="e" * 9000)
    first, ended = collect(link, 2)

    assert isinstance(first, Record)
    assert ended == Ended(137, 9, "memory_limit", "e" * 4096)


def test_a_superseded_relay_learns_it(link: Link, runtime: FakeRuntime) -> None:
    runtime.event(type="superseded")

    assert collect(link, 1) == [Superseded()]


def test_a_refused_start_keeps_its_class(runtime: FakeRuntime) -> None:
    link = Link(runtime.endpoint, StartKernelRequest(kernel_id="k", cwd="/gone"))
    link.open()
    refusal = InvalidProcessCwdError("/gone", "does not exist")
    runtime.in_background(lambda: runtime.accept(started=refusal))

    with pytest.raises(InvalidProcessCwdError):
        link.wait_until_started(timeout=10)


def test_a_runtime_that_is_not_there_is_a_typed_error(link: Link, runtime: FakeRuntime) -> None:
    runtime.stop_listening()
    collect(link, 1)

    with pytest.raises(ContainerUnavailableError):
        link.reconnect()


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_any_cuts_and_breaks_give_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Property: whatever is acknowledged, cut or repeated, the texts come in order, once."""
    texts = data.draw(st.lists(st.binary(max_size=40), min_size=1, max_size=8))
    stream = b"".join(map(record, texts))
    runtime = FakeRuntime(tmp_path_factory.mktemp("link"))
    link = Link(runtime.endpoint, StartKernelRequest(kernel_id="k"))
    with contextlib.closing(runtime), contextlib.closing(link):
        link.open()
        thread = runtime.in_background(runtime.accept)
        link.attach(link.wait_until_started(timeout=10))
        thread.join()
        seen: list[bytes] = []
        sent = 0
        while len(seen) < len(texts):
            step = data.draw(st.integers(1, len(stream)))
            runtime.data(sent, stream[sent : sent + step])
            sent = min(len(stream), sent + step)
            if not data.draw(st.booleans()):
                seen += receive_up_to(link, sent)
                continue
            runtime.drop()
            seen += drain(link)
            if data.draw(st.booleans()):
                # As if an acknowledgement had still got through.
                runtime.acked = link._records.offset
            link.reconnect()
            runtime.accept()
            sent = runtime.acked

    assert seen == texts


@pytest.mark.parametrize("cut", [9, 90_000, 1_300_000, 2_000_000])
@pytest.mark.parametrize("step", [300_000, 1 << 20, 4 << 20])
def test_a_break_within_a_large_record_costs_no_byte(
    link: Link, runtime: FakeRuntime, cut: int, step: int
) -> None:
    """What was read of a frame that never ended is kept, and is not taken twice from the next."""
    large = bytes(range(256)) * 8192
    stream = record(b"before") + record(large) + record(b"behind")
    runtime.data(0, stream[:100])
    assert records_of(collect(link, 1)) == [b"before"]
    frame = encode_frame(FrameKind.DATA, 0, (100).to_bytes(8, "big"), stream[100:])

    def send_in_part() -> None:
        runtime._send(frame[:cut])
        runtime.drop()

    def send_again() -> None:
        for at in range(0, len(stream), step):
            runtime.data(at, stream[at : at + step])

    thread = runtime.in_background(send_in_part)
    assert drain(link) == []
    thread.join()
    link.reconnect()
    runtime.accept()
    thread = runtime.in_background(send_again)
    events = collect(link, 3)
    thread.join()

    assert records_of(events) == [large, b"behind"]
    assert isinstance(events[-1], Record)
    assert events[-1].end == len(stream)


FRAME_SIZES = (1, 9, 26, 1000, 65_528, 65_536, 65_600, 300_000, 1 << 20, 1_500_000)
PIECE_SIZES = (1, 8, 9, 17, 34, 35, 4096, 65_536, 70_000, 400_000, 3 << 20)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_large_record_may_come_in_any_frames_and_pieces(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Property: heads of frames are cut and mixed with other words as it comes, nothing is lost."""
    large = bytes(range(256)) * 6500
    stream = record(b"before") + record(large) + record(b"between") + record(large[7:])
    stream += record(b"behind")
    frames = data.draw(
        st.lists(st.tuples(st.sampled_from(FRAME_SIZES), st.booleans()), max_size=12)
    )
    pieces = data.draw(st.lists(st.sampled_from(PIECE_SIZES), max_size=12))
    sent = bytearray()
    at = 0
    while at < len(stream):
        size, is_followed = frames.pop() if frames else (600_000, True)
        piece = stream[at : at + size]
        sent += encode_frame(FrameKind.DATA, 0, at.to_bytes(8, "big"), piece)
        if is_followed:
            sent += encode_frame(FrameKind.ACK, 0, (0).to_bytes(8, "big"))
        at += len(piece)
    sent += encode_frame(FrameKind.EVENT, 0, b'{"type":"superseded"}')
    runtime = FakeRuntime(tmp_path_factory.mktemp("link"))
    link = Link(runtime.endpoint, StartKernelRequest(kernel_id="k"))

    def send_in_pieces() -> None:
        left = memoryview(sent)
        for size in pieces:
            runtime._send(left[:size])
            left = left[size:]
        runtime._send(left)

    with contextlib.closing(runtime), contextlib.closing(link):
        link.open()
        thread = runtime.in_background(runtime.accept)
        link.attach(link.wait_until_started(timeout=10))
        thread.join()
        assert [type(event) for event in collect(link, 1)] == [Attached]
        thread = runtime.in_background(send_in_pieces)
        events = collect(link, 6)
        thread.join()

    assert records_of(events) == [b"before", large, b"between", large[7:], b"behind"]
    assert isinstance(events[-1], Superseded)
    assert link.offset == len(stream)


def drain(link: Link) -> list[bytes]:
    """Receive until the connection is lost."""
    seen: list[bytes] = []
    while True:
        events = link.receive()
        seen += records_of(events)
        if any(isinstance(event, Lost) for event in events):
            return seen


def receive_up_to(link: Link, position: int) -> list[bytes]:
    """Receive until the stream has come to a position."""
    seen: list[bytes] = []
    deadline = time.monotonic() + 10
    while link._position < position:
        assert time.monotonic() < deadline
        seen += records_of(link.receive())
    return seen


def test_what_a_broken_connection_swallowed_is_sent_again_and_once(
    link: Link, runtime: FakeRuntime
) -> None:
    """The runtime says how many frames it got; the rest is sent behind that, in order."""
    link.send(Channel.SHELL, [], [b"one"])
    assert runtime.take() == [(Channel.SHELL, [b"one"])]
    for text in (b"two", b"three"):
        link.send(Channel.SHELL, [], [text])
    link.signal(2)
    runtime.drop()
    assert isinstance(collect(link, 1)[0], Lost)
    link.send(Channel.SHELL, [], [b"four"])

    link.reconnect()
    thread = runtime.in_background(runtime.accept)
    assert [type(event) for event in collect(link, 1)] == [Attached]
    thread.join()
    got: list[bytes] = []
    while len(got) < 3:
        got += [parts[0] for _, parts in runtime.take()]
    assert got == [b"two", b"three", b"four"]
    assert len(runtime.orders) == 1


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_any_breaks_carry_each_message_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Property: however often the connection breaks, and whatever it swallows, in order and once."""
    runtime = FakeRuntime(tmp_path_factory.mktemp("link"))
    link = Link(runtime.endpoint, StartKernelRequest(kernel_id="k"))
    sent: list[bytes] = []
    got: list[bytes] = []
    with contextlib.closing(runtime), contextlib.closing(link):
        link.open()
        thread = runtime.in_background(runtime.accept)
        link.attach(link.wait_until_started(timeout=10))
        thread.join()
        collect(link, 1)
        for number in range(data.draw(st.integers(1, 12))):
            sent.append(b"%d" % number)
            link.send(Channel.SHELL, [], [sent[-1]])
            step = data.draw(st.sampled_from(("send", "send", "take", "tell", "break")))
            if step in ("take", "tell") and got != sent:
                got += [parts[0] for _, parts in runtime.take()]
                if step == "tell":
                    runtime.tell_taken()
                    link.receive()
            if step == "break":
                runtime.drop()
                drain(link)
                link.reconnect()
                thread = runtime.in_background(runtime.accept)
                collect(link, 1)
                thread.join()
        while got != sent:
            got += [parts[0] for _, parts in runtime.take()]
            assert sent[: len(got)] == got
