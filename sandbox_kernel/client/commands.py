"""Running commands: to their end, as a stream of events, or as a process that goes on.

A command is a list of words, which no shell looks at, or a text for a shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shlex
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from sandbox_kernel.arguments import count, environment, flag, inside_path, words
from sandbox_kernel.client.callbacks import tell
from sandbox_kernel.client.making import made
from sandbox_kernel.client.process import (
    ExecResult,
    Process,
    ProcessExit,
    ProcessOutput,
    TextOf,
)
from sandbox_kernel.client.silence import unless_silent
from sandbox_kernel.client.time_limits import limit_to_send
from sandbox_kernel.errors import (
    CommandTimeoutError,
    InvalidCommandError,
    ProcessNotFoundError,
    SandboxError,
    SessionTerminatedError,
    StdinClosedError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import (
    ExecRequest,
    OutputEvent,
    ProcessInfo,
    SignalRequest,
    StartProcessRequest,
    WriteStdinRequest,
)
from sandbox_kernel.wire.operations import ExecResult as WireExecResult

if TYPE_CHECKING:
    from sandbox_kernel.transports.base import Transport
    from sandbox_kernel.wire.record import Record

__all__ = ["MAX_OUTPUT", "CommandInput", "Commands", "Place"]

T = TypeVar("T")

CommandInput = bytes | bytearray | memoryview | str | AsyncIterable[bytes]
"""What a command can read: bytes, text (as UTF-8), or bytes that come one after the other."""

MAX_OUTPUT = 256 << 20
"""Bytes that are collected unless asked for more."""

_TEXT_OR_WORDS = 'Pass a text for the shell, such as "make test", or a list of words.'

_AT_ONCE = 8 << 20
"""Input up to this size travels with the command; more of it follows in pieces."""

_WRITE_BYTES = 1 << 20
_KEPT_IN_ERROR = 64 << 10
_NOT_THERE_YET = 100
_PAUSE = 0.02
_SIGKILL = 9


class Place(Protocol):
    """Where commands run: a sandbox, as this module sees it."""

    async def _taken(self, work: Callable[[Transport], Awaitable[T]]) -> T: ...

    def _process(self, info: ProcessInfo) -> Process: ...


class Commands:
    """Runs commands in one place.

    Parameters
    ----------
    place : Place
        The sandbox.
    session : str, optional
        In whose shell texts run; without it each has a shell of its own.
    is_whole : bool
        Whether lists of words, too, have the session's folder and environment.
    fallback_timeout : float, optional
        Seconds for commands for which neither caller nor session has set any.
    """

    def __init__(
        self,
        place: Place,
        *,
        session: str | None,
        is_whole: bool,
        fallback_timeout: float | None,
    ) -> None:
        self._place = place
        self._session = session
        self._is_whole = is_whole
        self._fallback_timeout = fallback_timeout

    def _what(self, command: str | Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
        """Return the fields of a request that name the command."""
        if isinstance(command, str):
            if not command:
                raise InvalidCommandError("the text is empty", hint=_TEXT_OR_WORDS)
            return {"command": command, "session": self._session}
        if isinstance(command, os.PathLike):
            raise InvalidCommandError(
                "it is a path", hint=f'Pass ["{os.fspath(command)}"], with its arguments.'
            )
        return {"argv": words(command), "session": self._session if self._is_whole else None}

    def _request(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str | None] | None,
        timeout: float | None,
        **more: Any,
    ) -> ExecRequest:
        return ExecRequest(
            **self._what(command),
            env=environment(env, may_unset=True),
            timeout=limit_to_send(timeout),
            fallback_timeout=self._fallback_timeout,
            **more,
        )

    async def run(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str | None] | None,
        timeout: float | None,  # noqa: ASYNC109  travels to the runtime
        stdin: CommandInput | None,
        merge_stderr: bool,
        max_output: int,
        on_output: Callable[[str, bytes], object] | None,
    ) -> ExecResult:
        """Run a command to its end; see `Sandbox.exec`."""
        room = count("max_output", max_output, of="bytes")
        if not isinstance(stdin, AsyncIterable):
            stdin = _whole_input(stdin, "bytes, text or an asynchronous iterable of bytes")
        is_short = stdin is None or (isinstance(stdin, bytes) and len(stdin) <= _AT_ONCE)
        request = self._request(
            command,
            cwd=_folder(cwd),
            env=env,
            timeout=timeout,
            merge_stderr=merge_stderr,
            stdin=stdin if is_short else None,
            stdin_open=not is_short,
            process_id=None if is_short else f"c-{os.urandom(8).hex()}",
        )
        shown = request.command if isinstance(command, str) else request.argv
        collected = _Collected(shown or "", self._session, room, on_output)
        try:
            end = await self._place._taken(  # noqa: SLF001  as `Place` says
                lambda transport: _executed(
                    transport, request, collected, None if is_short else stdin
                )
            )
        except SessionTerminatedError as error:
            error.context.update(collected.kept())
            raise
        return collected.result(end, timeout)

    async def events(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str | None] | None,
        timeout: float | None,  # noqa: ASYNC109  travels to the runtime
        stdin: bytes | str | None,
        merge_stderr: bool,
    ) -> AsyncGenerator[ProcessOutput | ProcessExit, None]:
        """Run a command and yield what it writes as it comes; see `Sandbox.exec_stream`."""
        request = self._request(
            command,
            cwd=_folder(cwd),
            env=env,
            timeout=timeout,
            merge_stderr=merge_stderr,
            stdin=_whole_input(stdin, "bytes or text"),
        )
        queue: asyncio.Queue[ProcessOutput | ProcessExit | BaseException] = asyncio.Queue(1)
        running = asyncio.create_task(self._pour(request, queue))
        try:
            while True:
                event = await queue.get()
                if isinstance(event, BaseException):
                    raise event
                yield event
                if isinstance(event, ProcessExit):
                    return
        finally:
            running.cancel()
            await asyncio.wait([running])

    async def _pour(
        self,
        request: ExecRequest,
        queue: asyncio.Queue[ProcessOutput | ProcessExit | BaseException],
    ) -> None:
        async def work(transport: Transport) -> None:
            text = TextOf()
            async with (
                unless_silent(transport, "exec", _limit(request)),
                transport.stream("exec", request) as events,
            ):
                async for event in events:
                    assert isinstance(event, OutputEvent)  # noqa: S101  as the table declares
                    await queue.put(text.output(event))
                end = events.end
            assert isinstance(end, WireExecResult)  # noqa: S101  as the table declares
            for each in text.rest():
                await queue.put(each)
            await queue.put(_exit(end))

        try:
            await self._place._taken(work)  # noqa: SLF001  as `Place` says
        except Exception as error:  # noqa: BLE001  the caller gets it, whatever it is
            await queue.put(error)

    async def start(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str | None] | None,
        timeout: float | None,  # noqa: ASYNC109  travels to the runtime
        stdin: bool,
        merge_stderr: bool,
        process_id: str | None,
    ) -> Process:
        """Start a command that goes on by itself; see `Sandbox.start_process`."""
        request = StartProcessRequest(
            **self._what(command),
            cwd=_folder(cwd),
            env=environment(env, may_unset=True),
            timeout=limit_to_send(timeout),
            stdin=flag("stdin", stdin),
            merge_stderr=merge_stderr,
            process_id=process_id,
        )
        started = await self._place._taken(  # noqa: SLF001  as `Place` says
            lambda transport: made(
                transport, "process.start", request, lambda info: _killed(transport, info)
            )
        )
        return self._place._process(cast("ProcessInfo", started))  # noqa: SLF001


async def _killed(transport: Transport, started: Record) -> None:
    process_id = cast("ProcessInfo", started).process_id
    with contextlib.suppress(ProcessNotFoundError):
        request = SignalRequest(process_id=process_id, signal=_SIGKILL)
        await transport.call("process.signal", request)


def _folder(cwd: str | os.PathLike[str] | None) -> str | None:
    return None if cwd is None else inside_path("cwd", cwd)


def _whole_input(stdin: object, expected: str) -> bytes | None:
    """Return the whole input of a command as bytes."""
    if stdin is None or isinstance(stdin, bytes):
        return stdin
    if isinstance(stdin, str):
        return stdin.encode()
    if isinstance(stdin, bytearray | memoryview):
        return bytes(stdin)
    raise ValidationFailedError(
        "stdin",
        f"must be {expected}, not {type(stdin).__name__}",
        hint="sandbox_kernel.sync takes every iterable of bytes in exec().",
    )


def _piece(data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise ValidationFailedError("stdin", f"gave {type(data).__name__}, where bytes belong")


class _Collected:
    """What a command writes, up to a limit."""

    def __init__(
        self,
        command: str | Sequence[str],
        session: str | None,
        room: int,
        on_output: Callable[[str, bytes], object] | None,
    ) -> None:
        self._command = command
        self._session = session
        self._room = room
        self._on_output = on_output
        # Not lists to be joined in the end: memory that is touched for the first time is dear.
        self._written = {"stdout": io.BytesIO(), "stderr": io.BytesIO()}
        self._truncated = False

    async def add(self, stream: str, data: bytes) -> None:
        if self._on_output is not None:
            await tell(self._on_output, stream, data)
        if len(data) > self._room:
            data, self._truncated = data[: self._room], True
        self._room -= len(data)
        self._written["stderr" if stream == "stderr" else "stdout"].write(data)

    def kept(self) -> dict[str, str]:
        """Return the beginning of both streams, for an error."""
        return {
            name: bytes(written.getbuffer()[:_KEPT_IN_ERROR]).decode(errors="replace")
            for name, written in self._written.items()
        }

    def result(self, end: WireExecResult, timeout: float | None) -> ExecResult:
        is_text = isinstance(self._command, str)
        if end.timed_out or end.reason == "timeout":
            program = str(self._command)[:80] if is_text else self._command[0]
            # Where the limit was the session's, what has passed is what there is to tell.
            limit = round(end.duration, 1) if timeout is None else timeout
            raise CommandTimeoutError(program, limit, **self.kept())
        return ExecResult(
            command=str(self._command) if is_text else shlex.join(self._command),
            argv=[] if is_text else list(self._command),
            session=self._session if is_text else None,
            exit_code=end.exit_code,
            stdout=self._written["stdout"].getvalue(),
            stderr=self._written["stderr"].getvalue(),
            signal=end.signal,
            duration=end.duration,
            reason=end.reason,
            truncated=self._truncated,
        )


def _limit(request: ExecRequest) -> float | None:
    return request.timeout if request.timeout is not None else request.fallback_timeout


def _exit(end: WireExecResult) -> ProcessExit:
    return ProcessExit(
        process_id=end.process_id,
        exit_code=end.exit_code,
        signal=end.signal,
        reason="timeout" if end.timed_out else end.reason,
        duration=end.duration,
    )


async def _executed(
    transport: Transport,
    request: ExecRequest,
    collected: _Collected,
    stdin: CommandInput | None,
) -> WireExecResult:
    """Run a command while feeding it; leaving early, for whatever reason, ends it."""
    feeding: asyncio.Task[None] | None = None
    broken: list[Exception] = []
    try:
        async with (
            unless_silent(transport, "exec", _limit(request)),
            transport.stream("exec", request) as events,
        ):
            if stdin is not None:
                feeding = asyncio.create_task(_feed(transport, request, stdin, broken))
            async for event in events:
                assert isinstance(event, OutputEvent)  # noqa: S101  as the table declares
                await collected.add(event.stream, event.data)
            end = events.end
    finally:
        if feeding is not None:
            feeding.cancel()
            await asyncio.wait([feeding])
    if broken:
        # What came of half an input is of no use.
        raise broken[0]
    assert isinstance(end, WireExecResult)  # noqa: S101  as the table declares
    return end


async def _feed(
    transport: Transport,
    request: ExecRequest,
    stdin: CommandInput,
    broken: list[Exception],
) -> None:
    process_id = request.process_id or ""

    async def write(data: bytes, *, close: bool = False) -> None:
        view = memoryview(data)
        while True:
            piece, view = view[:_WRITE_BYTES], view[_WRITE_BYTES:]
            message = WriteStdinRequest(
                process_id=process_id, data=bytes(piece), close=close and not view
            )
            await _written(transport, message)
            if not view:
                return

    # A program may close its input before it has read all, or end; that is its right.
    with contextlib.suppress(StdinClosedError, ProcessNotFoundError):
        if isinstance(stdin, bytes):
            await write(stdin, close=True)
            return
        assert isinstance(stdin, AsyncIterable)  # noqa: S101  the caller has encoded the others
        try:
            async for data in stdin:
                await write(_piece(data))
            await write(b"", close=True)
        except (StdinClosedError, ProcessNotFoundError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001  the caller gets it, whatever it is
            broken.append(error)
            with contextlib.suppress(SandboxError):
                await transport.call(
                    "process.signal", SignalRequest(process_id=process_id, signal=_SIGKILL)
                )
        finally:
            if isinstance(stdin, AsyncGenerator):
                await stdin.aclose()


async def _written(transport: Transport, message: WriteStdinRequest) -> None:
    """Write, also where the command is still on its way on another connection."""
    for _ in range(_NOT_THERE_YET):
        try:
            await transport.call("process.write_stdin", message)
        except ProcessNotFoundError:
            await asyncio.sleep(_PAUSE)
        else:
            return
