"""HTTP without sockets: what is understood, what is refused, any chunking, no surprise from garbage."""

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
from sandbox_kernel.wire.codec import pack
from sandbox_kernel.wire.http import (
    JSON_TYPE,
    MAX_HEAD,
    MESSAGE_TYPE,
    HttpClient,
    HttpServer,
)
from sandbox_kernel.wire.rpc import MAX_FRAME, Call, End, Failed, Hello, Item, Reply, Result, Switch


def request(
    content: bytes = b"{}",
    *fields: str,
    line: str = "POST /operations/exec HTTP/1.1",
    kind: str = JSON_TYPE,
) -> bytes:
    lines = (
        line,
        "Authorization: Bearer secret",
        f"Content-Type: {kind}",
        f"Content-Length: {len(content)}",
        *fields,
    )
    return "\r\n".join((*lines, "", "")).encode("latin-1") + content


def events_of(data: bytes, server: HttpServer | None = None) -> list[object]:
    return list((server or HttpServer()).receive(data))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def test_a_request_is_a_hello_and_a_call() -> None:
    hello, call = events_of(request(b'{"argv": ["true"]}', "Sandbox-Incarnation: abc"))

    assert isinstance(hello, Hello)
    assert hello.token == "secret"
    assert isinstance(call, Call)
    assert (call.operation, call.params, call.body) == ("exec", {"argv": ["true"]}, b"")
    assert call.incarnation == "abc"


def test_a_message_carries_bytes() -> None:
    _, call = events_of(request(pack({"body": True}, b"\x00\xff"), kind=MESSAGE_TYPE))

    assert isinstance(call, Call)
    assert (call.params, call.body) == ({"body": True}, b"\x00\xff")


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_any_cuts_give_the_same_events(cuts: list[int]) -> None:
    data = request(pack({"body": True}, bytes(range(256))), kind=MESSAGE_TYPE)
    server = HttpServer()

    events = [event for piece in pieces(data, cuts) for event in server.receive(piece)]

    assert events == events_of(data)


def test_the_token_is_asked_for_before_the_content_has_come() -> None:
    """A client without the token cannot have the runtime hold 16 MB for it."""
    data = request(b"x" * 1000)
    (hello,) = events_of(data[: data.index(b"\r\n\r\n") + 10])

    assert isinstance(hello, Hello)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", id="another version"),
        pytest.param(b"GET /\r\n\r\n", id="no version"),
        pytest.param(request().replace(b"\r\n", b"\n") + b"x" * MAX_HEAD, id="bare line feeds"),
        pytest.param(request(b"", "Content-Length: 5"), id="two lengths"),
        pytest.param(request(b"", "Authorization: Bearer other"), id="two tokens"),
        pytest.param(request(b"", "Transfer-Encoding: chunked"), id="chunks from a client"),
        pytest.param(request(b"", "Name : value"), id="a space before the colon"),
        pytest.param(request(b"", " folded"), id="a folded field"),
        pytest.param(request(b"", "no-colon"), id="a field without a colon"),
        pytest.param(request(b"", "A: a\x00b"), id="a control character"),
        pytest.param(request(b"", "A: a\rB: b"), id="a bare carriage return"),
        pytest.param(request(b"", *(f"F{n}: 1" for n in range(80))), id="too many fields"),
        pytest.param(request(b"", "A: " + "x" * MAX_HEAD), id="a head that is too long"),
        pytest.param(b"POST " + b"x" * MAX_HEAD, id="a head without an end"),
        pytest.param(request(b"not json"), id="content that is no JSON"),
        pytest.param(request(b"\x00", kind=MESSAGE_TYPE), id="a message that is too short"),
        pytest.param(request() + request(), id="a second request before the answer"),
    ],
)
def test_what_is_malformed_is_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolationError):
        events_of(data)


@pytest.mark.parametrize("length", ["-1", "+1", "1_0", "0x10", "", "1 1", "٣", str(MAX_FRAME + 1)])
def test_a_length_that_is_none_is_a_violation(length: str) -> None:
    data = request().replace(b"Content-Length: 2", f"Content-Length: {length}".encode())
    with pytest.raises(ProtocolViolationError):
        events_of(data.decode().encode("utf-8") if length == "٣" else data)


@pytest.mark.parametrize(
    ("line", "kind", "status"),
    [
        ("POST / HTTP/1.1", JSON_TYPE, 404),
        ("POST /operations/exec?x=1 HTTP/1.1", JSON_TYPE, 404),
        ("POST http://elsewhere/operations/exec HTTP/1.1", JSON_TYPE, 404),
        ("GET /operations/exec HTTP/1.1", JSON_TYPE, 405),
        ("POST /operations/exec HTTP/1.1", "text/plain", 400),
    ],
)
def test_what_is_no_call_is_answered_and_the_connection_lives(
    line: str, kind: str, status: int
) -> None:
    server = HttpServer()
    _, reply = events_of(request(line=line, kind=kind), server)

    assert isinstance(reply, Reply)
    assert reply.data.startswith(f"HTTP/1.1 {status} ".encode())
    assert json.loads(reply.data.partition(b"\r\n\r\n")[2])["code"] == "VALIDATION_FAILED"
    assert isinstance(events_of(request(), server)[1], Call)


