"""Which TCP ports programs listen on, as the system knows: asked for, since it tells nobody.

Linux has no event for the begin of listening.  Its socket diagnosis (sock_diag(7)) lists listeners
alone, in a tenth of a millisecond whatever else is connected; where it is not built in, the tables
in ``/proc`` have them among all connections.
"""

from __future__ import annotations

import os
import struct
from _socket import AF_INET, AF_INET6, SOCK_CLOEXEC, SOCK_RAW, inet_ntop, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Address = tuple[int, bytes]

__all__ = ["LOOPBACK", "listening", "reachable_at"]

LOOPBACK = ("127.0.0.1", "::1")
"""Where a port is tried, in this order."""

_EVERY = {"0.0.0.0": ("127.0.0.1",), "::": ("127.0.0.1", "::1")}  # noqa: S104  compared only
"""What a program that listens at every address can be reached at; `::` often takes both kinds."""

_AF_NETLINK = 16
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_TCP = 6
_LISTEN = 10
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_QUERY = struct.Struct("=BBBBI48x")  # struct inet_diag_req_v2; any socket
_ANSWER = struct.Struct(">4xH2x16s")  # struct inet_diag_msg: source port and address

_READ_BYTES = 64 << 10


def listening() -> dict[int, list[str]]:
    """Return the addresses that are listened at, by port.

    Raises
    ------
    OSError
        The system does not tell, as for want of descriptors.
    """
    try:
        found = list(_diagnosed())
    except OSError:
        found = list(_tabled())
    ports: dict[int, list[str]] = {}
    for port, address in found:
        text = inet_ntop(AF_INET if len(address) == 4 else AF_INET6, address)
        # A program that has one kind of socket for both (Java) means the IPv4 address by this.
        text = text.removeprefix("::ffff:")
        if text not in ports.setdefault(port, []):
            ports[port].append(text)
    return ports


def reachable_at(addresses: list[str]) -> list[str]:
    """Return at which of the loopback addresses somebody who listens at these can be reached."""
    found = {each for address in addresses for each in _EVERY.get(address, (address,))}
    return [each for each in LOOPBACK if each in found]


def _diagnosed() -> Iterator[Address]:
    diag = socket(_AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    try:
        for family in (AF_INET, AF_INET6):
            query = _QUERY.pack(family, _TCP, 0, 0, 1 << _LISTEN)
            size = _HEADER.size + len(query)
            diag.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + query)
            yield from _answers(diag, 4 if family == AF_INET else 16)
    finally:
        diag.close()


def _answers(diag: socket, width: int) -> Iterator[Address]:
    while True:
        # The kernel has the next part ready when it is asked for: this does not wait.
        data = diag.recv(_READ_BYTES)
        position = 0
        while position + _HEADER.size <= len(data):
            size, kind, _, _, _ = _HEADER.unpack_from(data, position)
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR or size < _HEADER.size + _ANSWER.size:
                raise OSError("no socket diagnosis")
            port, address = _ANSWER.unpack_from(data, position + _HEADER.size)
            yield port, address[:width]
            position += (size + 3) & ~3


def _tabled() -> Iterator[Address]:
    for name in ("tcp", "tcp6"):
        try:
            lines = _read(f"/proc/self/net/{name}").split(b"\n")
        except FileNotFoundError:
            continue  # no IPv6
        for line in lines:
            if b" 0A " in line:
                address, _, port = line.split()[1].partition(b":")
                yield int(port, 16), _address(bytes.fromhex(address.decode()))


def _address(words: bytes) -> bytes:
    """Return an address in network order; the tables print it as words of the machine's order."""
    count = len(words) // 4
    return struct.pack(f"={count}I", *struct.unpack(f">{count}I", words))


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, _READ_BYTES):
            parts.append(part)
    finally:
        os.close(fd)
    return b"".join(parts)
