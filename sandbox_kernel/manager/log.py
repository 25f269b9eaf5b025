"""Log lines of the manager, without `logging` for a process that has not asked for it.

A relay uses the manager once and then lives for days; `logging` is a twentieth of its memory.
"""

from __future__ import annotations

import sys

__all__ = ["debug", "info", "warning"]

_NAME = "sandbox_kernel.manager"


def debug(message: str, *arguments: object) -> None:
    """Log what only a developer wants to know."""
    # Without the module there is no handler that would show it.
    if "logging" in sys.modules:
        sys.modules["logging"].getLogger(_NAME).debug(message, *arguments)


def info(message: str, *arguments: object) -> None:
    """Log what happened as it should."""
    if "logging" in sys.modules:
        sys.modules["logging"].getLogger(_NAME).info(message, *arguments)


def warning(message: str, *arguments: object) -> None:
    """Log what somebody should look at; it is shown where no logging is set up, too."""
    import logging  # noqa: PLC0415  the module is there for that

    logging.getLogger(_NAME).warning(message, *arguments)
