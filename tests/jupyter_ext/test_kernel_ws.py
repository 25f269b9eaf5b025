"""The kernel's WebSocket in a stock server with our extension."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import zmq
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.iostream import StreamClosedError

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


@asynccontextmanager
async def connected(server):
    """Yield the connection of a client that has run a cell."""
    kernel_id = await server.start_kernel()
    _, client = await server.execute(kernel_id, "1")
    (connection,) = SandboxKernelWebsocketConnection._open_sockets
    yield connection
    client.close()


async def test_a_message_that_comes_again_is_dropped(start_server, monkeypatch):
    """A relay's successor sends again what was in flight; the page sees each message once."""
    async with start_server() as server, connected(server) as connection:
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


class KernelStream:
    """What a connection sees of a kernel's channel, with a real socket; messages are sent to it."""

    channel = "iopub"

    def __init__(self, context: zmq.Context) -> None:
        self.socket, self._far = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        self.socket.bind("inproc://kernel")
        self._far.connect("inproc://kernel")
        self.is_closed = False

    def closed(self) -> bool:
        return self.is_closed

    def arrive(self, *messages: list[bytes]) -> None:
        for message in messages:
            self._far.send_multipart(message)

    def close(self) -> None:
        self.socket.close(0)
        self._far.close(0)


@pytest.fixture
def kernel_stream() -> Iterator[KernelStream]:
    with zmq.Context() as context:
        stream = KernelStream(context)
        yield stream
        stream.close()


@contextmanager
def writes(connection, monkeypatch) -> Iterator[list[bytes]]:
    """Record what goes to the client, in pieces as they are written."""
    written: list[bytes] = []
    with monkeypatch.context() as patch:
        stream = connection.websocket_handler.ws_connection.stream
        patch.setattr(stream, "write", lambda data: written.append(bytes(data)))
        yield written


def displays(connection, texts: list[str]) -> list[list[bytes]]:
    session = connection.session
    return [
        [b"topic", *session.serialize(session.msg("display_data", {"data": {"text/plain": text}}))]
        for text in texts
    ]


async def test_messages_that_have_come_together_leave_in_one_write(
    start_server, monkeypatch, kernel_stream
):
    """Each in a frame of its own, in order; after some of them the server has other turns."""
    async with start_server() as server, connected(server) as connection:
        names = [f"number {n}!" for n in range(20)]
        first, *others = displays(connection, names)
        kernel_stream.arrive(*others)

        with writes(connection, monkeypatch) as written:
            connection._take(kernel_stream, first)
            taken = list(written)
            connection._take(kernel_stream, kernel_stream.socket.recv_multipart())

        assert len(taken) == 1
        assert len(written) == 2
        places = [b"".join(written).index(name.encode()) for name in names]
        assert places == sorted(places)
        assert written[0].count(b"number") == 16


async def test_a_large_message_goes_by_itself_in_its_place(
    start_server, monkeypatch, kernel_stream
):
    """It is not copied for company, and nothing overtakes it."""
    async with start_server() as server, connected(server) as connection:
        first, *others = displays(connection, ["before", "large" * 50_000, "after", "last"])
        kernel_stream.arrive(*others)

        with writes(connection, monkeypatch) as written:
            connection._take(kernel_stream, first)

        found = [[w in each for w in (b"before", b"large", b"after", b"last")] for each in written]
        assert found == [
            [True, False, False, False],
            [False, True, False, False],
            [False, False, True, True],
        ]


async def test_a_connection_that_compresses_gets_each_message_from_tornado(
    start_server, monkeypatch, kernel_stream
):
    """What joins them makes plain frames only."""
    async with (
        start_server(websocket_compression_options={}) as server,
        connected(server) as connection,
    ):
        passed = []
        handler = connection.websocket_handler
        monkeypatch.setattr(
            handler, "write_message", lambda message, binary=False: passed.append(message)
        )
        first, *others = displays(connection, ["one", "two"])
        kernel_stream.arrive(*others)

        connection._take(kernel_stream, first)

        assert handler.ws_connection.params.compression_options is not None
        assert ["one" in passed[0], "two" in passed[1], len(passed)] == [True, True, 2]


async def test_messages_for_a_client_that_has_gone_end_nothing(
    start_server, monkeypatch, kernel_stream
):
    """Its handler hears of it; the kernel's messages before that go nowhere."""
    async with start_server() as server, connected(server) as connection:
        stream = connection.websocket_handler.ws_connection.stream
        first, *others = displays(connection, ["one", "two"])
        kernel_stream.arrive(*others)

        def has_gone(_data: bytes) -> None:
            raise StreamClosedError

        monkeypatch.setattr(stream, "write", has_gone)
        connection._take(kernel_stream, first)

        assert connection._together is None
        assert not kernel_stream.socket.poll(0)
