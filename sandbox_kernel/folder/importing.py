"""Take a notebook of somebody else's in: a copy that acts on nothing, for a kernel in a sandbox."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_kernel.engines.disk import storage_errors
from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.folder.notebook_files import (
    in_format_4,
    no_notebook,
    no_such_notebook,
    write_whole,
)
from sandbox_kernel.folder.notebooks import LARGEST_NOTEBOOK, clean_notebook
from sandbox_kernel.wall.modes import Wall
from sandbox_kernel.wall.notebooks import NotANotebookError

__all__ = ["ImportedNotebook", "import_notebook"]


@dataclass(frozen=True, kw_only=True)
class ImportedNotebook:
    """What became of a notebook that was imported.

    Parameters
    ----------
    path : Path
        The notebook that was written.
    changes : tuple of str
        A line for people on each thing that was left out or is drawn otherwise; a hundred at most.
    """

    path: Path
    changes: tuple[str, ...]


def import_notebook(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    wall: Wall | None = None,
) -> ImportedNotebook:
    """Write a copy of a notebook that acts on nothing when it is opened, with one of our kernels.

    Cells and what they say stay.  Outputs are judged as those of a running sandbox; saved widgets,
    marks of trust, and metadata that an extension may act on are left out.  Nothing is run.

    Parameters
    ----------
    source : path
        A notebook of any format that Jupyter reads.
    output : path, optional
        Where to write it, in place of what is there; may be `source` itself.  By default
        ``NAME-sandbox.ipynb`` beside it, which must not exist.
    wall : Wall, optional
        By which its outputs are judged; by default as those of a sandbox without network.

    Returns
    -------
    ImportedNotebook

    Raises
    ------
    SandboxConfigurationError
        There is no such notebook, it is none, or the default output exists.
    StorageFullError, StorageError
        A file cannot be read or written; what was there before still is.

    Examples
    --------
    >>> import_notebook("downloaded.ipynb").path  # doctest: +SKIP
    PosixPath('downloaded-sandbox.ipynb')
    """
    path = Path(source)
    target = path.with_name(f"{path.stem}-sandbox.ipynb") if output is None else Path(output)
    if output is None and os.path.lexists(target):
        raise SandboxConfigurationError(
            f"{target} exists already.", hint="Remove it, or name the output."
        )
    try:
        clean = clean_notebook(_in_format_4(_read(path)), wall)
    except NotANotebookError as error:
        raise no_notebook(path, error) from error
    write_whole(clean.content, target)
    return ImportedNotebook(path=target, changes=tuple(clean.changes))


def _read(path: Path) -> bytes:
    if not path.exists():
        raise no_such_notebook(path)
    with storage_errors(path, "read"):
        size = os.stat(path).st_size
        if not path.is_file() or size > LARGEST_NOTEBOOK:
            raise NotANotebookError(f"it is no file of at most {LARGEST_NOTEBOOK >> 20} MiB")
        return path.read_bytes()


def _in_format_4(content: bytes) -> bytes:
    """Return the notebook in a format whose outputs can be judged."""
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotANotebookError("it is not JSON") from error
    if not isinstance(value, dict) or value.get("nbformat") not in (2, 3):
        return content
    return json.dumps(in_format_4(value)).encode()
