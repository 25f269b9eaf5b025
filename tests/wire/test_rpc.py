"""Frames and the multiplexer: two ends back to back, any chunking, any garbage."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.errors import (
    CommandNotFoundError,
    ProtocolViolationError,
    SandboxError,
    ValidationFailedError,
)
from sandbox_kernel.wire.rpc import (
    INITIAL_CREDIT,
    MAX_FIRST_FRAME,
    MAX_FRAME,
    Call,
    Cancel,
    ChannelFrame,
    ClientConnection,
    Credit,
    End,
    Failed,
    FrameKind,
    FrameReader,
    Hello,
    Item,
    Result,
    ServerConnection,
    Welcome,
    encode_frame,
)

FRAMES = st.lists(
    st.tuples(st.sampled_from(list(FrameKind)), st.integers(0, 2**32 - 1), st.binary(max_size=60)),
    max_size=12,
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes at places, taken modulo their length."""
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[left:right] for left, right in pairwise(at)]


def open_pair() -> tuple[ClientConnection, ServerConnection]:
    client, server = ClientConnection(), ServerConnection()
    (hello,) = server.receive(client.hello("secret", "test"))
    assert hello == Hello(versions=[1], token="secret", client="test")
    (welcome,) = client.receive(server.welcome(1, "dev", "abc"))
    assert welcome == Welcome(version=1, sandbox_id="dev", incarnation="abc")
    return client, server


@given(FRAMES, st.lists(st.integers(0, 10_000), max_size=20))
def test_any_chunking_gives_the_same_frames(
    frames: list[tuple[FrameKind, int, bytes]], places: list[int]
) -> None:
    """How the bytes are cut means nothing."""
    data = b"".join(encode_frame(*frame) for frame in frames)
    reader = FrameReader()

    seen = [frame for chunk in cut(data, places) for frame in reader.feed(chunk)]

    assert [(kind, call, bytes(payload)) for kind, call, payload in seen] == frames
    assert reader.buffered == 0


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_garbage_is_a_violation_or_waits(chunks: list[bytes]) -> None:
    """A reader of arbitrary bytes raises nothing else."""
    reader = FrameReader()
    try:
        for chunk in chunks:
            list(reader.feed(chunk))
    except ProtocolViolationError:
        pass


@given(FRAMES, st.lists(st.integers(0, 10_000), max_size=10), st.booleans())
def test_odd_frames_never_break_a_server(
    frames: list[tuple[FrameKind, int, bytes]],
    places: list[int],
    greeted: bool,  # noqa: FBT001
) -> None:
    """Whatever a client sends, the server yields events or one of its two errors."""
    server = open_pair()[1] if greeted else ServerConnection()
    data = b"".join(encode_frame(*frame) for frame in frames)
    try:
        for chunk in cut(data, places):
            for event in server.receive(chunk):
                assert isinstance(event, Hello | Call | Cancel | Credit)
    except (ProtocolViolationError, ValidationFailedError):
        pass


@given(FRAMES, st.lists(st.integers(0, 10_000), max_size=10))
def test_odd_frames_never_break_a_client(
    frames: list[tuple[FrameKind, int, bytes]], places: list[int]
) -> None:
    """Nor the other way round; the server may be hostile."""
    client = open_pair()[0]
    data = b"".join(encode_frame(*frame) for frame in frames)
    try:
        for chunk in cut(data, places):
            client.receive(chunk)
    except (ProtocolViolationError, ValidationFailedError):
        pass


def test_a_frame_too_long_is_refused_before_it_comes() -> None:
    """Nobody makes us wait for, or keep, more than a frame may hold."""
    reader = FrameReader()
    with pytest.raises(ProtocolViolationError):
        list(reader.feed((MAX_FRAME + 1).to_bytes(4, "big") + b"\x03\x00\x00\x00\x01"))


@pytest.mark.parametrize("length", [0, 4, MAX_FRAME + 1])
@pytest.mark.parametrize("begins", [b"", encode_frame(FrameKind.CALL, 1, b"x")])
def test_an_impossible_length_is_refused_as_it_comes(length: int, begins: bytes) -> None:
    """However it is cut, and although nothing follows it."""
    said = begins + length.to_bytes(4, "big")
    for pieces in ([said], [bytes([each]) for each in said], [begins, said[len(begins) :]]):
        reader = FrameReader()
        frames = (frame for each in pieces for frame in reader.feed(each))
        with pytest.raises(ProtocolViolationError, match=f"of {length} bytes"):
            list(frames)


