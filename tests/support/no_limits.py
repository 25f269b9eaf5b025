"""An engine of a machine on which no limit holds.  For tests only."""

from __future__ import annotations

from sandbox_kernel.engines.base import Instance, Launch
from sandbox_kernel.errors import LimitNotEnforceableError
from tests.support.plain_engine import PlainEngine

__all__ = ["REFERENCE", "NoLimitsEngine"]

REFERENCE = "tests.support.no_limits:NoLimitsEngine"
"""How settings and ``SANDBOX_ENGINE`` name this engine."""


class NoLimitsEngine(PlainEngine):
    """Refuses a limit on memory."""

    name = "no-limits"

    def start(self, launch: Launch) -> Instance:
        if launch.spec.limits.memory_bytes is not None:
            raise LimitNotEnforceableError("memory_bytes", self.name, "absent", "it is a test")
        return super().start(launch)
