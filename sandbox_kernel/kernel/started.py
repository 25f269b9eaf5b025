"""What a relay knows of the sandbox it serves in, and what it passes on to an interpreter there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox_kernel.engines.base import FolderMode, SandboxSpec
from sandbox_kernel.kernel.identity import Identity
from sandbox_kernel.manager.running import Running
from sandbox_kernel.wall.modes import FrameKeeper, OutputLimits

if TYPE_CHECKING:
    from sandbox_kernel.manager.activity import ActivityLog

__all__ = ["Started", "folder_inside", "passed_on"]

_PASSED_ON = ("JPY_SESSION_NAME", "LANG", "LC_ALL", "LC_CTYPE", "MPLBACKEND", "TZ")
"""Variables of the host that an interpreter gets to see; nothing else of the environment does."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """The sandbox that runs, and what the settings say for kernels in it."""

    identity: Identity
    running: Running
    lease: float
    limits: OutputLimits
    keeper: FrameKeeper | None
    config_file: str
    activity: ActivityLog | None


def passed_on(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that an interpreter is started with."""
    return {name: environ[name] for name in _PASSED_ON if name in environ}


def folder_inside(spec: SandboxSpec, cwd: str) -> str | None:
    """Return the folder that an interpreter is started in; None is the sandbox's own."""
    return cwd if spec.folder_mode is not FolderMode.NONE else None
