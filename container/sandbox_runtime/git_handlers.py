"""Handlers of the operations on git repositories; loaded at the first of them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_runtime.dispatch import Handler

__all__ = ["HANDLERS"]

HANDLERS: dict[str, Handler] = {
    "git.checkout": lambda workshop, request, exchange: workshop.checkouts.checkout(
        request, exchange
    ),
}
