"""How far each limit holds, and by what; a decision, for control groups or without."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_kernel.engines.base import USUAL_PROCESSES, Limits, Reached

__all__ = ["controllers_for", "unmet", "weigh_limits"]

_CONTROLLERS = {"memory": "memory_bytes", "cpu": "cpus", "pids": "processes"}


def controllers_for(limits: Limits, *, is_root: bool, kernel: str) -> list[str]:
    """Return the control group controllers without which these limits are not hard."""
    return [
        controller
        for controller, name in _CONTROLLERS.items()
        if getattr(limits, name) is not None
        and not (controller == "pids" and _counts_processes(is_root=is_root, kernel=kernel))
    ]


def unmet(limits: Limits, reached: Mapping[str, Reached]) -> str | None:
    """Return the first limit that was asked for and does not hold for the whole sandbox."""
    for name, how_far in reached.items():
        value = getattr(limits, name)
        if name == "processes" and value == USUAL_PROCESSES:
            continue
        if value is not None and how_far is not Reached.HARD:
            return name
    return None


def weigh_limits(
    limits: Limits, holding: set[str], *, is_root: bool, kernel: str
) -> tuple[dict[str, Reached], dict[str, int]]:
    """Return how far each limit holds, and the limits the runtime is to set on itself.

    Parameters
    ----------
    limits : Limits
        What was asked for; what was not is absent.
    holding : set of str
        Control group controllers whose limits hold.
    is_root : bool
        Whether the sandbox is started by root, whose processes the kernel does not count.
    kernel : str
        The kernel's release; since 5.14 a user's processes are counted for each user namespace.
    """
    reached = dict.fromkeys(("memory_bytes", "cpus", "processes", "file_bytes"), Reached.ABSENT)
    rlimits = {}
    if limits.memory_bytes is not None:
        if "memory" in holding:
            reached["memory_bytes"] = Reached.HARD
        else:
            reached["memory_bytes"] = Reached.PER_PROCESS
            rlimits["as"] = limits.memory_bytes
    if limits.cpus is not None and "cpu" in holding:
        reached["cpus"] = Reached.HARD
    if limits.processes is not None:
        if "pids" in holding:
            reached["processes"] = Reached.HARD
        elif _counts_processes(is_root=is_root, kernel=kernel):
            reached["processes"] = Reached.HARD
            rlimits["nproc"] = limits.processes
    if limits.file_bytes is not None:
        # No program can write a larger file, and that is all that was asked for.
        reached["file_bytes"] = Reached.HARD
        rlimits["fsize"] = limits.file_bytes
    return reached, rlimits


def _counts_processes(*, is_root: bool, kernel: str) -> bool:
    """Whether RLIMIT_NPROC bounds a sandbox as a whole: its user's processes, in its namespace."""
    return not is_root and _kernel_version(kernel) >= (5, 14)


def _kernel_version(release: str) -> tuple[int, int]:
    major, _, rest = release.partition(".")
    digits = ""
    for each in rest:
        if not each.isdigit():
            break
        digits += each
    return (int(major) if major.isdigit() else 0, int(digits or 0))
