"""docs/observability.md: its examples run as they stand, and it names every field and kind."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import fields
from pathlib import Path

from sandbox_kernel import Activity, SandboxStats
from sandbox_kernel.client import recorded
from sandbox_kernel.client import sandbox as client
from sandbox_kernel.manager.manager import Manager
from tests.docs.test_python_page import run
from tests.support.jupyter_home import JupyterHome

_TEXT = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
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


def test_each_field_is_named():
    for each in (*fields(SandboxStats), *fields(Activity)):
        if each.name not in {"sandbox_id", "taken_at"}:
            assert f"`{each.name}`" in _TEXT, each.name


def test_each_kind_that_is_noted_is_named():
    source = Path(recorded.__file__).read_text()
    kinds = set(re.findall(r'return "(\w+)",', source)) | {"started", "stopped", "ended", "cell"}

    assert {"command", "process_ended"} <= kinds
    for kind in kinds:
        assert f"`{kind}`" in _TEXT, kind
