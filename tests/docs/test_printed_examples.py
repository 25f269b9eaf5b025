"""The Python examples of each page run as they stand and print what the page says."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import re
from pathlib import Path
from types import CoroutineType

import pytest

from sandbox_kernel.client import sandbox as client
from sandbox_kernel.manager.manager import Manager
from tests.support.jupyter_home import JupyterHome

_DOCS = Path(__file__).parents[2] / "docs"
_PRINTS = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
_PAGES = ["commands", "files", "observability", "ports", "preview", "python", "terminals"]


async def run(blocks: list[tuple[str, str]], page: str) -> list[str]:
    """Run the blocks in one namespace, as the cells of a notebook; return what each printed."""
    names: dict[str, object] = {}
    printed = []
    for code, _ in blocks:
        out = io.StringIO()
        compiled = compile(code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(out):
            result = eval(compiled, names)  # noqa: S307  what the page says
            if isinstance(result, CoroutineType):
                await result
        printed.append(out.getvalue())
    return printed


@pytest.mark.parametrize("page", _PAGES)
def test_the_examples_print_what_the_page_says(page, tmp_path, warm_cache, monkeypatch):
    """One after the other, for a user who has no sandbox yet."""
    blocks = _PRINTS.findall((_DOCS / f"{page}.md").read_text())
    home = JupyterHome(tmp_path, warm_cache).create()
    for name, value in home.changes().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.work)
    try:
        printed = asyncio.run(run(blocks, f"docs/{page}.md"))
    finally:
        client._manager_of.cache_clear()
        with contextlib.closing(Manager()) as manager:
            for info in manager.list():
                manager.destroy(info.sandbox_id)

    assert any(printed), "the page shows what is printed"
    assert printed == [expected for _, expected in blocks]
