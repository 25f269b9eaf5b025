"""A notebook that leaves a sandbox: from bytes to bytes, through the output wall."""

from __future__ import annotations

import json
from typing import NamedTuple

from sandbox_kernel.wall.modes import Wall
from sandbox_kernel.wall.notebooks import NotANotebookError
from sandbox_kernel.wall.notebooks import clean_notebook as clean_value

__all__ = ["LARGEST_NOTEBOOK", "CleanNotebook", "NotANotebookError", "clean_notebook"]

LARGEST_NOTEBOOK = 256 << 20
"""Bytes; a notebook is cleaned in memory, where it takes several times its size."""


class CleanNotebook(NamedTuple):
    """A notebook that acts on nothing when it is opened."""

    content: bytes
    """The file."""
    changes: list[str]
    """A line on each thing that was left out or is drawn otherwise; see `sandbox_kernel.wall`."""


def clean_notebook(content: bytes, wall: Wall | None = None) -> CleanNotebook:
    """Return the notebook built anew, as docs/security.md says, with one of our kernels.

    Parameters
    ----------
    content : bytes
        The file as it is in the sandbox.
    wall : Wall, optional
        By which outputs are judged; by default as those of a sandbox without network.

    Raises
    ------
    NotANotebookError
        The bytes are no notebook.
    """
    try:
        notebook = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotANotebookError("it is not a readable notebook") from error
    notebook, changes = clean_value(notebook, wall or Wall())
    # Jupyter's own form: indented by one, text as it is, NaN as a word, a line feed at the end.
    text = json.dumps(notebook, ensure_ascii=False, indent=1)
    # It opens no file that is not UTF-8; halves of characters become question marks.
    return CleanNotebook(text.encode("utf-8", "replace") + b"\n", changes)


def is_notebook(path: str) -> bool:
    """Whether Jupyter would open this file as a notebook."""
    return path.lower().endswith(".ipynb")
