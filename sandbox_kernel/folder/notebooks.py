"""Clean a notebook that leaves a sandbox: what it holds besides cells must not act on the host."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["LARGEST_NOTEBOOK", "NotANotebookError", "clean_notebook", "is_notebook"]

LARGEST_NOTEBOOK = 256 << 20
"""Bytes; a notebook is cleaned in memory, where it takes several times its size."""


class NotANotebookError(ValueError):
    """The file is named like a notebook and is none."""


def is_notebook(path: str) -> bool:
    """Whether Jupyter would open this file as a notebook."""
    return path.lower().endswith(".ipynb")


def clean_notebook(content: bytes) -> bytes:
    """Return the notebook without saved widget state and without any mark of trust.

    Saved widget state names code that the page loads; it is built anew when cells run.  Outputs
    stay: Jupyter shows those of a notebook it does not trust with scripts and styles removed, and
    trust comes only from the user running its cells or saying so.

    Raises
    ------
    NotANotebookError
        The bytes are no notebook.
    """
    try:
        notebook = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotANotebookError("it is not a readable notebook") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("nbformat"), int):
        raise NotANotebookError("it is not a readable notebook")
    metadata = notebook.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("widgets", None)
        metadata.pop("signature", None)  # where notebooks of format 3 kept their trust
    for cell in _cells(notebook):
        cell_metadata = cell.get("metadata")
        if isinstance(cell_metadata, dict):
            cell_metadata.pop("trusted", None)
    # Jupyter's own form: indented by one, text as it is, NaN as a word, a line feed at the end.
    try:
        text = json.dumps(notebook, ensure_ascii=False, indent=1)
    except RecursionError as error:
        raise NotANotebookError("it is not a readable notebook") from error
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every cell, also those of format 3, which lie in worksheets."""
    holders = [notebook, *_dicts(notebook.get("worksheets"))]
    return [cell for holder in holders for cell in _dicts(holder.get("cells"))]


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
