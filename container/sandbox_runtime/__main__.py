"""Entry of the runtime: ``python -I -S .../sandbox_runtime/__main__.py --config-fd N``."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Read the configuration, apply it to this process, and serve."""
    if len(sys.argv) != 3 or sys.argv[1] != "--config-fd" or not sys.argv[2].isdecimal():
        sys.stderr.write("usage: __main__.py --config-fd N\n")
        return 2
    # A descriptor 0, 1 or 2 that is missing would be taken by the next pipe.
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(fd, True)
    os.close(fd)
    # Isolated mode leaves the folder of our two packages out of the path.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from sandbox_kernel.errors import SandboxError  # noqa: PLC0415
    from sandbox_runtime.config import read_config  # noqa: PLC0415
    from sandbox_runtime.server import Runtime  # noqa: PLC0415

    try:
        config = read_config(int(sys.argv[2]))
        runtime = Runtime(config)
    except (SandboxError, OSError) as error:
        sys.stderr.write(f"the runtime cannot start: {error}\n")
        return 1
    _take_name()
    runtime.run()
    return 0


def _take_name() -> None:
    """Be no "python" for who ends programs by name, such as ``pkill python`` in a terminal."""
    try:
        name = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    os.write(name, b"sandbox-runtime")
    os.close(name)


if __name__ == "__main__":
    sys.exit(main())
