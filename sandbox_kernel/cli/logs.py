"""logs: who ran what in a sandbox, what a process wrote, and what the runtime says of itself."""

from __future__ import annotations

import base64
import os
import sys
import time
from argparse import Namespace
from collections import deque
from collections.abc import Iterator
from contextlib import aclosing, closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sandbox_kernel.cli.exit_codes import OK
from sandbox_kernel.cli.naming import existing, sandbox_id_of
from sandbox_kernel.cli.report import print_json, print_json_line, printable, time_text
from sandbox_kernel.engines.disk import storage_errors
from sandbox_kernel.errors import (
    ProcessNotFoundError,
    SandboxConfigurationError,
    SandboxNotFoundError,
)
from sandbox_kernel.manager.manager import Manager

if TYPE_CHECKING:
    from sandbox_kernel.client.process import ProcessExit, ProcessOutput
    from sandbox_kernel.manager.activity import Activity

__all__ = ["logs"]

_PAUSE = 0.25
"""Seconds between two looks at a file that may have grown."""
_PAGE = 1000
_LONGEST_LINE = 1 << 20


def logs(arguments: Namespace) -> int:
    """Print a log, and with --follow what comes."""
    if arguments.process is not None:
        if arguments.tail is not None:
            raise SandboxConfigurationError("--tail counts lines, which --process has none of.")
        import asyncio  # noqa: PLC0415  start-up time

        return asyncio.run(_process(arguments))
    with closing(Manager()) as manager:
        if arguments.runtime:
            _print_lines(_runtime_lines(manager, arguments), arguments)
        else:
            _print_activity(manager, arguments)
    return OK


# --- activity -------------------------------------------------------------------------------------


def _print_activity(manager: Manager, arguments: Namespace) -> None:
    name = sandbox_id_of(arguments.sandbox)
    if manager.lookup(name) is None and not manager.read_activity(name, limit=1).items:
        raise SandboxNotFoundError(name)
    last: deque[Activity] = deque(maxlen=arguments.tail)
    cursor = None
    while True:
        page = manager.read_activity(name, since=cursor, limit=_PAGE)
        cursor = page.cursor
        last.extend(page.items)
        if len(page.items) < _PAGE:
            break
    if arguments.json and not arguments.follow:
        print_json([asdict(each) for each in last])
        return
    for each in last:
        _print_action(each, arguments)
    while arguments.follow:
        sys.stdout.flush()
        page = manager.read_activity(name, since=cursor, limit=_PAGE)
        cursor = page.cursor
        for each in page.items:
            _print_action(each, arguments)
        if not page.items:
            time.sleep(_PAUSE)


def _print_action(each: Activity, arguments: Namespace) -> None:
    if arguments.json:
        print_json_line(asdict(each))
        return
    words = [time_text(each.at), each.who, each.kind]
    if each.what is not None:
        words.append(each.what if isinstance(each.what, str) else " ".join(map(str, each.what)))
    told = ", ".join(f"{name} {_shown(value)}" for name, value in each.details.items())
    print(printable("  ".join([*words, f"({told})"] if told else words)))


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


# --- the runtime's own log ------------------------------------------------------------------------


def _runtime_lines(manager: Manager, arguments: Namespace) -> Iterator[str | None]:
    """Yield the lines of the file; None where there are no more for now."""
    path = existing(manager, arguments.sandbox).layout.log
    inode, offset = 0, 0
    while True:
        with storage_errors(path, "read the log"):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                yield None
                continue
            with file:
                found = os.fstat(file.fileno())
                if found.st_ino != inode or found.st_size < offset:
                    inode, offset = found.st_ino, 0  # it was started anew
                file.seek(offset)
                while line := file.readline(_LONGEST_LINE):
                    offset += len(line)
                    yield line.decode(errors="backslashreplace").removesuffix("\n")
        yield None


def _print_lines(lines: Iterator[str | None], arguments: Namespace) -> None:
    last: deque[str] = deque(maxlen=arguments.tail)
    for line in lines:
        if line is None:
            break
        last.append(line)
    if arguments.json and not arguments.follow:
        print_json(list(last))
        return
    for line in last:
        _print_line(line, arguments)
    while arguments.follow:
        line = next(lines)
        if line is None:
            sys.stdout.flush()
            time.sleep(_PAUSE)
        else:
            _print_line(line, arguments)


def _print_line(line: str, arguments: Namespace) -> None:
    if arguments.json:
        print_json_line({"line": line})
    else:
        print(printable(line, keep="\t"))


# --- a process ------------------------------------------------------------------------------------


async def _process(arguments: Namespace) -> int:
    from sandbox_kernel.client.sandbox import get_sandbox  # noqa: PLC0415  start-up time

    with closing(Manager()) as manager:
        name = existing(manager, arguments.sandbox).sandbox_id
        async with get_sandbox(name, manager=manager) as sandbox:
            process = await sandbox.get_process(arguments.process)
            if process is None:
                raise ProcessNotFoundError(arguments.process)
            collected: list[dict[str, Any]] = []
            async with aclosing(process.output(follow=arguments.follow)) as events:
                async for event in events:
                    if not arguments.json:
                        _pass_on(event)
                    elif arguments.follow:
                        print_json_line(_event(event))
                    else:
                        collected.append(_event(event))
    if arguments.json and not arguments.follow:
        print_json(collected)
    return OK


def _pass_on(event: ProcessOutput | ProcessExit) -> None:
    from sandbox_kernel.client.process import ProcessOutput  # noqa: PLC0415  start-up time

    if not isinstance(event, ProcessOutput):
        return
    stream = sys.stderr if event.stream == "stderr" else sys.stdout
    if stream.isatty():
        print(printable(event.text, keep="\n\t"), end="", file=stream, flush=True)
    else:
        stream.buffer.write(event.data)
        stream.buffer.flush()


def _event(event: ProcessOutput | ProcessExit) -> dict[str, Any]:
    from sandbox_kernel.client.process import ProcessOutput  # noqa: PLC0415  start-up time

    if not isinstance(event, ProcessOutput):
        return {"type": "exit", **asdict(event)}
    data: dict[str, Any] = {"type": event.stream, "timestamp": event.timestamp}
    try:
        data["data"] = event.data.decode()
    except UnicodeDecodeError:
        data.update(data=base64.b64encode(event.data).decode("ascii"), encoding="base64")
    return data
