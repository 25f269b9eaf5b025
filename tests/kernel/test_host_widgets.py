"""Widgets of the host in a sandbox's notebook: the relay answers them, the sandbox cannot."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session

from sandbox_kernel.kernel.connection import ConnectionInfo
from sandbox_kernel.kernel.hints import Facts
from sandbox_kernel.kernel.hostcells import Command, Commands
from sandbox_kernel.kernel.journal import Journal
from sandbox_kernel.kernel.lifecycle import ParentWatch, Signals
from sandbox_kernel.kernel.link import Link
from sandbox_kernel.kernel.policy import Policy
from sandbox_kernel.kernel.relay import Relay
from sandbox_kernel.kernel.requests import Request
from sandbox_kernel.kernel.sockets import Sockets
from sandbox_kernel.wire.kernel import Channel, encode_record
from sandbox_kernel.wire.operations import StartKernelRequest
from tests.support.fake_runtime import FakeRuntime

KEY = b"key"


class Counter:
    """Counts clicks."""

    target_name = "jupyter.widget"

    def __init__(self) -> None:
        self.clicks = 0
        self.is_closed = False

    def open_data(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"state": {"clicks": 0}, "buffer_paths": []}, {"version": "2.1.0"}

    def message(
        self, data: dict[str, Any], buffers: Sequence[Any]
    ) -> list[tuple[dict[str, Any], Sequence[bytes]]]:
        self.clicks += data.get("method") == "custom"
        return [({"method": "update", "state": {"clicks": self.clicks}}, [])]

    def closed(self) -> None:
        self.is_closed = True


class StoppableSignals(Signals):
    """Signals of a relay on a thread, where Python delivers none."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def stop(self) -> None:
        os.write(self._write, bytes([signal.SIGTERM]))


class Client:
    """Sends on shell and hears shell and iopub."""

    def __init__(self, context: zmq.Context[Any], info: ConnectionInfo) -> None:
        self.session = Session(key=KEY)
        self.shell = context.socket(zmq.DEALER)
        self.iopub = context.socket(zmq.SUB)
        self.iopub.subscribe = b""
        for name, each in (("shell_port", self.shell), ("iopub_port", self.iopub)):
            each.linger = 0
            each.connect(f"tcp://127.0.0.1:{info.ports[name]}")
        self.hear("iopub_welcome", None)

    def send(self, msg_type: str, content: dict[str, Any]) -> str:
        message = self.session.msg(msg_type, content)
        self.session.send(self.shell, message)
        return str(message["header"]["msg_id"])

    def hear(self, msg_type: str, parent: str | None) -> dict[str, Any]:
        """Wait for a broadcast of this type and parent; return its content."""
        return self._wait(self.iopub, msg_type, parent)

    def reply(self, msg_type: str, parent: str) -> dict[str, Any]:
        return self._wait(self.shell, msg_type, parent)

    def _wait(self, source: Any, msg_type: str, parent: str | None) -> dict[str, Any]:
        deadline = time.monotonic() + 10
        while source.poll(max(0, (deadline - time.monotonic()) * 1000)):
            _, message = self.session.recv(source)
            assert message is not None
            if message["msg_type"] == msg_type and (
                parent is None or message["parent_header"].get("msg_id") == parent
            ):
                content: dict[str, Any] = message["content"]
                return content
        raise AssertionError(f"no {msg_type}")


def free_ports() -> dict[str, int]:
    names = ("shell_port", "control_port", "stdin_port", "iopub_port", "hb_port")
    with contextlib.ExitStack() as stack:
        bound = {name: stack.enter_context(socket.socket()) for name in names}
        for each in bound.values():
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in bound.items()}


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    with contextlib.closing(FakeRuntime(tmp_path)) as runtime:
        yield runtime


