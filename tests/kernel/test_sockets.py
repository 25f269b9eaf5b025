"""Bounds of the relay's sockets that no well-behaved client meets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from sandbox_kernel.kernel import sockets as sockets_module
from sandbox_kernel.kernel.connection import ConnectionInfo
from sandbox_kernel.kernel.sockets import Sockets
from tests.support.relay_thread import free_ports

DEADLINE = 10.0


@pytest.fixture
def info() -> ConnectionInfo:
    return ConnectionInfo(
        transport="tcp", ip="127.0.0.1", ports=free_ports(), key=b"k", digest="sha256"
    )


@pytest.fixture
def sockets(info: ConnectionInfo) -> Iterator[Sockets]:
    bound = Sockets(info)
    yield bound
    bound.close(linger=False)


@contextlib.contextmanager
def connected(info: ConnectionInfo, kind: int, port: str) -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(kind) as client:
        client.linger = 0
        if kind == zmq.SUB:
            client.subscribe = b""
        client.connect(f"tcp://127.0.0.1:{info.ports[port]}")
        yield client


def received(client: zmq.Socket[bytes], wait: int) -> int:
    """Return how many messages come until none does for so many milliseconds."""
    number = 0
    while client.poll(wait):
        client.recv_multipart()
        number += 1
    return number


def test_a_flood_of_heartbeats_holds_nothing_up(info: ConnectionInfo, sockets: Sockets) -> None:
    """One turn answers a bounded number of those that wait; the next turns answer the rest."""
    bound = sockets_module._HEARTBEATS_PER_TURN
    flood = 5 * bound
    with connected(info, zmq.DEALER, "hb_port") as client:
        for number in range(flood):
            client.send(b"%d" % number)
        # All of them have arrived when the last is waiting; nothing else tells.
        deadline = time.monotonic() + DEADLINE
        answered = turns = 0
        while answered < flood and time.monotonic() < deadline:
            sockets.heartbeat.poll(100)
            sockets.echo_heartbeats()
            now = received(client, 50)
            assert now <= bound
            answered += now
            turns += 1

    assert answered == flood
    assert turns >= 5


def test_a_heartbeat_comes_back_as_it_was(info: ConnectionInfo, sockets: Sockets) -> None:
    """Whatever it holds, to whoever sent it; an asker that has gone is no error."""
    with connected(info, zmq.DEALER, "hb_port") as client:
        client.send_multipart([b"", b"\x00\xffping"])
        sockets.heartbeat.poll(int(DEADLINE * 1000))
        sockets.echo_heartbeats()
        assert client.poll(int(DEADLINE * 1000))
        assert client.recv_multipart() == [b"", b"\x00\xffping"]
        client.send(b"and off")
        sockets.heartbeat.poll(int(DEADLINE * 1000))

    sockets.echo_heartbeats()


@pytest.mark.parametrize("part", ["content", "metadata", "buffers", "parent", "msg_id"])
def test_every_part_of_a_message_counts(info: ConnectionInfo, sockets: Sockets, part: str) -> None:
    """What waits for a slow subscriber is bounded wherever in a message the sandbox puts it."""
    size, number = 512 << 10, 40
    big = b"x" * size
    message = {
        "content": {"content": big, "parent": b"{}"},
        "metadata": {"content": b"{}", "metadata": big, "parent": b"{}"},
        "buffers": {"content": b"{}", "buffers": [big], "parent": b"{}"},
        "parent": {"content": b"{}", "parent": big},
        "msg_id": {"content": b"{}", "parent": b"{}", "msg_id": big.decode()},
    }[part]
    with zmq.Context() as context, context.socket(zmq.SUB) as slow:
        slow.linger = 0
        slow.rcvhwm = 1
        slow.rcvbuf = 4096
        slow.subscribe = b""
        slow.connect(f"tcp://127.0.0.1:{info.ports['iopub_port']}")
        deadline = time.monotonic() + DEADLINE
        while not sockets.take_subscriptions():
            assert time.monotonic() < deadline
            sockets.iopub.poll(20)
        for _ in range(number):
            sockets.publish(b"t", "stream", **message)  # type: ignore[arg-type]

        waiting = sockets.backlog()

    assert size * number // 2 < waiting <= size * number * 1.1


def test_empty_messages_count_too(info: ConnectionInfo, sockets: Sockets) -> None:
    """A flood of them takes memory for their frames."""
    number = 60_000
    # What the system's buffer of a socket takes counts as delivered.
    of_system = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])
    with zmq.Context() as context, context.socket(zmq.SUB) as slow:
        slow.linger = 0
        slow.rcvhwm = 1
        slow.rcvbuf = 4096
        slow.subscribe = b""
        slow.connect(f"tcp://127.0.0.1:{info.ports['iopub_port']}")
        deadline = time.monotonic() + DEADLINE
        while not sockets.take_subscriptions():
            assert time.monotonic() < deadline
            sockets.iopub.poll(20)
        for _ in range(number):
            sockets.publish(b"t", "clear_output", b"{}", b"{}")

        waiting = sockets.backlog()

    assert waiting > number * 350 - of_system
    assert of_system < number * 350 / 2, "or the line above says nothing"
