"""Why a sandbox ended that nobody stopped."""

from __future__ import annotations

from sandbox_kernel.engines.base import StateLayout

__all__ = ["end_reason"]

_SLEEP = "idle, goes to sleep"


def end_reason(layout: StateLayout) -> str:
    """Return ``idle`` if the runtime has said that it goes to sleep, else ``unexpected``.

    Unexpected is a runtime that was killed, whose machine was restarted, or whose container was
    removed.
    """
    from sandbox_kernel.engines.disk import tail  # noqa: PLC0415  rarely needed

    return "idle" if tail(layout.log).endswith(_SLEEP) else "unexpected"
