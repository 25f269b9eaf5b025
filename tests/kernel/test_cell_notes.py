"""Cells are noted in the activity log: what ran and how it ended, not what it wrote."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox_kernel.manager.activity import Activity
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import Kernel


def cells_of(home: JupyterHome) -> list[Activity]:
    """Return what is noted of the only sandbox's cells."""
    manager = Manager(Settings(data_dir=home.data / "sandbox"))
    try:
        (info,) = manager.list()
        assert manager.activity is not None
        items = manager.activity.read(info.sandbox_id, info.lifetime).items
    finally:
        manager.close()
    return [each for each in items if each.kind == "cell"]


def test_cells_are_noted_with_their_end(home: JupyterHome, start: Callable[..., Kernel]) -> None:
    """Good ones, failed ones and those that the host answers; nothing of their outputs."""
    kernel = start()
    kernel.cell("print('sec' + 'ret')")
    kernel.cell("1 / 0")
    kernel.cell("%sandbox status")
    cells = cells_of(home)

    assert [(each.what, each.details["status"]) for each in cells] == [
        ("print('sec' + 'ret')", "ok"),
        ("1 / 0", "error"),
        ("%sandbox status", "ok"),
    ]
    assert [each.details["execution_count"] for each in cells[:2]] == [1, 2]
    assert all(each.who.endswith(" (kernel)") for each in cells)
    assert all(each.details["duration"] >= 0 for each in cells)
    (file,) = (home.data / "sandbox" / "activity").iterdir()
    assert b"secret" not in file.read_bytes()


def test_a_cell_whose_kernel_dies_is_noted_as_failed(
    home: JupyterHome, start: Callable[..., Kernel]
) -> None:
    kernel = start()
    kernel.cell("import os; os._exit(3)")
    (cell,) = cells_of(home)

    assert (cell.what, cell.details["status"]) == ("import os; os._exit(3)", "error")


@pytest.mark.parametrize("setting", ["false", "true"])
def test_nothing_is_noted_where_no_log_is_wanted(
    home: JupyterHome, start: Callable[..., Kernel], setting: str
) -> None:
    wanted = f'{{"SandboxManager": {{"activity_log": {setting}}}}}'
    start(SANDBOX_CONFIG=wanted).cell("1")

    assert (home.data / "sandbox" / "activity").exists() == (setting == "true")
