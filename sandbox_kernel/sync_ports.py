"""The operations on ports for code without an event loop; see `sandbox_kernel.sync`."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sandbox_kernel.client.port_forward import PortForward as AsyncPortForward
from sandbox_kernel.client.port_forward import Streams, relay
from sandbox_kernel.client.ports import ExposedPort, ListeningPort, PortReady
from sandbox_kernel.client.sandbox import Sandbox as AsyncSandbox

__all__ = ["BlockingPorts", "PortForward"]

T = TypeVar("T")

_STREAM_LIMIT = 256 << 10
_PATIENCE = 30.0


class BlockingPorts(ABC):
    """Ports of a sandbox; a connection is a socket of the system."""

    _sandbox: AsyncSandbox

    @abstractmethod
    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in the loop, and return its result."""

    def list_ports(self) -> list[ListeningPort]:
        """Return the ports on which programs inside listen.  Starts nothing."""
        return self._wait(self._sandbox.list_ports())

    def wait_for_port(
        self,
        port: int,
        *,
        mode: str = "tcp",
        path: str = "/",
        status: int | tuple[int, int] = (200, 399),
        timeout: float | None = None,
    ) -> PortReady:
        """Wait until a program listens on a port; see `sandbox_kernel.Sandbox.wait_for_port`."""
        return self._wait(
            self._sandbox.wait_for_port(port, mode=mode, path=path, status=status, timeout=timeout)
        )

    @contextmanager
    def connect_port(self, port: int, *, limit: int = _STREAM_LIMIT) -> Iterator[socket.socket]:
        """Connect to a program inside: gives a connected `socket.socket`.

        Use it in ``with``; see `sandbox_kernel.Sandbox.connect_port`.  A connection that breaks
        looks like one that is reset, or like an end after an error of the sandbox's.
        """
        with self._socket(self._sandbox.connect_port(port, limit=limit)) as sock:
            yield sock

    @contextmanager
    def connect_exposed_port(
        self, port: int, token: str, *, limit: int = _STREAM_LIMIT
    ) -> Iterator[socket.socket]:
        """Connect for somebody who has shown a token; gives a socket as `connect_port` does."""
        opened = self._sandbox.connect_exposed_port(port, token, limit=limit)
        with self._socket(opened) as sock:
            yield sock

    def forward_port(self, port: int, local_port: int = 0, *, private: bool = False) -> PortForward:
        """Listen at a local address; see `sandbox_kernel.Sandbox.forward_port`."""
        made = self._sandbox.forward_port(port, local_port, private=private)
        return PortForward(made, self)

    def expose_port(
        self, port: int, name: str | None = None, token: str | None = None
    ) -> ExposedPort:
        """Let whoever has a token reach a port; see `sandbox_kernel.Sandbox.expose_port`."""
        return self._wait(self._sandbox.expose_port(port, name, token))

    def unexpose_port(self, port: int) -> None:
        """Revoke a port's token.  Starts nothing."""
        self._wait(self._sandbox.unexpose_port(port))

    def get_exposed_ports(self) -> list[ExposedPort]:
        """Return the exposed ports that can be used now.  Starts nothing."""
        return self._wait(self._sandbox.get_exposed_ports())

    def is_port_exposed(self, port: int) -> bool:
        """Whether a port is exposed and can be used now.  Starts nothing."""
        return self._wait(self._sandbox.is_port_exposed(port))

    def validate_port_token(self, port: int, token: str) -> bool:
        """Whether a token opens a port now.  Starts nothing."""
        return self._wait(self._sandbox.validate_port_token(port, token))

    @contextmanager
    def _socket(self, opened: AbstractAsyncContextManager[Streams]) -> Iterator[socket.socket]:
        carrier = self._wait(_carry(opened))
        try:
            with carrier.mine:
                yield carrier.mine
        except BaseException:
            self._wait(carrier.end(patience=0.0))
            raise
        self._wait(carrier.end(patience=_PATIENCE))


class _Carrier:
    """Carries what passes a pair of sockets, one of which is the caller's."""

    def __init__(self, mine: socket.socket, task: asyncio.Task[None]) -> None:
        self.mine = mine
        self._task = task

    async def end(self, *, patience: float) -> None:
        """Wait until what the caller wrote is delivered, and no longer than that."""
        await asyncio.wait([self._task], timeout=patience)
        self._task.cancel()
        await asyncio.wait([self._task])


async def _carry(opened: AbstractAsyncContextManager[Streams]) -> _Carrier:
    async with AsyncExitStack() as stack:
        remote = await stack.enter_async_context(opened)
        mine, theirs = socket.socketpair()
        try:
            local = await asyncio.open_unix_connection(sock=theirs, limit=_STREAM_LIMIT)
        except BaseException:
            mine.close()
            theirs.close()
            raise
        ours = stack.pop_all()
    return _Carrier(mine, asyncio.create_task(_run(ours, local, remote)))


async def _run(stack: AsyncExitStack, local: Streams, remote: Streams) -> None:
    try:
        async with stack:
            await relay(local, remote)
    finally:
        local[1].transport.abort()


class PortForward:
    """A local address that leads to a port of a sandbox; see `sandbox_kernel.PortForward`."""

    def __init__(self, forward: AsyncPortForward, ports: BlockingPorts) -> None:
        self._forward = forward
        self._ports = ports

    def __repr__(self) -> str:
        return repr(self._forward)

    @property
    def path(self) -> Path | None:
        """The unix socket that leads to the port; None of a forward by TCP."""
        return self._forward.path

    @property
    def port(self) -> int | None:
        """The local port at 127.0.0.1; None of a private forward."""
        return self._forward.port

    @property
    def url(self) -> str | None:
        """``http://127.0.0.1:PORT``; None of a private forward."""
        return self._forward.url

    def __enter__(self) -> Self:
        self._ports._wait(self._forward.__aenter__())  # noqa: SLF001  it is made there
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ports._wait(self._forward.__aexit__(kind, error, trace))  # noqa: SLF001  likewise
