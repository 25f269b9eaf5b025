"""Which process a started sandbox is, whether it lives, and how it is ended.

The runtime is pid 1 of its sandbox and holds a lock for as long as it lives.  Process ids are
reused, so that an id counts only with its start time and the machine's boot id, or together with
the held lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox_kernel.engines.alive import is_locked
from sandbox_kernel.engines.base import StateLayout

__all__ = [
    "boot_id",
    "end",
    "info_file",
    "is_locked",
    "living_pid",
    "read_json",
    "read_pid",
    "record_file",
    "remove_files",
    "start_time",
]

_CUT_SHORT_PATIENCE = 2.0


def info_file(layout: StateLayout) -> Path:
    """Where bubblewrap writes the process id."""
    return layout.run / "bwrap.json"


def record_file(layout: StateLayout) -> Path:
    """Where a stop finds what it needs when no instance is handed over."""
    return layout.run / "engine.json"


def remove_files(layout: StateLayout) -> None:
    """Remove what an incarnation leaves in the run folder, but not its log; twice is fine."""
    for path in (layout.socket, layout.lock, info_file(layout), record_file(layout)):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def read_json(path: Path) -> dict[str, Any]:
    """Return an object from a file, an empty one if there is none to be read."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def read_pid(layout: StateLayout) -> int:
    """Return the process id bubblewrap wrote.

    Raises
    ------
    KeyError, ValueError
        It has not written one.
    """
    pid = read_json(info_file(layout))["child-pid"]
    if not isinstance(pid, int) or pid <= 1:
        raise ValueError(pid)
    return pid


def living_pid(data: Mapping[str, Any], layout: StateLayout) -> int | None:
    """Return the runtime's process id if it is still the same process."""
    pid = data.get("pid")
    if isinstance(pid, int) and pid > 1:
        is_same = data.get("boot_id") == boot_id() and data.get("start_time") == start_time(pid)
        return pid if is_same else None
    # A start that was cut short.  As long as the lock is held, pid 1 of that sandbox exists, so
    # that its number cannot have been given to another process.  bubblewrap itself may hold the
    # lock and not have got so far; without its starter it soon does, or ends.
    deadline = time.monotonic() + _CUT_SHORT_PATIENCE
    while is_locked(layout) and time.monotonic() < deadline:
        with contextlib.suppress(KeyError, ValueError):
            return read_pid(layout)
        time.sleep(0.002)
    return None


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (proc(5)); None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything; state is the field after it.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[19])


def boot_id() -> str:
    """Return what names the machine's present boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def end(pid: int, grace: float) -> None:
    """Wait for a process, kill it after `grace` seconds, and wait for its end."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        if not poll.poll(max(0.0, grace) * 1000):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            # Also true of a zombie nobody reaps.
            poll.poll(10_000)
    finally:
        os.close(process)
