"""Limits for a whole sandbox by control groups, version 2 or 1, wherever we may write.

Where systemd runs, it makes the group (`systemd`).  Elsewhere finding a place is a pure function
over ``/proc/self/cgroup`` and ``/proc/self/mountinfo``; making, filling, killing and removing
groups are the shell around it.  See cgroups(7), the kernel's
``cgroup-v2.rst`` and, for version 1, ``cgroup-v1/memory.rst`` and ``pids.rst``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sandbox_kernel.engines.base import Limits
from sandbox_kernel.engines.systemd import Manager, Scope, enter_scope, find_manager, new_scope

__all__ = ["Group", "Place", "create", "enter", "find_place", "limit_files", "remove"]

_PERIOD = 100_000  # microseconds; the kernel's default period for processor time


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where groups for our sandboxes can be made.

    Parameters
    ----------
    version : int
        1 or 2.
    parents : dict of str to str
        For each controller that can be had, the folder in which to make a group; in version 2 it
        is the same one for all.
    to_enable : tuple of str
        Controllers which that folder (version 2) has but does not hand down yet.
    manager : Manager, optional
        Makes the group for us.
    """

    version: int
    parents: dict[str, str]
    to_enable: tuple[str, ...] = ()
    manager: Manager | None = None


@dataclass(frozen=True, kw_only=True)
class Group:
    """The group of one sandbox.

    Parameters
    ----------
    version : int
        1 or 2.
    folders : list of str
        Its folders, one in version 2, one for each controller in version 1; those that we have to
        remove.
    events : str, optional
        The file that counts processes killed for want of memory (a line ``oom_kill N``).
    scope : Scope, optional
        The group if systemd makes and removes it.
    """

    version: int
    folders: list[str]
    events: str | None
    scope: Scope | None = None


