"""Which sandbox and which interpreter a relay serves; pure.

Everything is derived from what stays the same when a relay is started again for the same notebook,
so that the new one finds the old one's interpreter.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Identity", "choose"]

_LONGEST_SLUG = 40


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a relay serves.

    Parameters
    ----------
    sandbox_id : str
        The sandbox.
    kernel_id : str
        The interpreter in it.
    spare_kernel_id : str
        Taken instead when another living relay serves that interpreter already.
    ephemeral : bool
        Whether the sandbox is for this kernel only and ends with it.
    """

    sandbox_id: str
    kernel_id: str
    spare_kernel_id: str
    ephemeral: bool


def choose(
    *,
    connection_file: str,
    key: bytes,
    environ: Mapping[str, str],
    cwd: str,
    configured_id: str | None,
) -> Identity:
    """Decide which sandbox and interpreter belong to a kernel.

    Parameters
    ----------
    connection_file : str
        Its path; together with the key in it, it is the same for every start of one kernel.
    key : bytes
        The signature key.
    environ : mapping
        ``SANDBOX_ID``, and ``JPY_SESSION_NAME``: the notebook's path where a server tells it.
    cwd : str
        The notebook's folder, to complete a relative path.
    configured_id : str, optional
        The sandbox that the settings name for every notebook.
    """
    own = _digest(_bytes(os.path.abspath(connection_file)) + b"\0" + key)
    notebook = _notebook_path(environ.get("JPY_SESSION_NAME", ""), cwd)
    kernel_id = f"cf-{own[:16]}" if notebook is None else f"nb-{_digest(_bytes(notebook))[:16]}"
    named = environ.get("SANDBOX_ID") or configured_id
    if named:
        sandbox_id = named
    elif notebook is not None:
        sandbox_id = "-".join(
            part for part in ("nb", _slug(notebook), _digest(_bytes(notebook))[:8]) if part
        )
    else:
        sandbox_id = f"k-{own[:12]}"
    return Identity(
        sandbox_id=sandbox_id,
        kernel_id=kernel_id,
        spare_kernel_id=f"cf-{own[:16]}",
        ephemeral=not named and notebook is None,
    )


def _notebook_path(session_name: str, cwd: str) -> str | None:
    """Return the notebook's absolute path, or None if the session belongs to no file.

    Consoles have a session too, with a name made up for it; such a name has no suffix.
    """
    if not session_name or not os.path.splitext(session_name)[1]:
        return None
    if os.path.isabs(session_name):
        return os.path.normpath(session_name)
    # The server's path is relative to its own root, the folder of the notebook is ours.
    return os.path.normpath(os.path.join(cwd, os.path.basename(session_name)))


def _slug(path: str) -> str:
    stem = os.path.splitext(os.path.basename(path))[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", stem)[:_LONGEST_SLUG].strip("-")


def _bytes(path: str) -> bytes:
    """Return the path as the system has it; not every name of a file is UTF-8."""
    return path.encode("utf-8", "surrogateescape")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
