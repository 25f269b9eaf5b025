"""Operations on the ports of a sandbox, and what travels on the channel of one connection.

A port is that of a program inside, which listens at 127.0.0.1 or ::1 (or at every address).
"""

from __future__ import annotations

from sandbox_kernel.errors import InvalidPortError, ProtocolViolationError
from sandbox_kernel.wire.codec import dump_json, load_json
from sandbox_kernel.wire.names import Name
from sandbox_kernel.wire.operations import Empty, Kind, Operation
from sandbox_kernel.wire.record import Record

__all__ = [
    "HIGHEST_PORT",
    "LOWEST_PORT",
    "PIECE",
    "ROWS",
    "ConnectPortRequest",
    "ListeningPort",
    "PortConnection",
    "PortEvent",
    "PortList",
    "PortOrder",
    "PortReady",
    "PortRequest",
    "PortState",
    "WaitPortRequest",
    "check_port",
    "port_event",
    "port_order",
    "told",
]

LOWEST_PORT = 1024
HIGHEST_PORT = 65535

PIECE = 256 << 10
"""Most bytes in one frame of a port's channel, so that neither end must hold more at once."""


def check_port(port: object) -> int:
    """Return the port if a sandbox's program may be reached at it.

    Raises
    ------
    InvalidPortError
        It is no whole number from 1024 to 65535.
    """
    if isinstance(port, bool) or not isinstance(port, int):
        raise InvalidPortError(port)
    if not LOWEST_PORT <= port <= HIGHEST_PORT:
        raise InvalidPortError(port)
    return port


class PortRequest(Record):
    """Names a port."""

    port: int


class PortState(Record):
    """What listens on a port now; `addresses` is empty while nothing can be reached there."""

    port: int
    addresses: list[str]
    incarnation: str


class ListeningPort(Record):
    """A port on which a program listens that can be reached; its addresses as the program gave."""

    port: int
    addresses: list[str]


class PortList(Record):
    """Every such port, the lowest first."""

    ports: list[ListeningPort]


class WaitPortRequest(Record):
    """Wait until a program listens on a port, or answers there.

    Of mode ``tcp`` it has to listen; of mode ``http`` a GET of `path` has to be answered with a
    status from `min_status` to `max_status`.  With `process_id` the wait fails when that process
    has ended.
    """

    port: int
    mode: str = "tcp"
    path: str = "/"
    min_status: int = 200
    max_status: int = 399
    timeout: float | None = None
    process_id: str | None = None


class PortReady(Record):
    """A port is ready."""

    port: int
    status: int | None = None
    """What it answered, of mode ``http``."""
    waited: float = 0.0


class ConnectPortRequest(Record):
    """Connect to a port at 127.0.0.1, or if nothing listens there at ::1."""

    port: int


class PortConnection(Record):
    """The connection stands; its bytes follow on the channel."""

    port: int
    address: str


class PortOrder(Name):
    """What a client says of its connection, beside bytes."""

    END = "end"
    """It will send nothing more."""
    CLOSE = "close"
    """It will send and take nothing more; the channel is closed once all is delivered."""


class PortEvent(Name):
    """What a client is told of its connection, beside bytes."""

    END = "end"
    """The program will send nothing more."""
    RESET = "reset"
    """The program, or the system, has broken the connection."""


def told(what: PortOrder | PortEvent) -> bytes:
    """Return the payload of CONTROL or EVENT."""
    return dump_json({"type": what.value})


def port_order(payload: bytes | memoryview) -> PortOrder | None:
    """Return what a CONTROL frame says; None for what a newer client may say."""
    kind = _kind(payload)
    return PortOrder(kind) if kind in ("end", "close") else None


def port_event(payload: bytes | memoryview) -> PortEvent | None:
    """Return what an EVENT frame says; None for what a newer runtime may say."""
    kind = _kind(payload)
    return PortEvent(kind) if kind in ("end", "reset") else None


def _kind(payload: bytes | memoryview) -> object:
    value = load_json(bytes(payload[:4096]))
    if not isinstance(value, dict):
        raise ProtocolViolationError("a CONTROL or EVENT that is no object")
    return value.get("type")


ROWS = (
    Operation("port.get", Kind.CALL, PortRequest, PortState, idempotent=True),
    Operation("port.list", Kind.CALL, Empty, PortList, idempotent=True),
    Operation("port.wait", Kind.CALL, WaitPortRequest, PortReady, idempotent=True),
    Operation("port.connect", Kind.CHANNEL, ConnectPortRequest, PortConnection),
)
