"""Operations that make a sandbox ready before anybody wants it, and name it when somebody does."""

from __future__ import annotations

from sandbox_kernel.wire.operations import Empty, KernelInfo, Kind, Operation
from sandbox_kernel.wire.record import Record

__all__ = ["ROWS", "ClaimRequest", "WarmRequest"]


class WarmRequest(Record):
    """Start an interpreter for nobody yet; answered when it takes messages.

    The next `kernel.start` that asks for just this one, whatever its id, gets it.  Until then it
    does not hold the sandbox awake.
    """

    cwd: str | None = None
    env: dict[str, str | None] = {}  # noqa: RUF012


class ClaimRequest(Record):
    """Give a sandbox that has no id yet its own, and the rules of its idle sleep.

    The same id again is fine.
    """

    sandbox_id: str
    sleep_after: float | None = None
    keep_alive: bool = False


ROWS = (
    Operation("pool.warm", Kind.CALL, WarmRequest, KernelInfo),
    Operation("pool.claim", Kind.CALL, ClaimRequest, Empty, idempotent=True),
)
