"""What the manager tells of a sandbox that runs; apart, since a relay keeps nothing else of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox_kernel.engines.base import Instance, SandboxSpec, StateLayout
from sandbox_kernel.transports.endpoint import Endpoint

__all__ = ["Running"]


@dataclass(frozen=True, kw_only=True)
class Running:
    """A sandbox that runs, and how to reach it."""

    sandbox_id: str
    lifetime: str
    endpoint: Endpoint
    instance: Instance
    spec: SandboxSpec
    """What it was started with; it may differ from what was asked for, see `notices`."""
    layout: StateLayout
    started: bool
    """Whether this call started it."""
    notices: list[str] = field(default_factory=list)
    """What is not as asked, in sentences for people."""
