"""The first requests wait for somebody to hear what they publish, but not for ever."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.kernel import relay as relay_module
from tests.support.fake_runtime import FakeRuntime
from tests.support.relay_thread import relay_on_a_thread

CELL = {"code": "%widget show", "silent": False, "store_history": True, "allow_stdin": False}


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    with contextlib.closing(FakeRuntime(tmp_path)) as runtime:
        yield runtime


def test_a_cell_waits_for_a_listener_that_comes_late(
    tmp_path: Path, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sockets of one client find the kernel in any order; nothing is lost for it."""
    monkeypatch.setattr(relay_module, "_FIRST_SUBSCRIBER_WAIT", 60.0)
    with relay_on_a_thread(tmp_path, runtime, listens=False) as client:
        cell = client.send("execute_request", CELL)
        assert not client.shell.poll(300)

        client.listen()
        assert client.hear("status", cell)["execution_state"] == "busy"
        assert client.reply("execute_reply", cell)["status"] == "ok"


def test_a_client_that_never_listens_is_answered(tmp_path: Path, runtime: FakeRuntime) -> None:
    with relay_on_a_thread(tmp_path, runtime, listens=False) as client:
        cell = client.send("execute_request", CELL)

        assert client.reply("execute_reply", cell)["status"] == "ok"
