"""docs/capabilities.md: what the contract suites find, as tables; made by ``make capabilities``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["PAGE", "render", "tables"]

PAGE = Path(__file__).parents[2] / "docs" / "capabilities.md"

_HEAD = """\
# What works where

Made by `make capabilities` from the results of `tests/contract/test_matrix.py`, which tries all of it and fails where this page says something else.

An engine separates programs from your machine; a transport carries the SDK's operations to them. "local" is a runtime in the process of the tests:
**it isolates nothing**, no setting means it, and each start warns.

## Operations

For each engine, the transports over which it was tried with the same result. Terminals and ports have a connection of their own whatever the transport.

"""

_LIMITS = """
## Limits

*hard*: for the sandbox as a whole. *per process*: each process has it, the sum has not. *absent*: not there; who asks for it is refused, unless
`accept_weaker_limits` is on. Found out by trying to exceed each; the processor's share is what the engine has set. Where the machine decides, both are named:
[isolation.md](isolation.md#limits) says on what it depends.

"""


def _table(head: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    return "\n".join(lines) + "\n"


def render(
    engines: Sequence[str],
    operations: Mapping[str, Mapping[str, str]],
    limits: Mapping[str, Mapping[str, str]],
) -> str:
    """Return the page; cells are found by row, then engine."""

    def rows(cells: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
        return {name: [of[engine] for engine in engines] for name, of in cells.items()}

    return (
        _HEAD
        + _table(["operation", *engines], rows(operations))
        + _LIMITS
        + _table(["limit", *engines], rows(limits))
    )


def tables(text: str) -> dict[str, dict[str, str]]:
    """Return the cells of a page by row, then engine."""
    found: dict[str, dict[str, str]] = {}
    head: list[str] = []
    for line in text.splitlines():
        if not line.startswith("| "):
            head = []
            continue
        cells = [each.strip() for each in line.strip("|").split("|")]
        if not head:
            head = cells[1:]
        elif not set(cells[0]) <= {"-"}:
            found[cells[0]] = dict(zip(head, cells[1:], strict=True))
    return found
