"""The WebSocket transport, deprecated: JSON messages, for what cannot speak the frame door."""

from __future__ import annotations

import os

from sandbox_kernel.transports.endpoint import Endpoint
from sandbox_kernel.transports.link import Link
from sandbox_kernel.transports.rpc import RpcTransport
from sandbox_kernel.wire.websocket import WebSocketClient

__all__ = ["WebSocketTransport"]


class WebSocketTransport(RpcTransport):
    """Carries calls and streams over one WebSocket; channels go by the frame door.

    .. deprecated:: 0.1
       It does nothing that the RPC transport does not do in less time.

    Parameters
    ----------
    endpoint : Endpoint
        The incarnation to talk to.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)

    async def _new_link(self, *, was_admitted: bool) -> Link:
        protocol = WebSocketClient(os.urandom)
        return await Link.open(self.endpoint, protocol, was_admitted=was_admitted)
