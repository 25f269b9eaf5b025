"""What a running sandbox uses: processor time, memory and processes, as the host counts them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["Usage", "usage_of_container", "usage_of_tree"]

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a sandbox uses now; None is what cannot be told here."""

    cpu_seconds: float | None = None
    """Processor time since it started, of ended processes too."""
    memory_bytes: int | None = None
    processes: int | None = None
    counted: str
    """How memory was counted: ``cgroup`` (with what its files hold in the page cache and can be
    given back left out), or ``processes`` (the sum over processes; what several share counts for
    each)."""


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    ticks: int
    ticks_of_children: int
    pages: int


def usage_of_tree(pid: int, folders: Iterable[str]) -> Usage | None:
    """Return what a process and all below it use; None if it has gone.

    Parameters
    ----------
    pid : int
        The runtime, which waits for every process of its sandbox.
    folders : iterable of str
        The sandbox's own control groups, if it has any.
    """
    tree = list(_tree(pid))
    if not tree:
        return None
    # What has ended was waited for in the tree, in the end by the runtime.
    ticks = sum(each.ticks + each.ticks_of_children for each in tree)
    in_group = _group_memory(folders)
    return Usage(
        cpu_seconds=ticks / _TICKS,
        memory_bytes=in_group if in_group is not None else sum(p.pages for p in tree) * _PAGE,
        processes=len(tree),
        counted="cgroup" if in_group is not None else "processes",
    )


def usage_of_container(stats: Mapping[str, Any]) -> Usage:
    """Return what the Docker Engine API says in the answer of ``/containers/{id}/stats``."""
    cpu = stats.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage")
    memory = stats.get("memory_stats", {})
    used, details = memory.get("usage"), memory.get("stats", {})
    # https://docs.docker.com/reference/cli/docker/container/stats/ leaves the page cache out.
    cache = details.get("inactive_file", details.get("total_inactive_file", 0))
    return Usage(
        cpu_seconds=cpu / 1e9 if isinstance(cpu, int) else None,
        memory_bytes=max(0, used - cache) if isinstance(used, int) else None,
        processes=stats.get("pids_stats", {}).get("current"),
        counted="cgroup",
    )


def _tree(root: int) -> Iterator[_Process]:
    children: dict[int, list[_Process]] = {}
    found: list[_Process] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = _process(int(name))
            if process is not None:
                children.setdefault(process.parent, []).append(process)
                if process.pid == root:
                    found.append(process)
    while found:
        process = found.pop()
        yield process
        found.extend(children.get(process.pid, ()))


def _process(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # proc(5): the name, in parentheses, may hold anything; state is the field after it.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if not fields or fields[0] in {b"Z", b"X"}:
        return None
    return _Process(
        pid=pid,
        parent=int(fields[1]),
        ticks=int(fields[11]) + int(fields[12]),
        ticks_of_children=int(fields[13]) + int(fields[14]),
        pages=int(fields[21]),
    )


def _group_memory(folders: Iterable[str]) -> int | None:
    """Return the memory of a control group of either version, without idle pages of files."""
    for folder in folders:
        for current, key in (("memory.current", "inactive_file"), _VERSION_1):
            with suppress(OSError, ValueError):
                used = int(_read(f"{folder}/{current}"))
                counts = dict(line.split() for line in _read(f"{folder}/memory.stat").splitlines())
                return max(0, used - int(counts.get(key, 0)))
    return None


_VERSION_1 = ("memory.usage_in_bytes", "total_inactive_file")


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
