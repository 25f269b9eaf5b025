"""Comms that the host side owns: widgets whose code the sandbox cannot touch.

The ids carry `HOST_COMM_PREFIX` and are random; the sandbox can neither open, address nor close
one, and a message of it that mentions one is refused.  Because the relay answers, such a comm works
while a cell runs and when the interpreter is dead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox_kernel.kernel.policy import HOST_COMM_PREFIX

__all__ = ["CommMessage", "HostComm", "HostComms"]


@dataclass(frozen=True, slots=True)
class CommMessage:
    """A message to publish for a host comm."""

    msg_type: str
    content: dict[str, Any]  # JSON
    metadata: dict[str, Any] = field(default_factory=dict)
    buffers: Sequence[bytes] = ()


class HostComm(Protocol):
    """What stands behind one host comm."""

    target_name: str

    def open_data(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return data and metadata of the opening message."""
        ...

    def message(
        self, data: dict[str, Any], buffers: Sequence[bytes | memoryview]
    ) -> Iterable[tuple[dict[str, Any], Sequence[bytes]]]:
        """Take a client's message; return the messages to send back, as (data, buffers)."""
        ...

    def closed(self) -> None:
        """Learn that the client has closed the comm."""
        ...


class HostComms:
    """The table of living host comms."""

    def __init__(self) -> None:
        self._comms: dict[str, HostComm] = {}

    def __bool__(self) -> bool:
        return bool(self._comms)

    def __contains__(self, comm_id: object) -> bool:
        return comm_id in self._comms

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield every comm as (id, target name)."""
        return iter([(comm_id, comm.target_name) for comm_id, comm in self._comms.items()])

    def open(self, comm: HostComm) -> tuple[str, CommMessage]:
        """Enter a comm; return its id and the message that opens it at the clients."""
        comm_id = HOST_COMM_PREFIX + os.urandom(16).hex()
        self._comms[comm_id] = comm
        data, metadata = comm.open_data()
        content = {"comm_id": comm_id, "target_name": comm.target_name, "data": data}
        return comm_id, CommMessage("comm_open", content, metadata)

    def close(self, comm_id: str) -> CommMessage:
        """End a comm from this side; return the message that tells the clients."""
        del self._comms[comm_id]
        return CommMessage("comm_close", {"comm_id": comm_id, "data": {}})

    def handle(
        self,
        msg_type: str,
        content: dict[str, Any],
        buffers: Sequence[bytes | memoryview],
    ) -> list[CommMessage]:
        """Take a client's message for a living host comm; return what to publish."""
        comm_id = content["comm_id"]
        comm = self._comms[comm_id]
        if msg_type == "comm_close":
            del self._comms[comm_id]
            comm.closed()
            return []
        data = content.get("data")
        return [
            CommMessage("comm_msg", {"comm_id": comm_id, "data": answer}, buffers=attached)
            for answer, attached in comm.message(data if isinstance(data, dict) else {}, buffers)
        ]

    def mentioned_in(self, encoded: bytes) -> bool:
        """Whether encoded JSON names a host comm anywhere, in a model reference or a view too.

        The ids are plain ASCII and the JSON is our own encoding, so they appear literally.
        """
        return any(comm_id.encode() in encoded for comm_id in self._comms)
