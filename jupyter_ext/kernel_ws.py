"""The kernel's WebSocket without Nagle's delay."""

from __future__ import annotations

import asyncio

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

__all__ = ["SandboxKernelWebsocketConnection"]


class SandboxKernelWebsocketConnection(ZMQChannelsWebsocketConnection):
    """jupyter_server's own connection, with TCP_NODELAY set on its socket.

    A cell is answered by several small messages.  With Nagle's algorithm on, the second waits for
    the client's delayed acknowledgement of the first, some 40 ms.  Everything else, settings of
    `ZMQChannelsWebsocketConnection` in configuration files included, is as in the base class.
    """

    # The base class's base declares a coroutine; the handler awaits either.
    def connect(self) -> asyncio.Future[None] | None:  # type: ignore[override]
        """Set the option, then connect to the kernel as the base class does.

        The handler calls this from ``open``: the upgrade is done and the socket is the WebSocket's.
        """
        # None when the client has gone between the upgrade and this call.
        if self.websocket_handler.ws_connection is not None:
            self.websocket_handler.set_nodelay(True)
        return super().connect()
