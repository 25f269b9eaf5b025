"""PROTOCOL.md is enough: a client that shares no code with the product can do everything."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest

from tests.runtime.conftest import Start
from tests.support.plain_client import (
    ACK,
    CONTROL,
    DATA,
    END,
    EVENT,
    INPUT,
    PlainClient,
    PlainError,
)
from tests.support.runtime_child import TOKEN, RuntimeChild

FAKE = [sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "support" / "fake_kernel.py")]


def test_commands(runtime: RuntimeChild) -> None:
    """Handshake, streams with credit, bytes both ways, errors by code."""
    client = PlainClient(runtime.socket_path, TOKEN)
    assert client.welcome["sandbox_id"] == "test"

    frames = list(client.stream("exec", {"argv": ["sh", "-c", "cat; exit 3"]}, b"z" * 1_000_000))

    assert b"".join(body for _, _, body in frames) == b"z" * 1_000_000
    kind, end, _ = frames[-1]
    assert (kind, end["exit_code"], end["process_id"]) == (END, 3, "p-1")
    info = client.call("process.start", {"argv": ["cat"], "stdin": True})
    client.call("process.write_stdin", {"process_id": info["process_id"], "close": True}, b"hello")
    client.call("process.wait", {"process_id": info["process_id"]})
    frames = list(client.stream("process.output", {"process_id": info["process_id"]}))
    assert [body for _, _, body in frames] == [b"hello", b""]
    assert frames[-1][1]["info"]["status"] == "completed"
    with pytest.raises(PlainError) as refused:
        client.call("process.get", {"process_id": "none"})
    assert refused.value.code == "PROCESS_NOT_FOUND"
    client.close()


def test_a_wrong_token(runtime: RuntimeChild) -> None:
    """The refusal can be read without our code."""
    with pytest.raises(PlainError) as refused:
        PlainClient(runtime.socket_path, "wrong")

    assert refused.value.code == "UNAUTHORIZED"


def test_a_channel(start_runtime: Start) -> None:
    """Input, data by offset, acknowledgement, orders and the exit."""
    runtime = start_runtime(kernel_argv=FAKE)
    client = PlainClient(runtime.socket_path, TOKEN)
    client.call("kernel.start", {"kernel_id": "k"})
    assert client.call("kernel.connect", {"kernel_id": "k"})["acked"] == 0

    client.send(INPUT, 0, b"echo hello\n")
    received = b""
    taken = 0
    while not received.endswith(b"hello\n"):
        kind, call, payload = client.receive()
        if kind == ACK:
            (taken,) = struct.unpack(">Q", payload)
            continue
        assert (kind, call) == (DATA, 0)
        assert struct.unpack_from(">Q", payload) == (len(received),)
        received += payload[8:]
    assert taken == 1
    client.send(ACK, 0, struct.pack(">Q", len(received)))
    client.send(CONTROL, 0, json.dumps({"type": "end", "grace": 1.0}).encode())

    kind, _, payload = client.receive()
    assert kind == EVENT
    assert json.loads(payload) == {
        "type": "exit",
        "exit_code": 143,
        "signal": 15,
        "reason": "ended",
        "stderr": "",
    }
    client.close()