def test_a_stranger_may_send_little() -> None:
    """Before the welcome a frame is short; after it, the same size is waited for."""
    size = MAX_FIRST_FRAME + 1
    head = encode_frame(FrameKind.CALL, 1)[4:]
    server = ServerConnection()
    with pytest.raises(ProtocolViolationError, match=str(size)):
        list(server.receive(size.to_bytes(4, "big") + head))
    longest = encode_frame(FrameKind.HELLO, 0, b"x" * (MAX_FIRST_FRAME - 5))
    assert list(ServerConnection().receive(longest[:-1])) == []

    _, welcomed = open_pair()

    assert list(welcomed.receive(size.to_bytes(4, "big") + head)) == []
    assert welcomed.missing == size - 5


def test_a_long_call_may_follow_the_greeting_at_once() -> None:
    """What the welcome allows holds for the next frame of the same bytes."""
    client, server = ClientConnection(), ServerConnection()
    hello = client.hello("secret", "test")
    events = server.receive(hello + client.call("exec", {}, b"x" * (1 << 20))[1])

    assert isinstance(next(events), Hello)
    server.welcome(1, "dev", "abc")

    assert isinstance(next(events), Call)


def test_a_reader_says_how_much_it_needs() -> None:
    """The owner can read a large frame in few pieces."""
    reader = FrameReader()
    frame = encode_frame(FrameKind.ITEM, 1, b"x" * 1000)

    assert list(reader.feed(frame[:9])) == []
    assert reader.missing == 1000
    assert list(reader.feed(frame[9:500])) == []
    assert (reader.missing, reader.buffered) == (len(frame) - 500, 500)


def test_a_call_is_answered_once() -> None:
    """Call, result; then the id is free."""
    client, server = open_pair()
    call, data = client.call("exec", {"argv": ["true"]}, b"in", incarnation="abc", credit=5)

    (asked,) = server.receive(data)
    assert isinstance(asked, Call)
    assert (asked.call, asked.operation, asked.params) == (call, "exec", {"argv": ["true"]})
    assert (asked.body, asked.incarnation, asked.credit) == (b"in", "abc", 5)
    (answer,) = client.receive(server.result(call, {"x": 1}, b"out"))

    assert answer == Result(call=call, value={"x": 1}, body=b"out")
    assert len(list(server.receive(data))) == 1
    with pytest.raises(ProtocolViolationError, match="in use"):
        list(server.receive(data))


def test_credit_is_spent_and_granted() -> None:
    """An item takes its size; one may overdraw; a grant adds up; unknown calls are ignored."""
    client, server = open_pair()
    call, data = client.call("exec", {}, credit=10)
    list(server.receive(data))
    assert server.credit(call) == 10

    (item,) = client.receive(server.item(call, {"a": 1}, b"x" * 100))
    assert isinstance(item, Item)
    assert item.size == 4 + len('{"a":1}') + 100
    assert server.credit(call) == 10 - item.size
    assert list(server.receive(client.grant(call, item.size))) == [
        Credit(call=call, amount=item.size)
    ]

    assert server.credit(call) == 10
    list(server.receive(client.grant(77, 5)))
    assert server.credit(77) == 0
    (end,) = client.receive(server.end(call, {}))
    assert end == End(call=call, value={}, body=b"")
    assert server.credit(call) == 0


def test_the_usual_credit_is_not_sent() -> None:
    """A call without a credit has the usual one."""
    client, server = open_pair()
    call, data = client.call("exec", {})

    list(server.receive(data))

    assert server.credit(call) == INITIAL_CREDIT
    assert b"credit" not in data


def test_errors_keep_class_code_and_facts() -> None:
    """An error is the same class on the other side; an unknown code keeps its code."""
    client, server = open_pair()
    call, data = client.call("exec", {})
    list(server.receive(data))

    (failed,) = client.receive(server.failed(call, CommandNotFoundError("nope")))
    unknown = SandboxError("from the future")
    unknown.code = "NEW_CODE"
    (whole,) = client.receive(server.failed(0, unknown))

    assert isinstance(failed, Failed)
    assert isinstance(failed.error, CommandNotFoundError)
    assert failed.error.context == {"program": "nope"}
    assert isinstance(whole, Failed)
    assert type(whole.error) is SandboxError
    assert whole.error.code == "NEW_CODE"


