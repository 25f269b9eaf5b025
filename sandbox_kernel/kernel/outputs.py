"""Outputs of cells whose page has gone, kept until somebody asks for them.

A page that was closed or lost while its cell ran shows nothing of what the cell says from then on,
and the page that comes after it does not know that cell.  The relay is not told that a page goes.
So the outputs of each cell are kept until its page is heard of again after the cell's end, which
it would be with the next cell; what is left then is what nobody can have seen to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

from sandbox_kernel.kernel.requests import Request

__all__ = ["KeptCell", "KeptOutputs", "Output"]

_MOST = 2000
_MOST_BYTES = 16 << 20
_LONGEST_TITLE = 60

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


@dataclass(slots=True)
class KeptCell:
    """What one cell has said.

    Parameters
    ----------
    session : str
        Of the page that sent it.
    title : str
        The first line of its code.
    dropped : int
        How many of its first outputs are no longer there.
    outputs : deque of Output
        The others, oldest first.
    """

    session: str
    title: str
    dropped: int = 0
    outputs: deque[Output] = field(default_factory=deque)


class KeptOutputs:
    """The outputs of cells that nobody may have seen; the oldest go beyond 2000 or 16 MiB."""

    def __init__(self) -> None:
        self.of: set[str] = set()
        """Ids of requests that were open when the relay was replaced: any page may have lost
        what they say."""
        self._cells: dict[str, KeptCell] = {}
        self._count = 0
        self._size = 0

    def offer(self, request: Request, output: Output) -> None:
        """Keep an output if it is one of a cell, and one that can be shown."""
        if not request.is_execute or request.silent or output.msg_type not in _SHOWN:
            return
        cell = self._cells.get(request.msg_id)
        if cell is None:
            title = next(iter(request.code.strip().splitlines()), "")[:_LONGEST_TITLE]
            cell = self._cells[request.msg_id] = KeptCell(request.session, title)
        if output.buffers:
            # They are views of what was read, all of which would be held with them.
            output = replace(output, buffers=[bytes(buffer) for buffer in output.buffers])
        cell.outputs.append(output)
        self._count += 1
        self._size += output.size
        while self._count > _MOST or self._size > _MOST_BYTES:
            self._drop_oldest()

    def heard(self, session: str, running: Container[str]) -> None:
        """Forget what this page has seen to its end: it speaks, and those cells are over.

        Parameters
        ----------
        session : str
            The page's.
        running : container of str
            Ids of the requests that are not over.
        """
        for msg_id, cell in list(self._cells.items()):
            if cell.session == session and msg_id not in running and msg_id not in self.of:
                self._forget(msg_id)

    def waiting(self, session: str) -> int:
        """Return how many outputs there are that the page of this session cannot have shown."""
        return sum(len(cell.outputs) for _, cell in self._lost_to(session))

    def take(self, session: str) -> list[KeptCell]:
        """Return what the page of this session cannot have shown, and forget it."""
        lost = self._lost_to(session)
        for msg_id, _ in lost:
            self._forget(msg_id)
            self.of.discard(msg_id)
        return [cell for _, cell in lost if cell.outputs]

    def _lost_to(self, session: str) -> list[tuple[str, KeptCell]]:
        return [
            (msg_id, cell)
            for msg_id, cell in self._cells.items()
            if cell.session != session or msg_id in self.of
        ]

    def _drop_oldest(self) -> None:
        msg_id, cell = next((i, cell) for i, cell in self._cells.items() if cell.outputs)
        self._size -= cell.outputs.popleft().size
        self._count -= 1
        cell.dropped += 1
        if not cell.outputs and len(self._cells) > 1:
            del self._cells[msg_id]

    def _forget(self, msg_id: str) -> None:
        cell = self._cells.pop(msg_id)
        self._count -= len(cell.outputs)
        self._size -= sum(output.size for output in cell.outputs)
