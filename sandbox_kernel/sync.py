"""The names of `sandbox_kernel` for code without an event loop, and for notebooks with one.

Each method here does what the method of the same name and parameters of the asynchronous class
does, and blocks until it is done.  One thread with an event loop serves the whole process, so these
functions also work where a loop is running already, as in a notebook.

>>> from sandbox_kernel.sync import get_sandbox
>>> with get_sandbox("my-sandbox") as sandbox:   # doctest: +SKIP
...     print(sandbox.exec(["echo", "hi"]).stdout_text)
hi
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from sandbox_kernel.client import sandbox as _sandbox
from sandbox_kernel.client.options import SandboxOptions
from sandbox_kernel.client.process import ExecResult, ProcessExit, ProcessOutput
from sandbox_kernel.client.process import Process as AsyncProcess
from sandbox_kernel.client.sandbox import Sandbox as AsyncSandbox
from sandbox_kernel.manager.manager import Manager, SandboxInfo

if TYPE_CHECKING:
    from sandbox_kernel.wire.operations import Health

__all__ = [
    "ExecResult",
    "Process",
    "ProcessExit",
    "ProcessOutput",
    "Sandbox",
    "SandboxInfo",
    "get_sandbox",
    "list_sandboxes",
]

T = TypeVar("T")

_MAX_OUTPUT = 256 << 20


class _LoopThread:
    """The event loop that does the work; started at first use, and anew in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in the loop and return its result; an interrupt here cancels it there."""
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                # A daemon: the end of the program must not wait for a sandbox.
                threading.Thread(
                    target=self._loop.run_forever, name="sandbox-kernel-sync", daemon=True
                ).start()
            return self._loop


_thread = _LoopThread()


def get_sandbox(
    sandbox_id: str,
    *,
    manager: Manager | None = None,
    normalize_id: bool = False,
    **options: Unpack[SandboxOptions],
) -> Sandbox:
    """Return a handle on the sandbox of this id; see `sandbox_kernel.get_sandbox`."""
    return Sandbox(
        _sandbox.get_sandbox(sandbox_id, manager=manager, normalize_id=normalize_id, **options)
    )


def list_sandboxes(*, manager: Manager | None = None) -> list[SandboxInfo]:
    """Return every sandbox of this user; see `sandbox_kernel.list_sandboxes`."""
    return _thread.run(_sandbox.list_sandboxes(manager=manager))


class Process:
    """A handle on one process; see `sandbox_kernel.Process`."""

    def __init__(self, process: AsyncProcess) -> None:
        self._process = process

    def __repr__(self) -> str:
        return repr(self._process)

    @property
    def id(self) -> str:
        """Names the process within its sandbox."""
        return self._process.id

    @property
    def pid(self) -> int:
        """The process id as programs in the sandbox see it."""
        return self._process.pid

    @property
    def argv(self) -> list[str]:
        """The command."""
        return self._process.argv

    @property
    def cwd(self) -> str:
        """The folder it was started in."""
        return self._process.cwd

    @property
    def status(self) -> str:
        """As of the last answer: ``running``, ``completed``, ``failed`` or ``killed``."""
        return self._process.status

    @property
    def exit(self) -> ProcessExit | None:
        """How it ended, as of the last answer; None while it runs."""
        return self._process.exit

    def refresh(self) -> Process:
        """Ask for the present state, and return this handle."""
        _thread.run(self._process.refresh())
        return self

    def output(
        self, *, since: str | None = None, replay: bool = True, follow: bool = False
    ) -> Iterator[ProcessOutput | ProcessExit]:
        """Iterate over what the process wrote; see `sandbox_kernel.Process.output`."""
        events = self._process.output(since=since, replay=replay, follow=follow)
        try:
            while (event := _thread.run(_next(events.__anext__))) is not None:
                yield event
        finally:
            _thread.run(events.aclose())

    def write_stdin(self, data: bytes | str, *, close: bool = False) -> None:
        """Write to the process; returns when all is in its pipe."""
        _thread.run(self._process.write_stdin(data, close=close))

    def close_stdin(self) -> None:
        """Close the process's input: it reads end of file."""
        _thread.run(self._process.close_stdin())

    def send_signal(self, signal: int, *, group: bool = True) -> None:
        """Send a signal to the process's whole group, or to the process alone."""
        _thread.run(self._process.send_signal(signal, group=group))

    def terminate(self) -> None:
        """Send SIGTERM to the process's whole group."""
        _thread.run(self._process.terminate())

    def kill(self) -> None:
        """Send SIGKILL to the process's whole group."""
        _thread.run(self._process.kill())

    def wait_for_exit(self, *, timeout: float | None = None) -> ProcessExit:
        """Wait until the process has ended; see `sandbox_kernel.Process.wait_for_exit`."""
        return _thread.run(self._process.wait_for_exit(timeout=timeout))


