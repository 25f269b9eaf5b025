"""Answers of a sandbox: what clients take for granted in them is so, and nothing else comes along."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.kernel.jsontext import MAX_DEPTH, Refused, read, write
from sandbox_kernel.kernel.policy import CONTROL_REQUESTS, SHELL_REQUESTS, Policy, reply_type
from sandbox_kernel.kernel.replies import REPLIES

INFO = {
    "status": "ok",
    "protocol_version": "5.3",
    "implementation": "ipython",
    "implementation_version": "9.0",
    "language_info": {
        "name": "python",
        "version": "3.11",
        "mimetype": "text/x-python",
        "codemirror_mode": {"name": "ipython", "version": 3},
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    },
    "banner": "Python 3.11",
    "help_links": [{"text": "Python", "url": "https://docs.python.org/"}],
    "supported_features": ["debugger", "kernel subshells"],
}


def reply(msg_type: str, **content: Any) -> dict[str, Any]:
    return Policy().reply(msg_type, content)


def test_every_request_has_a_validator_for_its_reply() -> None:
    """Whatever a client may ask and the relay does not answer itself."""
    own = {"interrupt_reply", "shutdown_reply"}

    asked = {reply_type(each) for each in SHELL_REQUESTS | CONTROL_REQUESTS} - {None}

    assert asked - own == set(REPLIES)


def test_the_description_of_an_ordinary_kernel_passes_unchanged() -> None:
    """IPython's own, field by field."""
    assert reply("kernel_info_reply", **INFO) == INFO


@pytest.mark.parametrize("version", ["4.1", "5", "6.0", "", None, 5.3, ["5.3"], "5.3\n", "x.y"])
def test_no_answer_makes_clients_speak_another_protocol(version: object) -> None:
    """Server and clients take the first number, and would change what they send or fail."""
    told = reply("kernel_info_reply", **{**INFO, "protocol_version": version})

    assert told["protocol_version"] == "5.3"


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "//x", "", None, 1]
)
def test_help_links_lead_to_the_web(url: object) -> None:
    """The page shows them in its menu."""
    links = [{"text": "t", "url": url}, {"text": "t", "url": "HTTP://x/"}, "x", {"text": 1}]

    told = reply("kernel_info_reply", **{**INFO, "help_links": links})

    assert told["help_links"] == [{"text": "t", "url": "HTTP://x/"}]


@pytest.mark.parametrize(
    "info",
    [
        {"nbconvert_exporter": "os.system"},
        {"nbconvert_exporter": "a/b"},
        {"nbconvert_exporter": ["python"]},
        {"file_extension": "/../../x.py"},
        {"file_extension": "py"},
        {"file_extension": 5},
        {"codemirror_mode": [1]},
        {"anything": "else"},
    ],
)
def test_a_language_names_nothing_that_converters_would_load(info: dict[str, Any]) -> None:
    """A notebook keeps these, and nbconvert imports the exporter on the host."""
    told = reply("kernel_info_reply", **{**INFO, "language_info": {"name": "x", **info}})

    assert told["language_info"] == {"name": "x"}


@pytest.mark.parametrize(
    "changes",
    [
        {"language_info": []},
        {"language_info": {"name": {}}},
        {"banner": 1},
        {"implementation": None},
        {"status": "fine"},
    ],
)
def test_a_description_of_the_wrong_shape_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        reply("kernel_info_reply", **{**INFO, **changes})


def test_endless_descriptions_are_cut() -> None:
    """Pages show them, and every client keeps them."""
    told = reply(
        "kernel_info_reply",
        **{
            **INFO,
            "banner": "b" * 10**6,
            "implementation": "i" * 10**6,
            "help_links": [{"text": "t" * 10**4, "url": "http://" + "u" * 10**4}] * 10**4,
            "supported_features": ["f" * 10**4] * 10**4,
            "language_info": {"name": "n" * 10**6, "codemirror_mode": {"k" * 10**6: "v" * 10**6}},
        },
    )

    assert len(write(told)) < 300_000


def test_no_ports_come_out_of_a_sandbox() -> None:
    """Clients would look for them on the host."""
    assert reply("connect_reply", shell_port=22, stdin_port=80) == {"status": "ok"}


def test_usage_is_numbers() -> None:
    """Finite ones; whatever else is said is null or left out."""
    told = Policy().reply(
        "usage_reply",
        read(
            b'{"pid": 7, "kernel_cpu": NaN, "kernel_memory": 1e999, "cpu_count": "2",'
            b' "hostname": "box", "evil": "<script>", "host_virtual_memory":'
            b' {"total": 10, "free": [1], "percent": 1.5, "used": true}}'
        ),
    )

    assert read(write(told)) == {
        "pid": 7,
        "kernel_cpu": None,
        "kernel_memory": None,
        "cpu_count": None,
        "hostname": "box",
        "host_virtual_memory": {"total": 10, "free": None, "percent": 1.5, "used": None},
    }
    with pytest.raises(Refused):
        reply("usage_reply", host_virtual_memory=[1])


