"""Processes, sessions and ports over REST, where more is to be done than one operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from jupyter_ext.rest_commands import MAX_OUTPUT, USUAL_OUTPUT
from jupyter_ext.rest_stream import Format, pour
from jupyter_ext.route import Action
from sandbox_kernel.client.by_name import stream_by_name
from sandbox_kernel.errors import (
    ProcessNotFoundError,
    SandboxNotRunningError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import Empty, OutputEnd, OutputEvent, OutputRequest, ProcessInfo
from sandbox_kernel.wire.record import Record

if TYPE_CHECKING:
    from jupyter_ext.rest import RestHandler
    from sandbox_kernel.manager.ports import ExposedPort

__all__ = [
    "ExposePort",
    "ExposedPortDescription",
    "ExposedPortList",
    "LogFound",
    "OutputWish",
    "PortName",
    "ProcessOutput",
    "WaitForLog",
    "expose",
    "exposed",
    "output",
    "unexpose",
    "wait_for_log",
]


class OutputWish(Record):
    """Read what a process has written, from a cursor on.

    Without `since` from the start, or with `replay` false from now on.  With `follow` until the
    process has ended.  An answer in JSON holds at most `max_output` bytes; `cursor` is where to go
    on.
    """

    process_id: str
    since: str | None = None
    replay: bool = True
    follow: bool = False
    max_output: int = USUAL_OUTPUT


class ProcessOutput(Record):
    """What a process has written."""

    stdout: bytes
    stderr: bytes
    cursor: str | None
    """Where to go on; null if nothing was read and no cursor was given."""
    truncated: bool
    """Whether there is more."""
    info: ProcessInfo | None
    """The process, if all was read."""


async def output(handler: RestHandler, wish: OutputWish) -> ProcessOutput | None:
    """Answer with output, at once or as it comes."""
    if not 1 <= wish.max_output <= MAX_OUTPUT:
        raise ValidationFailedError("max_output", f"must be 1 to {MAX_OUTPUT}")
    request = OutputRequest(
        process_id=wish.process_id, since=wish.since, replay=wish.replay, follow=wish.follow
    )
    chosen = handler.wanted_format()
    written = {"stdout": bytearray(), "stderr": bytearray()}
    cursor, room, end = wish.since, wish.max_output, None
    try:
        async with stream_by_name(
            handler.sandbox, "process.output", request, starts=False
        ) as events:
            if chosen is not Format.JSON:
                await pour(handler, events, lambda: events.end, chosen, "output")
                return None
            async for event in events:
                part = cast("OutputEvent", event)
                if len(part.data) > room and cursor != wish.since:
                    break
                # Whole events only: the cursor must name what the answer holds.
                room -= len(part.data)
                cursor = part.cursor
                written["stderr" if part.stream == "stderr" else "stdout"] += part.data
            else:
                end = cast("OutputEnd", events.end)
    except SandboxNotRunningError:
        raise ProcessNotFoundError(wish.process_id) from None
    return ProcessOutput(
        stdout=bytes(written["stdout"]),
        stderr=bytes(written["stderr"]),
        cursor=cursor if end is None else end.cursor,
        truncated=end is None,
        info=None if end is None else end.info,
    )


class WaitForLog(Record):
    """Wait until a process has written `text`, on `stream` or on either.

    What it wrote before counts too, unless it came before the cursor `since`.  The timeout ends the
    waiting only.
    """

    process_id: str
    text: str
    stream: str | None = None
    since: str | None = None
    timeout: float | None = None


class LogFound(Record):
    """Where the text was found."""

    stream: str
    line: str
    """The line around it."""
    cursor: str
    timestamp: float


async def wait_for_log(handler: RestHandler, wish: WaitForLog) -> LogFound:
    """Wait for a text."""
    if not wish.text:
        raise ValidationFailedError("text", "is empty")
    if wish.stream not in (None, "stdout", "stderr"):
        raise ValidationFailedError("stream", 'must be "stdout" or "stderr"')
    if wish.timeout is not None and wish.timeout < 0:
        raise ValidationFailedError("timeout", "must not be negative")
    process = await handler.sandbox.get_process(wish.process_id)
    if process is None:
        raise ProcessNotFoundError(wish.process_id)
    # Text only: an expression of the caller's could hold up the server for hours.
    found = await process.wait_for_log(
        wish.text, stream=wish.stream, since=wish.since, timeout=wish.timeout
    )
    return LogFound(
        stream=found.stream, line=found.line, cursor=found.cursor, timestamp=found.timestamp
    )


# --- ports ------------------------------------------------------------------------------------


class PortName(Record):
    """Names a port."""

    port: int


class ExposePort(Record):
    """Let whoever has the token reach a port by a preview, for as long as the sandbox runs.

    Left out, `name` and `token` stay as they are; a token is made if there is none.
    """

    port: int
    name: str | None = None
    token: str | None = None


class ExposedPortDescription(Record):
    """A port that is exposed."""

    port: int
    name: str | None
    token: str | None
    """Whoever has it reaches the port; null for who may only read."""
    url: str | None
    """Where the preview is, as an absolute path of this server; it holds the token."""
    exposed_at: float


class ExposedPortList(Record):
    """The exposed ports that can be used now, the lowest first."""

    exposed_ports: list[ExposedPortDescription]


async def expose(handler: RestHandler, wish: ExposePort) -> ExposedPortDescription:
    """Expose a port."""
    made = await handler.sandbox.expose_port(wish.port, wish.name, wish.token)
    return _described(handler, made)


async def unexpose(handler: RestHandler, wish: PortName) -> Empty:
    """Revoke a port's token."""
    await handler.sandbox.unexpose_port(wish.port)
    return Empty()


async def exposed(handler: RestHandler, _: Record) -> ExposedPortList:
    """Answer with the exposed ports."""
    found = await handler.sandbox.get_exposed_ports()
    shown = await handler.may(Action.EXECUTE)
    return ExposedPortList(
        exposed_ports=[_described(handler, each, is_told=shown) for each in found]
    )


def _described(
    handler: RestHandler, exposed_port: ExposedPort, *, is_told: bool = True
) -> ExposedPortDescription:
    label = f"{exposed_port.port}-{exposed_port.sandbox_id}-{exposed_port.token}"
    return ExposedPortDescription(
        port=exposed_port.port,
        name=exposed_port.name,
        token=exposed_port.token if is_told else None,
        url=f"{handler.base_url}sandbox/preview/{label}/" if is_told else None,
        exposed_at=exposed_port.exposed_at,
    )
