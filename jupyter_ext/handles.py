"""The handles on sandboxes that requests of one server share, and with them their connections."""

from __future__ import annotations

from collections import OrderedDict

from sandbox_kernel.client.sandbox import Sandbox, default_manager, get_sandbox
from sandbox_kernel.manager.manager import Manager

__all__ = ["handle", "manager"]

_KEPT = 64
"""Handles kept; the one unused longest goes first, and closes its connection by itself."""

_handles: OrderedDict[str, Sandbox] = OrderedDict()


def handle(sandbox_id: str) -> Sandbox:
    """Return the handle on a sandbox; starts nothing.

    Raises
    ------
    InvalidSandboxIdError
        There cannot be a sandbox of this id.
    """
    found = _handles.pop(sandbox_id, None) or get_sandbox(sandbox_id)
    _handles[sandbox_id] = found
    if len(_handles) > _KEPT:
        _handles.popitem(last=False)
    return found


def manager() -> Manager:
    """Return the manager behind the handles; its verbs wait for disks and locks: use a thread."""
    return default_manager()
