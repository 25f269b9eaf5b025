"""docs/ports.md names every method with its parameters."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from sandbox_kernel import Process
from sandbox_kernel.client.ports import PortOperations
from sandbox_runtime.ports import MOST_CONNECTIONS

_TEXT = (Path(__file__).parents[2] / "docs" / "ports.md").read_text()


@pytest.mark.parametrize(
    "name", [name for name in vars(PortOperations) if not name.startswith("_")]
)
def test_each_method_is_described(name):
    """With its parameters."""
    parameters = list(inspect.signature(getattr(PortOperations, name)).parameters)[1:]
    shown = [found for found in re.findall(rf"\b{name}\((.*?)\)+`", _TEXT) if "=" in found or found]

    assert re.search(rf"\b{name}\(", _TEXT)
    for parameter in parameters:
        assert any(parameter in each for each in shown) or parameter == "limit", parameter


def test_a_process_waits_like_its_sandbox():
    """The page describes both at once."""
    assert inspect.signature(Process.wait_for_port) == inspect.signature(
        PortOperations.wait_for_port
    )


def test_the_bound_is_said():
    """How many connections may be open."""
    assert f"At most {MOST_CONNECTIONS} may be open" in _TEXT
