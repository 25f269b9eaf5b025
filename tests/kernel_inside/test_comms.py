"""Comms, widgets, subshells and the debugger of the interpreter inside."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.kernel_driver import Kernel, Request


def comm_message(
    kernel: Kernel, comm_id: str, data: Any, *buffers: bytes, subshell: str | None = None
) -> Request:
    """Send a message to a comm; wait for the end of its handling."""
    content = {"comm_id": comm_id, "data": data}
    request = kernel.request("comm_msg", content, buffers=buffers, subshell=subshell)
    kernel.wait_until(lambda: request.is_idle, 30.0, "the end of a comm message")
    return request


ECHO = (
    "from comm import create_comm\n"
    "c = create_comm(target_name='t', data={'a': 1})\n"
    "@c.on_msg\n"
    "def _(m): print('got'); c.send(m['content']['data'], buffers=m['buffers'])\n"
    "c.comm_id"
)


def test_buffers_both_ways(kernel: Kernel) -> None:
    """A comm carries binary buffers of any size, unchanged; output of a handler is its own."""
    opened = kernel.cell(ECHO)
    assert opened.of_type("comm_open")[0]["content"]["data"] == {"a": 1}
    comm_id = str(opened.result).strip("'")
    buffers = [b"\x00\x01" * 1000, b"", os.urandom(10 << 20)]
    request = comm_message(kernel, comm_id, {"x": 1}, *buffers)
    assert request.of_type("comm_msg")[0]["buffers"] == buffers
    assert request.kinds == ["busy", "stdout", "comm_msg", "idle"]
    comms = kernel.ask("comm_info_request", target_name="t")["comms"]
    assert comms == {comm_id: {"target_name": "t"}}


def test_buffers_are_let_go_with_their_message(kernel: Kernel) -> None:
    """What a message brought is the handler's: nothing of the kernel's holds it until later."""
    opened = kernel.cell(
        "import weakref\n"
        "from comm import create_comm\n"
        "c = create_comm(target_name='t')\n"
        "seen = []\n"
        "@c.on_msg\n"
        "def _(m): seen.append((len(m['buffers'][0]), weakref.ref(m['buffers'][0])))\n"
        "c.comm_id"
    )
    comm_message(kernel, str(opened.result).strip("'"), {}, os.urandom(2 << 20))

    assert kernel.cell("seen[0][0], seen[0][1]() is None").result == f"({2 << 20}, True)"


def test_buffers_of_arrays(kernel: Kernel) -> None:
    """Arrays of any layout are sent as their bytes."""
    comm_id = str(kernel.cell(ECHO).result).strip("'")
    request = kernel.cell(
        "import numpy as np\n"
        "a = np.arange(60_000, dtype='i4').reshape(200, 300)\n"
        "c.send({}, buffers=[a, np.asfortranarray(a[:2, :2]), memoryview(b'x')])"
    )
    first, second, third = request.of_type("comm_msg")[0]["buffers"]
    assert len(first) == 240_000
    assert len(second) == 16
    assert third == b"x"
    assert comm_id


def test_widgets(kernel: Kernel) -> None:
    """A widget's state is set from the page, and its change is announced."""
    shown = kernel.cell(
        "import ipywidgets as w\ns = w.IntSlider(value=3)\ndisplay(s)\ns.model_id", 60.0
    )
    assert len(shown.of_type("comm_open")) == 3
    assert "application/vnd.jupyter.widget-view+json" in shown.displays[0]
    comm_id = str(shown.result).strip("'")
    update = {"method": "update", "state": {"value": 7}, "buffer_paths": []}
    request = comm_message(kernel, comm_id, update)
    assert "comm_msg" in request.kinds
    assert kernel.cell("s.value").result == "7"


def test_output_widget(kernel: Kernel) -> None:
    """The Output widget claims the messages of its block by the cell's own id."""
    request = kernel.cell(
        "import ipywidgets as w\no = w.Output()\nwith o:\n    print('inside')\nprint('outside')",
        60.0,
    )
    states = [
        m["content"]["data"]["state"].get("msg_id")
        for m in request.of_type("comm_msg")
        if "msg_id" in m["content"]["data"].get("state", {})
    ]
    assert states == [request.msg_id, ""]
    kinds = [m["header"]["msg_type"] for m in request.iopub]
    assert kinds.index("comm_msg") < kinds.index("stream")


@pytest.fixture
def subshell(kernel: Kernel) -> Any:
    created = kernel.ask_control("create_subshell_request")
    yield created["subshell_id"]
    kernel.ask_control("delete_subshell_request", subshell_id=created["subshell_id"])


