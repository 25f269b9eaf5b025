"""terminal: the user's own terminal at one in a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from argparse import Namespace
from collections import deque
from collections.abc import Coroutine
from typing import Any

from sandbox_kernel.cli.detach_keys import DetachKeys
from sandbox_kernel.cli.exit_codes import (
    HUNG_UP,
    NO_PROGRAM,
    NO_SANDBOX,
    NOT_EXECUTABLE,
    OK,
    USAGE,
)
from sandbox_kernel.cli.local_terminal import LocalTerminal, is_local_terminal, without_full_reset
from sandbox_kernel.cli.naming import existing, notebook_of, pairs, sandbox_id_of
from sandbox_kernel.cli.report import (
    print_json,
    print_table,
    report_error,
    report_os_error,
    time_text,
    warn,
)
from sandbox_kernel.cli.wishes import wished_options
from sandbox_kernel.client.sandbox import Sandbox, get_sandbox
from sandbox_kernel.client.terminal import Terminal, TerminalView
from sandbox_kernel.errors import (
    CommandNotFoundError,
    CommandPermissionDeniedError,
    ContainerUnavailableError,
    InvalidTerminalCursorError,
    InvalidTerminalCwdError,
    SandboxConfigurationError,
    SandboxError,
    StaleTerminalHandleError,
    TerminalNotFoundError,
    TransportError,
    ValidationFailedError,
)
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.wire.terminal import Exited, Output, Replay, Screen

__all__ = ["terminal"]

_MOST_TYPED = 1 << 20
"""Bytes typed that may wait for the sandbox; then no more is read, the keys to detach neither."""

_ACKNOWLEDGED_EVERY = 64 << 10

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_PATIENCE = 60.0
"""Seconds for which a broken connection is tried again."""

_ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def terminal(arguments: Namespace) -> int:
    """Attach to a terminal, or list those there are."""
    if arguments.list:
        return asyncio.run(_list(arguments))
    try:
        keys = _checked(arguments)
        return asyncio.run(_attach(arguments, keys))
    except CommandNotFoundError as error:
        return _report(error, arguments, NO_PROGRAM)
    except CommandPermissionDeniedError as error:
        return _report(error, arguments, NOT_EXECUTABLE)
    except (SandboxConfigurationError, ValidationFailedError) as error:
        return _report(error, arguments, USAGE)
    except InvalidTerminalCwdError as error:
        error.hint = "Make the folder in the sandbox first, or leave --cwd out."
        return _report(error, arguments, USAGE)
    except (TerminalNotFoundError, StaleTerminalHandleError) as error:
        # Its own advice is for Python.
        error.hint = (
            f"'jupyter sandbox terminal {arguments.sandbox} --list' shows those that are there;"
            " all of them end when the sandbox stops."
        )
        return _report(error, arguments, NO_SANDBOX)
    except SandboxError as error:
        return _report(error, arguments, NO_SANDBOX)
    except OSError as error:
        report_os_error(error)
        return NO_SANDBOX


def _report(error: SandboxError, arguments: Namespace, code: int) -> int:
    report_error(error, as_json=arguments.json)
    return code


def _checked(arguments: Namespace) -> DetachKeys:
    if arguments.json:
        raise SandboxConfigurationError(
            "--json is for --list: an attached terminal shows what its program writes.",
            hint="Add --list, or leave out --json.",
        )
    if arguments.terminal is not None and (arguments.argv or arguments.session is not None):
        raise SandboxConfigurationError(
            "--terminal names a terminal that is there; a session or a program makes one.",
            hint="Leave out one of them.",
        )
    if not is_local_terminal():
        raise SandboxConfigurationError(
            "Standard input and output must be a terminal.",
            hint="Without one, run programs by: jupyter sandbox exec SANDBOX PROGRAM",
        )
    return DetachKeys(arguments.detach_keys)


async def _list(arguments: Namespace) -> int:
    with contextlib.closing(Manager()) as manager:
        info = existing(manager, arguments.sandbox)
        async with get_sandbox(info.sandbox_id, manager=manager) as sandbox:
            found = await sandbox.list_terminals()
    if arguments.json:
        print_json([_facts(each) for each in found])
    elif found:
        head = ("TERMINAL", "STATUS", "SESSION", "SIZE", "STARTED", "PROGRAM")
        print_table(head, map(_row, found))
    else:
        print(f"There are no terminals in sandbox {info.sandbox_id}.")
    return OK


def _row(found: Terminal) -> tuple[str, ...]:
    ended = found.exit
    return (
        found.id,
        found.status if ended is None else f"{found.status} {ended.exit_code}",
        found.session or "-",
        f"{found.cols}x{found.rows}",
        time_text(found.created_at),
        " ".join(found.argv),
    )


def _facts(found: Terminal) -> dict[str, Any]:
    ended = found.exit
    return {
        "terminal_id": found.id,
        "status": found.status,
        "exit_code": ended.exit_code if ended else None,
        "signal": ended.signal if ended else None,
        "reason": ended.reason if ended else None,
        "session": found.session,
        "cols": found.cols,
        "rows": found.rows,
        "title": found.title,
        "created_at": found.created_at,
        "argv": found.argv,
        "cwd": found.cwd,
    }


async def _attach(arguments: Namespace, keys: DetachKeys) -> int:
    sandbox_id = sandbox_id_of(arguments.sandbox)
    notebook = notebook_of(arguments.sandbox) if arguments.terminal is None else None
    with contextlib.closing(Manager()) as manager:
        options = wished_options(arguments, manager.settings)
        if notebook is not None:
            # As its kernel would start it: a folder that cannot be shown is a notice.
            options["notebook_folder"] = notebook.parent
            options["folder_required"] = False
        async with get_sandbox(sandbox_id, manager=manager, **options) as sandbox:
            local = LocalTerminal()
            found, is_new = await _terminal(sandbox, arguments, local)
            for notice in sandbox.notices:
                warn(notice)
            way_out = f"; {keys.label} detaches" if keys.label else ""
            warn(f"terminal {found.id} of sandbox {sandbox_id}{way_out}")
            attachment = _Attachment(found, keys, local, is_new=is_new)
            code = await attachment.run()
    if attachment.is_detached:
        warn(f"detached; the terminal runs on. Come back by:\n{_way_back(arguments, found)}")
    elif attachment.reason == "memory_limit":
        warn("the program was killed: the sandbox reached its memory limit.")
    return code


def _way_back(arguments: Namespace, found: Terminal) -> str:
    words = ["jupyter sandbox terminal", arguments.sandbox]
    if found.session is None:
        words += ["--terminal", found.id]
    elif found.session != "default":
        words += ["--session", found.session]
    return " ".join(words)


async def _terminal(
    sandbox: Sandbox, arguments: Namespace, local: LocalTerminal
) -> tuple[Terminal, bool]:
    """Return the terminal that is meant, and whether it was made for this."""
    if arguments.terminal is not None:
        found = await sandbox.get_terminal(arguments.terminal)
        if found is None:
            raise TerminalNotFoundError(arguments.terminal)
        return found, False
    session = arguments.session
    if session is None and not arguments.argv:
        session = "default"
    cols, rows = local.size or (80, 24)
    known = {each.id for each in await sandbox.list_terminals()}
    found = await sandbox.create_terminal(
        arguments.argv or None,
        cwd=arguments.cwd,
        env=pairs(arguments.env),
        cols=cols,
        rows=rows,
        session_id=session,
    )
    is_new = found.id not in known
    if not is_new and arguments.argv:
        warn(f"session {session} has a terminal, which shows {found.argv[0]!r}; nothing was run.")
    return found, is_new


class _Attachment:
    """The local terminal at one in a sandbox, from the first to the last byte.

    Overflow rules: output that is not drawn is not acknowledged, so that the program waits; input
    waits up to a bound, beyond which the keyboard is not read.
    """

    def __init__(
        self, found: Terminal, keys: DetachKeys, local: LocalTerminal, *, is_new: bool
    ) -> None:
        self._terminal = found
        self._keys = keys
        self._local = local
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[int] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._view: TerminalView | None = None
        # All of it is new to a terminal made for it; the screen of others is drawn first.
        self._cursor = found.cursor if is_new else None
        self._is_new = is_new
        self._typed: deque[bytes] = deque()
        self._typed_size = 0
        self._has_typed = asyncio.Event()
        self._is_sent = asyncio.Event()
        self._is_sent.set()
        self._is_reading = False
        self._undrawn = 0
        self._drawn: asyncio.Event = asyncio.Event()
        self._unacknowledged = 0
        self.is_detached = False
        self.reason: str | None = None
        """Why the program was ended, where that is known."""

    async def run(self) -> int:
        """Return the exit code of the command."""
        loop = self._loop
        for number in _ENDINGS:
            loop.add_signal_handler(number, self._finish, 128 + number)
        try:
            with self._local as local:
                loop.add_signal_handler(signal.SIGWINCH, self._resized)
                loop.add_signal_handler(signal.SIGCONT, self._continued)
                self._read_keys()
                self._start(self._receive())
                self._start(self._send())
                try:
                    return await self._over
                finally:
                    local.at_bottom = local.at_bottom or self.is_detached
                    loop.remove_reader(0)
                    for task in self._tasks:
                        task.cancel()
                    await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            for number in (*_ENDINGS, signal.SIGWINCH, signal.SIGCONT):
                loop.remove_signal_handler(number)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._local.at_bottom = True
            if not self._over.done():
                self._over.set_exception(error)

    def _finish(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    # --- output -------------------------------------------------------------------------------

    async def _receive(self) -> None:
        """Draw until the end, over as many connections as it takes."""
        pause, broken_at = _FIRST_PAUSE, None
        while True:
            try:
                if await self._look():
                    return
                error: SandboxError = ContainerUnavailableError(
                    self._terminal.id, "the connection was lost"
                )
            except InvalidTerminalCursorError:
                if self._cursor is None:
                    raise
                self._cursor = None
                continue
            except (TerminalNotFoundError, StaleTerminalHandleError):
                raise
            except (TransportError, ContainerUnavailableError) as failure:
                error = failure
            now = time.monotonic()
            if self._view is not None or broken_at is None:
                # It was connected until now.
                pause, broken_at = _FIRST_PAUSE, now
            self._view = None
            if now - broken_at > _PATIENCE:
                raise error
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _look(self) -> bool:
        """Draw what one connection brings; return whether the terminal has ended."""
        size = self._local.size
        cols, rows = size or (None, None)
        # What a terminal would answer is left out of what others may have answered already.
        is_first, self._is_new = self._is_new, False
        is_screen = False
        async with self._terminal.view(
            cursor=self._cursor,
            cols=cols,
            rows=rows,
            acknowledges=True,
            strip_queries=not is_first,
        ) as view:
            self._view = view
            self._has_typed.set()
            if self._local.size != size:
                self._resized()
            async for event in view:
                match event:
                    case Output():
                        self._draw(view, event, is_screen=is_screen)
                        is_screen = False
                    case Replay(kind="screen") | Screen():
                        is_screen = True
                    case Exited():
                        await self._exited(event)
                        return True
                    case _:
                        pass  # sizes that others decided, and orders refused
        return False

    def _draw(self, view: TerminalView, output: Output, *, is_screen: bool) -> None:
        data, size = output.data, len(output.data)
        if is_screen:
            if self._cursor is None:
                self._local.make_room()
            data = without_full_reset(data)
        self._cursor = view.cursor(output.offset)

        def drawn(error: OSError | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has gone
                self._loop.call_soon_threadsafe(self._was_drawn, view, output.offset, size, error)

        self._undrawn += 1
        self._drawn.clear()
        self._local.draw(data, drawn)

    def _was_drawn(self, view: TerminalView, offset: int, size: int, error: OSError | None) -> None:
        if error is not None:
            self._finish(HUNG_UP)
            return
        self._undrawn -= 1
        self._unacknowledged += size
        if not self._undrawn:
            self._drawn.set()
        if view is self._view and (
            not self._undrawn or self._unacknowledged >= _ACKNOWLEDGED_EVERY
        ):
            self._unacknowledged = 0
            self._tell(view.acknowledge(offset))

    async def _exited(self, event: Exited) -> None:
        if self._undrawn:
            await self._drawn.wait()
        if event.reason == "stopped":
            raise ContainerUnavailableError(self._terminal.id, "the sandbox has stopped")
        self.reason = event.reason
        # One that was killed has left the cursor anywhere.
        self._local.at_bottom = event.signal is not None
        self._finish(event.exit_code)

    # --- input --------------------------------------------------------------------------------

    def _read_keys(self) -> None:
        wanted = self._typed_size < _MOST_TYPED
        if wanted != self._is_reading:
            self._is_reading = wanted
            if wanted:
                self._loop.add_reader(0, self._keys_ready)
            else:
                self._loop.remove_reader(0)

    def _keys_ready(self) -> None:
        data = self._local.read()
        if not data:
            self._finish(HUNG_UP)
            return
        typed, detached = self._keys.feed(data)
        if typed:
            self._typed.append(typed)
            self._typed_size += len(typed)
            self._is_sent.clear()
            self._has_typed.set()
            self._read_keys()
        if detached:
            self._start(self._detach())

    async def _detach(self) -> None:
        """Leave, once what was typed before is on its way; a sandbox that is stuck is left, too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._is_sent.wait()
        self.is_detached = True
        self._finish(OK)

    async def _send(self) -> None:
        while True:
            await self._has_typed.wait()
            self._has_typed.clear()
            while self._typed and (view := self._view) is not None:
                data = self._typed[0]
                with contextlib.suppress(TransportError, ContainerUnavailableError):
                    # If the connection breaks, nobody knows how much of it was typed.
                    await view.write(data)
                self._typed.popleft()
                self._typed_size -= len(data)
                self._read_keys()
            if not self._typed:
                self._is_sent.set()

    # --- signals ------------------------------------------------------------------------------

    def _resized(self) -> None:
        size = self._local.size
        if size is not None and self._view is not None:
            self._tell(self._view.resize(*size))

    def _continued(self) -> None:
        """Take the terminal back from the shell that we were stopped under."""
        self._local.set_raw()
        self._resized()

    def _tell(self, order: Coroutine[Any, Any, None]) -> None:
        async def tell() -> None:
            with contextlib.suppress(TransportError, ContainerUnavailableError):
                await order

        self._start(tell())
