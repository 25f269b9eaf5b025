"""docs/python.md names every parameter."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from sandbox_kernel import Process, Sandbox, SandboxOptions, get_sandbox

_TEXT = (Path(__file__).parents[2] / "docs" / "python.md").read_text()


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
