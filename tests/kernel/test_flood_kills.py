"""A relay killed in the middle of a flood: nothing is lost, and repeats bear the ids they had."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq
from jupyter_client.session import Session

from sandbox_kernel.kernel.connection import ConnectionInfo
from sandbox_kernel.kernel.hints import Facts
from sandbox_kernel.kernel.journal import Inheritance, Journal
from sandbox_kernel.kernel.lifecycle import ParentWatch
from sandbox_kernel.kernel.link import Link
from sandbox_kernel.kernel.policy import Policy
from sandbox_kernel.kernel.relay import Relay, mark_of
from sandbox_kernel.kernel.sockets import Sockets
from sandbox_kernel.wire.kernel import Channel, encode_record
from sandbox_kernel.wire.operations import StartKernelRequest
from tests.kernel.conftest import RelayConnection
from tests.support.fake_runtime import FakeRuntime
from tests.support.kernel_driver import Kernel
from tests.support.relay_thread import KEY, StoppableSignals, free_ports

SEED = 31
ROUNDS = 8
FLOOD = """
import sys, time
begin, number = time.monotonic(), 0
while time.monotonic() - begin < 0.7:
    for _ in range({burst}):
        print(number)
        number += 1
    {rest}
print("lines", number)
"""
WAYS = ((50, "sys.stdout.flush()"), (2000, "pass"), (20, "time.sleep(0.001)"))


def test_kills_in_a_flood_lose_no_line_and_no_order(
    kernel: Kernel, connection: RelayConnection
) -> None:
    """Every line comes at least once; without what came under a known id, exactly once, in order."""
    chance = random.Random(SEED)  # noqa: S311  repeatable, not secret
    for number in range(ROUNDS):
        burst, rest = WAYS[number % len(WAYS)]
        cell = kernel.execute(FLOOD.format(burst=burst, rest=rest))
        cell.wait_for("stream")
        kernel.wait_until(has_passed(chance.uniform(0, 0.5)), 5, "the moment of the kill")
        os.kill(connection.pid, signal.SIGKILL)
        connection.wait_until_ended()
        connection.start_again()
        lines = cell.wait().text.splitlines()

        assert lines[:-1] == [str(line) for line in range(len(lines) - 1)], f"round {number}"
        assert lines[-1] == f"lines {len(lines) - 1}"


def has_passed(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the relay runs after it."""


def test_what_was_sent_and_not_acknowledged_comes_again_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the next relay reads it; and what is new is joined with none of it."""

    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(Link, "acknowledge", die)
    a, b, c = (
        encode_record(Channel.STREAM, [], [b"stdout", b"{}", each]) for each in b"a b c".split()
    )
    with contextlib.closing(FakeRuntime(tmp_path)) as runtime:
        first = heard_until_killed(tmp_path, runtime, [a + b], until="b")
        second = heard_until_killed(tmp_path, runtime, [a, b + c], until="c")

    assert [text for _, text in (*first, *second)] == ["ab", "ab", "c"]
    assert first == second[:1]


def heard_until_killed(
    folder: Path, runtime: FakeRuntime, output: list[bytes], *, until: str
) -> list[tuple[str, str]]:
    """Run a relay up to its first acknowledgement; return the ids and texts a client has heard."""
    info = ConnectionInfo(
        transport="tcp", ip="127.0.0.1", ports=free_ports(), key=KEY, digest="sha256"
    )
    signals = StoppableSignals()
    sockets = Sockets(info)
    sockets.use_session("s")
    link = Link(runtime.endpoint, StartKernelRequest(kernel_id="k"))
    link.open()
    accepting = runtime.in_background(runtime.accept)
    started = link.wait_until_started(timeout=10)
    heard: list[tuple[str, str]] = []
    with zmq.Context() as context, context.socket(zmq.SUB) as client:
        client.linger = 0
        client.subscribe(b"")
        client.connect(f"tcp://127.0.0.1:{info.ports['iopub_port']}")
        assert sockets.iopub.poll(10_000)
        sockets.take_subscriptions()
        journal = Journal(str(folder), "k")
        relay = Relay(
            sockets=sockets,
            link=link,
            info=started,
            inheritance=Inheritance(mark=mark_of(started), session="s", subscribers=0, requests={}),
            journal=journal,
            facts=Facts(),
            describe=list,
            policy=Policy(),
            signals=signals,
            parent=ParentWatch({}),
        )
        accepting.join(10)
        relay._hold_until = None
        offset = 0
        for data in output:
            runtime.data(offset, data)
            offset += len(data)
            # What has come is one turn of reading.
            while link._position < offset:
                relay._on_link()
        with pytest.raises(Killed):
            relay.run()
        while not heard or until not in heard[-1][1]:
            assert client.poll(10_000), heard
            _, message = Session(key=KEY).recv(client)
            assert message is not None
            heard.append((message["header"]["msg_id"], message["content"]["text"]))
    link.close()
    sockets.close()
    runtime.drop()
    signals.close()
    return heard
