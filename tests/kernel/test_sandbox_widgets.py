"""Widgets of a real interpreter, on their way through a relay and through its successors."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.kernel.conftest import RelayConnection
from tests.support.kernel_driver import Kernel, Request

WIDGETS = (
    "import ipywidgets as w\nfrom traitlets import Unicode\n"
    "class Mine(w.DOMWidget):\n"
    "    _model_name = Unicode('AnyModel').tag(sync=True)\n"
    "    _model_module = Unicode('anywidget').tag(sync=True)\n"
    "    _view_name = Unicode('AnyView').tag(sync=True)\n"
    "    _view_module = Unicode('anywidget').tag(sync=True)\n"
    "    _esm = Unicode('export default {}').tag(sync=True)\n"
    "html, mine, slider = w.HTML('<b>x</b>'), Mine(), w.IntSlider(value=3)\n"
)
ACTIVE = "<i>y</i><script>window.__ran = 1</script>"
REQUEST_ALL = {"method": "request_states"}


def comm_id(kernel: Kernel, name: str) -> str:
    return str(kernel.value(f"{name}.comm.comm_id"))


def states(request: Request) -> list[dict[str, Any]]:
    """Return the states that a page is given in answer to a message."""
    return [message["content"]["data"]["state"] for message in request.of_type("comm_msg")]


def ask(kernel: Kernel, comm: str, data: dict[str, Any]) -> Request:
    asked = kernel.request("comm_msg", {"comm_id": comm, "data": data})
    kernel.wait_until(lambda: asked.is_idle, 20, "the answer of a widget")
    return asked


def kill_and_start(kernel: Kernel) -> None:
    connection = kernel.connection
    assert isinstance(connection, RelayConnection)
    os.kill(connection.pid, signal.SIGKILL)
    connection.wait_until_ended()
    connection.start_again()
    kernel.become_ready()


def reload(kernel: Kernel, control: str) -> dict[str, Any]:
    """Return what a page is told that loads all widgets, as JupyterLab asks for them."""
    content = {"comm_id": control, "target_name": "jupyter.widget.control", "data": {}}
    message = kernel.request("comm_open", content, metadata={"version": "1.0.0"})
    kernel.wait_until(lambda: message.is_idle, 20, "the control of widgets")
    told: dict[str, Any] = ask(kernel, control, REQUEST_ALL).of_type("comm_msg")[0]["content"]
    return dict(told["data"]["states"])


def test_what_widgets_are_survives_the_relay(kernel: Kernel) -> None:
    """Killed twice, it lets no type change and no uncleaned value through, and sliders work."""
    kernel.cell(WIDGETS)
    ids = {name: comm_id(kernel, name) for name in ("html", "mine", "slider")}
    for round_ in range(2):
        kill_and_start(kernel)
        moved = ask(kernel, ids["slider"], {"method": "update", "state": {"value": 5 + round_}})
        assert states(moved) == [{"value": 5 + round_}]
        assert kernel.value("slider.value") == 5 + round_

        cell = kernel.cell(f"html.value = {ACTIVE!r}; html.value = 'between'")
        assert states(cell) == [{"value": "<i>y</i>"}, {"value": "between"}]
        cell = kernel.cell(
            f"html.comm.send({{'method': 'update', 'state': {{'_view_name': 'LabelView', 'value': {ACTIVE!r}}}}})"
        )
        assert states(cell) == []
        assert "left out: a HTMLModel that claims to be another" in cell.stream("stderr")
        shown = kernel.cell("display(mine)")
        assert list(shown.displays[0]) == ["text/plain"]
        assert "AnyModel of anywidget is withheld" in shown.displays[0]["text/plain"]

        told = reload(kernel, f"control{round_}")
        assert told[ids["mine"]]["model_name"] == "LabelModel"
        assert "_esm" not in told[ids["mine"]]["state"]
        assert told[ids["slider"]]["state"]["value"] == 5 + round_
        listed = kernel.ask("comm_info_request", target_name="jupyter.widget")["comms"]
        assert set(ids.values()) <= set(listed)
        again = ask(kernel, ids["mine"], {"method": "request_state"})
        assert states(again)[0]["_model_name"] == "LabelModel"


def test_two_pages_load_their_widgets(shared_kernel: Kernel) -> None:
    """Each by a control of its own, which it closes; the other one's goes on."""
    shared_kernel.cell(WIDGETS)
    first = reload(shared_kernel, "one")
    second = reload(shared_kernel, "two")
    shared_kernel.request("comm_close", {"comm_id": "one", "data": {}})
    third = ask(shared_kernel, "two", REQUEST_ALL).of_type("comm_msg")[0]["content"]["data"]

    assert first == second == third["states"]
    assert "html" not in shared_kernel.ask("comm_info_request")["comms"]


@pytest.mark.parametrize("target", ["matplotlib", "jupyter.widget.control", "mine"])
def test_other_comms_are_told_of_in_the_cell(shared_kernel: Kernel, target: str) -> None:
    code = f"from comm import create_comm; c = create_comm(target_name={target!r}); c.send({{}})"
    cell = shared_kernel.cell(code)

    assert not cell.of_type("comm_open")
    assert not cell.of_type("comm_msg")
    assert f"What {target} draws by messages of its own is withheld" in cell.stream("stderr")
    assert shared_kernel.cell(code).stream("stderr") == ""


def test_a_restarted_interpreter_knows_no_widgets(shared_kernel: Kernel) -> None:
    shared_kernel.cell(WIDGETS)
    listed = shared_kernel.ask("comm_info_request")["comms"]
    assert listed
    shared_kernel.cell("%sandbox restart")

    assert shared_kernel.ask("comm_info_request")["comms"] == {}