def test_a_debuggers_answer() -> None:
    """Passes as a response of its protocol, whatever its body; only what is drawn is looked at."""
    response = {
        "type": "response",
        "seq": 3,
        "request_seq": 2,
        "success": True,
        "command": "variables",
        "body": {"variables": [{"name": "a", "value": "1"}]},
    }

    assert reply("debug_reply", **response) == response
    assert reply("debug_reply") == {}
    assert reply("debug_reply", **{**response, "type": "request", "more": 1}) == response
    for wrong in ({"seq": "3"}, {"request_seq": 1.5}, {"command": 1}, {"message": []}):
        with pytest.raises(Refused):
            reply("debug_reply", **{**response, **wrong})


def test_a_debugger_draws_text_and_images_only() -> None:
    """The page draws the view of a variable as it draws a trusted output."""
    told = reply(
        "debug_reply",
        command="richInspectVariables",
        success=True,
        body={
            "data": {
                "text/plain": "1",
                "text/html": "<img onerror=1>",
                "application/javascript": "1",
                "image/png": "iVBORw0KGgo=",
            },
            "metadata": {"text/html": {"isolated": True}},
        },
    )

    assert told["body"] == {
        "data": {"text/plain": "1", "image/png": "iVBORw0KGgo="},
        "metadata": {},
    }


def test_a_pager_and_an_inspector_show_plain_text() -> None:
    """Pages draw HTML there, too."""
    forms = {"text/plain": "help", "text/html": "<script>", "text/markdown": "<b>"}

    paged = reply("execute_reply", status="ok", payload=[{"source": "page", "data": forms}])
    inspected = reply("inspect_reply", status="ok", found=True, data=forms, metadata={"x": 1})

    assert paged["payload"][0]["data"] == {"text/plain": "help"}
    assert inspected == {
        "status": "ok",
        "found": True,
        "data": {"text/plain": "help"},
        "metadata": {},
    }


def test_completions_are_texts_and_places() -> None:
    """And what is told of their kinds is."""
    told = reply(
        "complete_reply",
        status="ok",
        matches=["a", 1, None, "b"],
        cursor_start=0,
        cursor_end=1,
        metadata={
            "_jupyter_types_experimental": [
                {"start": 0, "end": 1, "text": "a", "type": "function", "signature": "()", "x": 1},
                "nonsense",
            ],
            "other": {},
        },
    )

    assert told == {
        "status": "ok",
        "matches": ["a", "b"],
        "cursor_start": 0,
        "cursor_end": 1,
        "metadata": {
            "_jupyter_types_experimental": [
                {"text": "a", "type": "function", "signature": "()", "start": 0, "end": 1}
            ]
        },
    }
    with pytest.raises(Refused):
        reply("complete_reply", status="ok", matches=[], cursor_start="0", cursor_end=0)


def test_history_is_entries_of_the_known_forms() -> None:
    entries = [[1, 2, "x"], [1, 2, ["x", "out"]], [1, 2, ["x", None]]]
    wrong: list[Any] = [[1, 2], ["a", 2, "x"], [1, 2, 3], [1, 2, ["x"]], [True, 2, "x"], "x", None]

    assert reply("history_reply", status="ok", history=[*entries, *wrong])["history"] == entries
    assert reply("history_reply", status="ok", history=7)["history"] == []


def test_expressions_of_the_user_are_bundles_or_errors() -> None:
    told = reply(
        "execute_reply",
        status="ok",
        execution_count=1,
        payload=[],
        user_expressions={
            "a": {"status": "ok", "data": {"text/plain": "1"}, "metadata": {}, "x": 1},
            "b": {"status": "error", "ename": "E", "evalue": "e", "traceback": ["t", 1]},
            "c": "nonsense",
        },
        engine_info={},
    )

    assert told == {
        "status": "ok",
        "execution_count": 1,
        "payload": [],
        "user_expressions": {
            "a": {"status": "ok", "data": {"text/plain": "1"}, "metadata": {}},
            "b": {"status": "error", "ename": "E", "evalue": "e", "traceback": ["t"]},
        },
    }


@pytest.mark.parametrize("msg_type", ["debug_reply", "usage_reply", "kernel_info_reply"])
def test_deep_nesting_ends_before_the_validators(msg_type: str) -> None:
    """Nothing that a validator is given nests deeper than what every client can read."""
    deep = b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1)

    with pytest.raises(Refused):
        Policy().reply(msg_type, read(deep))
