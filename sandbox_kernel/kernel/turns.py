"""Whose turn it is on the main shell: cells of the host and of the sandbox in the order sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.kernel.hostcells import Commands, HostCell, UsageProblem, parse
from sandbox_kernel.kernel.jsontext import write
from sandbox_kernel.kernel.requests import Request, RequestTable
from sandbox_kernel.kernel.speaker import Speaker

__all__ = ["Turns"]

Parts = Sequence[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A message of the main shell that is not begun; `cell` of None is for the sandbox."""

    request: Request
    parts: Parts
    cell: HostCell | UsageProblem | None


class Turns:
    """Holds messages of the main shell back while a host cell is before them.

    The sandbox queues what it is sent, so without a host cell nothing waits here.  The queue needs
    no bound of its own: clients wait for their replies.

    Parameters
    ----------
    table : RequestTable
        Says whether the sandbox's main shell is free.
    speaker : Speaker
        Tells clients about host cells.
    commands : mapping of str to Commands
        By magic.
    forward : callable
        Sends a message to the sandbox.

    Attributes
    ----------
    running : Request or None
        The host cell that is being answered.
    """

    def __init__(
        self,
        table: RequestTable,
        speaker: Speaker,
        commands: Mapping[str, Commands],
        forward: Callable[[Request, Parts], None],
    ) -> None:
        self.running: Request | None = None
        self._table = table
        self._speaker = speaker
        self._commands = commands
        self._magics = frozenset(commands)
        self._forward = forward
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, request: Request, parts: Parts) -> None:
        """Take a message of a client: forward it, answer it, or let it wait."""
        cell = self._cell(request) if request.is_execute else None
        if isinstance(cell, HostCell) and self._is_immediate(cell):
            self._run(request, cell)
        elif cell is None and not (
            request.is_on_main_shell and (self._waiting or self.running is not None)
        ):
            self._forward(request, parts)
        else:
            self._waiting.append(_Waiting(request, parts, cell))
            self.release()

    def _cell(self, request: Request) -> HostCell | UsageProblem | None:
        try:
            return parse(request.code, self._magics)
        except UsageProblem as problem:
            return problem

    def _is_immediate(self, cell: HostCell) -> bool:
        try:
            return self._commands[cell.magic].find(cell)[0].immediate
        except UsageProblem:
            return False

    def release(self) -> None:
        """Go on with what waits, as far as it may."""
        while self._waiting and self.running is None:
            first = self._waiting[0]
            if first.cell is not None and not self._table.is_main_shell_free():
                return
            self._waiting.popleft()
            if first.cell is None:
                self._forward(first.request, first.parts)
            else:
                self._run(first.request, first.cell)

    def abort(self) -> None:
        """Do as an interpreter does: after an error, cells sent meanwhile are not run."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if each.request.is_execute:
                self._speaker.answer(each.request, {"status": "aborted"})
            else:
                self._forward(each.request, each.parts)

    def give_up(self) -> list[Request]:
        """Return every request that waits or runs here, and forget them."""
        requests = [each.request for each in self._waiting]
        if self.running is not None:
            requests.insert(0, self.running)
        self._waiting.clear()
        self.running = None
        return requests

    def _run(self, request: Request, cell: HostCell | UsageProblem) -> None:
        request.busy = True
        self._speaker.status("busy", request.header)
        if not request.silent:
            shown = {"code": request.code, "execution_count": self._table.execution_count}
            self._speaker.publish("execute_input", request.header, write(shown))
        try:
            if isinstance(cell, UsageProblem):
                raise cell
            command, words = self._commands[cell.magic].find(cell)
            text = command.run(request, words)
        except (UsageProblem, SandboxError) as error:
            name = "UsageError" if isinstance(error, UsageProblem) else type(error).__name__
            self._table.add(request)
            self._speaker.fail(request, name, str(error))
            if request.stop_on_error:
                self.abort()
            return
        if text is None:
            self.running = request
        else:
            self._end(request, text)

    def finish(self, text: str) -> None:
        """End the host cell that was left running."""
        if self.running is not None:
            request, self.running = self.running, None
            self._end(request, text)
            self.release()

    def _end(self, request: Request, text: str) -> None:
        if text and not request.silent:
            stream = {"name": "stdout", "text": text}
            self._speaker.publish("stream", request.header, write(stream))
        content = {
            "status": "ok",
            "execution_count": self._table.execution_count,
            "user_expressions": {},
            "payload": [],
        }
        self._speaker.reply(request, write(content))
        self._speaker.status("idle", request.header)
