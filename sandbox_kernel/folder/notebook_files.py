"""Notebook files: brought to the newest format, written whole, and what is said of bad ones.

nbformat validates with jsonschema, which at its import compiles grammars of identifiers and
durations (several seconds) if packages for that are installed.  No notebook holds such values, so
it is imported without them, and only for those who need it.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sandbox_kernel.engines.disk import storage_errors
from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.wall.notebooks import NotANotebookError

if TYPE_CHECKING:
    from nbformat import NotebookNode

__all__ = ["import_lean", "in_format_4", "no_notebook", "no_such_notebook", "write_whole"]

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


def in_format_4(notebook: dict[str, Any]) -> NotebookNode:
    """Return a notebook, a JSON object that says its nbformat, in the newest format.

    Raises
    ------
    NotANotebookError
        Its format is not known, or it lacks what a notebook of that must have.
    """
    with import_lean():
        import nbformat  # noqa: PLC0415  start-up time
    form = notebook["nbformat"]
    if form not in nbformat.versions:
        raise NotANotebookError(f"its nbformat {str(form)[:20]} is not known")
    try:
        # Unlike nbformat.read these do not validate, which would only log what it finds.
        made = nbformat.versions[form].to_notebook_json(
            notebook, minor=notebook.get("nbformat_minor", 0)
        )
        return cast("NotebookNode", nbformat.convert(made, to_version=4))  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever nbformat does on a notebook that is not whole
        raise NotANotebookError("it lacks what a notebook of its format must have") from error


def no_such_notebook(path: Path) -> SandboxConfigurationError:
    """Return the error that says that there is no such file."""
    return SandboxConfigurationError(f"There is no notebook {path}.", hint="Check its path.")


def no_notebook(path: Path, reason: object) -> SandboxConfigurationError:
    """Return the error that says why a file is no notebook."""
    return SandboxConfigurationError(
        f"{path} is no notebook: {reason}.",
        hint="Open it in JupyterLab, or make it anew from an earlier version.",
    )


def write_whole(content: bytes, target: Path) -> None:
    """Write a notebook, in whole or not at all.

    Raises
    ------
    StorageFullError, StorageError
        It cannot be written; what was there before still is.
    """
    draft = target.with_name(f".{secrets.token_hex(8)}.ipynb")
    with storage_errors(target, "write"):
        try:
            draft.write_bytes(content)
            os.replace(draft, target)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
