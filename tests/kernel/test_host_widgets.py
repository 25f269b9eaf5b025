"""Widgets of the host in a sandbox's notebook: the relay answers them, the sandbox cannot."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.wire.kernel import Channel, encode_record
from tests.support.fake_runtime import FakeRuntime
from tests.support.relay_thread import Client, relay_on_a_thread
from tests.support.widget_state import identity


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


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    with contextlib.closing(FakeRuntime(tmp_path)) as runtime:
        yield runtime


@pytest.fixture
def client(tmp_path: Path, runtime: FakeRuntime, counter: Counter) -> Iterator[Client]:
    """A client of a relay in whose notebook ``%widget`` shows a counter."""
    with relay_on_a_thread(
        tmp_path, runtime, lambda relay, request: relay.open_comm(counter, request.header)
    ) as client:
        yield client


LABEL = {"state": identity("LabelModel")}


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
    child = {"state": {**identity("VBoxModel"), "children": [f"IPY_MODEL_{comm_id}"]}}
    said = (
        output("comm_msg", {"comm_id": comm_id, "data": evil})
        + output("comm_close", {"comm_id": comm_id, "data": {}})
        + output("display_data", {"data": view, "metadata": {}, "transient": {}})
        + output("comm_open", {"comm_id": "box", "target_name": "jupyter.widget", "data": child})
        + output("comm_open", {"comm_id": "mine", "target_name": "jupyter.widget", "data": LABEL})
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
        "comms": {"mine": {"target_name": "jupyter.widget"}, comm_id: {"target_name": "x"}},
    }
    header = {"msg_type": "comm_info_reply", "msg_id": "y"}
    parts = [json.dumps(each).encode() for each in (header, {"msg_id": asked}, {}, listed)]
    runtime.data(len(said), encode_record(Channel.SHELL, [], parts))
    assert client.reply("comm_info_reply", asked)["comms"] == {
        "mine": {"target_name": "jupyter.widget"},
        comm_id: {"target_name": "jupyter.widget"},
    }
    closing = client.send("comm_close", {"comm_id": comm_id, "data": {}})
    client.hear("status", closing)
    client.hear("status", closing)
    assert counter.is_closed
