"""docs/preview.md: its example runs as it stands, and it names every setting with its default."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path

from jupyter_ext.preview import SandboxPreview
from sandbox_kernel.client import sandbox as client
from sandbox_kernel.manager.manager import Manager
from tests.docs.test_python_page import run
from tests.support.jupyter_home import JupyterHome

_TEXT = (Path(__file__).parents[2] / "docs" / "preview.md").read_text()
_BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", _TEXT, re.DOTALL)


def test_the_example_prints_what_the_page_says(tmp_path, warm_cache, monkeypatch):
    """For a user who has no sandbox yet."""
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


def test_each_setting_is_described_with_its_default():
    """No more and no less."""
    rows = dict(re.findall(r"^\| `SandboxPreview\.(\w+)` \| `(.+?)` \|", _TEXT, re.MULTILINE))
    made = {
        name: f'"{default}"' if isinstance(default := trait.default(), str) else repr(default)
        for name, trait in SandboxPreview.class_traits(config=True).items()
    }

    assert rows == made
