"""What a sandbox may say: known types, known fields, nothing that acts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.kernel.jsontext import Refused, write
from sandbox_kernel.kernel.policy import Policy, reply_type
from sandbox_kernel.wall.modes import Mode, Wall

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=20,
)
TYPES = st.sampled_from(
    [
        "clear_output",
        "comm_close",
        "comm_msg",
        "comm_open",
        "debug_event",
        "display_data",
        "error",
        "execute_input",
        "execute_result",
        "status",
        "stream",
        "update_display_data",
        "iopub_welcome",
        "shutdown_reply",
        "comm_info_reply",
        "complete_reply",
        "connect_reply",
        "debug_reply",
        "execute_reply",
        "history_reply",
        "inspect_reply",
        "is_complete_reply",
        "kernel_info_reply",
        "create_subshell_reply",
        "delete_subshell_reply",
        "list_subshell_reply",
        "usage_reply",
        "anything",
    ]
)
FIELDS = st.sampled_from(
    [
        "name",
        "text",
        "data",
        "metadata",
        "transient",
        "ename",
        "evalue",
        "traceback",
        "execution_state",
        "comm_id",
        "target_name",
        "target_module",
        "wait",
        "status",
        "payload",
        "comms",
        "prompt",
        "password",
        "event",
        "body",
        "code",
        "execution_count",
        "matches",
        "cursor_start",
        "found",
        "history",
        "protocol_version",
        "language_info",
        "help_links",
        "supported_features",
        "user_expressions",
        "host_virtual_memory",
        "pid",
        "command",
        "subshell_id",
    ]
)
CONTENT = (
    JSON
    | st.dictionaries(FIELDS, JSON)
    | st.dictionaries(FIELDS, JSON).map(lambda content: {**content, "status": "ok"})
)


@given(TYPES, CONTENT)
def test_any_content_is_passed_or_refused(msg_type: str, content: Any) -> None:
    """No content makes the policy fail, and what passes can be encoded."""
    policy = Policy()
    for judge in (
        lambda: policy.publish(msg_type, content),
        lambda: policy.reply(msg_type, content),
        lambda: policy.ask(content),
    ):
        try:
            write(judge())
        except Refused:
            continue


@pytest.mark.parametrize("state", ["restarting", "autorestarting", "dead", "terminating", None, 3])
def test_only_harmless_statuses_pass(state: object) -> None:
    """A page drops all its futures and comms when it hears that a kernel restarts."""
    with pytest.raises(Refused):
        Policy().publish("status", {"execution_state": state})


@pytest.mark.parametrize("msg_type", ["iopub_welcome", "shutdown_reply", "evil", "input_request"])
def test_types_without_a_validator_do_not_pass(msg_type: str) -> None:
    with pytest.raises(Refused):
        Policy().publish(msg_type, {"status": "ok"})


def test_a_comm_cannot_make_the_page_load_a_module() -> None:
    opened = Policy().publish(
        "comm_open",
        {"comm_id": "c", "target_name": "t", "target_module": "http://x/y.js", "data": {}},
    )

    assert opened == {"comm_id": "c", "target_name": "t", "data": {}}


@pytest.mark.parametrize("msg_type", ["comm_open", "comm_msg", "comm_close"])
def test_the_hosts_comms_cannot_be_named(msg_type: str) -> None:
    with pytest.raises(Refused):
        Policy().publish(msg_type, {"comm_id": "host-1", "target_name": "t", "data": {}})


def test_a_reply_cannot_plant_code_for_the_next_cell() -> None:
    """Of the payloads only the pager and the wish to exit pass; planting is a setting."""
    payload = [
        {"source": "set_next_input", "text": "!rm -rf ~", "replace": True},
        {"source": "edit_magic", "filename": "/etc/passwd", "line_number": 1},
        {"source": "page", "data": {"text/plain": "help"}, "start": 0},
        {"source": "ask_exit", "keepkernel": False},
        "nonsense",
    ]
    reply = {"status": "ok", "payload": payload}

    assert [p["source"] for p in Policy().reply("execute_reply", reply)["payload"]] == [
        "page",
        "ask_exit",
    ]
    planted = Policy(plant_cells=True).reply("execute_reply", reply)["payload"]
    assert planted[0] == {"source": "set_next_input", "text": "!rm -rf ~", "replace": True}


def test_a_password_prompt_says_who_asks() -> None:
    """Nobody shall take a prompt of the sandbox for one of the host."""
    assert Policy().ask({"prompt": "name? "}) == {"prompt": "name? ", "password": False}
    assert "sandbox" in Policy().ask({"prompt": "sudo: ", "password": True})["prompt"]


def test_an_output_keeps_what_an_output_has() -> None:
    """Data, metadata and display id pass unchanged; fields of no output do not."""
    content = {
        "data": {"text/plain": "1", "image/png": "iVBORw0KGgo="},
        "metadata": {"image/png": {"width": 3}},
        "transient": {"display_id": "d", "other": 1},
        "extra": 1,
    }

    assert Policy().publish("display_data", content) == {
        "data": content["data"],
        "metadata": content["metadata"],
        "transient": {"display_id": "d"},
    }
    result = {"data": {}, "metadata": {}, "execution_count": 3}
    assert Policy().publish("execute_result", result) == result


def test_the_comms_of_the_host_are_not_listed_by_the_sandbox() -> None:
    listed = Policy().reply(
        "comm_info_reply",
        {"status": "ok", "comms": {"a": {"target_name": "t"}, "host-b": {"target_name": "t"}}},
    )

    assert listed == {"status": "ok", "comms": {"a": {"target_name": "t"}}}


def test_requests_and_their_replies_are_named_alike() -> None:
    assert reply_type("execute_request") == "execute_reply"
    assert reply_type("comm_msg") is None


@pytest.mark.parametrize(
    ("value", "shown"), [(5, "5"), (None, "null"), ({"a": [1]}, '{"a":[1]}'), (["a", 1], '["a",1]')]
)
@pytest.mark.parametrize("msg_type", ["display_data", "execute_result", "update_display_data"])
def test_a_form_that_is_text_holds_text(msg_type: str, value: object, shown: str) -> None:
    """A notebook with anything else there is not valid; forms that are JSON hold what they like."""
    forms = {"application/json": value, "application/vnd.x+json": value, "text/html": ["a", "b"]}
    shape = {"data": {"text/plain": value, **forms}}
    judged = Policy().publish(msg_type, shape)
    trusted = Policy(Wall(mode=Mode.TRUSTED)).publish(msg_type, shape)

    assert trusted["data"] == {"text/plain": shown, **forms}
    assert judged["data"] == {
        "text/plain": shown,
        "application/json": value,
        "text/html": "ab",
    }


@pytest.mark.parametrize("msg_type", ["execute_result", "execute_input"])
def test_nothing_is_counted_below_zero(msg_type: str) -> None:
    with pytest.raises(Refused):
        Policy().publish(msg_type, {"code": "", "data": {}, "execution_count": -5})
    for status in ("ok", "error", "aborted"):
        with pytest.raises(Refused):
            Policy().reply("execute_reply", {"status": status, "execution_count": -7})


def test_a_trusted_kernel_says_so() -> None:
    """Where a console shows it; a sandbox cannot say it of itself, nor take it back."""
    told = {"status": "ok", "banner": "Python"}

    assert "trusted" in Policy(Wall(mode=Mode.TRUSTED)).reply("kernel_info_reply", told)["banner"]
    assert Policy().reply("kernel_info_reply", told)["banner"] == "Python"
    assert Policy(Wall(mode=Mode.TRUSTED)).reply(
        "kernel_info_reply", {"status": "error", "ename": "E"}
    )
