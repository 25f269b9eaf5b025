"""The kernel's WebSocket: without Nagle's delay, and without repeats."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

import orjson
from jupyter_client.session import DELIM
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

__all__ = ["SandboxKernelWebsocketConnection"]

_REMEMBERED = 4096
"""Message ids kept for comparison: more than a relay has in flight when it is killed."""


class SandboxKernelWebsocketConnection(ZMQChannelsWebsocketConnection):
    """jupyter_server's own connection, with TCP_NODELAY set on its socket and repeats dropped.

    A cell is answered by several small messages.  With Nagle's algorithm on, the second waits for
    the client's delayed acknowledgement of the first, some 40 ms.

    A relay that is killed may have passed on messages it had not yet acknowledged to the sandbox;
    its successor sends them again, under the same ids, so that nothing is lost.  Here is where the
    second copy ends.

    Everything else, settings of `ZMQChannelsWebsocketConnection` in configuration files included,
    is as in the base class.
    """

    # The base class's base declares a coroutine; the handler awaits either.
    def connect(self) -> asyncio.Future[None] | None:  # type: ignore[override]
        """Set the option, then connect to the kernel as the base class does.

        The handler calls this from ``open``: the upgrade is done and the socket is the WebSocket's.
        """
        self._seen: OrderedDict[str, None] = OrderedDict()
        # None when the client has gone between the upgrade and this call.
        if self.websocket_handler.ws_connection is not None:
            self.websocket_handler.set_nodelay(True)
        return super().connect()

    def handle_outgoing_message(self, stream: str, outgoing_msg: list[Any]) -> None:
        """Pass a kernel's message to the client, unless it is a repeat of one passed before."""
        if not self._is_repeat(outgoing_msg):
            super().handle_outgoing_message(stream, outgoing_msg)

    def _is_repeat(self, frames: list[Any]) -> bool:
        try:
            header = orjson.loads(frames[frames.index(DELIM) + 2])
            msg_id = header["msg_id"]
        except (ValueError, LookupError, TypeError):
            # Not ours to judge: the base class says what is wrong with it.
            return False
        if msg_id in self._seen:
            return True
        self._seen[msg_id] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return False
