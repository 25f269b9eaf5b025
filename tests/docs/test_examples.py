"""The example notebooks: kept without outputs, and executed as the pages say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.support.jupyter_home import JupyterHome

_EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.ipynb"))


def text_of(cell: nbformat.NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.name)
def test_examples_are_kept_without_outputs(path):
    """What a run leaves would hold paths of one machine, and make every change a large one."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)

    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
    assert notebook.metadata.kernelspec.name == "sandbox-python"
    assert "widgets" not in notebook.metadata


def test_the_sales_example_runs_and_leaves_the_folder_alone(tmp_path, warm_cache):
    """A table, a figure, a widget, and walls where the text says there are walls."""
    home = JupyterHome(tmp_path, warm_cache).create()
    source = _EXAMPLES[[path.name for path in _EXAMPLES].index("sales.ipynb")]
    for path in source.parent.glob("sales.*"):
        (home.work / path.name).write_bytes(path.read_bytes())
    output = tmp_path / "done.ipynb"

    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "sandbox_kernel.cli",
            "run",
            home.work / "sales.ipynb",
            "-o",
            output,
            "--json",
        ],
        env={**os.environ, **home.changes()},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["failure"] is None
    cells = {cell.id: cell for cell in nbformat.read(output, as_version=4).cells}
    assert "image/png" in cells["figure"].outputs[0].data
    assert "application/vnd.jupyter.widget-view+json" in cells["widget"].outputs[0].data
    assert "Backpack" in text_of(cells["write"])
    assert "Network is unreachable" in text_of(cells["walls"])
    assert sorted(path.name for path in home.work.iterdir()) == ["sales.csv", "sales.ipynb"]
