"""What sandboxes use, and who did what in them, over REST."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from typing import TYPE_CHECKING

from jupyter_ext.handles import manager
from sandbox_kernel.errors import SandboxNotFoundError, ValidationFailedError
from sandbox_kernel.wire.record import Record

if TYPE_CHECKING:
    from jupyter_ext.rest import RestHandler
    from sandbox_kernel.wire.record import JSON

__all__ = [
    "ActivityLine",
    "ActivityLines",
    "ActivityRequest",
    "DiskUsage",
    "SandboxStats",
    "StatsRequest",
    "activity",
    "stats",
]

_MOST_LINES = 10_000


class StatsRequest(Record):
    """What to count: with `disk` its files too, which takes long where there are many."""

    disk: bool = False


class DiskUsage(Record):
    """Bytes on disk that a sandbox's own layers take."""

    workspace_bytes: int
    home_bytes: int
    folder_bytes: int
    """Changes to the notebook's folder."""
    packages_bytes: int
    spool_bytes: int
    """Output of processes that is kept."""
    is_complete: bool
    """Whether everything was looked at, and not only the first 200 000 files."""


class SandboxStats(Record):
    """One sandbox at one moment; null is what is not known, or what only one that runs has."""

    sandbox_id: str
    state: str
    """``running`` or ``stopped``."""
    engine: str
    taken_at: float
    created_at: float
    started_at: float | None
    end_reason: str | None
    """Why it ended, where nobody stopped it: ``idle`` or ``unexpected``."""
    cpu_seconds: float | None
    memory_bytes: int | None
    memory_counted: str | None
    """``cgroup``, or ``processes``: the sum over its processes."""
    processes: int | None
    limits: dict[str, float]
    limits_reached: dict[str, str]
    """How far each holds: ``hard``, ``per process`` or ``absent``."""
    network: str | None
    kernels: int | None
    terminals: int | None
    idle_for: float | None
    sleeps_in: float | None
    """Seconds until it goes to sleep if nothing happens; null also while something holds it."""
    busy: list[str]
    """What holds it awake."""
    disk: DiskUsage | None
    """Only if asked for."""


class ActivityRequest(Record):
    """Which lines: those after the cursor `since`, the oldest first, `limit` at most."""

    since: str | None = None
    limit: int = 1000


class ActivityLine(Record):
    """Who did what, and when; never what was written."""

    at: float
    kind: str
    who: str
    what: JSON
    """The command or cell: a text, or a list of words."""
    details: dict[str, JSON]
    """What else there is to say, such as ``exit_code``."""


class ActivityLines(Record):
    """Lines in the order they were written."""

    activity: list[ActivityLine]
    cursor: str
    """To be given as `since` the next time."""
    missed: bool
    """Whether lines between `since` and these are gone."""


async def stats(handler: RestHandler, request: StatsRequest) -> SandboxStats:
    """Answer with what a sandbox uses."""
    count = functools.partial(manager().stats, handler.sandbox_id, disk=request.disk)
    found = await asyncio.to_thread(count)
    if found is None:
        raise SandboxNotFoundError(handler.sandbox_id)
    told = {name: getattr(found, name) for name in SandboxStats.FIELDS}
    told["limits"] = {name: float(value) for name, value in found.limits.items()}
    if found.disk is not None:
        told["disk"] = DiskUsage(**dataclasses.asdict(found.disk))
    return SandboxStats(**told)


async def activity(handler: RestHandler, request: ActivityRequest) -> ActivityLines:
    """Answer with lines of the activity log, of a sandbox that is destroyed too."""
    if not 1 <= request.limit <= _MOST_LINES:
        raise ValidationFailedError("limit", f"must be 1 to {_MOST_LINES}")
    read = functools.partial(
        manager().read_activity, handler.sandbox_id, since=request.since, limit=request.limit
    )
    page = await asyncio.to_thread(read)
    return ActivityLines(
        activity=[ActivityLine(**dataclasses.asdict(each)) for each in page.items],
        cursor=page.cursor,
        missed=page.missed,
    )
