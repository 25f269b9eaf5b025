"""The handlers of the operations on sessions; loaded when one of them is called."""

from __future__ import annotations

from sandbox_kernel.wire.operations import Empty
from sandbox_kernel.wire.session_operations import SessionList

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandbox_kernel.wire.record import Record
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.dispatch import Handler
    from sandbox_runtime.workshop import Workshop

__all__ = ["HANDLERS"]


def _delete(workshop: Workshop, request: Any, _exchange: Exchange) -> Record:
    workshop.sessions.delete(request.session_id)
    return Empty()


def _list(workshop: Workshop, _request: Any, _exchange: Exchange) -> Record:
    return SessionList(sessions=workshop.sessions.known())


HANDLERS: dict[str, Handler] = {
    "session.create": lambda workshop, request, _exchange: workshop.sessions.create(request),
    "session.get": lambda workshop, request, _: workshop.sessions.get(request.session_id).info(),
    "session.list": _list,
    "session.delete": _delete,
    "session.set_env": lambda workshop, request, exchange: workshop.sessions.set_env(
        request, exchange
    ),
}
