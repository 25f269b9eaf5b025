"""A transport that notes in the activity log what passes through it.

What counts is who ran what: commands, processes, terminals and signals.  What only looks, files,
and everything that programs read or write are not noted.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from sandbox_kernel.errors import SandboxError, StorageError
from sandbox_kernel.manager import log
from sandbox_kernel.wire.operations import (
    CreateTerminalRequest,
    ExecRequest,
    ExecResult,
    KillAllRequest,
    ProcessInfo,
    SignalRequest,
    StartProcessRequest,
    TerminalInfo,
)

if TYPE_CHECKING:
    from sandbox_kernel.manager.activity import ActivityLog
    from sandbox_kernel.transports.base import Channel, EventStream
    from sandbox_kernel.transports.choice import AnyTransport
    from sandbox_kernel.transports.endpoint import Endpoint
    from sandbox_kernel.wire.record import Record

__all__ = ["Recorded", "Recorder"]

_MOST_WATCHED = 1000
"""Processes and terminals whose end is noted when it is seen."""


class Recorder:
    """Appends to the log of one sandbox's lifetime.

    A line that cannot be written is lost with a warning: the disk that is full must not keep
    anybody from ending what fills it.
    """

    def __init__(self, activity: ActivityLog, sandbox_id: str, lifetime: str) -> None:
        self._activity = activity
        self._sandbox_id = sandbox_id
        self._lifetime = lifetime
        self._watched: set[str] = set()
        self._has_warned = False

    def done(
        self,
        operation: str,
        request: Record,
        result: Record | None,
        error: BaseException | None,
        at: float,
    ) -> None:
        """Note an operation that has ended, or failed."""
        note = _NOTES.get(operation)
        if note is None:
            return
        kind, what, details = note(request, result)
        if kind is None:
            return
        if isinstance(error, SandboxError):
            details["error"] = error.code
        elif error is not None:
            details["error"] = "CANCELLED"
        if isinstance(result, ProcessInfo | TerminalInfo) and not self._first_or_last(result, kind):
            return
        self.note(kind, what=what, at=at, **details)

    def note(self, kind: str, **facts: Any) -> None:
        """Append a line."""
        try:
            self._activity.add(self._sandbox_id, self._lifetime, kind, **facts)
        except StorageError as error:
            if not self._has_warned:
                self._has_warned = True
                log.warning("sandbox %s: activity is not noted: %s", self._sandbox_id, error)

    def _first_or_last(self, info: ProcessInfo | TerminalInfo, kind: str) -> bool:
        """Whether this is a start, or the first look at an end."""
        name = info.process_id if isinstance(info, ProcessInfo) else info.terminal_id
        if not kind.endswith("_ended"):
            if len(self._watched) < _MOST_WATCHED:
                self._watched.add(name)
            return not (isinstance(info, TerminalInfo) and info.existing)
        if name not in self._watched or info.ended_at is None:
            return False
        self._watched.discard(name)
        return True


class Recorded:
    """Carries operations by another transport, and notes them; see `Transport`."""

    def __init__(self, transport: AnyTransport, recorder: Recorder) -> None:
        self._transport = transport
        self._recorder = recorder

    @property
    def endpoint(self) -> Endpoint:
        """Where the other transport leads."""
        return self._transport.endpoint

    async def open(self) -> None:
        """Connect; see the other transport."""
        await self._transport.open()

    async def call(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> Record:
        """Do an operation that answers once; see `Transport`."""
        if operation not in _NOTES:
            return await self._transport.call(operation, request, incarnation=incarnation)
        at = time.time()
        result: Record | None = None
        error: BaseException | None = None
        try:
            result = await self._transport.call(operation, request, incarnation=incarnation)
        except BaseException as raised:
            error = raised
            raise
        else:
            return result
        finally:
            self._recorder.done(operation, request, result, error, at)

    def stream(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> AbstractAsyncContextManager[EventStream]:
        """Do an operation that answers with events; see `Transport`."""
        if operation not in _NOTES:
            return self._transport.stream(operation, request, incarnation=incarnation)
        return self._noted_stream(operation, request, incarnation)

    @asynccontextmanager
    async def _noted_stream(
        self, operation: str, request: Record, incarnation: str | None
    ) -> AsyncIterator[EventStream]:
        at = time.time()
        events: EventStream | None = None
        error: BaseException | None = None
        try:
            async with self._transport.stream(
                operation, request, incarnation=incarnation
            ) as events:
                yield events
        except BaseException as raised:
            error = raised
            raise
        finally:
            end = events.end if events is not None else None
            if end is None and error is None:
                error = GeneratorExit()  # the reader left before the end
            self._recorder.done(operation, request, end, error, at)

    async def connect(
        self, operation: str, request: Record, *, incarnation: str | None = None
    ) -> Channel:
        """Open a channel; see `Transport`."""
        return await self._transport.connect(operation, request, incarnation=incarnation)

    async def aclose(self) -> None:
        """Close what is open; see `Transport`."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


# --- what is noted of an operation: its kind, the command, and the rest -------------------------

_Noted = tuple[str | None, str | list[str] | None, dict[str, Any]]


def _command(request: Record, result: Record | None) -> _Noted:
    asked = cast("ExecRequest", request)
    details: dict[str, Any] = {"session": asked.session, "cwd": asked.cwd}
    if isinstance(result, ExecResult):
        details |= _how(result.exit_code, result.signal, result.reason)
        details["duration"] = round(result.duration, 3)
    return "command", asked.command if asked.command is not None else asked.argv, details


def _process(request: Record, result: Record | None) -> _Noted:
    asked = cast("StartProcessRequest", request)
    details: dict[str, Any] = {"session": asked.session, "cwd": asked.cwd}
    if isinstance(result, ProcessInfo):
        details["process_id"] = result.process_id
    return "process", asked.command if asked.command is not None else asked.argv, details


def _process_end(_request: Record, result: Record | None) -> _Noted:
    if not isinstance(result, ProcessInfo):
        return None, None, {}
    how = _how(result.exit_code, result.signal, result.reason)
    return "process_ended", None, {"process_id": result.process_id, **how}


def _terminal(request: Record, result: Record | None) -> _Noted:
    asked = cast("CreateTerminalRequest", request)
    if not isinstance(result, TerminalInfo):
        return "terminal", asked.argv, {"session": asked.session}
    details = {"session": asked.session, "terminal_id": result.terminal_id}
    return "terminal", result.argv, details


def _terminal_end(_request: Record, result: Record | None) -> _Noted:
    if not isinstance(result, TerminalInfo):
        return None, None, {}
    how = _how(result.exit_code, result.signal, result.reason)
    return "terminal_ended", None, {"terminal_id": result.terminal_id, **how}


def _signal(request: Record, _result: Record | None) -> _Noted:
    asked = cast("SignalRequest", request)
    return "signal", None, {"process_id": asked.process_id, "signal": asked.signal}


def _kill_all(request: Record, _result: Record | None) -> _Noted:
    return "signal", None, {"process_id": "*", "grace": cast("KillAllRequest", request).grace}


def _how(exit_code: int | None, signal: int | None, reason: str | None) -> dict[str, Any]:
    return {"exit_code": exit_code, "signal": signal, "reason": reason}


_NOTES: dict[str, Callable[[Record, Record | None], _Noted]] = {
    "exec": _command,
    "process.start": _process,
    "process.get": _process_end,
    "process.wait": _process_end,
    "process.signal": _signal,
    "process.kill_all": _kill_all,
    "terminal.create": _terminal,
    "terminal.wait": _terminal_end,
    "terminal.terminate": _terminal_end,
}
