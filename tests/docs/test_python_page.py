"""docs/python.md: its examples run as they stand, and it names every parameter."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
from pathlib import Path
from types import CoroutineType

import pytest

from sandbox_kernel import Process, Sandbox, SandboxOptions, get_sandbox
from sandbox_kernel.client import sandbox as client
from sandbox_kernel.manager.manager import Manager
from tests.support.jupyter_home import JupyterHome

_TEXT = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
_BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", _TEXT, re.DOTALL)


async def run(blocks):
    """Run the blocks in one namespace, as the cells of a notebook; return what each printed."""
    names, printed = {}, []
    for code, _ in blocks:
        out = io.StringIO()
        compiled = compile(code, "docs/python.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(out):
            result = eval(compiled, names)  # noqa: S307  what the page says
            if isinstance(result, CoroutineType):
                await result
        printed.append(out.getvalue())
    return printed


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


@pytest.mark.parametrize(
    "function", [get_sandbox, Sandbox.exec, Sandbox.start_process], ids=lambda f: f.__name__
)
def test_each_parameter_is_in_the_signature_that_is_shown(function):
    """With its default."""
    parameters = list(inspect.signature(function).parameters.values())
    shown = re.search(rf"{function.__name__}\((\w.*?)\)", _TEXT)

    assert shown is not None
    for parameter in parameters:
        if parameter.name == "self" or parameter.kind is parameter.VAR_KEYWORD:
            continue
        has_default = parameter.default is not parameter.empty
        word = f"{parameter.name}={parameter.default}" if has_default else parameter.name
        assert word in shown[1]


def test_each_option_and_method_is_described():
    """Options of a sandbox, and what can be done with it and its processes."""
    for name in SandboxOptions.__annotations__:
        assert f"\n| `{name}` |" in _TEXT
    for cls in (Sandbox, Process):
        for name, member in vars(cls).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                assert re.search(rf"\b{name}\(", _TEXT), name
