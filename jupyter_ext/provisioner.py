"""Gives kernels that start on this server what waits for them in its pool."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

if TYPE_CHECKING:
    from jupyter_ext.schedule import Schedule

__all__ = ["NAME", "PoolProvisioner", "make_default"]

NAME = "sandbox-pool-provisioner"
"""Under which the class is registered with jupyter_client."""

SETTING = "sandbox_schedule"
"""Where the server's web application has its `Schedule`."""

_STOCK = "local-provisioner"
_RELAY = ["-P", "-m", "sandbox_kernel.kernel.launch"]
_FITTING = frozenset({"cwd", "env", "kernel_id", "independent"})
"""Ways to start a process that a waiting relay has been started in, or is told."""


class PoolProvisioner(LocalProvisioner):
    """A local process, which for a kernel in a sandbox may have been started before.

    From then on it is a process like any other: signals, the exit code and what a kernel is asked
    over its sockets are as in the base class.  So is the start of every kernel that nothing in the
    pool fits, and a restart.
    """

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Hand the kernel to a relay that waits; where none does, start one as the base class."""
        schedule = _schedule_of(self)
        if schedule is None or not _is_plain(cmd, kwargs):
            return await super().launch_kernel(cmd, **kwargs)
        cwd = str(kwargs.get("cwd") or os.getcwd())
        # As jupyter_client's launcher has it.
        environ = {**kwargs.get("env", os.environ), "JPY_PARENT_PID": str(os.getpid())}
        process = await schedule.launch(cmd[-1], environ, cwd)
        if process is None:
            return await super().launch_kernel(cmd, **kwargs)
        self.process = process
        self.pid = self.pgid = process.pid  # it leads its session
        self.cwd = cwd
        return self.connection_info


def make_default(parent: Any) -> bool:  # a server application, of whatever class
    """Have kernels whose specification names no provisioner start by ours; whether they do.

    Named in a kernelspec it would hide the kernel from every Jupyter of another environment.
    """
    factory = KernelProvisionerFactory.instance(parent=parent)
    if factory.default_provisioner_name != _STOCK:
        return False  # somebody's choice
    factory.default_provisioner_name = NAME
    return True


def _is_plain(cmd: list[str], options: dict[str, Any]) -> bool:
    return (
        len(cmd) == 1 + len(_RELAY) + 1
        and os.path.realpath(cmd[0]) == os.path.realpath(sys.executable)
        and cmd[1:-1] == _RELAY
        and set(options) <= _FITTING
        and not options.get("independent")
    )


def _schedule_of(provisioner: LocalProvisioner) -> Schedule | None:
    """Return the pool of the server that starts this kernel."""
    at: Any = provisioner
    while at is not None:
        application = getattr(at, "web_app", None)
        if application is not None:
            found: Schedule | None = application.settings.get(SETTING)
            return found
        at = getattr(at, "parent", None)
    return None
