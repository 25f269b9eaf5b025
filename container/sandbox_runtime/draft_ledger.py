"""Where drafts are written down, and whether there is anything to read there."""

from __future__ import annotations

import os

__all__ = ["has_drafts", "ledger_of"]

_LEDGER = ".sandbox-drafts"


def ledger_of(home: str | None) -> str | None:
    """Return the path of the list of drafts; None where there is no folder that lasts."""
    return os.path.join(home, _LEDGER) if home and os.path.isabs(home) else None


def has_drafts(home: str | None) -> bool:
    """Whether an earlier runtime may have left drafts behind."""
    path = ledger_of(home)
    try:
        return path is not None and os.lstat(path).st_size > 0
    except OSError:
        return False
