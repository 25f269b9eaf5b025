"""The REST routes of terminals, in a real server."""

from __future__ import annotations

import http.client
import json

import pytest

from tests.jupyter_ext.test_terminal_ws import cookie
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

_PATH = "/sandbox/api/sandboxes/demo/terminals"


@pytest.fixture(scope="module")
def server(tmp_path_factory, warm_cache):
    home = JupyterHome(tmp_path_factory.mktemp("h"), warm_cache).create()
    try:
        with JupyterServer(home) as made:
            yield made
    finally:
        home.destroy_named_sandboxes()


def test_a_terminal_from_its_start_to_its_end(server):
    """Looking starts nothing; created, listed, shown, resized, interrupted, ended."""
    assert server.call("GET", _PATH) == (200, {"terminals": [], "next": None})
    body = {"argv": ["cat"], "cwd": "/tmp", "env": {"A": "b"}, "cols": 90, "rows": 20}
    status, made = server.call("POST", _PATH, body)
    assert status == 201
    path = f"{_PATH}/{made['terminal_id']}"
    assert (made["argv"], made["cwd"], made["status"]) == (["cat"], "/tmp", "running")
    assert (made["cols"], made["rows"]) == (90, 20)
    assert [each["terminal_id"] for each in server.get(_PATH)["terminals"]] == [made["terminal_id"]]

    assert server.call("POST", f"{path}/resize", {"cols": 70, "rows": 10}) == (204, None)
    shown = server.get(path)
    assert (shown["info"]["cols"], shown["info"]["rows"], len(shown["lines"])) == (70, 10, 10)
    assert server.call("POST", f"{path}/interrupt")[0] == 204
    status, ended = server.call("DELETE", path)
    assert status == 200
    assert (ended["exit_code"], ended["signal"]) == (130, 2)
    assert server.call("DELETE", path)[0] == 200
    status, refused = server.call("POST", f"{path}/resize", {"cols": 70, "rows": 10})
    assert (status, refused["code"]) == (409, "TERMINAL_CONTROL_ERROR")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"cols": "80"}, "VALIDATION_FAILED"),
        ({"cols": 0}, "VALIDATION_FAILED"),
        ({"cols": True}, "VALIDATION_FAILED"),
        ({"cols": 1000, "rows": 501}, "VALIDATION_FAILED"),
        ({"bufferSize": 1000}, "VALIDATION_FAILED"),
        ({"argv": "bash"}, "VALIDATION_FAILED"),
        ({"argv": []}, "INVALID_COMMAND"),
        ({"cwd": "/no/such"}, "INVALID_TERMINAL_CWD"),
        ({"env": {"A": 1}}, "VALIDATION_FAILED"),
        ({"nope": 1}, "VALIDATION_FAILED"),
        ([], "VALIDATION_FAILED"),
    ],
)
def test_what_cannot_be_created_is_said_in_json(server, body, code):
    """Code, message, context, status and time; and nothing is made."""
    before = server.get(_PATH)
    status, error = server.call("POST", _PATH, body)

    assert (status, error["http_status"], error["code"]) == (400, 400, code)
    assert error["message"]
    assert error["timestamp"].endswith("Z")
    assert isinstance(error["context"], dict)
    assert server.get(_PATH) == before


@pytest.mark.parametrize(("method", "tail"), [("GET", ""), ("DELETE", ""), ("POST", "/interrupt")])
def test_a_terminal_that_is_not_there(server, method, tail):
    """404, also in a sandbox that never was."""
    for path in (f"{_PATH}/t-nope{tail}", f"{_PATH.replace('demo', 'never')}/t-1{tail}"):
        status, error = server.call(method, path)

        assert (status, error["code"]) == (404, "TERMINAL_NOT_FOUND")


def test_who_is_not_logged_in_or_comes_from_elsewhere_is_refused(server):
    """No token; a cookie without its XSRF token; and nothing that acts answers to GET."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for method, headers, wanted in (
        ("GET", {}, 403),
        ("POST", {}, 403),
        ("POST", {"Cookie": cookie(server)}, 403),
    ):
        connection.request(method, _PATH, body="{}" if method == "POST" else None, headers=headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        assert (answer.status, said["http_status"]) == (wanted, wanted)
    connection.close()
    status, _ = server.call("GET", f"{_PATH}/t-1/interrupt")
    assert status == 405
