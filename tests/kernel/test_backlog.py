"""A subscriber that does not read loses nothing up to a limit, and does not hold the kernel."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from sandbox_kernel.kernel import relay as relay_module
from sandbox_kernel.kernel.connection import ConnectionInfo
from sandbox_kernel.kernel.sockets import Sockets
from sandbox_kernel.wire.kernel import Channel, encode_record
from tests.support.fake_runtime import FakeRuntime
from tests.support.relay_thread import free_ports, relay_on_a_thread

MEBIBYTE = 1 << 20


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    with contextlib.closing(FakeRuntime(tmp_path)) as runtime:
        yield runtime


def subscribe(context: zmq.Context[Any], info: ConnectionInfo) -> zmq.Socket[Any]:
    """Subscribe without room for more than a message or two."""
    slow = context.socket(zmq.SUB)
    slow.linger = 0
    slow.rcvhwm = 1
    slow.rcvbuf = 4096
    slow.subscribe = b""
    slow.connect(f"tcp://127.0.0.1:{info.ports['iopub_port']}")
    return slow


def test_the_backlog_is_what_the_slowest_subscriber_has_not_got() -> None:
    """It grows while one does not read, and is gone once it has read everything."""
    info = ConnectionInfo(
        transport="tcp", ip="127.0.0.1", ports=free_ports(), key=b"k", digest="sha256"
    )
    sockets = Sockets(info)
    with zmq.Context() as context, subscribe(context, info) as slow:
        while not sockets.take_subscriptions():
            pass
        for _ in range(40):
            sockets.publish(b"t", "stream", b"{}", b"x" * (MEBIBYTE // 2))

        assert 12 * MEBIBYTE < sockets.backlog() <= 20 * MEBIBYTE
        for _ in range(40):
            slow.recv_multipart()
        for _ in range(1000):
            if not sockets.backlog():
                break
            slow.poll(5)
        assert sockets.backlog() == 0
    sockets.close()


def text(size: int) -> bytes:
    return encode_record(Channel.STREAM, [], [b"stdout", b"{}", b"x" * size])


def test_a_reader_that_has_stopped_costs_itself_its_outputs(
    tmp_path: Path, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the limit the sandbox has to wait; when that lasts, outputs are dropped and that is said.

    Statuses and replies are delivered in any case.
    """
    monkeypatch.setattr(relay_module, "BACKLOG_LIMIT", 4 * MEBIBYTE)
    monkeypatch.setattr(relay_module, "_STUCK_READER", 0.5)
    with relay_on_a_thread(tmp_path, runtime, is_slow=True) as client:
        cell = client.send("execute_request", {"code": "flood()"})
        while not runtime.take():
            pass
        offset = 0
        for _ in range(80):
            record = text(200_000)
            runtime.data(offset, record)
            offset += len(record)
        reply = {"msg_type": "execute_reply", "msg_id": "r"}
        parts = [reply, {"msg_id": cell}, {}, {"status": "ok", "execution_count": 1}]
        idle = [{"msg_type": "status", "msg_id": "i"}, {"msg_id": cell}, {}]
        last = encode_record(Channel.SHELL, [], [json.dumps(each).encode() for each in parts])
        last += encode_record(
            Channel.IOPUB,
            [],
            [json.dumps(each).encode() for each in (*idle, {"execution_state": "idle"})],
        )
        runtime.data(offset, last)

        assert client.reply("execute_reply", cell)["status"] == "ok"
        received = dropped = 0
        while True:
            assert client.iopub.poll(10_000)
            _, message = client.session.recv(client.iopub)
            assert message is not None
            content = message["content"]
            if message["msg_type"] == "status":
                assert content == {"execution_state": "idle"}
            elif content["name"] == "stdout":
                received += len(content["text"])
            else:
                dropped = int(content["text"].split()[0].strip("["))
                break
        assert received >= 4 * MEBIBYTE - MEBIBYTE
        assert received + dropped >= 80 * 200_000


def test_only_what_has_left_is_acknowledged(tmp_path: Path, runtime: FakeRuntime) -> None:
    """What still waits for a subscriber would be lost with the relay, so the runtime keeps it."""
    with relay_on_a_thread(tmp_path, runtime, is_slow=True) as client:
        cell = client.send("execute_request", {"code": "flood()"})
        while not runtime.take():
            pass
        record = text(500_000)
        for number in range(40):
            runtime.data(number * len(record), record)
        reply = {"msg_type": "execute_reply", "msg_id": "r"}
        parts = [reply, {"msg_id": cell}, {}, {"status": "ok", "execution_count": 1}]
        last = encode_record(Channel.SHELL, [], [json.dumps(each).encode() for each in parts])
        runtime.data(40 * len(record), last)
        client.reply("execute_reply", cell)
        client.send("execute_request", {"code": "1"})
        while not runtime.take():
            pass
        held = runtime.acked
        heard = 0
        while heard < 40 * 500_000:
            heard += len(client.hear("stream", None)["text"])
        while runtime.acked < 40 * len(record) + len(last):
            runtime.take()

        assert held < 39 * len(record)
