"""What the relay says in its own name: statuses, replies and errors around a client's request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox_kernel.kernel.jsontext import write
from sandbox_kernel.kernel.requests import Request, RequestTable
from sandbox_kernel.kernel.sockets import Sockets

__all__ = ["EMPTY", "Speaker"]

EMPTY = b"{}"
"""An object without anything, such as the parent of what belongs to no request."""

_STATES = {
    state: b'{"execution_state":"%s"}' % state.encode() for state in ("busy", "idle", "starting")
}


class Speaker:
    """Builds and sends the relay's own messages.

    Parameters
    ----------
    sockets : Sockets
        Where they go.
    table : RequestTable
        Where requests are closed that were answered here.
    answered : callable, optional
        Told of each request that is answered, with the content of the reply.
    """

    def __init__(
        self,
        sockets: Sockets,
        table: RequestTable,
        answered: Callable[[Request, bytes], None] | None = None,
    ) -> None:
        self._sockets = sockets
        self._table = table
        self._answered = answered

    def publish(
        self,
        msg_type: str,
        parent: bytes,
        content: bytes,
        *,
        metadata: bytes = EMPTY,
        buffers: Sequence[bytes | memoryview] = (),
        msg_id: str | None = None,
        follow: bool = False,
    ) -> None:
        """Publish on iopub; see `Sockets.publish`."""
        self._sockets.publish(
            b"kernel." + msg_type.encode(),
            msg_type,
            parent,
            content,
            metadata=metadata,
            buffers=buffers,
            msg_id=msg_id,
            follow=follow,
        )

    def status(self, state: str, parent: bytes, msg_id: str | None = None) -> None:
        """Publish a status."""
        self._sockets.publish(b"kernel.status", "status", parent, _STATES[state], msg_id=msg_id)

    def welcome(self, topic: bytes) -> None:
        """Greet a new subscriber."""
        content = write({"subscription": topic.decode("utf-8", "replace")})
        self._sockets.publish(topic, "iopub_welcome", EMPTY, content)

    def reply(
        self,
        request: Request,
        content: bytes,
        *,
        metadata: bytes = EMPTY,
        buffers: Sequence[memoryview] = (),
        msg_id: str | None = None,
    ) -> None:
        """Send the reply of a request to whoever asked."""
        self._sockets.send(
            request.channel,
            request.identities,
            str(request.reply_type),
            request.header,
            content,
            metadata=metadata,
            buffers=buffers,
            msg_id=msg_id,
        )
        if self._answered is not None:
            self._answered(request, content)

    def answer(self, request: Request, content: Mapping[str, Any]) -> None:
        """Answer a request that the sandbox never sees: busy, reply, idle."""
        self.status("busy", request.header)
        self.reply(request, write(content))
        self.status("idle", request.header)

    def fail(self, request: Request, ename: str, evalue: str, detail: Sequence[str] = ()) -> None:
        """Answer an open request with an error and close it."""
        error = {"ename": ename, "evalue": evalue, "traceback": [f"{ename}: {evalue}", *detail]}
        if not request.replied:
            if not request.busy:
                self.status("busy", request.header)
            content: dict[str, Any] = {"status": "error", **error}
            if request.is_execute:
                if not request.silent:
                    self.publish("error", request.header, write(error))
                content["execution_count"] = self._table.execution_count
            self.reply(request, write(content))
        self.status("idle", request.header)
        self._table.close(request)
