"""Read and write notebook files, without the seconds that nbformat takes to be imported whole.

nbformat validates with jsonschema, which at its import compiles grammars of identifiers and
durations (several seconds) if packages for that are installed.  No notebook holds such values.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sandbox_kernel.engines.disk import storage_errors
from sandbox_kernel.errors import SandboxConfigurationError, StorageError

if TYPE_CHECKING:
    from nbformat import NotebookNode

__all__ = ["code_cells", "import_lean", "read_notebook", "write_notebook"]

_SLOW_AND_OPTIONAL = ("isoduration", "rfc3987", "rfc3987_syntax")


@contextmanager
def import_lean() -> Iterator[None]:
    """Let imports in the block do without what jsonschema imports only where it is installed."""
    absent = [name for name in _SLOW_AND_OPTIONAL if name not in sys.modules]
    # None makes an import fail as if nothing of that name were installed.
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


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
        text = path.read_bytes().decode()
        value = json.loads(text)
    except FileNotFoundError as error:
        raise SandboxConfigurationError(
            f"There is no notebook {path}.", hint="Check its path."
        ) from error
    except OSError as error:
        raise StorageError(
            str(path), "read", error.strerror or str(error), "Check the notebook's path."
        ) from error
    except (ValueError, RecursionError) as error:
        raise _no_notebook(path, "it is not JSON") from error
    if not isinstance(value, dict) or type(value.get("nbformat")) is not int:
        raise _no_notebook(path, "it does not say its nbformat")
    fault = _fault(value) if value["nbformat"] == 4 else ""
    if fault:
        raise _no_notebook(path, fault)
    with import_lean():
        import nbformat  # noqa: PLC0415  start-up time
    if value["nbformat"] not in nbformat.versions:
        raise _no_notebook(path, f"its nbformat {value['nbformat']} is not known")
    try:
        # Unlike nbformat.read these do not validate, which would only log what it finds.
        made = nbformat.reader.reads(text)  # type: ignore[no-untyped-call]
        notebook = nbformat.convert(made, to_version=4)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever nbformat does on a notebook that is not whole
        raise _no_notebook(path, "it lacks what a notebook must have") from error
    return cast("NotebookNode", notebook)


def write_notebook(notebook: NotebookNode, target: Path) -> None:
    """Write the notebook, in whole or not at all.

    Raises
    ------
    StorageFullError, StorageError
        It cannot be written; what was there before still is.
    """
    from nbformat import v4  # noqa: PLC0415  start-up time; read_notebook has imported it

    draft = target.with_name(f".{secrets.token_hex(8)}.ipynb")
    text = v4.writes(notebook)  # type: ignore[no-untyped-call]
    with storage_errors(target, "write"):
        try:
            draft.write_text(f"{text}\n", encoding="utf-8", errors="surrogatepass")
            os.replace(draft, target)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


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


def _no_notebook(path: Path, reason: str) -> SandboxConfigurationError:
    return SandboxConfigurationError(
        f"{path} is no notebook: {reason}.",
        hint="Open it in JupyterLab, or make it anew from an earlier version.",
    )
