"""Which transport a handle uses: its option, else ``SANDBOX_TRANSPORT``, else RPC."""

from __future__ import annotations

import os
import sys
import warnings
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
_PACKAGE = "sandbox_kernel."


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
    """Return the name of the transport to use; warns where that is deprecated.

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
    if name == "websocket":
        warnings.warn(
            "The WebSocket transport is deprecated; use the RPC transport, which is the default.",
            DeprecationWarning,
            stacklevel=_callers(),
        )
    return name


def _callers() -> int:
    """Return how far up the first caller is outside of this package: there it is to be mended.

    Python shows such a warning to whoever runs the program only where it names the program itself.
    """
    frame, level = sys._getframe(1), 1  # noqa: SLF001  documented, and what `warnings` itself uses
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


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
