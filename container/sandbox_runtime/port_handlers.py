"""The handlers of operations on ports; loaded at the first of them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_runtime.dispatch import Handler

__all__ = ["HANDLERS"]

HANDLERS: dict[str, Handler] = {
    "port.get": lambda workshop, request, _exchange: workshop.ports.get(request),
    "port.list": lambda workshop, _request, _exchange: workshop.ports.known(),
    "port.wait": lambda workshop, request, exchange: workshop.ports.wait(request, exchange),
    "port.connect": lambda workshop, request, exchange: workshop.ports.connect(request, exchange),
}
