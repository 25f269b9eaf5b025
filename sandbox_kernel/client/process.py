"""Commands and processes in a sandbox, as people hold them."""

from __future__ import annotations

import asyncio
import codecs
import re
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from sandbox_kernel.arguments import choice, count, flag, signal_number
from sandbox_kernel.client.port_wait import wait_request
from sandbox_kernel.client.time_limits import check_limit, limit_to_send
from sandbox_kernel.errors import (
    ProcessExitedBeforeLogError,
    ProcessNotFoundError,
    ProcessWaitTimeoutError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import (
    OutputEnd,
    OutputEvent,
    OutputRequest,
    ProcessInfo,
    ProcessRequest,
    SignalRequest,
    WaitRequest,
    WriteStdinRequest,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from sandbox_kernel.transports.base import EventStream
    from sandbox_kernel.wire.port_operations import PortReady
    from sandbox_kernel.wire.record import Record

__all__ = ["ExecResult", "LogMatch", "Process", "ProcessExit", "ProcessLogs", "ProcessOutput"]

_MAX_OUTPUT = 256 << 20
_SHOWN = 100
"""Bytes or characters of each part that a result shows of itself."""

_MATCH_SPAN = 1 << 16
_STREAMS = ("stdout", "stderr")
_SIGKILL = 9
_SIGTERM = 15

_WRITE_BYTES = 1 << 20
"""Input is sent in pieces of this size, so that a slow reader holds up little."""


class _Written:
    """The bytes of both streams as text, too."""

    stdout: bytes
    stderr: bytes

    @property
    def stdout_text(self) -> str:
        """`stdout` as UTF-8 text; what is no UTF-8 becomes U+FFFD."""
        return self.stdout.decode(errors="replace")

    @property
    def stderr_text(self) -> str:
        """`stderr` as UTF-8 text; what is no UTF-8 becomes U+FFFD."""
        return self.stderr.decode(errors="replace")


@dataclass(frozen=True, kw_only=True)
class ExecResult(_Written):
    """How a command ended and what it wrote, as bytes.

    A code other than 0 is no error of `Sandbox.exec`; look at `success` or `exit_code`.
    """

    command: str
    """The text that was run; of a list of words the text that a shell would take for it."""
    argv: list[str]
    """The words; empty where it was a text."""
    session: str | None = None
    """The session whose shell ran it."""
    exit_code: int
    """The code, or 128 plus the signal that ended it."""
    stdout: bytes
    stderr: bytes
    signal: int | None = None
    """The signal that ended it, if one did; None for a text that ran in a session, whose shell
    tells only the code."""
    duration: float
    """Seconds from start to end."""
    reason: str | None = None
    """Why it was killed, where that is known: ``memory_limit``, ``timeout``, ``cancelled``."""
    truncated: bool = False
    """Whether more was written than `max_output`; the rest is not here."""

    def __repr__(self) -> str:
        """Show what people look for: what was run, how it ended, and how its output begins."""
        why = "" if self.reason is None else f", reason={self.reason!r}"
        cut = ", truncated=True" if self.truncated else ""
        return (
            f"ExecResult(command={_beginning(self.command)}, exit_code={self.exit_code}"
            f"{why}, duration={self.duration:.3g}, stdout={_beginning(self.stdout)}, "
            f"stderr={_beginning(self.stderr)}{cut})"
        )

    @property
    def success(self) -> bool:
        """Whether the code is 0."""
        return self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        """Whether a time limit ended it."""
        return self.reason == "timeout"


def _beginning(of: bytes | str) -> str:
    if len(of) <= _SHOWN:
        return repr(of)
    unit = "bytes" if isinstance(of, bytes) else "characters"
    return f"{of[:_SHOWN]!r}... ({len(of)} {unit})"


@dataclass(frozen=True, kw_only=True)
class ProcessOutput:
    """Bytes that a process wrote."""

    stream: str
    """``stdout`` or ``stderr``."""
    data: bytes
    cursor: str
    """Pass it as `since` to go on after these bytes."""
    timestamp: float
    """When they were read, in seconds since the epoch."""
    text: str = ""
    """The bytes as UTF-8 text: a character that is cut between two events is whole in the later
    one, and what is no UTF-8 becomes U+FFFD."""

    @property
    def type(self) -> str:
        """What kind of event it is: the stream's name."""
        return self.stream


@dataclass(frozen=True, kw_only=True)
class ProcessExit:
    """How a process ended."""

    process_id: str
    exit_code: int
    """The code, or 128 plus the signal that ended it."""
    signal: int | None
    reason: str | None
    """Why it was killed, where that is known: ``memory_limit``, ``timeout``."""
    duration: float
    """Seconds from start to end."""

    @property
    def type(self) -> str:
        """What kind of event it is: ``exit``."""
        return "exit"

    @property
    def success(self) -> bool:
        """Whether the code is 0."""
        return self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        """Whether a time limit ended it."""
        return self.reason == "timeout"


@dataclass(frozen=True, kw_only=True)
class ProcessLogs(_Written):
    """What a process has written so far, as bytes."""

    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    cursor: str | None
    """Pass it as `since` to `Process.output` to go on; None if nothing was written."""
    truncated: bool = False
    """Whether more was written than `max_output`; the rest is not here."""


@dataclass(frozen=True, kw_only=True)
class LogMatch:
    """Where a pattern was found in what a process wrote."""

    stream: str
    """``stdout`` or ``stderr``."""
    match: re.Match[str] | re.Match[bytes]
    """What was found; of text patterns in the text, of bytes patterns in the bytes."""
    line: str
    """The line it was found in, as far as it was written then; its first, if there are several."""
    cursor: str
    """After the bytes that completed it; pass it as `since` to `Process.output` to go on."""
    timestamp: float
    """When these were read, in seconds since the epoch."""


class TextOf:
    """Decodes both streams of a process, whose characters may be cut anywhere."""

    def __init__(self) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._last: dict[str, OutputEvent] = {}

    def output(self, event: OutputEvent) -> ProcessOutput:
        """Return an event with its text."""
        decoder = self._decoders.get(event.stream)
        if decoder is None:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            self._decoders[event.stream] = decoder
        self._last[event.stream] = event
        return ProcessOutput(
            stream=event.stream,
            data=event.data,
            cursor=event.cursor,
            timestamp=event.timestamp,
            text=decoder.decode(event.data),
        )

    def rest(self) -> list[ProcessOutput]:
        """Return events without bytes for characters that were never completed."""
        left = [
            (stream, decoder.decode(b"", final=True)) for stream, decoder in self._decoders.items()
        ]
        return [
            ProcessOutput(
                stream=stream,
                data=b"",
                cursor=self._last[stream].cursor,
                timestamp=self._last[stream].timestamp,
                text=text,
            )
            for stream, text in left
            if text
        ]


class _Search:
    """Looks for a pattern in one stream whose pieces may be cut anywhere."""

    def __init__(self, pattern: re.Pattern[str] | re.Pattern[bytes]) -> None:
        self._pattern = pattern
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes = b""
        self._text = ""

    def add(self, data: bytes) -> tuple[re.Match[str] | re.Match[bytes], str] | None:
        """Return the first match with its line, once there is one."""
        found: re.Match[str] | re.Match[bytes] | None
        if isinstance(self._pattern.pattern, str):
            text = self._text = self._text[-_MATCH_SPAN:] + self._decoder.decode(data)
            found = self._pattern.search(text)
            if found is None:
                return None
            return found, _line_at(text, found.start())
        held = self._bytes = self._bytes[-_MATCH_SPAN:] + data
        found = self._pattern.search(held)
        if found is None:
            return None
        line = _line_at(held.decode("latin-1"), found.start())
        return found, line.encode("latin-1").decode(errors="replace")


def _line_at(text: str, at: int) -> str:
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[begin : end if end >= 0 else None].removesuffix("\r")


class ProcessDoor:
    """What a process handle needs of its sandbox: operations that never start it."""

    def __init__(
        self,
        call: Callable[[str, Record, ProcessInfo], Awaitable[Record]],
        stream: Callable[[str, Record, ProcessInfo], AbstractAsyncContextManager[EventStream]],
    ) -> None:
        self.call = call
        self.stream = stream


class Process:
    """A handle on one process; made by `Sandbox.start_process` and its like.

    The process outlives the handle, this Python process and the connection; `Sandbox.get_process`
    finds it again by its id.  Using the handle never starts a sandbox: once the sandbox has stopped
    or started anew, every method raises `StaleProcessHandleError`.
    """

    def __init__(self, door: ProcessDoor, info: ProcessInfo) -> None:
        self._door = door
        self._info = info

    def __repr__(self) -> str:
        return f"<Process {self.id} {self.argv!r} {self.status}>"

    @property
    def id(self) -> str:
        """Names the process within its sandbox."""
        return self._info.process_id

    @property
    def pid(self) -> int:
        """The process id as programs in the sandbox see it."""
        return self._info.pid

    @property
    def argv(self) -> list[str]:
        """The command."""
        return list(self._info.argv)

    @property
    def command(self) -> str:
        """The text that a shell runs; of a list of words the text that a shell would take for it.

        Very long ones are cut.
        """
        return self._info.command or shlex.join(self._info.argv)

    @property
    def session(self) -> str | None:
        """The session in whose shell it runs."""
        return self._info.session

    @property
    def cwd(self) -> str:
        """The folder it was started in."""
        return self._info.cwd

    @property
    def status(self) -> str:
        """As of the last answer: ``running``, ``completed``, ``failed`` or ``killed``.

        A command that waits for its turn in a session is ``starting``.  `refresh` asks again.
        """
        return self._info.status

    @property
    def exit(self) -> ProcessExit | None:
        """How it ended, as of the last answer; None while it runs."""
        return _exit(self._info)

    async def refresh(self) -> Process:
        """Ask for the present state, and return this handle."""
        self._info = await self._call("process.get", ProcessRequest(process_id=self.id))
        return self

    async def output(
        self, *, since: str | None = None, replay: bool = True, follow: bool = False
    ) -> AsyncGenerator[ProcessOutput | ProcessExit, None]:
        """Iterate over what the process wrote, and after its end over how it ended.

        Closing the iterator ends the reading only.  A consumer that stops taking does not lose
        anything.

        Parameters
        ----------
        since : str, optional
            A cursor; go on after it.
        replay : bool
            Without a cursor: begin at the start (True), or at what is written from now on.
        follow : bool
            Go on until the process has ended; else until what is there has been read.

        Yields
        ------
        ProcessOutput or ProcessExit
            The exit comes last, once, and only when the process has ended.

        Raises
        ------
        InvalidProcessCursorError
            `since` is no cursor of this process.
        """
        request = OutputRequest(process_id=self.id, since=since, replay=replay, follow=follow)
        text = TextOf()
        async with self._door.stream("process.output", request, self._info) as events:
            async for event in events:
                assert isinstance(event, OutputEvent)  # noqa: S101  as the table declares
                yield text.output(event)
            end = events.end
        assert isinstance(end, OutputEnd)  # noqa: S101  as the table declares
        self._info = end.info
        ended = _exit(end.info)
        if ended is not None:
            for each in text.rest():
                yield each
            yield ended

    async def logs(self, *, max_output: int = _MAX_OUTPUT) -> ProcessLogs:
        """Return what it has written so far, without waiting for more.

        Parameters
        ----------
        max_output : int
            Bytes to collect.
        """
        chunks: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        cursor, room, truncated = None, count("max_output", max_output, of="bytes"), False
        async with aclosing(self.output()) as events:
            async for event in events:
                if isinstance(event, ProcessExit):
                    break
                if len(event.data) > room:
                    truncated = True
                    break
                room -= len(event.data)
                cursor = event.cursor
                chunks["stderr" if event.stream == "stderr" else "stdout"].append(event.data)
        return ProcessLogs(
            stdout=b"".join(chunks["stdout"]),
            stderr=b"".join(chunks["stderr"]),
            cursor=cursor,
            truncated=truncated,
        )

    async def wait_for_log(
        self,
        pattern: str | bytes | re.Pattern[str] | re.Pattern[bytes],
        *,
        stream: str | None = None,
        since: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  its own error tells more
    ) -> LogMatch:
        """Wait until the process has written something, and return where.

        What it has written before counts, too.  Pieces and characters may be cut anywhere.

        Parameters
        ----------
        pattern : str, bytes or re.Pattern
            Text or bytes to find as they are, or a regular expression, of which a match spans
            65536 characters at most.
        stream : str, optional
            ``stdout`` or ``stderr``; by default both, each for itself.
        since : str, optional
            A cursor; look only at what was written after it.
        timeout : float, optional
            Seconds; ends the waiting only, the process runs on.

        Raises
        ------
        ProcessExitedBeforeLogError
            It ended without having written that.
        ProcessWaitTimeoutError
            The time passed first.
        InvalidProcessCursorError
            `since` is no cursor of this process.
        """
        wanted = _compiled(pattern)
        if stream is not None:
            choice("stream", stream, _STREAMS)
        searches: dict[str, _Search] = {}
        try:
            async with (
                asyncio.timeout(check_limit(timeout)),
                aclosing(self.output(since=since, follow=True)) as events,
            ):
                async for event in events:
                    if isinstance(event, ProcessExit) or stream not in (None, event.stream):
                        continue
                    search = searches.setdefault(event.stream, _Search(wanted))
                    found = search.add(event.data)
                    if found is not None:
                        return LogMatch(
                            stream=event.stream,
                            match=found[0],
                            line=found[1],
                            cursor=event.cursor,
                            timestamp=event.timestamp,
                        )
        except TimeoutError:
            raise ProcessWaitTimeoutError(self.id, timeout or 0.0, _shown(pattern)) from None
        raise ProcessExitedBeforeLogError(
            self.id, _shown(pattern), 0 if self.exit is None else self.exit.exit_code
        )

    async def write_stdin(self, data: bytes | str, *, close: bool = False) -> None:
        """Write to the process; returns when all is in its pipe.

        Parameters
        ----------
        data : bytes or str
            Text is sent as UTF-8.
        close : bool
            Close the input afterwards.

        Raises
        ------
        StdinClosedError
            It was started without ``stdin=True``, has closed its input, or has ended.
        """
        rest = memoryview(data.encode() if isinstance(data, str) else data)
        while True:
            piece, rest = rest[:_WRITE_BYTES], rest[_WRITE_BYTES:]
            is_last = not rest
            request = WriteStdinRequest(
                process_id=self.id, data=bytes(piece), close=close and is_last
            )
            await self._door.call("process.write_stdin", request, self._info)
            if is_last:
                return

    async def close_stdin(self) -> None:
        """Close the process's input: it reads end of file."""
        await self.write_stdin(b"", close=True)

    async def send_signal(self, signal: int | str, *, group: bool = True) -> None:
        """Send a signal to the process's whole group, or to the process alone.

        Parameters
        ----------
        signal : int or str
            1 to 64, or a name such as ``"SIGTERM"`` or ``"TERM"``.
        group : bool
            Whether its whole group gets it.
        """
        number = signal_number("signal", signal)
        request = SignalRequest(process_id=self.id, signal=number, group=flag("group", group))
        await self._door.call("process.signal", request, self._info)

    async def terminate(self) -> None:
        """Send SIGTERM to the process's whole group."""
        await self.send_signal(_SIGTERM)

    async def kill(self, signal: int | str = _SIGKILL) -> None:
        """Send a signal, 1 to 64 or a name, to the whole group; returns when it is delivered."""
        await self.send_signal(signal)

    async def wait_for_exit(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  travels to the runtime
    ) -> ProcessExit:
        """Wait until the process has ended.

        Parameters
        ----------
        timeout : float, optional
            Seconds; ends the waiting only, the process runs on.

        Raises
        ------
        ProcessWaitTimeoutError
            The time passed first.
        """
        request = WaitRequest(process_id=self.id, timeout=limit_to_send(timeout))
        self._info = await self._call("process.wait", request)
        ended = _exit(self._info)
        if ended is None:
            # A runtime that answers before the end has lost the process.
            raise ProcessNotFoundError(self.id)
        return ended

    async def wait_for_port(
        self,
        port: int,
        *,
        mode: str = "tcp",
        path: str = "/",
        status: int | tuple[int, int] = (200, 399),
        timeout: float | None = None,  # noqa: ASYNC109  travels to the runtime
    ) -> PortReady:
        """Wait until a program listens on a port, or answers there, while this process runs.

        Parameters
        ----------
        port, mode, path, status, timeout
            As for `Sandbox.wait_for_port`.

        Raises
        ------
        ProcessExitedBeforeReadyError
            The process has ended; its code is in the error.
        ProcessReadyTimeoutError
            The time passed first; the process runs on.
        """
        request = wait_request(
            port, mode=mode, path=path, status=status, timeout=timeout, process_id=self.id
        )
        return cast("PortReady", await self._door.call("port.wait", request, self._info))

    async def _call(self, operation: str, request: Record) -> ProcessInfo:
        return cast("ProcessInfo", await self._door.call(operation, request, self._info))


def _compiled(
    pattern: str | bytes | re.Pattern[str] | re.Pattern[bytes],
) -> re.Pattern[str] | re.Pattern[bytes]:
    """Return a pattern as a regular expression."""
    if isinstance(pattern, str):
        return re.compile(re.escape(pattern))
    if isinstance(pattern, bytes):
        return re.compile(re.escape(pattern))
    if not isinstance(pattern, re.Pattern):
        raise ValidationFailedError(
            "pattern", f"must be text, bytes or a compiled expression, not {pattern!r:.60}"
        )
    return pattern


def _shown(pattern: str | bytes | re.Pattern[str] | re.Pattern[bytes]) -> str:
    """Return a pattern as its caller wrote it."""
    written = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    return written if isinstance(written, str) else written.decode(errors="backslashreplace")


def _exit(info: ProcessInfo) -> ProcessExit | None:
    if info.exit_code is None:
        return None
    return ProcessExit(
        process_id=info.process_id,
        exit_code=info.exit_code,
        signal=info.signal,
        reason=info.reason,
        duration=max(0.0, (info.ended_at or info.started_at) - info.started_at),
    )
