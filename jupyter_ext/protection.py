"""What of a locked server holds on this one, found by trying, for ``jupyter sandbox doctor``."""

from __future__ import annotations

import json
import os
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_ext.hardening import runs_in_sandbox
from jupyter_ext.rest import SandboxApiHandler

__all__ = ["HANDLERS", "ProtectionHandler"]

_KNOWN = frozenset(
    {"jupyter_ext", "jupyter_server_terminals", "jupyterlab", "notebook", "notebook_shim"}
)
"""Server extensions that start nothing on a locked server."""


class ProtectionHandler(SandboxApiHandler):
    """What cannot be seen from outside without doing it."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with what the server would start, and what else is on it."""
        kernels = KernelSpecManager().find_kernel_specs()
        default = self.kernel_manager.default_kernel_name
        extensions = self.serverapp.extension_manager.extensions if self.serverapp else {}
        self.answer(
            {
                "host_kernels": [
                    name for name in sorted({*kernels, default}) if await self._starts(name)
                ],
                "external_kernels": bool(self.serverapp and self.serverapp.allow_external_kernels),
                "serves_frames": _serves_frames(),
                "is_superuser": os.geteuid() == 0,
                "other_extensions": sorted(
                    name
                    for name, extension in extensions.items()
                    if extension.enabled and name not in _KNOWN
                ),
            }
        )

    async def _starts(self, name: str) -> bool:
        """Whether a kernel of that name would be started, and not in a sandbox."""
        manager: Any = self.kernel_spec_manager  # of whatever class was chosen
        try:
            spec = await ensure_async(manager.get_kernel_spec(name))
        except NoSuchKernel:
            return False
        return not runs_in_sandbox(spec)


def _serves_frames() -> bool:
    try:
        settings = json.loads(os.environ.get("SANDBOX_CONFIG") or "{}")
        return settings["SandboxKernelApp"]["frame_url"] is not None
    except (ValueError, LookupError, TypeError):
        return False


HANDLERS = [(r"/sandbox/api/protection", ProtectionHandler)]
