"""Destroys the sandbox of a kernel that has ended; started by the relay on its way out.

After a crash Jupyter may start the kernel again at once, in the same sandbox.  So the relay asks
for a wait then, and a sandbox which a new relay has attached to meanwhile is left alone.
"""

from __future__ import annotations

import sys
import time

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.kernel.link import has_relay
from sandbox_kernel.manager.manager import Manager


def main(sandbox_id: str, wait: float) -> int:
    """Destroy the sandbox after `wait` seconds unless it serves a kernel; return an exit code."""
    time.sleep(wait)
    try:
        manager = Manager()
        if wait and (found := manager.lookup(sandbox_id)) is not None and found.state == "running":
            running = manager.ensure(sandbox_id)
            if has_relay(running.endpoint):
                return 0
        manager.destroy(sandbox_id)
        # Sandboxes of kernels that were killed outright have nobody else to clean up after them.
        manager.gc()
    except SandboxError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
