"""The kernel's WebSocket in a stock server with our extension."""

from __future__ import annotations

import socket

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from jupyter_ext.kernel_ws import SandboxKernelWebsocketConnection


async def test_cells_run_over_a_socket_without_nagles_delay(start_server):
    """TCP_NODELAY is set on the very socket that carries a kernel's messages."""
    async with start_server() as server:
        kernel_id = await server.start_kernel()
        text, client = await server.execute(kernel_id, "print(6 * 7)")
        (connection,) = SandboxKernelWebsocketConnection._open_sockets
        ours = connection.websocket_handler.ws_connection.stream.socket

        assert text == "42\n"
        assert type(connection) is SandboxKernelWebsocketConnection
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        client.close()


async def test_settings_of_the_stock_class_reach_ours(start_server):
    """A server configured for the stock class keeps its limits."""
    async with start_server("--ZMQChannelsWebsocketConnection.iopub_msg_rate_limit=7") as server:
        kernel_id = await server.start_kernel()
        _, client = await server.execute(kernel_id, "1")
        (connection,) = SandboxKernelWebsocketConnection._open_sockets

        assert connection.iopub_msg_rate_limit == 7
        client.close()


class TheUsersOwn(ZMQChannelsWebsocketConnection):
    """A class somebody configured."""


async def test_the_users_own_class_is_respected(start_server):
    """However it was chosen: by configuration, as a trait, and the stock class by name too."""
    key = "kernel_websocket_connection_class"
    async with start_server(**{key: TheUsersOwn}) as server:
        assert server.app.web_app.settings[key] is TheUsersOwn
    name = f"{ZMQChannelsWebsocketConnection.__module__}.ZMQChannelsWebsocketConnection"
    async with start_server(f"--ServerApp.{key}={name}") as server:
        assert server.app.web_app.settings[key] is ZMQChannelsWebsocketConnection


async def test_a_message_that_comes_again_is_dropped(start_server, monkeypatch):
    """A relay's successor sends again what was in flight; the page sees each message once."""
    async with start_server() as server:
        kernel_id = await server.start_kernel()
        _, client = await server.execute(kernel_id, "1")
        (connection,) = SandboxKernelWebsocketConnection._open_sockets
        passed = []
        monkeypatch.setattr(
            ZMQChannelsWebsocketConnection,
            "handle_outgoing_message",
            lambda self, stream, message: passed.append(message),
        )
        session = connection.session
        first = [b"topic", *session.serialize(session.msg("status"))]
        second = [b"topic", *session.serialize(session.msg("status"))]

        for each in (first, second, first, [b"no message"], second):
            connection.handle_outgoing_message("iopub", each)

        assert passed == [first, second, [b"no message"]]
        client.close()
