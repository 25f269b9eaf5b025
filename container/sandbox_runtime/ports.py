"""The ports of the sandbox's programs: who listens, waiting for one, and connections to it."""

from __future__ import annotations

import time

from sandbox_kernel.errors import (
    InvalidPortError,
    OperationInterruptedError,
    PortError,
    ServiceNotRespondingError,
    ValidationFailedError,
)
from sandbox_kernel.wire.port_operations import (
    HIGHEST_PORT,
    LOWEST_PORT,
    ListeningPort,
    PortConnection,
    PortList,
    PortState,
    check_port,
)
from sandbox_runtime.dial import Dial
from sandbox_runtime.listeners import listening, reachable_at
from sandbox_runtime.port_channel import PortChannel
from sandbox_runtime.port_waits import PortWaits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

    from sandbox_kernel.wire.port_operations import (
        ConnectPortRequest,
        PortRequest,
        WaitPortRequest,
    )
    from sandbox_runtime.activity import Activity
    from sandbox_runtime.config import Config
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.loop import Loop
    from sandbox_runtime.processes import Processes

__all__ = ["MOST_CONNECTIONS", "Ports"]

MOST_CONNECTIONS = 256
"""Connections at once; each takes two descriptors, of which the system gives 1024 by default."""

_CHANNEL_BUFFER = 256 << 10
_LONGEST_PATH = 2048


class Ports:
    """What is done at the ports of one incarnation."""

    def __init__(
        self,
        loop: Loop,
        config: Config,
        incarnation: str,
        *,
        processes: Processes,
        activity: Activity,
    ) -> None:
        self._loop = loop
        self._incarnation = incarnation
        self._activity = activity
        self._waits = PortWaits(loop, processes, self._wait_ended)
        self._connections = 0
        listen = config.listen
        own = listen.get("tcp") if isinstance(listen, dict) else None
        self._own_port = own if isinstance(own, int) else None

    def _usable(self, port: int) -> int:
        if check_port(port) == self._own_port:
            raise InvalidPortError(port, "belongs to the sandbox's own runtime")
        return port

    def _listening(self, port: int) -> dict[int, list[str]]:
        try:
            return listening()
        except OSError as error:
            raise PortError(port, f"cannot be looked at: {error.strerror or error}") from error

    # --- looking ------------------------------------------------------------------------------

    def get(self, request: PortRequest) -> PortState:
        """Return what listens on a port."""
        port = self._usable(request.port)
        addresses = self._listening(port).get(port, [])
        return PortState(
            port=port,
            addresses=addresses if reachable_at(addresses) else [],
            incarnation=self._incarnation,
        )

    def known(self) -> PortList:
        """Return every port on which a program listens that can be reached."""
        ports = self._listening(0)
        usable = [
            port
            for port, addresses in sorted(ports.items())
            if LOWEST_PORT <= port <= HIGHEST_PORT
            and port != self._own_port
            and reachable_at(addresses)
        ]
        return PortList(ports=[ListeningPort(port=each, addresses=ports[each]) for each in usable])

    # --- waiting ------------------------------------------------------------------------------

    def wait(self, request: WaitPortRequest, exchange: Exchange) -> None:
        """Answer when a port is ready, or will not be."""
        self._usable(request.port)
        _check_wait(request)
        self._activity.hold(_waiting(request.port))
        self._waits.begin(request, exchange)

    def _wait_ended(self, port: int) -> None:
        self._activity.let_go(_waiting(port), time.monotonic())

    # --- connections --------------------------------------------------------------------------

    def connect(self, request: ConnectPortRequest, exchange: Exchange) -> None:
        """Connect to a program, then turn the client's connection into the channel to it."""
        port = self._usable(request.port)
        if not exchange.connection.can_become_channel:
            raise ValidationFailedError("op", "needs a connection without other calls")
        if self._connections >= MOST_CONNECTIONS:
            raise PortError(
                port,
                f"takes no more connections: the sandbox has {MOST_CONNECTIONS}",
                hint="Close those that are not needed.",
            )
        self._connections += 1

        def connected(service: socket, address: str) -> None:
            exchange.on_cancel = None
            connection = exchange.connection
            if not connection.can_become_channel:
                service.close()
                failed("its client asked for something else meanwhile")
                return
            holder = f"connection to port {port}"
            self._activity.hold(holder)

            def over() -> None:
                self._connections -= 1
                self._activity.let_go(holder, time.monotonic())

            channel = PortChannel(self._loop, connection, service, over)
            exchange.result(PortConnection(port=port, address=address))
            connection.become_channel(channel, send_buffer=_CHANNEL_BUFFER)
            channel.begin()

        def failed(reason: str) -> None:
            self._connections -= 1
            exchange.fail(ServiceNotRespondingError(port, reason))

        def cancelled() -> None:
            dial.cancel()
            self._connections -= 1
            exchange.fail(OperationInterruptedError("port.connect", "the call was cancelled"))

        exchange.on_cancel = cancelled
        dial = Dial(self._loop, port, connected, failed)


def _waiting(port: int) -> str:
    return f"wait for port {port}"


def _check_wait(request: WaitPortRequest) -> None:
    if request.mode not in ("tcp", "http"):
        raise ValidationFailedError("mode", 'must be "tcp" or "http"')
    if not 100 <= request.min_status <= request.max_status <= 599:
        raise ValidationFailedError("min_status", "and max_status must be 100 to 599, in order")
    if request.timeout is not None and not 0 <= request.timeout < 1e9:
        raise ValidationFailedError("timeout", "must be a number of seconds, not below zero")
    path = request.path
    if (
        not path.startswith("/")
        or len(path) > _LONGEST_PATH
        or not path.isascii()
        or not path.isprintable()
        or " " in path
    ):
        raise ValidationFailedError("path", "must begin with '/' and be written as in a URL")
