"""Commands over REST, run to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from jupyter_ext.handles import manager
from jupyter_ext.rest_stream import Format, pour, wanted_format
from sandbox_kernel.client.by_name import stream_by_name
from sandbox_kernel.errors import InvalidCommandError, ValidationFailedError
from sandbox_kernel.wire.operations import ExecRequest, OutputEvent
from sandbox_kernel.wire.operations import ExecResult as WireExecResult
from sandbox_kernel.wire.record import Record

if TYPE_CHECKING:
    from jupyter_ext.rest import RestHandler

__all__ = ["MAX_OUTPUT", "USUAL_OUTPUT", "ExecAnswer", "ExecCommand", "execute"]

MAX_OUTPUT = 64 << 20
"""Most bytes of output that an answer in JSON may hold."""

USUAL_OUTPUT = 8 << 20
"""Bytes of output that an answer holds unless more are asked for."""

_MAX_STDIN = 8 << 20


class ExecCommand(Record):
    """Run a command to its end: `argv` without a shell, or the text `command` in a shell.

    A text runs in the shell of `session`, which keeps what it changes; ``null`` gives it a shell of
    its own.  A list of words has the folder and environment of `session` only if one is named.
    `env` overlays the environment, and null unsets a name.  After `timeout` seconds all that the
    command has started is killed.  An answer in JSON holds at most `max_output` bytes of output.
    """

    command: str | None = None
    argv: list[str] | None = None
    session: str | None = "default"
    cwd: str | None = None
    env: dict[str, str | None] = {}  # noqa: RUF012  records are frozen
    timeout: float | None = None
    stdin: bytes | None = None
    merge_stderr: bool = False
    max_output: int = USUAL_OUTPUT


class ExecAnswer(Record):
    """How a command ended, and what it wrote."""

    process_id: str
    exit_code: int
    """The code, or 128 plus the signal that ended it."""
    signal: int | None = None
    reason: str | None = None
    """Why it was killed, where that is known: ``memory_limit``, ``timeout``, ``cancelled``."""
    timed_out: bool = False
    duration: float
    stdout: bytes
    stderr: bytes
    truncated: bool
    """Whether it wrote more than the answer holds."""


async def execute(handler: RestHandler, wish: ExecCommand) -> ExecAnswer | None:
    """Run a command; answer at its end, or as it goes."""
    request = _request(handler, wish)
    chosen = wanted_format(handler.request.headers.get("Accept", ""), is_endless=False)
    async with stream_by_name(handler.sandbox, "exec", request, starts=True) as events:
        if chosen is not Format.JSON:
            await pour(handler, events, lambda: events.end, chosen, "output")
            return None
        written = {"stdout": bytearray(), "stderr": bytearray()}
        room, truncated = wish.max_output, False
        async for event in events:
            output = cast("OutputEvent", event)
            data = output.data
            if len(data) > room:
                data, truncated = data[:room], True
            room -= len(data)
            written["stderr" if output.stream == "stderr" else "stdout"] += data
        end = cast("WireExecResult", events.end)
    return ExecAnswer(
        process_id=end.process_id,
        exit_code=end.exit_code,
        signal=end.signal,
        reason="timeout" if end.timed_out else end.reason,
        timed_out=end.timed_out,
        duration=end.duration,
        stdout=bytes(written["stdout"]),
        stderr=bytes(written["stderr"]),
        truncated=truncated,
    )


def _request(handler: RestHandler, wish: ExecCommand) -> ExecRequest:
    if (wish.command is None) == (wish.argv is None):
        raise InvalidCommandError("give either command or argv")
    if wish.command == "":
        raise InvalidCommandError("the text is empty")
    if wish.stdin is not None and len(wish.stdin) > _MAX_STDIN:
        raise ValidationFailedError(
            "stdin", f"has more than {_MAX_STDIN} bytes; start a process and write to it"
        )
    if not 0 <= wish.max_output <= MAX_OUTPUT:
        raise ValidationFailedError("max_output", f"must be 0 to {MAX_OUTPUT}")
    what: dict[str, Any] = {"command": wish.command, "session": wish.session}
    if wish.argv is not None:
        what = {"argv": wish.argv, "session": wish.session if "session" in handler.said else None}
    return ExecRequest(
        **what,
        cwd=wish.cwd,
        env=wish.env,
        timeout=wish.timeout,
        fallback_timeout=manager().settings.command_timeout,
        stdin=wish.stdin,
        merge_stderr=wish.merge_stderr,
    )