@pytest.fixture
def client(tmp_path: Path, runtime: FakeRuntime, counter: Counter) -> Iterator[Client]:
    """A client of a relay on a thread, in whose notebook ``%widget`` shows a counter."""
    info = ConnectionInfo(
        transport="tcp", ip="127.0.0.1", ports=free_ports(), key=KEY, digest="sha256"
    )
    signals = StoppableSignals()

    def serve() -> None:
        sockets = Sockets(info)
        link = Link(runtime.endpoint, StartKernelRequest(kernel_id="k"))
        link.open()

        def show(request: Request, _words: list[str]) -> str:
            return relay.open_comm(counter, request.header)

        relay = Relay(
            sockets=sockets,
            link=link,
            info=link.wait_until_started(timeout=10),
            inheritance=None,
            journal=Journal(str(tmp_path), "k"),
            facts=Facts(),
            describe=list,
            policy=Policy(),
            signals=signals,
            parent=ParentWatch({}),
            magics={"widget": Commands("widget", {"show": Command(show)}, "show")},
        )
        relay.run()
        link.close()
        sockets.close()
        relay._journal.remove()

    thread = threading.Thread(target=serve)
    thread.start()
    runtime.accept()
    with zmq.Context() as context:
        client = Client(context, info)
        yield client
        client.shell.close()
        client.iopub.close()
        signals.stop()
        thread.join(10)
        assert not thread.is_alive()
    for descriptor in (signals._read, signals._write):
        os.close(descriptor)


def output(msg_type: str, content: dict[str, Any], parent: str = "") -> bytes:
    parts = [{"msg_type": msg_type, "msg_id": "x"}, {"msg_id": parent} if parent else {}, {}]
    return encode_record(
        Channel.IOPUB, [], [json.dumps(each).encode() for each in (*parts, content)]
    )


def test_a_host_widget_is_answered_by_the_host_and_unreachable_from_inside(
    client: Client, runtime: FakeRuntime, counter: Counter
) -> None:
    cell = client.send("execute_request", {"code": "%widget"})
    opened = client.hear("comm_open", cell)
    comm_id = opened["comm_id"]
    assert client.reply("execute_reply", cell)["status"] == "ok"

    # A click is answered while the sandbox has not said a word.
    click = client.send("comm_msg", {"comm_id": comm_id, "data": {"method": "custom"}})
    assert client.hear("comm_msg", click)["data"]["state"] == {"clicks": 1}
    assert client.hear("status", click)["execution_state"] == "idle"

    # The sandbox knows the id and tries to use it, then says something harmless.
    evil = {"method": "update", "state": {"_esm": "evil()"}}
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": comm_id}}
    child = {"state": {"children": [f"IPY_MODEL_{comm_id}"]}}
    said = (
        output("comm_msg", {"comm_id": comm_id, "data": evil})
        + output("comm_close", {"comm_id": comm_id, "data": {}})
        + output("display_data", {"data": view, "metadata": {}, "transient": {}})
        + output("comm_open", {"comm_id": "mine", "target_name": "t", "data": child})
        + output("clear_output", {"wait": True})
    )
    runtime.data(0, said)
    client.hear("clear_output", None)
    status = client.send("execute_request", {"code": "%sandbox status"})
    assert "4 messages" in client.hear("stream", status)["text"]
    assert not counter.is_closed

    # Both sides' comms are listed, and only this client can close the host's.
    asked = client.send("comm_info_request", {})
    while not (taken := runtime.take()):
        pass
    assert json.loads(taken[0][1][0])["msg_id"] == asked
    listed = {
        "status": "ok",
        "comms": {"mine": {"target_name": "t"}, comm_id: {"target_name": "x"}},
    }
    header = {"msg_type": "comm_info_reply", "msg_id": "y"}
    parts = [json.dumps(each).encode() for each in (header, {"msg_id": asked}, {}, listed)]
    runtime.data(len(said), encode_record(Channel.SHELL, [], parts))
    assert client.reply("comm_info_reply", asked)["comms"] == {
        "mine": {"target_name": "t"},
        comm_id: {"target_name": "jupyter.widget"},
    }
    closing = client.send("comm_close", {"comm_id": comm_id, "data": {}})
    client.hear("status", closing)
    client.hear("status", closing)
    assert counter.is_closed
