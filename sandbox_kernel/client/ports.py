"""Ports of a sandbox: connections to what listens inside, and tokens for who may come from outside.

Everything goes through the sandbox's runtime, so a sandbox without network has ports too.
"""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from sandbox_kernel.arguments import count, flag
from sandbox_kernel.client.port_forward import PortForward
from sandbox_kernel.client.port_stream import closed, open_streams
from sandbox_kernel.client.port_wait import wait_request
from sandbox_kernel.errors import (
    ContainerUnavailableError,
    PreviewTokenError,
    ServiceNotRespondingError,
    StalePreviewUrlError,
    UnauthorizedError,
    ValidationFailedError,
)
from sandbox_kernel.manager.ports import ExposedPort, check_exposure
from sandbox_kernel.wire.operations import Empty
from sandbox_kernel.wire.port_operations import (
    HIGHEST_PORT,
    ConnectPortRequest,
    ListeningPort,
    PortList,
    PortReady,
    PortRequest,
    PortState,
    check_port,
)

if TYPE_CHECKING:
    from sandbox_kernel.manager.manager import Manager
    from sandbox_kernel.transports.base import Channel
    from sandbox_kernel.transports.choice import AnyTransport
    from sandbox_kernel.wire.record import Record

__all__ = ["ExposedPort", "ListeningPort", "PortOperations", "PortReady"]

T = TypeVar("T")

_ATTEMPTS = 3
"""In how many incarnations in a row a port may be exposed in vain."""

_STREAM_LIMIT = 256 << 10

_PATIENCE = 30.0
"""Seconds that the end of a block waits for a program to take what was written."""


