"""What a pool and the kernels it serves need of a Jupyter server, without the server."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from traitlets.config import Configurable

from jupyter_ext.provisioner import NAME, SETTING
from jupyter_ext.schedule import SandboxPool, Schedule
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings, load_settings
from tests.support.jupyter_home import JupyterHome

__all__ = ["PoolHost", "pool_host", "until"]

KERNEL = "sandbox-python"


class _Server(Configurable):
    """Stands where a kernel manager has its server."""

    web_app: Any = None


class PoolHost:
    """A pool, and kernels that are started as a server starts them."""

    def __init__(self, home: JupyterHome, schedule: Schedule, manager: Manager) -> None:
        self.home = home
        self.schedule = schedule
        self.manager = manager
        self._server = _Server()
        self._server.web_app = SimpleNamespace(settings={SETTING: schedule})

    async def start(
        self, kernel_name: str = KERNEL, *, cwd: str | None = None, **env: str
    ) -> AsyncKernelManager:
        """Start a kernel; a session's name makes it a notebook's."""
        kernel = AsyncKernelManager(
            kernel_name=kernel_name,
            parent=self._server,
            connection_file=str(self.home.runtime / f"kernel-{uuid.uuid4().hex[:8]}.json"),
        )
        await kernel.start_kernel(env=self.home.env(**env), cwd=cwd or str(self.home.work))
        return kernel

    async def until_waiting(self, count: int = 1) -> None:
        """Wait until so many wait in the pool."""
        await until(lambda: len(self.schedule.units) == count)


async def until(condition: Callable[[], object], within: float = 60.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110  what is looked at rings no bell
            await asyncio.sleep(0.02)


@asynccontextmanager
async def pool_host(
    home: JupyterHome, *, settings: dict[str, Any] | None = None, **pool: Any
) -> AsyncIterator[PoolHost]:
    """Yield a running pool; what waits is ended afterwards, and kernels are the caller's."""
    factory = KernelProvisionerFactory.instance()
    before, factory.default_provisioner_name = factory.default_provisioner_name, NAME
    found: Settings = load_settings(home.env())
    manager = Manager(found)
    schedule = Schedule(
        SandboxPool(**{"size": 1, "pace": 0.1, **pool}),
        manager,
        folder=str(home.work),
        environ=home.env(**(settings or {})),
        log=logging.getLogger(__name__),
    )
    schedule.start()
    try:
        yield PoolHost(home, schedule, manager)
    finally:
        await schedule.aclose()
        manager.close()
        factory.default_provisioner_name = before
