"""Handlers of the operations on files; loaded at the first of them."""

from __future__ import annotations

from sandbox_kernel.wire.operations import Empty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandbox_kernel.wire.record import Record
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.dispatch import Handler
    from sandbox_runtime.workshop import Workshop

__all__ = ["HANDLERS"]


def _abort_write(workshop: Workshop, request: Any, _exchange: Exchange) -> Record:
    workshop.files.uploads.abort(request.upload_id)
    return Empty()


HANDLERS: dict[str, Handler] = {
    "file.read": lambda workshop, request, exchange: workshop.files.read(request, exchange),
    "file.write": lambda workshop, request, exchange: workshop.files.write(request, exchange),
    "file.begin_write": lambda workshop, request, exchange: workshop.files.begin_write(
        request, exchange
    ),
    "file.write_part": lambda workshop, request, exchange: workshop.files.uploads.write_part(
        request, exchange
    ),
    "file.end_write": lambda workshop, request, exchange: workshop.files.uploads.end(
        request, exchange
    ),
    "file.abort_write": _abort_write,
    "file.mkdir": lambda workshop, request, exchange: workshop.files.mkdir(request, exchange),
    "file.delete": lambda workshop, request, exchange: workshop.files.delete(request, exchange),
    "file.rename": lambda workshop, request, exchange: workshop.files.rename(request, exchange),
    "file.move": lambda workshop, request, exchange: workshop.files.move(request, exchange),
    "file.symlink": lambda workshop, request, exchange: workshop.files.symlink(request, exchange),
    "file.chmod": lambda workshop, request, exchange: workshop.files.chmod(request, exchange),
    "file.exists": lambda workshop, request, exchange: workshop.files.exists(request, exchange),
    "file.stat": lambda workshop, request, exchange: workshop.files.stat(request, exchange),
    "file.list": lambda workshop, request, exchange: workshop.files.list(request, exchange),
    "file.pack": lambda workshop, request, exchange: workshop.files.pack(request, exchange),
    "file.watch": lambda workshop, request, exchange: workshop.files.watches.watch(
        request, exchange
    ),
    "file.check_changes": lambda workshop, request, exchange: workshop.files.changes.check(
        request, exchange
    ),
    "file.unpack": lambda workshop, request, exchange: workshop.files.unpack(request, exchange),
}
