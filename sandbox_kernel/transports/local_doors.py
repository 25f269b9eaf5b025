"""Runtimes in this very process, by address: whoever runs one opens a door for it here."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["SCHEME", "Door", "close_door", "connect_here", "open_door"]

SCHEME = "inprocess:"
"""How the address of such a runtime begins; the rest names it within the process."""

Door: TypeAlias = Callable[[int], None]
"""Takes over the descriptor of a connected stream socket, and serves a client on it."""

_doors: dict[str, Door] = {}


def open_door(name: str, door: Door) -> str:
    """Let this process's clients in, by the latest door of this name; return the address."""
    address = f"{SCHEME}{os.getpid()}/{name}"
    _doors[address] = door
    return address


def close_door(address: str) -> None:
    """Let nobody in any more; a second time is fine."""
    _doors.pop(address, None)


def connect_here(address: str) -> socket.socket:
    """Return one end of a new pair of sockets, whose other end the runtime has.

    Raises
    ------
    OSError
        No runtime of this process has the address.
    """
    door = _doors.get(address)
    if door is None:
        raise OSError(errno.ECONNREFUSED, "its runtime was in a process, and is not in this one")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    door(theirs.detach())
    return ours
