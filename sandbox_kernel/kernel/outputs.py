"""Outputs that no client could show, kept until somebody asks for them.

When a kernel's relay is replaced, pages forget which cell an output belongs to.  What the cells of
that moment go on to say is kept here too, for ``%sandbox outputs``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["KeptOutputs", "Output"]

_MOST = 2000
_MOST_BYTES = 16 << 20

_SHOWN = frozenset({"stream", "display_data", "execute_result", "error"})


@dataclass(frozen=True, slots=True)
class Output:
    """One message, ready to be published under another parent."""

    msg_type: str
    content: bytes
    metadata: bytes
    buffers: Sequence[bytes | memoryview]

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.content) + len(self.metadata) + sum(map(len, self.buffers))


class KeptOutputs:
    """The outputs of the cells in `of`; the oldest are dropped beyond 2000 or 16 MiB."""

    def __init__(self) -> None:
        self.of: set[str] = set()
        """Ids of the requests whose outputs are kept."""
        self._outputs: deque[Output] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._outputs)

    def offer(self, msg_id: str, output: Output) -> None:
        """Keep an output if it is one of a remembered cell, and one that can be shown."""
        if msg_id not in self.of or output.msg_type not in _SHOWN:
            return
        self._outputs.append(output)
        self._size += output.size
        while len(self._outputs) > _MOST or self._size > _MOST_BYTES:
            self._size -= self._outputs.popleft().size

    def take(self) -> list[Output]:
        """Return what was kept and forget it."""
        outputs, self._outputs, self._size = list(self._outputs), deque(), 0
        return outputs
