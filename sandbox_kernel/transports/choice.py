"""Which transport a handle uses: its option, else ``SANDBOX_TRANSPORT``, else RPC."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.transports.base import Transport
from sandbox_kernel.transports.endpoint import Endpoint
from sandbox_kernel.transports.rpc import RpcTransport

__all__ = ["TRANSPORTS", "AnyTransport", "chosen_transport", "make_transport"]

TRANSPORTS = ("rpc", "http", "websocket", "inprocess")
"""Their names; the first is the default, the last is for runtimes of this very process."""

_VARIABLE = "SANDBOX_TRANSPORT"


class AnyTransport(Transport, Protocol):
    """What every transport here is."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it leads."""
        ...

    async def open(self) -> None:
        """Connect, if it is not connected.

        Raises
        ------
        ContainerUnavailableError
            Nobody listens, or another incarnation than the one that had let us in.
        UnauthorizedError
            Another incarnation listens there by now.
        """
        ...


def chosen_transport(option: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the transport to use.

    Raises
    ------
    SandboxConfigurationError
        There is none of this name.
    """
    source = "transport" if option is not None else _VARIABLE
    name = option if option is not None else environ.get(_VARIABLE) or TRANSPORTS[0]
    if name not in TRANSPORTS:
        raise SandboxConfigurationError(
            f"{source} = {name!r} is unknown.", hint=f"There are: {', '.join(TRANSPORTS)}."
        )
    return name


def make_transport(name: str, endpoint: Endpoint) -> AnyTransport:
    """Return a transport of this name; connects at its first use.

    Parameters
    ----------
    name : str
        One of `TRANSPORTS`.

    Raises
    ------
    SandboxConfigurationError
        ``inprocess`` for a runtime that is elsewhere, as every isolated one is.
    """
    if name == "http":
        from sandbox_kernel.transports.http import HttpTransport  # noqa: PLC0415  few use it

        return HttpTransport(endpoint)
    if name == "websocket":
        from sandbox_kernel.transports.websocket import WebSocketTransport  # noqa: PLC0415  likewise

        return WebSocketTransport(endpoint)
    if name == "inprocess":
        from sandbox_kernel.transports.inprocess import InProcessTransport  # noqa: PLC0415  likewise

        return InProcessTransport(endpoint)
    return RpcTransport(endpoint)
