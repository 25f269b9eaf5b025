"""What a sandbox uses and how it is, for people and for metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.engines.base import Instance, StateLayout
from sandbox_kernel.engines.usage import Usage

if TYPE_CHECKING:
    from sandbox_kernel.wire.operations import Health

__all__ = ["DiskUsage", "SandboxStats", "disk_usage", "stats_of"]

_MOST_ENTRIES = 200_000
"""Files and folders that are looked at for one sandbox."""


@dataclass(frozen=True, kw_only=True)
class DiskUsage:
    """Bytes on disk that a sandbox's own layers take."""

    workspace_bytes: int = 0
    home_bytes: int = 0
    folder_bytes: int = 0
    """Changes to the notebook's folder."""
    packages_bytes: int = 0
    spool_bytes: int = 0
    is_complete: bool = True
    """Whether everything was looked at: see `disk_usage`."""

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return (
            self.workspace_bytes
            + self.home_bytes
            + self.folder_bytes
            + self.packages_bytes
            + self.spool_bytes
        )


@dataclass(frozen=True, kw_only=True)
class SandboxStats:
    """One sandbox at one moment; None is what is not known, or what only one that runs has."""

    sandbox_id: str
    state: str
    """``running`` or ``stopped``."""
    engine: str
    taken_at: float
    """In seconds since the epoch, as the other times."""
    created_at: float
    started_at: float | None = None
    end_reason: str | None = None
    """Why it ended, where nobody stopped it: ``idle`` or ``unexpected``."""
    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    memory_counted: str | None = None
    """See `Usage.counted`."""
    processes: int | None = None
    limits: dict[str, float | int] = field(default_factory=dict)
    """The limits asked for, by name."""
    limits_reached: dict[str, str] = field(default_factory=dict)
    """How far each holds: ``hard``, ``per process`` or ``absent``."""
    network: str | None = None
    kernels: int | None = None
    terminals: int | None = None
    idle_for: float | None = None
    sleeps_in: float | None = None
    """Seconds until it goes to sleep if nothing happens; None also while something holds it."""
    busy: list[str] = field(default_factory=list)
    """What holds it awake."""
    disk: DiskUsage | None = None
    """Only if asked for: it takes long where there are many files."""


def stats_of(
    *,
    sandbox_id: str,
    engine: str,
    created_at: float,
    started_at: float | None,
    limits: dict[str, float | int],
    instance: Instance | None,
    usage: Usage | None,
    health: Health | None,
    end_reason: str | None,
    disk: DiskUsage | None,
) -> SandboxStats:
    """Put together what the registry, the engine and the runtime say."""
    return SandboxStats(
        sandbox_id=sandbox_id,
        state="running" if instance is not None else "stopped",
        engine=engine,
        taken_at=time.time(),
        created_at=created_at,
        started_at=started_at if instance is not None else None,
        end_reason=end_reason,
        cpu_seconds=usage.cpu_seconds if usage is not None else None,
        memory_bytes=usage.memory_bytes if usage is not None else None,
        memory_counted=usage.counted if usage is not None else None,
        processes=usage.processes if usage is not None else None,
        limits=limits,
        limits_reached=dict(instance.limits) if instance is not None else {},
        network=instance.isolation.get("network") if instance is not None else None,
        kernels=health.kernels if health is not None else None,
        terminals=health.terminals if health is not None else None,
        idle_for=health.idle_for if health is not None else None,
        sleeps_in=health.sleeps_in if health is not None else None,
        busy=list(health.busy) if health is not None else [],
        disk=disk,
    )


def disk_usage(layout: StateLayout) -> DiskUsage:
    """Count what lies in a sandbox's layers, following no links.

    What lies in volumes of the Docker daemon is not seen.
    """
    budget = _Budget(_MOST_ENTRIES)
    counted = {
        f"{name}_bytes": _size(getattr(layout, name), budget)
        for name in ("workspace", "home", "folder", "packages", "spool")
    }
    return DiskUsage(**counted, is_complete=budget.left > 0)


@dataclass
class _Budget:
    left: int


def _size(folder: Path, budget: _Budget) -> int:
    total = 0
    waiting = [os.fspath(folder)]
    while waiting and budget.left > 0:
        for entry in _entries(waiting.pop()):
            budget.left -= 1
            if budget.left <= 0:
                break
            try:
                status = entry.stat(follow_symlinks=False)
                is_folder = entry.is_dir(follow_symlinks=False)
            except OSError:
                continue  # it went meanwhile
            total += status.st_blocks * 512
            if is_folder:
                waiting.append(entry.path)
    return total


def _entries(folder: str) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from found
    except OSError:
        return  # not there, or not ours to look into
