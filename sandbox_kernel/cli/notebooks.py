"""Notebooks that are to be executed: read with what that needs, and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox_kernel.errors import StorageError
from sandbox_kernel.folder.notebook_files import (
    in_format_4,
    no_notebook,
    no_such_notebook,
    write_whole,
)
from sandbox_kernel.wall.notebooks import NotANotebookError

if TYPE_CHECKING:
    from nbformat import NotebookNode

__all__ = ["code_cells", "read_notebook", "write_notebook"]


def read_notebook(path: Path) -> NotebookNode:
    """Return the notebook in its newest format.

    Raises
    ------
    SandboxConfigurationError
        There is no such file, or it is no notebook.
    StorageError
        It cannot be read.
    """
    try:
        value = json.loads(path.read_bytes().decode())
    except FileNotFoundError as error:
        raise no_such_notebook(path) from error
    except OSError as error:
        raise StorageError(
            str(path), "read", error.strerror or str(error), "Check the notebook's path."
        ) from error
    except (ValueError, RecursionError) as error:
        raise no_notebook(path, "it is not JSON") from error
    if not isinstance(value, dict) or type(value.get("nbformat")) is not int:
        raise no_notebook(path, "it does not say its nbformat")
    fault = _fault(value) if value["nbformat"] == 4 else ""
    if fault:
        raise no_notebook(path, fault)
    try:
        return in_format_4(value)
    except NotANotebookError as error:
        raise no_notebook(path, error) from error


def write_notebook(notebook: NotebookNode, target: Path) -> None:
    """Write the notebook, in whole or not at all.

    Raises
    ------
    StorageFullError, StorageError
        It cannot be written; what was there before still is.
    """
    from nbformat import v4  # noqa: PLC0415  start-up time; read_notebook has imported it

    text = v4.writes(notebook)  # type: ignore[no-untyped-call]
    write_whole(f"{text}\n".encode("utf-8", "surrogatepass"), target)


def code_cells(notebook: NotebookNode) -> int:
    """Return how many cells there are to execute."""
    return sum(cell.cell_type == "code" and bool(cell.source.strip()) for cell in notebook.cells)


def _fault(notebook: dict[str, Any]) -> str:  # a JSON object, of which nothing is known yet
    """Say what of the notebook could not be executed, or nothing."""
    if not isinstance(notebook.get("metadata"), dict):
        return "its metadata is no object"
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        return "it has no list of cells"
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
            return f"cell {number} has no type"
        if not isinstance(cell.get("source"), str | list):
            return f"cell {number} has no source"
        if not isinstance(cell.get("metadata"), dict):
            return f"cell {number} has no metadata"
        if cell["cell_type"] == "code" and not isinstance(cell.get("outputs"), list):
            return f"cell {number} has no list of outputs"
    return ""