def test_a_client_that_waits_to_continue_is_told_to() -> None:
    data = request(b"{}", "Expect: 100-continue")
    hello, reply = events_of(data[:-2])

    assert isinstance(hello, Hello)
    assert reply == Reply(data=b"HTTP/1.1 100 Continue\r\n\r\n")


def test_a_client_that_closes_is_told_by_is_over() -> None:
    server = HttpServer()
    events_of(request(b"{}", "Connection: close"), server)

    assert server.is_over


def asked() -> tuple[HttpClient, HttpServer]:
    """Return both ends with one call under way."""
    client, server = HttpClient(), HttpServer()
    client.hello("secret", "test")
    _, data = client.call("exec", {"argv": ["true"]})
    events_of(data, server)
    server.welcome(1, "a", "incarnation")
    return client, server


@given(st.lists(st.integers(0, 10_000), max_size=6), st.binary(max_size=300))
def test_a_result_comes_back_whatever_the_cuts(cuts: list[int], body: bytes) -> None:
    client, server = asked()
    data = server.result(1, {"a": "ä", "body": True}, body)

    events = [event for piece in pieces(data, cuts) for event in client.receive(piece)]

    assert events == [Result(call=1, value={"a": "ä", "body": True}, body=body)]
    assert client.is_free


@given(st.lists(st.integers(0, 10_000), max_size=6), st.lists(st.binary(max_size=99), max_size=4))
def test_a_stream_comes_back_whatever_the_cuts(cuts: list[int], bodies: list[bytes]) -> None:
    client, server = asked()
    data = b"".join(server.item(1, {"body": True}, body) for body in bodies)
    data += server.end(1, {"exit_code": 0})

    events = [event for piece in pieces(data, cuts) for event in client.receive(piece)]

    assert [event.body for event in events if isinstance(event, Item)] == bodies
    assert events[-1] == End(call=1, value={"exit_code": 0}, body=b"")
    assert client.is_free


@pytest.mark.parametrize("begun", [False, True])
def test_an_error_comes_back_before_and_within_a_stream(*, begun: bool) -> None:
    client, server = asked()
    data = server.item(1, {}) if begun else b""
    data += server.failed(1, ProcessNotFoundError("p"))

    *_, failed = client.receive(data)

    assert isinstance(failed, Failed)
    assert isinstance(failed.error, ProcessNotFoundError)
    assert data.startswith(b"HTTP/1.1 200" if begun else b"HTTP/1.1 404")
    assert client.is_free


def test_a_refused_token_is_an_answer_with_its_status() -> None:
    server = HttpServer()
    data = server.failed(0, UnauthorizedError())

    assert data.startswith(b"HTTP/1.1 401 ")
    assert b"Connection: close" in data
    assert server.is_over


def test_within_an_answer_a_broken_connection_says_nothing_more() -> None:
    _, server = asked()
    server.item(1, {})

    assert server.failed(0, ProtocolViolationError("x")) == b""


def test_a_websocket_is_asked_for_in_one_way_only() -> None:
    lines = (
        "GET /websocket HTTP/1.1",
        "Authorization: Bearer secret",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    good = "\r\n".join((*lines, "", ""))
    hello, switch = events_of(good.encode() + b"rest")

    assert isinstance(hello, Hello)
    assert switch == Switch(rest=b"rest")
    for before, after in (("GET", "POST"), ("13", "8"), ("/websocket", "/"), ("Q==", "=")):
        with pytest.raises(ProtocolViolationError):
            events_of(good.replace(before, after, 1).encode())


@given(st.binary(max_size=400))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    """Server and client meet garbage with their own error or with silence."""
    client, server = asked()
    for end in (HttpServer(), server, client):
        try:
            list(end.receive(b"P" + data))
        except SandboxError as error:
            assert isinstance(error, ProtocolViolationError)  # noqa: PT017


@given(st.binary(max_size=200), st.integers(0, 400))
def test_an_answer_with_garbage_in_it_raises_nothing_else(garbage: bytes, at: int) -> None:
    client, server = asked()
    data = server.item(1, {"a": 1}) + server.end(1, {})
    at %= len(data)
    try:
        client.receive(data[:at] + garbage + data[at:])
    except SandboxError as error:
        assert isinstance(error, ProtocolViolationError)  # noqa: PT017
