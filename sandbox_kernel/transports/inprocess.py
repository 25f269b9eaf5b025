"""The in-process transport: frames over a pair of sockets to a runtime in this very process.

What is encoded, sent and told is the same as over the RPC transport, so a test that uses it proves
the same; only the way is shorter, and there is nothing outside the process to connect to.
"""

from __future__ import annotations

from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.transports.endpoint import Endpoint
from sandbox_kernel.transports.local_doors import SCHEME
from sandbox_kernel.transports.rpc import RpcTransport

__all__ = ["InProcessTransport"]


class InProcessTransport(RpcTransport):
    """Carries calls, streams and channels to a runtime of this process.

    Such a runtime isolates nothing.  Where the sandbox's runtime is elsewhere, as every one that is
    isolated is, this transport refuses it instead of reaching it another way.

    Parameters
    ----------
    endpoint : Endpoint
        The incarnation to talk to, see `sandbox_kernel.transports.local_doors`.

    Raises
    ------
    SandboxConfigurationError
        Its runtime was not started in this process's way.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        if not endpoint.socket.startswith(SCHEME):
            raise SandboxConfigurationError(
                f"The runtime of sandbox {endpoint.sandbox_id!r} is no part of this process.",
                hint="Leave the transport 'inprocess' to engines without isolation, in tests.",
            )
