"""What of a locked server holds on this one, found by trying, for ``jupyter sandbox doctor``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_core.utils import ensure_async

from jupyter_ext.hardening import runs_in_sandbox
from sandbox_kernel.wire.record import Record

if TYPE_CHECKING:
    from jupyter_ext.rest import RestHandler

__all__ = ["Protection", "ProtectionRequest", "protection"]

_KNOWN = frozenset(
    {"jupyter_ext", "jupyter_server_terminals", "jupyterlab", "notebook", "notebook_shim"}
)
"""Server extensions that start nothing on a locked server."""


class ProtectionRequest(Record):
    """Nothing is asked but how the server is."""


class Protection(Record):
    """What cannot be seen from outside without doing it."""

    host_kernels: list[str]
    """Kernels that the server would start outside of a sandbox."""
    external_kernels: bool
    serves_frames: bool
    is_superuser: bool
    other_extensions: list[str]
    """Server extensions that may start something."""


async def protection(handler: RestHandler, _: ProtectionRequest) -> Protection:
    """Answer with what the server would start, and what else is on it."""
    kernels = KernelSpecManager().find_kernel_specs()
    default = handler.kernel_manager.default_kernel_name
    server = handler.serverapp
    extensions = server.extension_manager.extensions if server else {}
    return Protection(
        host_kernels=[name for name in sorted({*kernels, default}) if await _starts(handler, name)],
        external_kernels=bool(server and server.allow_external_kernels),
        serves_frames=_serves_frames(),
        is_superuser=os.geteuid() == 0,
        other_extensions=sorted(
            name
            for name, extension in extensions.items()
            if extension.enabled and name not in _KNOWN
        ),
    )


async def _starts(handler: RestHandler, name: str) -> bool:
    """Whether a kernel of that name would be started, and not in a sandbox."""
    specs: Any = handler.kernel_spec_manager  # of whatever class was chosen
    try:
        spec = await ensure_async(specs.get_kernel_spec(name))
    except NoSuchKernel:
        return False
    return not runs_in_sandbox(spec)


def _serves_frames() -> bool:
    try:
        settings = json.loads(os.environ.get("SANDBOX_CONFIG") or "{}")
        return settings["SandboxKernelApp"]["frame_url"] is not None
    except (ValueError, LookupError, TypeError):
        return False