def limit_files(version: int, controller: str, limits: Limits) -> list[tuple[str, str]]:
    """Return what to write into which file of a group, in order, for one controller.

    The second of version 1's memory files counts memory and swap together, so that swap is no way
    round the limit; it is absent where swap accounting is off, and so is version 2's swap file.
    """
    match controller:
        case "memory":
            amount = str(limits.memory_bytes)
            if version == 2:
                return [("memory.max", amount), ("memory.swap.max?", "0")]
            return [
                ("memory.limit_in_bytes", amount),
                ("memory.memsw.limit_in_bytes?", amount),
            ]
        case "cpu":
            quota = str(max(1000, round((limits.cpus or 0) * _PERIOD)))
            if version == 2:
                return [("cpu.max", f"{quota} {_PERIOD}")]
            return [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", quota)]
        case _:
            return [("pids.max", str(limits.processes))]


def find_place(
    controllers: Iterable[str],
    membership: str,
    mountinfo: str,
    *,
    read: Callable[[str], str],
    may_write: Callable[[str], bool],
) -> Place | None:
    """Return where to make groups for as many of these controllers as can be had.

    Parameters
    ----------
    controllers : iterable of str
        ``memory``, ``cpu``, ``pids``.
    membership, mountinfo : str
        Contents of ``/proc/self/cgroup`` and ``/proc/self/mountinfo``.
    read : callable
        Returns a file's content, or an empty string when it cannot be read.
    may_write : callable
        Whether this process may write a path.

    Notes
    -----
    Version 2 takes the nearest folder above our own group that is ours to write.  Our own group
    does not do: a group that holds processes (us) may not hand controllers down; only the root of
    the whole tree may.  Moving a process needs write permission on the nearest common ancestor,
    which is that folder.
    """
    wanted_ones = list(controllers)
    mounts = _mounts(mountinfo)
    own = _memberships(membership)
    if "" in own and "" in mounts:
        place = _place_v2(wanted_ones, own[""], *mounts[""], read=read, may_write=may_write)
        if place is not None:
            return place
    parents = {}
    for controller in wanted_ones:
        if controller in own and controller in mounts:
            folder = _folder(own[controller], *mounts[controller])
            if folder is not None and may_write(folder):
                parents[controller] = folder
    return Place(version=1, parents=parents) if parents else None


def _place_v2(
    controllers: list[str],
    own: str,
    root: str,
    point: str,
    *,
    read: Callable[[str], str],
    may_write: Callable[[str], bool],
) -> Place | None:
    folder = _folder(own, root, point)
    if folder is None:
        return None
    above = _ancestors(folder, point)
    # The root of the whole tree has no type; the top of a part of it, as in a container, has one.
    is_machines_root = root == "/" and not read(f"{point}/cgroup.type")
    for each in [folder] if folder == point and is_machines_root else above:
        place = _place_in(
            each,
            controllers,
            has_rule=each != point or not is_machines_root,
            read=read,
            may_write=may_write,
        )
        if place is not None:
            return place
    return None


def _ancestors(folder: str, point: str) -> list[str]:
    """Return the folders above one, the nearest first, up to the mount point."""
    result = []
    while folder != point and folder.startswith(point + "/"):
        folder = os.path.dirname(folder)
        result.append(folder)
    return result


def _place_in(
    folder: str,
    controllers: list[str],
    *,
    has_rule: bool,
    read: Callable[[str], str],
    may_write: Callable[[str], bool],
) -> Place | None:
    """Return what a folder of version 2 can give; `has_rule`: processes forbid handing down."""
    if not may_write(folder) or not may_write(f"{folder}/cgroup.procs"):
        return None
    if read(f"{folder}/cgroup.type").strip() not in ("domain", ""):
        # Below a threaded group there are only threads, and no memory controller.
        return None
    handed_down = read(f"{folder}/cgroup.subtree_control").split()
    to_enable: tuple[str, ...] = ()
    may_enable = may_write(f"{folder}/cgroup.subtree_control") and not (
        has_rule and read(f"{folder}/cgroup.procs").strip()
    )
    if may_enable:
        held = read(f"{folder}/cgroup.controllers").split()
        to_enable = tuple(x for x in controllers if x in held and x not in handed_down)
    there = [each for each in controllers if each in handed_down or each in to_enable]
    if not there:
        return None
    return Place(version=2, parents=dict.fromkeys(there, folder), to_enable=to_enable)


def _folder(own: str, root: str, point: str) -> str | None:
    """Return where a group's path is mounted; `root` is the part of the tree the mount shows."""
    if root != "/":
        if own != root and not own.startswith(root + "/"):
            return None
        own = own[len(root) :] or "/"
    # A path that climbs out belongs to a group above our cgroup namespace.
    if own.startswith("/.."):
        return None
    return (point + own).rstrip("/")


def _memberships(text: str) -> dict[str, str]:
    """Return our group's path by controller; the empty name stands for version 2."""
    result = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            result[name] = path
    return result


def _mounts(mountinfo: str) -> dict[str, tuple[str, str]]:
    """Return (root, mount point) by controller; the empty name stands for version 2."""
    result: dict[str, tuple[str, str]] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, rest = after.partition(" ")
        if kind not in ("cgroup", "cgroup2"):
            continue
        fields = before.split()
        place = (_unescape(fields[3]), _unescape(fields[4]))
        if kind == "cgroup2":
            result.setdefault("", place)
            continue
        for option in rest.split()[-1].split(","):
            result.setdefault(option, place)
    return result


def _unescape(field: str) -> str:
    # mountinfo writes space, tab, newline and backslash in octal (proc(5)).
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(octal, char)
    return field


# --- the shell --------------------------------------------------------------------------------


def locate(controllers: Iterable[str]) -> Place | None:
    """Find a place on this machine, for this process; systemd's, where there is one."""
    wanted_ones = list(controllers)
    mountinfo = _read("/proc/self/mountinfo")
    manager = _manager(mountinfo)
    if manager is not None:
        there = [each for each in wanted_ones if each in manager.controllers]
        if there:
            return Place(version=2, parents=dict.fromkeys(there, manager.folder), manager=manager)
    return find_place(
        wanted_ones,
        _read("/proc/self/cgroup"),
        mountinfo,
        read=_read,
        may_write=lambda path: os.access(path, os.W_OK),
    )


def _manager(mountinfo: str) -> Manager | None:
    mounted = _mounts(mountinfo).get("")
    if mounted is None:
        return None
    return find_manager(os.geteuid(), *mounted, read=_read, exists=os.path.exists)


def create(place: Place, name: str, limits: Limits) -> tuple[Group, set[str]]:
    """Make the group `name` and write its limits; a scope is made when it is entered.

    Returns
    -------
    Group
        To be removed by the caller.
    set of str
        The controllers whose limits hold; one whose files the kernel refused is not among them.
    """
    if place.manager is not None:
        scope = new_scope(place.manager, name, place.parents, limits)
        events = f"{scope.folder}/memory.events" if "memory" in place.parents else None
        return Group(version=2, folders=[], events=events, scope=scope), set(place.parents)
    for controller in place.to_enable:
        with contextlib.suppress(OSError):  # seen below: its files are not there
            _write(f"{place.parents[controller]}/cgroup.subtree_control", f"+{controller}")
    folders: list[str] = []
    holding: set[str] = set()
    events = None
    for controller, parent in place.parents.items():
        folder = f"{parent}/{name}"
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o755)
            if folder not in folders:
                folders.append(folder)
            for file, value in limit_files(place.version, controller, limits):
                _write_limit(folder, file, value)
        except OSError:
            continue
        holding.add(controller)
        if controller == "memory":
            file = "memory.events" if place.version == 2 else "memory.oom_control"
            events = f"{folder}/{file}"
    return Group(version=place.version, folders=folders, events=events), holding


def _write_limit(folder: str, file: str, value: str) -> None:
    if file.endswith("?"):
        with contextlib.suppress(OSError):
            _write(f"{folder}/{file[:-1]}", value)
    else:
        _write(f"{folder}/{file}", value)


def enter(group: Group, pid: int) -> None:
    """Move a process into the group; its later children are born there.

    Raises
    ------
    OSError
        The kernel refused, or systemd.
    """
    if group.scope is not None:
        enter_scope(group.scope, pid, read=_read)
    for folder in group.folders:
        _write(f"{folder}/cgroup.procs", str(pid))


def kill(folders: Iterable[str]) -> None:
    """Kill every process in these groups; those that are gone are fine."""
    for folder in folders:
        with contextlib.suppress(OSError):
            _write(f"{folder}/cgroup.kill", "1")
            continue
        for pid in _read(f"{folder}/cgroup.procs").split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)


def remove(folders: Iterable[str], *, patience: float = 2.0) -> None:
    """Remove these groups, waiting for the last of their processes to be gone; twice is fine.

    A group that is still busy after `patience` seconds stays: it is empty of everything but the
    process the kernel has not finished with, and the next start under its name takes it over.
    """
    deadline = time.monotonic() + patience
    for folder in folders:
        while True:
            try:
                os.rmdir(folder)
            except OSError as error:
                if error.errno == errno.EBUSY and time.monotonic() < deadline:
                    # Nothing announces that a group of version 1 has become empty.
                    time.sleep(0.005)
                    continue
            break


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, value: str) -> None:
    # These files exist or the kernel does not have them; nothing here makes one.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode("ascii"))
    finally:
        os.close(descriptor)
