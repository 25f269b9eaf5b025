"""The frame door: who is let in, what broken clients get, and that slow ones harm nobody."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time

import pytest

from sandbox_kernel.errors import (
    ControlProtocolIncompatibleError,
    ProtocolViolationError,
    SandboxError,
    UnauthorizedError,
    ValidationFailedError,
)
from sandbox_kernel.wire.codec import pack
from sandbox_kernel.wire.rpc import ClientConnection, Failed, FrameKind, Result, encode_frame
from sandbox_runtime.connection import HELLO_TIMEOUT
from tests.runtime.conftest import Start
from tests.support.runtime_child import TOKEN, Client, RuntimeChild


def raw(runtime: RuntimeChild) -> socket.socket:
    plain = socket.socket(socket.AF_UNIX)
    plain.settimeout(20)
    plain.connect(runtime.socket_path)
    return plain


def answer(plain: socket.socket) -> SandboxError:
    """The one error before the end of the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := plain.recv(65536):
            received += data
    client = ClientConnection()
    (event,) = client.receive(received)
    assert isinstance(event, Failed)
    assert event.call == 0
    assert isinstance(event.error, SandboxError)
    return event.error


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], "\ud800"])
def test_a_wrong_token_is_refused(runtime: RuntimeChild, token: str) -> None:
    """Without the token there is an error and the end, whatever else was sent along."""
    plain = raw(runtime)
    client = ClientConnection()
    hello = client.hello(token, "test")

    plain.sendall(hello + client.call("runtime.shutdown", {})[1])

    assert isinstance(answer(plain), UnauthorizedError)
    plain.close()
    with runtime.connect() as other:
        assert other.call("runtime.health").sandbox_id == "test"


def test_an_unknown_version_is_refused(runtime: RuntimeChild) -> None:
    """Two ends without a common version part with the reason."""
    plain = raw(runtime)

    plain.sendall(encode_frame(FrameKind.HELLO, 0, pack({"versions": [99], "token": TOKEN})))

    assert isinstance(answer(plain), ControlProtocolIncompatibleError)
    plain.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"get / http/1.1\r\nhost: x\r\n\r\n",
        b"\x00\x00\x00\x01\x01\x00\x00\x00\x00",
        b"\xff" * 64,
        encode_frame(99, 0, b""),
        encode_frame(FrameKind.CALL, 1, pack({"op": "runtime.health"})),
        encode_frame(FrameKind.HELLO, 0, b"\xff\xff\xff\xff"),
        encode_frame(FrameKind.HELLO, 0, pack({"versions": "1", "token": 7})),
    ],
)
def test_garbage_instead_of_hello_is_answered_and_cut(
    runtime: RuntimeChild, garbage: bytes
) -> None:
    """Broken first frames get a protocol violation and the end, and nobody else notices."""
    plain = raw(runtime)

    plain.sendall(garbage)

    assert isinstance(answer(plain), ProtocolViolationError)
    plain.close()
    with runtime.connect() as other:
        assert other.call("runtime.health").sandbox_id == "test"


def test_random_bytes_after_hello_never_harm(runtime: RuntimeChild) -> None:
    """Whatever follows a good HELLO, the runtime goes on serving others."""
    source = random.Random(7)  # noqa: S311  the same bytes in every run
    for _ in range(60):
        plain = raw(runtime)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            plain.sendall(ClientConnection().hello(TOKEN, "x"))
            for _ in range(5):
                head = source.randbytes(source.randrange(40))
                kind = source.choice([2, 3, 5, 8, 9, 16, 18, 19])
                plain.sendall(encode_frame(kind, source.randrange(3), head))
            plain.sendall(source.randbytes(200))
        plain.close()

    with runtime.connect() as other:
        assert other.run("echo", "fine")[0] == b"fine\n"


def test_calls_may_follow_hello_at_once(runtime: RuntimeChild) -> None:
    """A client need not wait for WELCOME."""
    with runtime.connect() as client:
        call = client.begin("runtime.health")

        assert client.finish(call).incarnation == client.call("runtime.health").incarnation


def test_frames_may_come_byte_by_byte(runtime: RuntimeChild) -> None:
    """The cutting of the stream means nothing."""
    with runtime.connect() as client:
        client.welcome()
        call, data = client.protocol.call("runtime.health", {})

        for byte in data:
            client.send(bytes((byte,)))

        assert isinstance(client.event_of(call), Result)


def test_an_unknown_operation_is_an_error_of_its_call(client: Client) -> None:
    """What the runtime does not know fails alone; the connection goes on."""
    call, data = client.protocol.call("no.such", {})
    client.send(data)

    event = client.event_of(call)

    assert isinstance(event, Failed)
    assert isinstance(event.error, ValidationFailedError)
    assert client.run("echo", "on")[0] == b"on\n"


