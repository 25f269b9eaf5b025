"""What sandboxes use and who did what in them, asked of a real server."""

from __future__ import annotations

import contextlib

import pytest

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.jupyter_home import JupyterHome
from tests.support.ws_connection import JupyterServer

_BOX = "/sandbox/api/sandboxes/seen"


@pytest.fixture(scope="module")
def home(tmp_path_factory, warm_cache):
    made = JupyterHome(tmp_path_factory.mktemp("h"), warm_cache).create()
    yield made
    made.destroy_named_sandboxes()


@pytest.fixture(scope="module")
def server(home):
    with JupyterServer(home) as made:
        yield made


def test_looking_at_what_is_not_there_makes_nothing(server):
    status, refused = server.call("GET", f"{_BOX}/stats")
    assert (status, refused["code"]) == (404, "SANDBOX_NOT_FOUND")
    status, page = server.call("GET", f"{_BOX}/activity")
    assert (status, page["activity"]) == (200, [])
    assert server.call("GET", "/sandbox/api/sandboxes")[1]["sandboxes"] == []


def test_use_and_activity_of_a_sandbox(server, home):
    """Running and stopped; every command names the server's user and the way it came."""
    assert server.call("POST", f"{_BOX}/exec", {"argv": ["true"]})[0] == 200
    _, running = server.call("GET", f"{_BOX}/stats?disk=true")
    with contextlib.closing(Manager(Settings(data_dir=home.data / "sandbox"))) as manager:
        manager.stop("seen")
    _, stopped = server.call("GET", f"{_BOX}/stats")
    _, page = server.call("GET", f"{_BOX}/activity?limit=2")
    _, rest = server.call("GET", f"{_BOX}/activity?since={page['cursor']}")

    assert (running["state"], stopped["state"]) == ("running", "stopped")
    assert running["processes"] >= 1
    assert running["memory_bytes"] > 1 << 20
    assert running["disk"]["is_complete"]
    assert stopped["processes"] is None
    lines = page["activity"] + rest["activity"]
    assert [each["kind"] for each in lines] == ["started", "command", "stopped"]
    assert lines[1]["what"] == ["true"]
    assert lines[1]["details"]["exit_code"] == 0
    assert [each["who"].partition(" ")[2] for each in lines] == ["(rest)", "(rest)", "(python)"]


@pytest.mark.parametrize(
    "query", ["since=x", "limit=0", "limit=10001", "limit=x", "unknown=1", "since=1-2&since=3-4"]
)
def test_what_cannot_be_asked_is_refused(server, query):
    status, refused = server.call("GET", f"{_BOX}/activity?{query}")

    assert (status, refused["code"]) == (400, "VALIDATION_FAILED")
