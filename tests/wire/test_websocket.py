"""The WebSocket transport without sockets: frames of RFC 6455, messages, garbage."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.errors import (
    ProcessNotFoundError,
    ProtocolViolationError,
    SandboxError,
    UnauthorizedError,
)
from sandbox_kernel.wire.http import HttpServer
from sandbox_kernel.wire.rpc import (
    Call,
    Cancel,
    Credit,
    End,
    Failed,
    Item,
    Reply,
    Result,
    Switch,
    Welcome,
)
from sandbox_kernel.wire.websocket import (
    MAX_MESSAGE,
    Frames,
    WebSocketClient,
    WebSocketServer,
    accept_of,
    encode_frame,
)

MASK = b"\x01\x02\x03\x04"


def random(count: int) -> bytes:
    return bytes(range(1, count + 1))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def test_the_key_is_answered_as_the_standard_says() -> None:
    """The example of RFC 6455, 1.3."""
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(size=st.sampled_from([0, 1, 125, 126, 127, 65535, 65536, 70000]), masked=st.booleans())
def test_every_length_has_its_form(size: int, *, masked: bool) -> None:
    payload = (bytes(range(256)) * 300)[:size]
    frame = encode_frame(1, payload, MASK if masked else None)

    assert list(Frames(masked=masked).feed(frame)) == [(1, payload)]


@given(st.lists(st.integers(0, 10**6), max_size=6))
def test_fragments_with_control_frames_between_them_are_one_message(cuts: list[int]) -> None:
    first, last = encode_frame(1, b"ab", MASK), encode_frame(0, b"cd", MASK)
    data = bytes((first[0] & 0x7F,)) + first[1:] + encode_frame(9, b"?", MASK) + last
    frames = Frames(masked=True)

    got = [each for piece in pieces(data, cuts) for each in frames.feed(piece)]

    assert got == [(9, b"?"), (1, b"abcd")]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(encode_frame(1, b"a"), id="no mask"),
        pytest.param(encode_frame(0, b"a", MASK), id="a rest without a beginning"),
        pytest.param(b"\x01" + encode_frame(1, b"a", MASK)[1:] + encode_frame(1, b"b", MASK), id="a beginning within a message"),
        pytest.param(encode_frame(3, b"", MASK), id="an unknown opcode"),
        pytest.param(b"\xc1" + encode_frame(1, b"", MASK)[1:], id="a reserved bit"),
        pytest.param(encode_frame(9, b"x" * 126, MASK), id="a long ping"),
        pytest.param(b"\x09" + encode_frame(9, b"", MASK)[1:], id="a ping in parts"),
        pytest.param(b"\x81\xff" + (MAX_MESSAGE + 1).to_bytes(8, "big"), id="a message that is too long"),
    ],
)  # fmt: skip
def test_frames_against_the_standard_are_violations(data: bytes) -> None:
    with pytest.raises(ProtocolViolationError):
        list(Frames(masked=True).feed(data))


def test_fragments_are_bounded_together() -> None:
    frames = Frames(masked=False)
    part = encode_frame(0, b"x" * (MAX_MESSAGE // 2))
    first = encode_frame(1, b"x" * (MAX_MESSAGE // 2))
    begin = bytes((first[0] & 0x7F,)) + first[1:]
    rest = bytes((part[0] & 0x7F,)) + part[1:]
    assert list(frames.feed(begin)) == []
    assert list(frames.feed(rest)) == []

    with pytest.raises(ProtocolViolationError, match="more than"):
        list(frames.feed(rest))


def opened() -> tuple[WebSocketClient, WebSocketServer]:
    client, http = WebSocketClient(random), HttpServer()
    events = list(http.receive(client.hello("secret", "test")))
    assert isinstance(events[-1], Switch)
    (welcome,) = client.receive(http.welcome(1, "a", "incarnation"))
    assert welcome == Welcome(version=1, sandbox_id="a", incarnation="incarnation")
    return client, WebSocketServer()


@given(st.lists(st.integers(0, 10_000), max_size=5), st.binary(max_size=300))
def test_a_call_and_its_answers_travel_whatever_the_cuts(cuts: list[int], body: bytes) -> None:
    client, server = opened()
    call, data = client.call("exec", {"body": True, "word": "ä"}, body, incarnation="i")

    (event,) = [event for piece in pieces(data, cuts) for event in server.receive(piece)]

    assert isinstance(event, Call)
    assert (event.operation, event.body, event.incarnation) == ("exec", body, "i")
    answer = server.item(call, {"n": 1, "body": True}, body) + server.end(call, {"exit_code": 0})
    item, end = [event for piece in pieces(answer, cuts) for event in client.receive(piece)]
    assert isinstance(item, Item)
    assert item.body == body
    assert end == End(call=call, value={"exit_code": 0}, body=b"")


def test_results_errors_cancels_and_credit() -> None:
    client, server = opened()
    call, data = client.call("process.get", {}, credit=10)
    list(server.receive(data))

    assert server.credit(call) == 10
    assert list(server.receive(client.grant(call, 5))) == [Credit(call=call, amount=5)]
    assert server.credit(call) == 15
    server.item(call, {"a": "b"})
    assert server.credit(call) < 0
    assert list(server.receive(client.cancel(call))) == [Cancel(call=call)]
    (failed,) = client.receive(server.failed(call, ProcessNotFoundError("p")))
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, ProcessNotFoundError)
    (result,) = client.receive(server.result(7, {"x": 1}))
    assert result == Result(call=7, value={"x": 1}, body=b"")


def test_pings_are_answered_and_a_close_is_confirmed() -> None:
    _, server = opened()
    assert list(server.receive(encode_frame(9, b"?", MASK))) == [Reply(data=encode_frame(10, b"?"))]
    goodbye = (1000).to_bytes(2, "big")
    assert list(server.receive(encode_frame(8, goodbye + b"bye", MASK))) == [
        Reply(data=encode_frame(8, goodbye))
    ]
    assert server.is_over


def test_a_refusal_is_the_error_of_the_connection() -> None:
    client = WebSocketClient(random)
    (failed,) = client.receive(HttpServer().failed(0, UnauthorizedError()))

    assert isinstance(failed, Failed)
    assert failed.call == 0
    assert isinstance(failed.error, UnauthorizedError)


@pytest.mark.parametrize(
    "message",
    [
        [],
        {"type": "call", "id": 0, "operation": "exec"},
        {"type": "call", "id": True, "operation": "exec"},
        {"type": "call", "id": 2**32, "operation": "exec"},
        {"type": "call", "id": 1},
        {"type": "call", "id": 1, "operation": "exec", "body": "no base64!"},
        {"type": "call", "id": 1, "operation": "exec", "body": 5},
        {"type": "call", "id": 1, "operation": "exec", "credit": -1},
        {"type": "call", "id": 1, "operation": "exec", "incarnation": 5},
        {"type": "credit", "id": 1},
        {"type": "other", "id": 1},
    ],
)
def test_messages_that_make_no_sense_are_violations(message: object) -> None:
    server = WebSocketServer()
    with pytest.raises(ProtocolViolationError):
        list(server.receive(encode_frame(1, json.dumps(message).encode(), MASK)))


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    client, server = opened()
    for end in (server, client):
        try:
            list(end.receive(data))
        except SandboxError as error:
            assert isinstance(error, ProtocolViolationError)  # noqa: PT017
