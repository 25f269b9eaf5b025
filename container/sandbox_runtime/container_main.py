"""Entry of the runtime in a container, whose engine passes no descriptors on.

``python -I -S .../container_main.py PATH`` fetches them through a unix socket that the host listens
on at that path, once: the configuration, the listening socket of the frame door, and the log.  So
the door itself has no path that anybody inside could reach, and the secret in the configuration is
neither in a file nor in the environment.

Without a path the configuration is read from the standard input, which is closed then.
"""

from __future__ import annotations

import os
import sys
from _socket import (  # the module `socket` costs a third of the start
    AF_UNIX,
    CMSG_LEN,
    SCM_RIGHTS,
    SOCK_CLOEXEC,
    SOCK_STREAM,
    SOL_SOCKET,
    socket,
)

__all__ = ["main"]

# Where the configuration expects them; above every number that is in use by then.
_CONFIGURATION, _LISTENER, _LOCK = 20, 21, 22


def main() -> int:
    """Fetch what the host has for us, and be the runtime."""
    if len(sys.argv) > 1:
        try:
            _fetch(sys.argv[1])
        except OSError as error:
            sys.stderr.write(f"the host does not hand the runtime's descriptors over: {error}\n")
            return 1
    else:
        os.dup2(0, _CONFIGURATION, inheritable=False)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
    sys.argv = [sys.argv[0], "--config-fd", str(_CONFIGURATION)]
    sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    from sandbox_runtime.__main__ import main as runtime  # noqa: PLC0415  needs the path

    return runtime()


def _fetch(path: str) -> None:
    """Put the descriptors where the configuration says they are; the log becomes 1 and 2."""
    wanted = (_CONFIGURATION, _LISTENER, _LOCK, 1)
    host = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)
    host.connect(path)
    _, ancillary, _, _ = host.recvmsg(1, CMSG_LEN(4 * len(wanted)))
    host.close()
    given: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
            given += memoryview(data).cast("i").tolist()
    if len(given) != len(wanted):
        raise ConnectionAbortedError("nobody is there any more")
    for fd, number in zip(given, wanted, strict=True):
        os.dup2(fd, number, inheritable=number <= 2)
        os.close(fd)
    os.dup2(1, 2)


if __name__ == "__main__":
    sys.exit(main())
