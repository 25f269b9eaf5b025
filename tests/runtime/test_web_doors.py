"""The HTTP and WebSocket doors, asked by clients that share no code with the product."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest
import websockets.exceptions

from tests.support.plain_web_clients import JSON, MESSAGE, DoorError, HttpDoor, WebSocketDoor
from tests.support.runtime_child import TOKEN, RuntimeChild

Door = HttpDoor | WebSocketDoor


@pytest.fixture(params=[HttpDoor, WebSocketDoor])
def door(request: pytest.FixtureRequest, runtime: RuntimeChild) -> Iterator[Door]:
    made: Door = request.param(runtime.socket_path, TOKEN)
    yield made
    made.close()


def raw(runtime: RuntimeChild) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(runtime.socket_path)
    return client


def head(*fields: str, line: str = "POST /operations/runtime.health HTTP/1.1") -> bytes:
    return "\r\n".join((line, *fields, "", "")).encode()


def answer_of(client: socket.socket) -> bytes:
    data = b""
    while chunk := client.recv(65536):
        data += chunk
    return data


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_calls_streams_bytes_and_errors(door: Door) -> None:
    """What PROTOCOL.md says is enough for all of it."""
    assert door.call("runtime.health", {})["sandbox_id"] == "test"

    frames = list(door.stream("exec", {"argv": ["sh", "-c", "cat; exit 3"]}, b"z\x00\xff" * 90_000))

    assert b"".join(body for _, _, body in frames) == b"z\x00\xff" * 90_000
    assert frames[-1][1]["exit_code"] == 3
    info = door.call("process.start", {"argv": ["cat"], "stdin": True})
    door.call("process.write_stdin", {"process_id": info["process_id"], "close": True}, b"hello")
    assert door.call("process.wait", {"process_id": info["process_id"]})["status"] == "completed"
    with pytest.raises(DoorError) as refused:
        door.call("process.get", {"process_id": "none"})
    assert refused.value.code == "PROCESS_NOT_FOUND"
    with pytest.raises(DoorError) as refused:
        door.call("no.such", {})
    assert refused.value.code == "VALIDATION_FAILED"
    assert door.call("runtime.health", {})


def test_channels_are_refused_and_the_connection_lives(door: Door) -> None:
    info = door.call("terminal.create", {"argv": ["cat"]})
    with pytest.raises(DoorError) as refused:
        door.call("terminal.connect", {"terminal_id": info["terminal_id"]})

    assert refused.value.code == "VALIDATION_FAILED"
    assert door.call("runtime.health", {})


def test_errors_have_their_status(runtime: RuntimeChild) -> None:
    door = HttpDoor(runtime.socket_path, TOKEN)
    for operation, params, status in (
        ("process.get", {"process_id": "none"}, 404),
        ("process.get", {}, 400),
        ("runtime.configure", {"sleep_after": -1}, 400),
    ):
        with pytest.raises(DoorError) as refused:
            door.call(operation, params)
        assert refused.value.status == status
    door.close()


@pytest.mark.parametrize(
    "fields", [(), ("Authorization: Bearer wrong",), (f"Authorization: Basic {TOKEN}",)]
)
def test_without_the_token_there_is_nothing(runtime: RuntimeChild, fields: tuple[str, ...]) -> None:
    """Whatever is asked for, known or not, the answer is the same, and the connection ends."""
    answers = set()
    for line in ("POST /operations/runtime.health HTTP/1.1", "GET / HTTP/1.1"):
        with raw(runtime) as client:
            client.sendall(head(*fields, line=line))
            answers.add(answer_of(client))

    (answer,) = answers
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "UNAUTHORIZED"


def test_a_websocket_without_the_token_is_refused(runtime: RuntimeChild) -> None:
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        WebSocketDoor(runtime.socket_path, "wrong")

    assert refused.value.response.status_code == 401


def test_content_of_a_client_without_the_token_is_not_waited_for(runtime: RuntimeChild) -> None:
    with raw(runtime) as client:
        client.sendall(head("Content-Length: 16000000"))

        assert answer_of(client).startswith(b"HTTP/1.1 401 ")


def test_a_second_request_before_the_answer_is_refused_and_the_first_given_up(
    runtime: RuntimeChild,
) -> None:
    with raw(runtime) as client:
        content = b'{"argv": ["sleep", "60"]}'
        client.sendall(
            head(
                f"Authorization: Bearer {TOKEN}",
                "Content-Type: application/json",
                f"Content-Length: {len(content)}",
                line="POST /operations/exec HTTP/1.1",
            )
            + content
        )
        door = HttpDoor(runtime.socket_path, TOKEN)
        until(lambda: door.call("runtime.health", {}).get("processes") == 1)
        client.sendall(head(f"Authorization: Bearer {TOKEN}"))

        answer_of(client)

        until(lambda: not door.call("runtime.health", {}).get("processes"))
        door.close()


def test_a_client_that_hangs_up_gives_its_stream_up(runtime: RuntimeChild) -> None:
    door = HttpDoor(runtime.socket_path, TOKEN)
    frames = door.stream("exec", {"argv": ["sh", "-c", "echo $$; exec sleep 60"]})
    pid = int(next(frames)[2])
    frames.close()  # type: ignore[attr-defined]

    door.close()

    until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_flood_to_a_client_that_does_not_read_is_bounded(runtime: RuntimeChild) -> None:
    """The program blocks, and other clients are served; then all of it comes."""
    door, other = HttpDoor(runtime.socket_path, TOKEN), HttpDoor(runtime.socket_path, TOKEN)
    frames = door.stream("exec", {"argv": ["head", "-c", "50000000", "/dev/zero"]})
    first = next(frames)
    before = memory_of(runtime.pid)
    for _ in range(20):
        other.call("runtime.health", {})

    assert memory_of(runtime.pid) - before < 8 << 20
    size = len(first[2]) + sum(len(body) for _, _, body in frames)
    assert size == 50_000_000
    door.close()
    other.close()


def memory_of(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_connection_is_kept_and_closed_when_asked(runtime: RuntimeChild) -> None:
    door = HttpDoor(runtime.socket_path, TOKEN)
    door.call("runtime.health", {})
    first = door.connection.sock
    door.call("runtime.health", {})
    assert door.connection.sock is first

    response = door.ask("runtime.health", {}, Connection="close")

    assert json.loads(response.read())["sandbox_id"] == "test"
    with raw(runtime) as client:
        client.sendall(head(f"Authorization: Bearer {TOKEN}", "Connection: close"))
        assert answer_of(client).startswith(b"HTTP/1.1 200 ")
    door.close()


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (JSON, b"{"),
        (JSON, b'{"a":NaN}'),
        (MESSAGE, b"\xff\xff\xff\xff"),
        (MESSAGE, b"\0\0\0\1{"),
    ],
)
def test_content_that_is_malformed_is_answered(
    runtime: RuntimeChild, kind: str, content: bytes
) -> None:
    """The client learns what is wrong with what it sent; then the connection is closed."""
    with raw(runtime) as client:
        client.sendall(
            b"POST /operations/runtime.health HTTP/1.1\r\nHost: x\r\n"
            b"Authorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
            % (TOKEN.encode(), kind.encode(), len(content), content)
        )
        answer = answer_of(client)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"PROTOCOL_VIOLATION"' in answer


def test_garbage_is_answered_and_cut_off(runtime: RuntimeChild) -> None:
    with raw(runtime) as client:
        client.sendall(b"GARBAGE\r\n\r\n")

        assert answer_of(client).startswith(b"HTTP/1.1 400 ")
    connection = HttpDoor(runtime.socket_path, TOKEN)
    assert connection.call("runtime.health", {})
    assert isinstance(connection.connection, http.client.HTTPConnection)
    connection.close()
