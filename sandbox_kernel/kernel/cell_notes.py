"""Notes in the activity log which cells ran, and how they ended; never what they wrote."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from sandbox_kernel.errors import StorageError
from sandbox_kernel.kernel.requests import Request
from sandbox_kernel.manager import log

if TYPE_CHECKING:
    from sandbox_kernel.manager.activity import ActivityLog

__all__ = ["CellNotes"]

# A reply is built anew by this side, so its first status is its own; a reply may be long.
_STATUS = re.compile(rb'"status":\s?"(ok|error|aborted)"')
_COUNT = re.compile(rb'"execution_count":\s?([0-9]{1,9})')


class CellNotes:
    """Notes the cells of one kernel.

    Parameters
    ----------
    activity : ActivityLog
        Where they are noted.
    sandbox_id, lifetime : str
        Of which sandbox.
    kernel_id : str
        In which interpreter.
    """

    def __init__(
        self, activity: ActivityLog, sandbox_id: str, lifetime: str, kernel_id: str
    ) -> None:
        self._activity = activity
        self._sandbox_id = sandbox_id
        self._lifetime = lifetime
        self._kernel_id = kernel_id
        self._has_warned = False

    def done(self, request: Request, reply: bytes) -> None:
        """Note a cell when it is answered; other requests, and cells of nothing, are not."""
        if not request.is_execute or not request.code.strip():
            return
        status, count = _STATUS.search(reply), _COUNT.search(reply)
        try:
            self._activity.add(
                self._sandbox_id,
                self._lifetime,
                "cell",
                what=request.code,
                at=request.came_at,
                kernel_id=self._kernel_id,
                status=status[1].decode() if status else None,
                execution_count=int(count[1]) if count else None,
                duration=round(time.time() - request.came_at, 3),
                silent=True if request.silent else None,
            )
        except StorageError as error:
            # The disk may be what the cell has filled; it must run on, and be interruptible.
            if not self._has_warned:
                self._has_warned = True
                log.warning("sandbox %s: cells are not noted: %s", self._sandbox_id, error)
