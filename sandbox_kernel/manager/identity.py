"""What may name a sandbox, and fresh names for what nobody named."""

from __future__ import annotations

import os
import re
from typing import NewType

from sandbox_kernel.errors import InvalidSandboxIdError

__all__ = [
    "SandboxId",
    "check_sandbox_id",
    "new_ephemeral_id",
    "new_lifetime",
    "new_pool_id",
    "new_token",
]

SandboxId = NewType("SandboxId", str)
"""An id that `check_sandbox_id` has accepted."""

_LONGEST = 63
_RESERVED = frozenset({"www", "api", "admin", "root", "system", "cloudflare", "workers"})
_LABEL = re.compile(r"[a-z0-9-]+", re.ASCII)


def check_sandbox_id(sandbox_id: str, *, normalize_id: bool = False) -> SandboxId:
    """Return the id if it may name a sandbox.

    An id is a lower-case DNS label, so that it can be a folder, a host name, a container name and
    a part of a preview address without being changed on the way.

    Parameters
    ----------
    sandbox_id : str
        The id as a person wrote it.
    normalize_id : bool
        Lower the id first: ``MyProject`` then names the sandbox ``myproject``.

    Raises
    ------
    InvalidSandboxIdError
        With code ``INVALID_SANDBOX_ID_LENGTH``, ``INVALID_SANDBOX_ID_HYPHENS``,
        ``RESERVED_SANDBOX_ID``, or ``INVALID_SANDBOX_ID`` for other characters and what is no text.
    """
    if not isinstance(sandbox_id, str):
        raise InvalidSandboxIdError(str(sandbox_id), "it is no text")
    label = sandbox_id.lower() if normalize_id else sandbox_id
    if not 1 <= len(label) <= _LONGEST:
        raise InvalidSandboxIdError(
            sandbox_id, f"it has {len(label)} characters", code="INVALID_SANDBOX_ID_LENGTH"
        )
    if label.startswith("-") or label.endswith("-"):
        raise InvalidSandboxIdError(
            sandbox_id, "it begins or ends with a hyphen", code="INVALID_SANDBOX_ID_HYPHENS"
        )
    if label.lower() in _RESERVED:
        raise InvalidSandboxIdError(sandbox_id, "the word is reserved", code="RESERVED_SANDBOX_ID")
    if _LABEL.fullmatch(label) is None:
        rule = "it holds other characters than lower-case letters, digits and hyphens"
        if label.isascii() and _LABEL.fullmatch(label.lower()) is not None:
            rule = "it holds capital letters, and normalize_id is off"
        raise InvalidSandboxIdError(sandbox_id, rule)
    return SandboxId(label)


def new_ephemeral_id() -> SandboxId:
    """Return a fresh id for a sandbox that nobody named."""
    return SandboxId(f"k-{os.urandom(6).hex()}")


def new_pool_id() -> SandboxId:
    """Return a fresh id for a place in a pool; the sandbox there gets another one from its user."""
    return SandboxId(f"pool-{os.urandom(6).hex()}")


def new_lifetime() -> str:
    """Return a fresh lifetime id: 16 hexadecimal digits, also the name of its folder."""
    return os.urandom(8).hex()


def new_token() -> str:
    """Return a fresh incarnation token of 256 bits."""
    return os.urandom(32).hex()
