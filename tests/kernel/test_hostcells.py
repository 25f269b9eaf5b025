"""Host cells and host comms as a mechanism: what belongs to the host, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.kernel.hostcells import Command, Commands, HostCell, UsageProblem, parse
from sandbox_kernel.kernel.hostcomms import HostComms


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("%sandbox", []),
        ("  %sandbox status\n\n", ["status"]),
        ("# note\n%sandbox help", None),
        ("%sandbox outputs  # the lost ones", ["outputs"]),
        ("%sandbox_terminal", None),
        ("%time f()", None),
        ("print('%sandbox')", None),
        ("%", None),
        ("", None),
    ],
)
def test_a_cell_is_the_hosts_by_its_first_word(code: str, words: list[str] | None) -> None:
    assert parse(code) == (None if words is None else HostCell("sandbox", words))


@pytest.mark.parametrize(
    "code", ["%sandbox status\nx = 1", "%%sandbox\nx = 1", "%sandbox 'unclosed"]
)
def test_a_cell_that_mixes_host_and_sandbox_is_not_run_by_halves(code: str) -> None:
    with pytest.raises(UsageProblem):
        parse(code)


def test_a_command_that_does_not_exist_names_those_that_do() -> None:
    commands = Commands("sandbox", {"status": Command(lambda *_: "")}, "status")

    assert commands.find(HostCell("sandbox", []))[1] == []
    with pytest.raises(UsageProblem, match="status"):
        commands.find(HostCell("sandbox", ["explode"]))


class Echo:
    """A widget that answers what it is sent."""

    target_name = "jupyter.widget"
    is_closed = False

    def open_data(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"state": {"value": 1}}, {"version": "2.1.0"}

    def message(self, data: dict[str, Any], buffers: Any) -> list[tuple[dict[str, Any], Any]]:
        return [({"echo": data}, list(buffers))]

    def closed(self) -> None:
        self.is_closed = True


def test_a_host_comm_is_opened_answered_and_closed_by_the_host() -> None:
    comms, echo = HostComms(), Echo()
    comm_id, opened = comms.open(echo)

    assert comm_id.startswith("host-")
    assert opened.content["data"] == {"state": {"value": 1}}
    assert list(comms) == [(comm_id, "jupyter.widget")]
    assert comms.mentioned_in(b'{"model_id":"%s"}' % comm_id.encode())
    (answer,) = comms.handle("comm_msg", {"comm_id": comm_id, "data": {"a": 1}}, [b"x"])
    assert answer.content == {"comm_id": comm_id, "data": {"echo": {"a": 1}}}
    assert comms.handle("comm_close", {"comm_id": comm_id}, []) == []
    assert echo.is_closed
    assert not comms
