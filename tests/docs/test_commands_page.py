"""docs/commands.md names every method and error."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from sandbox_kernel import Process, Session, errors
from sandbox_kernel.client.command_operations import CommandOperations

_TEXT = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()


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
