"""How much memory there is, and how much a few processes take; read from the system."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["available_bytes", "private_bytes", "total_bytes", "with_descendants"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def total_bytes() -> int:
    """Return the memory that programs of this process's control group may use in all."""
    return min([_meminfo("MemTotal"), *(limit for limit, _ in _groups())])


def available_bytes() -> int:
    """Return the memory that new programs could use without others being pushed out."""
    return min([_meminfo("MemAvailable"), *(limit - used for limit, used in _groups())])


def private_bytes(pids: Iterable[int]) -> int:
    """Return what processes take for themselves, about; those that have ended take nothing.

    It is what is not shared with files or other programs, as far as everybody may read it: of a
    process that has closed itself to others no more is told.
    """
    pages = 0
    for pid in pids:
        try:
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        except (OSError, ValueError):
            continue
        pages += max(0, int(resident) - int(shared))
    return pages * _PAGE


def with_descendants(pid: int) -> list[int]:
    """Return a process and all it has started, as far as they still have a parent in it."""
    found, new = [pid], [pid]
    while new:
        parent = new.pop()
        for task in _listed(f"/proc/{parent}/task"):
            try:
                children = Path(f"/proc/{parent}/task/{task}/children").read_text().split()
            except OSError:
                continue
            new += map(int, children)
            found += map(int, children)
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _meminfo(name: str) -> int:
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
    return 0


def _groups() -> list[tuple[int, int]]:
    """Return limit and use of this process's control group and of those above, where limited."""
    found = []
    for folder, names in _folders():
        limit_name, used_name, cache_name = names
        try:
            limit = int((folder / limit_name).read_text())
            used = int((folder / used_name).read_text())
        except (OSError, ValueError):  # "max", or none here
            continue
        found.append((limit, max(0, used - _statistic(folder / "memory.stat", cache_name))))
    return found


def _folders() -> list[tuple[Path, tuple[str, str, str]]]:
    root = Path("/sys/fs/cgroup")
    found = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, names = root, _V2
        elif "memory" in controllers.split(","):
            top, names = root / "memory", _V1
        else:
            continue
        # In a container the path is one of the host's; what is there is the root then.
        folder = top / path.lstrip("/")
        while folder != top and not folder.is_dir():
            folder = folder.parent
        found += [(each, names) for each in (folder, *folder.parents) if each.is_relative_to(top)]
    return found


def _statistic(file: Path, name: str) -> int:
    try:
        for line in file.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except (OSError, ValueError):
        return 0
    return 0
