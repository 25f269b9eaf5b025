"""From what the user typed to the sandbox that is meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.errors import (
    InvalidSandboxIdError,
    SandboxConfigurationError,
    SandboxNotFoundError,
)
from sandbox_kernel.manager.identity import check_sandbox_id

if TYPE_CHECKING:
    from sandbox_kernel.manager.manager import Manager, SandboxInfo

__all__ = ["checked_id", "existing", "notebook_of", "pairs", "sandbox_id_of"]


def notebook_of(text: str) -> Path | None:
    """Return the notebook that is meant, or None for an id.

    Raises
    ------
    SandboxConfigurationError
        It is a path, and there is no notebook.
    """
    if not _is_path(text):
        return None
    path = Path(os.path.abspath(text))
    if not path.suffix or not path.is_file():
        raise SandboxConfigurationError(
            f"{text!r} is no notebook.", hint="Give a notebook's path, or the id of a sandbox."
        )
    return path


def sandbox_id_of(text: str) -> str:
    """Return the id, or for the path of a notebook the id of the sandbox its kernel gets.

    Raises
    ------
    InvalidSandboxIdError
        It is no path, and breaks a rule for ids.
    """
    if not _is_path(text):
        return checked_id(text)
    from sandbox_kernel.kernel.identity import choose  # noqa: PLC0415  start-up time

    path = os.path.abspath(text)
    return choose(
        connection_file="",
        key=b"",
        environ={"JPY_SESSION_NAME": path},
        cwd=os.path.dirname(path),
        configured_id=None,
    ).sandbox_id


def checked_id(text: str) -> str:
    """Return the id if it may name a sandbox; the message names nothing of the Python API.

    Raises
    ------
    InvalidSandboxIdError
        It breaks a rule for ids.
    """
    if check_sandbox_id(text, normalize_id=True) != text:
        raise InvalidSandboxIdError(text, "it holds capital letters")
    return text


def existing(manager: Manager, text: str) -> SandboxInfo:
    """Return what is known of a sandbox.

    Raises
    ------
    SandboxNotFoundError
        There is none.
    """
    sandbox_id = sandbox_id_of(text)
    info = manager.lookup(sandbox_id)
    if info is None:
        raise SandboxNotFoundError(sandbox_id)
    return info


def _is_path(text: str) -> bool:
    return os.sep in text or text.endswith(".ipynb")


def pairs(settings: list[str]) -> dict[str, str]:
    """Return ``NAME=VALUE`` arguments as a mapping.

    Raises
    ------
    SandboxConfigurationError
        One has no name or no equals sign.
    """
    for setting in settings:
        if "=" not in setting or setting.startswith("="):
            raise SandboxConfigurationError(
                f"{setting!r} sets no variable.", hint="Write it as --env NAME=VALUE."
            )
    return dict(setting.split("=", 1) for setting in settings)
