"""A control group by way of systemd, where systemd owns the tree.

On such machines an ordinary user may write only below their own manager, ``user@UID.service``.  A
login session (a terminal over ssh, a text console) lies beside that, in a folder of root's, and
moving a process takes write permission on the nearest folder above both places: by hand it cannot
be done.  The manager can, for it asks the machine's own; and it is the only writer its tree is
meant to have.  So the sandbox becomes a scope: a unit of processes that somebody else has started.

A user's scopes end with their manager, that is with the last session, unless lingering is on.
See systemd.scope(5), org.freedesktop.systemd1(5), busctl(1), and systemd's documents "Control Group
APIs and Delegation" and "The New Control Group Interfaces".
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sandbox_kernel.engines.base import Limits

__all__ = ["Manager", "Scope", "busctl_call", "enter_scope", "find_manager", "new_scope"]

_BUSCTL = "busctl"
_PATIENCE = 5.0


@dataclass(frozen=True, kw_only=True)
class Manager:
    """A systemd manager that this user may ask for scopes.

    Parameters
    ----------
    bus : str
        Address of the bus on which it listens.
    slice_name : str
        The slice for our scopes.
    folder : str
        The folder of that slice; it exists from the first scope on.
    path : str
        The same in the kernel's words, as in ``/proc/PID/cgroup``.
    controllers : tuple of str
        What its scopes can be limited by.
    """

    bus: str
    slice_name: str
    folder: str
    path: str
    controllers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The group of one sandbox, made when its first process enters.

    Parameters
    ----------
    manager : Manager
        Makes it, and removes it once it is empty.
    name : str
        The unit's name.
    properties : tuple of (str, str, str)
        Its limits: property, D-Bus type, value.
    files : tuple of str
        The files of the group that hold a limit once it is set.
    """

    manager: Manager
    name: str
    properties: tuple[tuple[str, str, str], ...]
    files: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Where the group will be."""
        return f"{self.manager.folder}/{self.name}"


def find_manager(
    uid: int,
    root: str,
    point: str,
    *,
    read: Callable[[str], str],
    exists: Callable[[str], bool],
) -> Manager | None:
    """Return the manager that this user may ask.

    Parameters
    ----------
    uid : int
        The user; root asks the machine's own manager.
    root, point : str
        Which part of the version 2 tree is mounted, and where.
    read : callable
        Returns a file's content, or an empty string when it cannot be read.
    exists : callable
        Whether a path exists.
    """
    # sd_booted(3); a part of the tree only is what containers see, where systemd is not ours.
    if root != "/" or not exists("/run/systemd/system"):
        return None
    if uid == 0:
        bus, owner, slice_name = "/run/dbus/system_bus_socket", "", "system.slice"
    else:
        bus = f"/run/user/{uid}/bus"
        owner = f"/user.slice/user-{uid}.slice/user@{uid}.service"
        slice_name = "app.slice"
    controllers = tuple(read(f"{point}{owner}/cgroup.controllers").split())
    if not controllers or not exists(bus):
        return None
    return Manager(
        bus=f"unix:path={bus}",
        slice_name=slice_name,
        folder=f"{point}{owner}/{slice_name}",
        path=f"{owner}/{slice_name}",
        controllers=controllers,
    )


def new_scope(manager: Manager, name: str, controllers: Iterable[str], limits: Limits) -> Scope:
    """Return a scope that holds what these controllers can of the limits."""
    properties: list[tuple[str, str, str]] = []
    files = []
    for controller in controllers:
        match controller:
            case "memory":
                properties += [
                    ("MemoryMax", "t", str(limits.memory_bytes)),
                    ("MemorySwapMax", "t", "0"),
                ]
                files.append("memory.max")
            case "cpu":
                microseconds = max(10_000, round((limits.cpus or 0) * 1_000_000))
                properties.append(("CPUQuotaPerSecUSec", "t", str(microseconds)))
                files.append("cpu.max")
            case "pids":
                properties.append(("TasksMax", "t", str(limits.processes)))
                files.append("pids.max")
    # A unit of this name may still be on its way out.
    unit = f"{name}-{os.urandom(4).hex()}.scope"
    return Scope(manager=manager, name=unit, properties=tuple(properties), files=tuple(files))


def busctl_call(scope: Scope, pid: int) -> list[str]:
    """Return the command that puts a process into a new scope."""
    properties = [
        ("Description", "s", "A Jupyter sandbox"),
        ("Slice", "s", scope.manager.slice_name),
        # Not for the right to make groups below: where the kernel kills one process for want of
        # memory, systemd stops the whole of a unit that is not delegated.
        ("Delegate", "b", "true"),
        ("CollectMode", "s", "inactive-or-failed"),
        *scope.properties,
    ]
    return [
        *(_BUSCTL, f"--address={scope.manager.bus}", f"--timeout={_PATIENCE:.0f}", "--quiet"),
        *("call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"),
        *("org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))"),
        *(scope.name, "fail", str(len(properties) + 1)),
        *("PIDs", "au", "1", str(pid)),
        *(word for each in properties for word in each),
        "0",
    ]


def enter_scope(scope: Scope, pid: int, *, read: Callable[[str], str]) -> None:
    """Make the scope around a process, and see that its limits are set.

    Raises
    ------
    OSError
        systemd refused, was silent for too long, or did not set a limit.
    """
    try:
        done = subprocess.run(
            busctl_call(scope, pid),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_PATIENCE + 1,
            check=False,
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(errno.ETIMEDOUT, "systemd does not answer") from error
    if done.returncode != 0:
        raise OSError(errno.EACCES, f"systemd makes no scope: {done.stderr.strip()[-300:]}")
    # The answer says that it will be done; nothing but the process itself says that it has been.
    expected = f"0::{scope.manager.path}/{scope.name}"
    deadline = time.monotonic() + _PATIENCE
    while expected not in read(f"/proc/{pid}/cgroup").splitlines():
        if time.monotonic() > deadline:
            raise OSError(errno.ETIMEDOUT, "systemd has not moved the process into its scope")
        time.sleep(0.002)
    for file in scope.files:
        if read(f"{scope.folder}/{file}").split()[:1] in ([], ["max"]):
            raise OSError(errno.ENOTSUP, f"systemd has not set {file}")