@pytest.mark.parametrize(
    "params",
    [
        [],
        {"argv": "true"},
        {"command": ["true"]},
        {"command": "true", "argv": ["true"]},
        {"argv": [1]},
        {"argv": ["true"], "timeout": "1"},
        {"argv": ["true"], "env": []},
    ],
)
def test_parameters_of_wrong_types_are_refused(client: Client, params: object) -> None:
    """The table's types are checked before anything is started."""
    call, data = client.protocol.call("exec", params)  # type: ignore[arg-type]
    client.send(data)

    event = client.event_of(call)

    assert isinstance(event, Failed)
    assert isinstance(event.error, ValidationFailedError)


def test_unknown_parameters_are_ignored(client: Client) -> None:
    """A newer client may say more than we understand."""
    call, data = client.protocol.call("exec", {"argv": ["true"], "of_the_future": 1})
    client.operations[call] = "exec"
    client.send(data)

    assert client.finish(call)[1].exit_code == 0


def test_too_many_calls_at_once_are_refused(client: Client) -> None:
    """Beyond 1024 unanswered calls on one connection the next ones fail; the others live on."""
    process = client.call("process.start", argv=["sleep", "66.25"])
    waiting = [client.begin("process.wait", process_id=process.process_id) for _ in range(1024)]

    with pytest.raises(ValidationFailedError, match="1024"):
        client.call("runtime.health")

    client.send(client.protocol.cancel(waiting.pop()))
    client.next_event()
    client.call("process.signal", process_id=process.process_id, signal=9)
    assert {client.finish(call).signal for call in waiting} == {9}


def test_a_flooded_client_does_not_delay_the_others(runtime: RuntimeChild) -> None:
    """A client that never reads while its command floods costs neither time nor memory."""
    slow = runtime.connect()
    slow.welcome()
    slow.begin("exec", argv=["yes", "a flood that nobody reads"], credit=(1 << 32) - 1)
    time.sleep(0.5)
    with runtime.connect() as quick:
        quick.welcome()
        quick.run("true")
        times = []
        for _ in range(30):
            began = time.monotonic()
            assert quick.run("echo", "quick")[0] == b"quick\n"
            times.append(time.monotonic() - began)

    assert sorted(times)[len(times) // 2] < 0.1
    assert resident_bytes(runtime.pid) < 100 << 20
    slow.close()


def test_answers_to_a_deaf_client_are_bounded(runtime: RuntimeChild) -> None:
    """A client that asks and never reads is not read any more once enough waits for it."""
    deaf = runtime.connect()
    deaf.welcome()
    deaf.socket.settimeout(1)
    with contextlib.suppress(TimeoutError):
        for _ in range(400_000):
            deaf.begin("runtime.health")

    assert resident_bytes(runtime.pid) < 100 << 20
    with runtime.connect() as other:
        assert other.run("echo", "fine")[0] == b"fine\n"
    deaf.close()


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    "said", [b"", b"\0", b"\0\0\0\x40\1\0", b"POST /operations/exec HTTP/1.1\r\n"]
)
def test_clients_that_do_not_name_the_token_keep_nobody_out(start_runtime: Start, said) -> None:
    """However many there are and however little they say; nothing of them is left."""
    runtime = start_runtime(rlimits={"nofile": 200})
    with runtime.connect() as client:
        client.welcome()
        client.run("true")
        before = len(os.listdir(f"/proc/{runtime.pid}/fd"))
        with contextlib.ExitStack() as stack:
            for _ in range(300):
                silent = stack.enter_context(socket.socket(socket.AF_UNIX))
                silent.connect(runtime.socket_path)
                with contextlib.suppress(BrokenPipeError):
                    silent.sendall(said)
            began = time.monotonic()
            with runtime.connect() as other:
                assert other.run("echo", "hi")[0] == b"hi\n"

            assert client.run("echo", "hi")[0] == b"hi\n"
            assert time.monotonic() - began < HELLO_TIMEOUT / 2
        deadline = time.monotonic() + 10
        while len(os.listdir(f"/proc/{runtime.pid}/fd")) > before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert "Too many open files" not in runtime.log()


def test_clients_beyond_half_the_descriptors_wait_for_others_to_leave(start_runtime: Start) -> None:
    """So that those that are there can go on working."""
    runtime = start_runtime(rlimits={"nofile": 64})
    clients = [runtime.connect() for _ in range(40)]
    for each in clients[:32]:
        each.welcome()

    assert clients[0].run("echo", "hi")[0] == b"hi\n"
    with pytest.raises(TimeoutError):
        clients[32].next_event(0.2)
    clients[1].close()
    clients[32].welcome()

    for each in clients:
        each.close()
    assert "Too many open files" not in runtime.log()