class Sandbox:
    """One sandbox; see `sandbox_kernel.Sandbox`."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    def __repr__(self) -> str:
        return repr(self._sandbox)

    @property
    def id(self) -> str:
        """Names the sandbox, for ever."""
        return self._sandbox.id

    @property
    def notices(self) -> list[str]:
        """What is not as asked, in sentences; known after the first operation."""
        return self._sandbox.notices

    def start(self) -> SandboxInfo:
        """Start it if it does not run, and return what is known of it."""
        return _thread.run(self._sandbox.start())

    def info(self) -> SandboxInfo | None:
        """Return what is known of it, or None.  Starts nothing."""
        return _thread.run(self._sandbox.info())

    def health(self) -> Health | None:
        """Return how its runtime is; None if it does not run."""
        return _thread.run(self._sandbox.health())

    def configure(self, **options: Unpack[SandboxOptions]) -> None:
        """Change options; those of idle sleep at once, others from the next start on."""
        _thread.run(self._sandbox.configure(**options))

    def stop(self, *, grace: float = 5.0) -> None:
        """End every process in it; files stay, and the next operation starts it again."""
        _thread.run(self._sandbox.stop(grace=grace))

    def destroy(self) -> None:
        """End it and remove its files; the id is free for a new one.  A second time is fine."""
        _thread.run(self._sandbox.destroy())

    def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        stdin: bytes | str | AsyncIterable[bytes] | None = None,
        merge_stderr: bool = False,
        max_output: int = _MAX_OUTPUT,
        on_output: Callable[[str, bytes], object] | None = None,
    ) -> ExecResult:
        """Run a command to its end; see `sandbox_kernel.Sandbox.exec`.

        `on_output` is called in another thread.
        """
        return _thread.run(
            self._sandbox.exec(
                argv,
                cwd=cwd,
                env=env,
                timeout=timeout,
                stdin=stdin,
                merge_stderr=merge_stderr,
                max_output=max_output,
                on_output=on_output,
            )
        )

    def start_process(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        stdin: bool = False,
        merge_stderr: bool = False,
        process_id: str | None = None,
    ) -> Process:
        """Start a command that goes on by itself; see `sandbox_kernel.Sandbox.start_process`."""
        return Process(
            _thread.run(
                self._sandbox.start_process(
                    argv,
                    cwd=cwd,
                    env=env,
                    timeout=timeout,
                    stdin=stdin,
                    merge_stderr=merge_stderr,
                    process_id=process_id,
                )
            )
        )

    def get_process(self, process_id: str) -> Process | None:
        """Return a handle on a process, or None.  Starts nothing."""
        process = _thread.run(self._sandbox.get_process(process_id))
        return None if process is None else Process(process)

    def list_processes(self) -> list[Process]:
        """Return the processes of the present container, running ones first.  Starts nothing."""
        return [Process(each) for each in _thread.run(self._sandbox.list_processes())]

    def close(self) -> None:
        """Close this handle's connection; the sandbox runs on and the handle can be used again."""
        _thread.run(self._sandbox.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _next(
    take: Callable[[], Coroutine[Any, Any, ProcessOutput | ProcessExit]],
) -> ProcessOutput | ProcessExit | None:
    try:
        return await take()
    except StopAsyncIteration:
        return None