def test_subshells_run_beside_a_cell(kernel: Kernel, subshell: str) -> None:
    """A subshell executes, completes and inspects while the main shell is busy, under its own parents."""
    kernel.cell("import os, threading, time; go = threading.Event()")
    running = kernel.execute("go.wait(10); print('main')")
    running.wait_for("execute_input")
    inside = kernel.execute("print('sub'); 6 * 7", subshell=subshell).wait(5.0)
    assert (inside.result, inside.text) == ("42", "sub\n")
    request = kernel.request(
        "complete_request", {"code": "os.path.jo", "cursor_pos": 10}, subshell=subshell
    )
    assert request.wait(20.0).content["matches"] == ["join"]
    request = kernel.request(
        "inspect_request", {"code": "print", "cursor_pos": 3, "detail_level": 0}, subshell=subshell
    )
    assert "Prints the values" in request.wait(20.0).content["data"]["text/plain"]
    assert not running.is_idle
    assert kernel.ask_control("list_subshell_request")["subshell_id"] == [subshell]
    kernel.execute("go.set()", subshell=subshell).wait()
    assert running.wait().text == "main\n"
    listed = kernel.execute("%subshell", subshell=subshell).wait().text
    assert f"subshell id: {subshell}" in listed


def test_an_unknown_subshell(kernel: Kernel) -> None:
    """A request to a subshell that is not there is answered with an error."""
    request = kernel.execute("1", subshell="nobody").wait(5.0)
    assert request.content["ename"] == "UnknownSubshellError"
    gone = kernel.ask_control("delete_subshell_request", subshell_id="nobody")
    assert gone["status"] == "error"


def test_a_busy_subshell_can_be_deleted(kernel: Kernel) -> None:
    """Deleting does not wait for the subshell's cell, and nothing else does."""
    created = kernel.ask_control("create_subshell_request")["subshell_id"]
    kernel.cell("import threading; stop = threading.Event()")
    kernel.execute("stop.wait(20)", subshell=created).wait_for("execute_input")
    kernel.ask_control("delete_subshell_request", 3.0, subshell_id=created)
    assert kernel.cell("1", 3.0).result == "1"
    assert kernel.ask_control("list_subshell_request")["subshell_id"] == []
    kernel.cell("stop.set()")


def test_debugger(kernel: Kernel) -> None:
    """A breakpoint is hit, looked at and left, while control stays answered."""
    numbers = iter(range(1, 100))

    def ask(command: str, **arguments: Any) -> dict[str, Any]:
        return kernel.ask_control(
            "debug_request",
            60.0,
            type="request",
            seq=next(numbers),
            command=command,
            arguments=arguments,
        )

    assert ask("debugInfo")["success"]
    assert ask(
        "initialize",
        clientID="t",
        clientName="t",
        adapterID="",
        pathFormat="path",
        linesStartAt1=True,
        columnsStartAt1=True,
        supportsVariableType=True,
        supportsVariablePaging=True,
        supportsRunInTerminalRequest=True,
        locale="en",
    )["success"]
    assert ask("attach")["success"]
    code = "def f(a):\n    b = a + 1\n    return b\nf(2)"
    path = ask("dumpCell", code=code)["body"]["sourcePath"]
    source = {"path": path}
    assert ask("setBreakpoints", breakpoints=[{"line": 2}], source=source, sourceModified=False)[
        "success"
    ]
    assert ask("configurationDone")["success"]
    request = kernel.execute(code)

    def stopped() -> list[dict[str, Any]]:
        return [
            m["content"]
            for m in kernel.log
            if m["header"]["msg_type"] == "debug_event" and m["content"]["event"] == "stopped"
        ]

    kernel.wait_until(lambda: bool(stopped()), 30.0, "the breakpoint")
    thread = stopped()[0]["body"]["threadId"]
    assert ask("stackTrace", threadId=thread)["body"]["stackFrames"][0]["name"] == "f"
    assert kernel.ask_control("kernel_info_request")["status"] == "ok"
    assert ask("continue", threadId=thread)["success"]
    assert request.wait().result == "3"
    assert ask("disconnect", restart=False, terminateDebuggee=False)["success"]
    assert kernel.cell("4").result == "4"


def test_widget_message_while_a_cell_awaits(kernel: Kernel) -> None:
    """An awaiting cell lets comm messages through."""
    kernel.cell(
        "import asyncio; arrived = asyncio.Event()\n"
        + ECHO.replace("print('got'); ", "arrived.set(); ")
    )
    comm_id = str(kernel.cell("c.comm_id").result).strip("'")
    waiting = kernel.execute("await asyncio.wait_for(arrived.wait(), 10); 'seen'")
    waiting.wait_for("execute_input")
    kernel.request("comm_msg", {"comm_id": comm_id, "data": {}})
    assert waiting.wait().result == "'seen'"
