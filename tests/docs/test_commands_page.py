"""docs/commands.md: its examples run as they stand, and it names every method and error."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from pathlib import Path

from sandbox_kernel import Process, Session, errors
from sandbox_kernel.client import sandbox as client
from sandbox_kernel.client.command_operations import CommandOperations
from sandbox_kernel.manager.manager import Manager
from tests.docs.test_python_page import run
from tests.support.jupyter_home import JupyterHome

_TEXT = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
_BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", _TEXT, re.DOTALL)


def test_the_examples_print_what_the_page_says(tmp_path, warm_cache, monkeypatch):
    """One after the other, for a user who has no sandbox yet."""
    home = JupyterHome(tmp_path, warm_cache).create()
    for name, value in home.changes().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.work)
    try:
        printed = asyncio.run(run(_BLOCKS))
    finally:
        client._manager_of.cache_clear()
        with contextlib.closing(Manager()) as manager:
            for info in manager.list():
                manager.destroy(info.sandbox_id)

    assert printed == [expected for _, expected in _BLOCKS]


def test_each_method_of_a_session_is_named():
    """And each of a process that the page on Python does not show."""
    members = {**vars(CommandOperations), **vars(Session)}
    for name, member in members.items():
        if not name.startswith("_") and (
            inspect.isfunction(member) or isinstance(member, property)
        ):
            assert re.search(rf"\b{name}\b", _TEXT), name
    for name in ("logs", "wait_for_log", "wait_for_exit", "kill", "terminate", "send_signal"):
        assert hasattr(Process, name)
        assert f"{name}(" in _TEXT


def test_each_error_has_its_code_and_status():
    """As the class says."""
    rows = re.findall(r"^\| `(\w+Error)` \| `(\w+)` \| (\d+) \|", _TEXT, re.MULTILINE)

    assert len(rows) >= 10
    for name, code, status in rows:
        cls = getattr(errors, name)
        assert (cls.code, str(cls.http_status)) == (code, status)
