"""One call to a runtime and its answer, without an event loop."""

from __future__ import annotations

import socket
import time
from typing import Any

from sandbox_kernel.errors import OperationInterruptedError, SandboxError, TransportError
from sandbox_kernel.transports.endpoint import Endpoint, connect
from sandbox_kernel.wire.codec import decode, encode
from sandbox_kernel.wire.operations import OPERATIONS
from sandbox_kernel.wire.record import Record
from sandbox_kernel.wire.rpc import ClientConnection, Failed, Result

__all__ = ["call_once"]


def call_once(endpoint: Endpoint, operation: str, request: Record, *, timeout: float) -> Any:
    """Ask a runtime for an operation that answers once and return its result.

    Raises
    ------
    ContainerUnavailableError
        Nobody listens at the endpoint.
    OperationInterruptedError
        The runtime did not answer within `timeout` seconds, or hung up.
    SandboxError
        What the runtime answered.
    """
    row = OPERATIONS[operation]
    deadline = time.monotonic() + timeout
    with connect(endpoint, timeout=timeout) as client:
        protocol = ClientConnection()
        value, body = encode(request)
        hello = protocol.hello(endpoint.token, "manager")
        call, asked = protocol.call(operation, value, body)
        try:
            _set_deadline(client, deadline)
            client.sendall(hello + asked)
            while True:
                _set_deadline(client, deadline)
                data = client.recv(65536)
                if not data:
                    raise OperationInterruptedError(operation, "the runtime hung up")
                for event in protocol.receive(data):
                    if isinstance(event, Result) and event.call == call:
                        return decode(row.result, event.value, event.body)
                    if isinstance(event, Failed) and event.call in (0, call):
                        raise _as_error(event.error)
        except OSError as error:
            reason = error.strerror or f"no answer within {timeout:g} s"
            raise OperationInterruptedError(operation, reason) from error


def _set_deadline(client: socket.socket, deadline: float) -> None:
    client.settimeout(max(0.001, deadline - time.monotonic()))


def _as_error(error: object) -> SandboxError:
    return error if isinstance(error, SandboxError) else TransportError(str(error))
