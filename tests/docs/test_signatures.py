"""Tables of methods show which parameters are passed by name only."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from sandbox_kernel import Process, Sandbox, Session, Terminal

_DOCS = Path(__file__).parents[2] / "docs"
_PAGES = {
    "python.md": (Process, Sandbox),
    "commands.md": (Process, Session, Sandbox),
    "terminals.md": (Terminal,),
}


@pytest.mark.parametrize("page", _PAGES)
def test_parameters_by_name_stand_behind_a_star(page):
    """Whoever copies a signature out of a table makes no call that Python refuses."""
    rows = [line for line in (_DOCS / page).read_text().splitlines() if line.startswith("| `")]
    checked = 0
    for row in rows:
        for name, shown in re.findall(r"(\w+)\(([^)]*)\)", row):
            method = next((vars(c)[name] for c in _PAGES[page] if name in vars(c)), None)
            if not inspect.isfunction(method) or "=" not in shown:
                continue
            by_name = {
                each.name
                for each in inspect.signature(method).parameters.values()
                if each.kind is each.KEYWORD_ONLY
            }
            before = shown.partition("*, ")[0]
            checked += 1
            assert not by_name & set(re.findall(r"\b(\w+)=", before)), (name, shown)

    assert checked
