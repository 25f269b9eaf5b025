"""A descriptor that is kept for when there are no more: what must be ended is found in /proc."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["SpareDescriptor"]


class SpareDescriptor:
    """Holds one; within ``with`` it is free, for files that are open one at a time."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._take()

    def __enter__(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._take()

    def _take(self) -> None:
        if self._descriptor < 0:
            try:
                self._descriptor = os.open("/dev/null", os.O_RDONLY)
            except OSError:
                # Somebody else has it; there may be one the next time.
                self._descriptor = -1
