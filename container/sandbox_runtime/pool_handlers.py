"""The handlers of operations on a sandbox that waits in a pool; loaded at the first of them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_runtime.dispatch import Handler

__all__ = ["HANDLERS"]

HANDLERS: dict[str, Handler] = {
    "pool.warm": lambda workshop, request, exchange: workshop.kernels.warm(request, exchange),
    "pool.claim": lambda workshop, request, _exchange: workshop.claim(request),
}