class PortOperations(ABC):
    """The operations on ports, for a class that has a sandbox."""

    _id: str
    _manager: Manager

    @abstractmethod
    async def _taken(self, work: Callable[[AnyTransport], Awaitable[T]]) -> T: ...

    @abstractmethod
    async def _found(self) -> AnyTransport | None: ...

    @abstractmethod
    async def _asked(self, operation: str, request: Record) -> Record | None: ...

    # --- what listens ---

    async def list_ports(self) -> list[ListeningPort]:
        """Return the ports on which programs inside listen, the lowest first.  Starts nothing.

        Named are those from 1024 on that `connect_port` can reach: at 127.0.0.1, ::1 or every
        address.
        """
        listed = await self._asked("port.list", Empty())
        return [] if listed is None else cast("PortList", listed).ports

    async def wait_for_port(
        self,
        port: int,
        *,
        mode: str = "tcp",
        path: str = "/",
        status: int | tuple[int, int] = (200, 399),
        timeout: float | None = None,  # noqa: ASYNC109  travels to the runtime
    ) -> PortReady:
        """Wait until a program inside listens on a port, or answers there.

        Starts the sandbox, as commands do.  `Process.wait_for_port` ends with its process, too.

        Parameters
        ----------
        port : int
            1024 to 65535.
        mode : str
            ``"tcp"``: a program listens; it is not connected to.  ``"http"``: it answers a GET.
        path : str
            What to GET, of mode ``"http"``.
        status : int or tuple of int
            The right answer, or the first and last of those that are.
        timeout : float, optional
            Seconds; ends the waiting only.

        Raises
        ------
        ProcessReadyTimeoutError
            The time passed first; it says what was missing.
        InvalidPortError, ValidationFailedError
            An argument cannot be used.
        """
        request = wait_request(port, mode=mode, path=path, status=status, timeout=timeout)
        ready = await self._taken(lambda transport: transport.call("port.wait", request))
        return cast("PortReady", ready)

    # --- connections ---

    @asynccontextmanager
    async def connect_port(
        self, port: int, *, limit: int = _STREAM_LIMIT
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Connect to a program inside, as `asyncio.open_connection` does to others.

        Use it in ``async with``, which gives a reader and a writer.  Starts nothing.  At the end of
        the block what was written is delivered, for up to 30 s, and the connection closed; after an
        error, or a cancellation, it is closed at once.  An open one keeps the sandbox awake.

        Parameters
        ----------
        port : int
            1024 to 65535.  A program is reached at 127.0.0.1, else at ::1.
        limit : int
            Bytes that the reader keeps for ``readline`` and its like; past twice as many the
            program waits.

        Raises
        ------
        ServiceNotRespondingError
            Nothing listens there, or the sandbox does not run.
        InvalidPortError
            A sandbox's program cannot be reached at such a port.
        OperationInterruptedError
            In the block, by the reader: the sandbox has stopped.
        ConnectionResetError
            Likewise: the program has broken the connection.
        """
        async with self._streams(await self._connected_port(port), limit) as streams:
            yield streams

    @asynccontextmanager
    async def connect_exposed_port(
        self, port: int, token: str, *, limit: int = _STREAM_LIMIT
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Connect to an exposed port for somebody who has shown a token; else as `connect_port`.

        This is what a proxy does for its visitors.

        Raises
        ------
        PreviewTokenError
            The token is not that of this port of this sandbox.
        StalePreviewUrlError
            The sandbox does not run, or was started anew after the port was exposed.
        """
        exposed = await self._checked(port, token)
        transport = await self._found()
        if transport is None:
            raise StalePreviewUrlError(port)
        try:
            channel = await transport.connect(
                "port.connect", ConnectPortRequest(port=port), incarnation=exposed.incarnation
            )
        except (ContainerUnavailableError, UnauthorizedError) as error:
            raise StalePreviewUrlError(port) from error
        async with self._streams(channel, limit) as streams:
            yield streams

    def forward_port(self, port: int, local_port: int = 0, *, private: bool = False) -> PortForward:
        """Let programs on this machine reach a port of the sandbox at a local address.

        Use it in ``async with``; it listens until the block ends.  Starts nothing.

        Parameters
        ----------
        port : int
            The port inside.
        local_port : int
            Where to listen at 127.0.0.1; 0 for a free one, see `PortForward.port`.  **Every user of
            this machine can connect to it.**
        private : bool
            Listen at a unix socket in a folder that only you can enter instead, see
            `PortForward.path`.

        Raises
        ------
        InvalidPortError, ValidationFailedError
            A port is none.
        OSError
            When it is entered: the local port is in use (``errno.EADDRINUSE``).
        """
        check_port(port)
        local = count("local_port", local_port)
        if local > HIGHEST_PORT:
            raise ValidationFailedError("local_port", f"must be 0 to {HIGHEST_PORT}, not {local}")
        connect = functools.partial(self.connect_port, port)
        return PortForward(connect, local_port=local, is_private=flag("private", private))

    # --- exposing ---

    async def expose_port(
        self, port: int, name: str | None = None, token: str | None = None
    ) -> ExposedPort:
        """Let whoever has a token reach a port, by way of a server that asks for it.

        Nothing is opened by this alone.  The token lasts as long as the sandbox: after a stop or a
        sleep call this again, for the token to open the port of what runs then.

        Parameters
        ----------
        port : int
            1024 to 65535; nothing need listen there yet.
        name : str, optional
            For people; by default the one it has.
        token : str, optional
            1 to 16 of a-z, 0-9 and _, replacing the one it has.  By default that, else 16 random
            characters.

        Raises
        ------
        InvalidPortError, InvalidPortTokenError, ValidationFailedError
            An argument cannot be used, or another port of the sandbox has this token.
        """
        check_exposure(port, token=token, name=name)
        request = PortRequest(port=port)

        async def look(transport: AnyTransport) -> tuple[PortState, str]:
            state = await transport.call("port.get", request)
            return cast("PortState", state), transport.endpoint.token

        for _ in range(_ATTEMPTS):
            state, secret = await self._taken(look)
            exposed = await asyncio.to_thread(
                self._manager.ports.expose,
                self._id,
                port,
                secret=secret,
                incarnation=state.incarnation,
                token=token,
                name=name,
            )
            if exposed is not None:
                return exposed
        raise ContainerUnavailableError(self._id, "it ended again and again meanwhile")

    async def unexpose_port(self, port: int) -> None:
        """Revoke a port's token; connections that are open stay.  Starts nothing.

        A port that is not exposed is fine.
        """
        check_port(port)
        await asyncio.to_thread(self._manager.ports.unexpose, self._id, port)

    async def get_exposed_ports(self) -> list[ExposedPort]:
        """Return the exposed ports that can be used now, the lowest first.  Starts nothing."""
        return await asyncio.to_thread(self._manager.ports.exposed, self._id)

    async def is_port_exposed(self, port: int) -> bool:
        """Whether a port is exposed and can be used now.  Starts nothing."""
        check_port(port)
        return any(each.port == port for each in await self.get_exposed_ports())

    async def validate_port_token(self, port: int, token: str) -> bool:
        """Whether a token opens a port now.  Starts nothing.

        `connect_exposed_port` tells a wrong token from one whose container has gone.
        """
        try:
            await self._checked(port, token)
        except (PreviewTokenError, StalePreviewUrlError):
            return False
        return True

    async def _checked(self, port: int, token: str) -> ExposedPort:
        return await asyncio.to_thread(self._manager.ports.check, self._id, port, token)

    async def _connected_port(self, port: int) -> Channel:
        request = ConnectPortRequest(port=check_port(port))
        transport = await self._found()
        if transport is None:
            raise ServiceNotRespondingError(port, "the sandbox does not run")
        try:
            return await transport.connect("port.connect", request)
        except (ContainerUnavailableError, UnauthorizedError) as error:
            raise ServiceNotRespondingError(port, "the sandbox does not run") from error

    @asynccontextmanager
    async def _streams(
        self, channel: Channel, limit: int
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await open_streams(channel, limit=limit)
        try:
            yield reader, writer
            await closed(writer, patience=_PATIENCE)
        finally:
            writer.transport.abort()
