"""The table of operations: families that are loaded when they are needed."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from sandbox_kernel.wire.operations import Empty, Kind, Operation, Table

ROW = Operation("first", Kind.CALL, Empty, Empty)
OTHER = Operation("family.second", Kind.CALL, Empty, Empty)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    module = ModuleType("a_family")
    module.ROWS = (OTHER,)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_family", module)
    return Table((ROW,), {"family": "a_family", "absent": "no_such_module"})


def test_a_family_is_loaded_by_its_first_operation(table: Table) -> None:
    assert table["family.second"] is OTHER
    assert table.get("family.second") is OTHER, "and stays"


def test_other_operations_load_no_family(table: Table) -> None:
    assert table["first"] is ROW
    assert table.get("firsts.second") is None
    with pytest.raises(KeyError):
        table["second"]


def test_iterating_loads_them_all(table: Table) -> None:
    with pytest.raises(ModuleNotFoundError):
        list(table)
    complete = Table((ROW,), {"family": "a_family"})

    assert list(complete) == ["first", "family.second"]
    assert complete.values() == [ROW, OTHER]
