"""exec: one command in a sandbox, its streams ours, its exit code ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import threading
from argparse import Namespace
from typing import Any

from sandbox_kernel.cli.exit_codes import NO_PROGRAM, NO_SANDBOX, NOT_EXECUTABLE, TIMED_OUT, USAGE
from sandbox_kernel.cli.naming import notebook_of, pairs, sandbox_id_of
from sandbox_kernel.cli.report import print_json, report_os_error, warn
from sandbox_kernel.cli.wishes import wished_options
from sandbox_kernel.client.process import Process, ProcessExit, ProcessOutput
from sandbox_kernel.client.sandbox import Sandbox, get_sandbox
from sandbox_kernel.errors import (
    CommandNotFoundError,
    CommandPermissionDeniedError,
    SandboxConfigurationError,
    SandboxError,
)
from sandbox_kernel.manager.manager import Manager

__all__ = ["execute", "feed", "kill"]

_CHUNK = 64 << 10


def execute(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        return asyncio.run(_execute(arguments))
    except CommandNotFoundError as error:
        return _report(error, arguments, NO_PROGRAM)
    except CommandPermissionDeniedError as error:
        return _report(error, arguments, NOT_EXECUTABLE)
    except SandboxConfigurationError as error:
        return _report(error, arguments, USAGE)
    except SandboxError as error:
        return _report(error, arguments, NO_SANDBOX)
    except BrokenPipeError:
        raise
    except OSError as error:
        report_os_error(error)
        return NO_SANDBOX


async def _execute(arguments: Namespace) -> int:
    notebook = notebook_of(arguments.sandbox)
    sandbox_id = sandbox_id_of(arguments.sandbox)
    with contextlib.closing(Manager()) as manager:
        options = wished_options(arguments, manager.settings)
        if notebook is not None:
            # As its kernel would start it: a folder that cannot be shown is a notice.
            options["notebook_folder"] = notebook.parent
            options["folder_required"] = False
        return await _in(get_sandbox(sandbox_id, manager=manager, **options), arguments)


async def _in(sandbox: Sandbox, arguments: Namespace) -> int:
    async with sandbox:
        has_input = _has_input()
        process = await sandbox.start_process(
            arguments.argv,
            cwd=arguments.cwd,
            env=pairs(arguments.env),
            timeout=arguments.timeout,
            stdin=has_input,
        )
        for notice in sandbox.notices:
            warn(notice)
        try:
            if has_input:
                feed(process, asyncio.get_running_loop())
            collected = {"stdout": bytearray(), "stderr": bytearray()}
            ended = await _follow(process, collected if arguments.json else None)
        except BaseException:
            # Interrupted, or nobody reads what it writes: it must not go on without us.
            await kill(process)
            raise
    if arguments.json:
        print_json(_facts(ended, collected))
    elif ended.timed_out:
        warn(f"{arguments.argv[0]!r} was killed after {arguments.timeout:g} s.")
    elif ended.reason == "memory_limit":
        warn(f"{arguments.argv[0]!r} was killed: the sandbox reached its memory limit.")
    return TIMED_OUT if ended.timed_out else ended.exit_code


async def _follow(process: Process, collected: dict[str, bytearray] | None) -> ProcessExit:
    """Pass on what the process writes, as it comes, until its end."""
    async with contextlib.aclosing(process.output(follow=True)) as events:
        async for event in events:
            match event:
                case ProcessExit():
                    return event
                case ProcessOutput() if collected is not None:
                    collected[event.stream] += event.data
                case ProcessOutput():
                    stream = sys.stderr if event.stream == "stderr" else sys.stdout
                    # A reader that is slow stops us here, and the process in its turn.
                    stream.buffer.write(event.data)
                    stream.buffer.flush()
    return await process.wait_for_exit()


def _has_input() -> bool:
    """Whether something is piped or redirected to us; a terminal and the null device are not."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return not stat.S_ISCHR(mode)


def feed(process: Process, loop: asyncio.AbstractEventLoop) -> None:
    """Pass our standard input on, for as long as the process takes it."""

    def pump() -> None:
        with contextlib.suppress(SandboxError, OSError, RuntimeError):
            while chunk := os.read(0, _CHUNK):
                asyncio.run_coroutine_threadsafe(process.write_stdin(chunk), loop).result()
            asyncio.run_coroutine_threadsafe(process.close_stdin(), loop).result()

    # A thread, since reading a file cannot be polled; a daemon, since our input may never end.
    threading.Thread(target=pump, name="stdin", daemon=True).start()


async def kill(process: Process) -> None:
    """Kill the process, also if we are told to end meanwhile; one that has gone is fine."""
    with contextlib.suppress(SandboxError):
        await asyncio.shield(process.kill())


def _facts(ended: ProcessExit, collected: dict[str, bytearray]) -> dict[str, Any]:
    return {
        "exit_code": ended.exit_code,
        "signal": ended.signal,
        "reason": ended.reason,
        "duration": ended.duration,
        "stdout": collected["stdout"].decode(errors="replace"),
        "stderr": collected["stderr"].decode(errors="replace"),
    }


def _report(error: SandboxError, arguments: Namespace, code: int) -> int:
    if arguments.json:
        print_json({"error": error.to_wire()})
    else:
        warn(str(error))
    return code
