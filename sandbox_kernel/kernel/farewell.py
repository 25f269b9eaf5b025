"""Destroys the sandbox of a kernel that has ended; started by the relay on its way out."""

from __future__ import annotations

import sys

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.manager.manager import Manager


def main(sandbox_id: str) -> int:
    """Destroy the sandbox; return an exit code."""
    try:
        Manager().destroy(sandbox_id)
    except SandboxError as error:
        print(error, file=sys.stderr)  # noqa: T201  seen when run by hand
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