def test_call_ids_wrap_around() -> None:
    """Zero is never used."""
    client, _ = open_pair()
    client._last_call = 0xFFFFFFFF

    assert client.call("exec", {})[0] == 1


def test_cancel_names_its_call() -> None:
    """A call is given up by its id."""
    client, server = open_pair()

    assert list(server.receive(client.cancel(9))) == [Cancel(call=9)]


@given(st.lists(st.integers(0, 10_000), max_size=10))
def test_a_channel_may_begin_right_behind_its_call(places: list[int]) -> None:
    """Both ends may send channel frames at once, however the bytes are cut."""
    client, server = open_pair()
    call, data = client.call("kernel.connect", {"kernel_id": "k"})
    client.become_channel()
    data += client.channel_frame(FrameKind.INPUT, b"one") + client.channel_frame(
        FrameKind.ACK, b"2"
    )
    seen: list[Any] = []

    for chunk in cut(data, places):
        for event in server.receive(chunk):
            seen.append(event)
            if isinstance(event, Call):
                answer = server.result(event.call, {})
                server.become_channel()
                answer += server.channel_frame(FrameKind.DATA, b"three")
    events = client.receive(answer)

    assert [type(event) for event in seen] == [Call, ChannelFrame, ChannelFrame]
    assert [(event.kind, bytes(event.payload)) for event in seen[1:]] == [
        (FrameKind.INPUT, b"one"),
        (FrameKind.ACK, b"2"),
    ]
    assert isinstance(events[0], Result)
    assert isinstance(events[1], ChannelFrame)
    assert call == 1


def test_a_channel_takes_larger_frames_and_no_calls() -> None:
    """The limit is that of a kernel record; calls are over."""
    client, server = open_pair()
    server.become_channel()
    client.become_channel()
    large = client.channel_frame(FrameKind.INPUT, b"x" * (MAX_FRAME + 1))

    (frame,) = server.receive(large)
    assert isinstance(frame, ChannelFrame)
    with pytest.raises(ProtocolViolationError):
        list(server.receive(encode_frame(FrameKind.CANCEL, 1)))


def test_moves_out_of_order_are_our_own_mistake() -> None:
    """States only move forward."""
    with pytest.raises(RuntimeError):
        ServerConnection().become_channel()
    with pytest.raises(RuntimeError):
        open_pair()[0].channel_frame(FrameKind.INPUT, b"")


def test_a_version_that_was_not_offered_is_a_violation() -> None:
    """A server cannot choose for us."""
    client = ClientConnection()
    client.hello("t", "c")
    with pytest.raises(ProtocolViolationError):
        client.receive(ServerConnection().welcome(2, "x", "y"))


@pytest.mark.parametrize("size", [0, 100, 200_000, 3_000_000])
def test_an_item_in_parts_is_the_same_item(size: int) -> None:
    """The same bytes and the same credit, whether or not the body is a part of its own."""
    body = bytes(range(256)) * (size // 256)
    whole, parts = open_pair()[1], open_pair()[1]
    for server in (whole, parts):
        _, data = ClientConnection().call("exec", {}, credit=1 << 20)
        list(server.receive(data))

    sent = parts.item_parts(1, {"a": 1, "body": True}, body)

    assert b"".join(sent) == whole.item(1, {"a": 1, "body": True}, body)
    assert parts.credit(1) == whole.credit(1)
    assert len(sent) == (2 if size > 16_384 else 1)
    assert size <= 16_384 or sent[1] is body


@pytest.mark.parametrize("size", [1000, 65_536, 262_144, 1_000_000])
def test_a_client_reads_large_items_in_place(size: int) -> None:
    """However it is cut, what was put into `space` and what was fed come to the same events."""
    client, server = open_pair()
    call, data = client.call("exec", {}, credit=1 << 24)
    list(server.receive(data))
    bodies = [bytes([number]) * (250_000 + number) for number in range(8)]
    stream = memoryview(b"".join(server.item(call, {"body": True}, each) for each in bodies))
    events, at, in_place = [], 0, 0
    while at < len(stream):
        space = client.space
        if space is None:
            piece = stream[at : at + size]
            events += client.receive(bytes(piece))
        else:
            piece = stream[at : at + min(size, len(space))]
            space[: len(piece)] = piece
            in_place += len(piece)
            events += client.received(len(piece))
        at += len(piece)

    assert [each.body for each in events if isinstance(each, Item)] == bodies
    assert in_place > len(stream) // 3
