"""The request table: answers go where they were asked for, or nowhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandbox_kernel.kernel.jsontext import Refused
from sandbox_kernel.kernel.requests import Question, Request, RequestTable
from sandbox_kernel.wire.kernel import Channel


def make(msg_id: str = "m", msg_type: str = "execute_request", **options: Any) -> Request:
    header = json.dumps({"msg_id": msg_id, "msg_type": msg_type, "session": "s"}).encode()
    return Request(msg_id, header, Channel.SHELL, [b"client"], msg_type, **options)


@pytest.fixture
def table() -> RequestTable:
    return RequestTable()


def test_a_forged_reply_does_not_use_up_the_request(table: RequestTable) -> None:
    """After a reply of the wrong type the true one still passes."""
    request = make()
    table.add(request)

    with pytest.raises(Refused):
        table.mark_reply(request, "complete_reply")
    assert table.mark_reply(request, "execute_reply") is request
    with pytest.raises(Refused):
        table.mark_reply(request, "execute_reply")


def test_a_reply_nobody_asked_for_is_refused(table: RequestTable) -> None:
    with pytest.raises(Refused):
        table.mark_reply(None, "kernel_info_reply")
    with pytest.raises(Refused):
        table.mark_reply(make(), "execute_reply")


def test_an_early_idle_waits_for_the_reply(table: RequestTable) -> None:
    """Clients take idle and reply together as the end, so an idle never comes first."""
    request = make()
    table.add(request)
    table.mark_busy(request)

    assert not table.mark_idle(request)
    assert not table.is_main_shell_free()
    table.mark_reply(request, "execute_reply")
    assert table.idle_is_due(request)
    assert table.is_main_shell_free()
    with pytest.raises(Refused):
        table.mark_idle(request)


def test_each_status_passes_once(table: RequestTable) -> None:
    request = make()
    table.add(request)
    table.mark_busy(request)

    with pytest.raises(Refused):
        table.mark_busy(request)


def test_a_message_without_a_reply_ends_with_its_idle(table: RequestTable) -> None:
    request = make(msg_type="comm_msg")
    table.add(request)
    table.mark_busy(request)

    assert table.mark_idle(request)
    assert not table.open


def test_only_a_running_cell_that_may_ask_asks(table: RequestTable) -> None:
    """One question at a time, of a cell whose client takes questions, until the cell has ended."""
    question = Question("q", b"{}")
    silent, asker = make("a"), make("b", allow_stdin=True)
    table.add(silent)
    table.add(asker)

    for request in (None, silent, make("x", "complete_request")):
        with pytest.raises(Refused):
            table.mark_asking(request, question)
    assert table.mark_asking(asker, question) is asker
    with pytest.raises(Refused):
        table.mark_asking(asker, question)
    table.mark_reply(asker, "execute_reply")
    with pytest.raises(Refused):
        table.mark_asking(asker, question)
    with pytest.raises(Refused):
        table.take_answer([b"client"], "", None)


def test_only_the_asked_client_answers_and_only_this_question(table: RequestTable) -> None:
    request = make(allow_stdin=True, session="s")
    table.add(request)
    table.mark_asking(request, Question("q2", b"{}"))

    with pytest.raises(Refused):
        table.take_answer([b"other"], "t", None)
    with pytest.raises(Refused):
        table.take_answer([b"client"], "s", "q1")
    assert table.take_answer([b"stdin"], "s", "q2") == Question("q2", b"{}")
    with pytest.raises(Refused):
        table.take_answer([b"client"], "s", None)


def test_an_execute_input_shows_once_and_only_while_its_cell_runs(table: RequestTable) -> None:
    request = make(code="1")
    table.add(request)

    assert table.mark_input_shown(request).code == "1"
    for forged in (request, None, make("other")):
        with pytest.raises(Refused):
            table.mark_input_shown(forged)


def test_the_header_of_an_ended_cell_stays_known_through_many_other_messages(
    table: RequestTable,
) -> None:
    """A thread of a cell goes on printing while sliders send thousands of messages."""
    cell = make("cell")
    table.add(cell)
    table.close(cell)
    for number in range(3000):
        message = make(f"c{number}", "comm_msg")
        table.add(message)
        table.close(message)

    assert table.find("cell") is cell
    assert table.find("c0") is None
    assert table.find(7) is None


def test_a_successor_goes_on_with_the_same_table(table: RequestTable) -> None:
    """What a dump holds comes back: open requests as they were, ended cells as headers."""
    ended, running = make("ended"), make("running", allow_stdin=True, code="x")
    for request in (ended, running):
        table.add(request)
        table.mark_busy(request)
    table.close(ended)
    table.settle()
    copy = RequestTable()
    copy.load(json.loads(json.dumps(table.dump())))

    assert list(copy.open) == ["running"]
    restored = copy.open["running"]
    assert (restored.busy, restored.replied, restored.code) == (True, False, "x")
    assert restored.identities == [b"client"]
    assert restored.header == running.header
    found = copy.find("ended")
    assert found is not None
    assert found.header == ended.header


def test_answers_that_may_not_have_arrived_can_pass_again(table: RequestTable) -> None:
    """A successor may be given them again; so to it their request is as before them."""
    cell = make("cell", code="x")
    table.add(cell)
    table.mark_busy(cell)
    table.settle()
    table.mark_reply(cell, "execute_reply")
    assert table.mark_idle(cell)
    copy = RequestTable()
    copy.load(json.loads(json.dumps(table.dump())))

    assert not table.open
    again = copy.open["cell"]
    assert (again.busy, again.replied, again.code) == (True, False, "x")
    copy.mark_reply(again, "execute_reply")
    assert copy.mark_idle(again)
    table.settle()
    assert table.dump()["open"] == []
    assert len(table.dump()["answered"]) == 1


@pytest.mark.parametrize(
    "broken", [None, [], {"open": [{}, {"header": "x"}, 3]}, {"answered": [1]}]
)
def test_a_broken_dump_is_left_out(table: RequestTable, broken: object) -> None:
    table.load(broken)

    assert not table.open
