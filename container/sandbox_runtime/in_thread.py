"""A runtime in a thread of a process that is not its own, for tests and fakes: it isolates nothing.

Door, dispatch and programs are those of a sandbox.  What a runtime otherwise does to its whole
process is left undone: it takes no signals, adopts no orphans, sets no limits, leaves the memory
readable and others' children alone.  Its programs are children of the process, run as its user, and
what they leave in the background outlives the runtime, as do the files of kept output and a few
other descriptors: a runtime counts on the end of its process for those.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from _socket import socket

from sandbox_kernel.errors import ValidationFailedError
from sandbox_runtime.children import Children
from sandbox_runtime.connection import Connection
from sandbox_runtime.loop import READ, Loop
from sandbox_runtime.prctl import own_folder
from sandbox_runtime.quick import deque
from sandbox_runtime.server import Runtime
from sandbox_runtime.spawn import share_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_runtime.config import Config

__all__ = ["NoIsolationWarning", "RuntimeThread"]

log = logging.getLogger(__name__)


class NoIsolationWarning(UserWarning):
    """Programs that were meant for a sandbox run as this process's user, with all its rights."""


class _ThreadLoop(Loop):
    """A loop that gets no signals, and calls from other threads in their place."""

    def __init__(self, log: Callable[[str], None]) -> None:
        # Bounded by those who call, each of whom waits for what comes of it.
        self._calls: deque[Callable[[], object]] = deque()
        super().__init__(log)

    def _take_signals(self) -> None:
        """Leave them to the process."""

    def _leave_signals(self) -> None:
        """Likewise."""

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Do nothing: signals are the process's."""

    def call_from_thread(self, callback: Callable[[], object]) -> None:
        """Call `callback` soon; from any thread."""
        self._calls.append(callback)
        try:
            os.write(self._wakeup_write, b"\0")
        except BlockingIOError:
            return  # It is full of news nobody has read yet.

    def _on_wakeup(self, _events: int) -> None:
        try:
            os.read(self._wakeup, 4096)
        except BlockingIOError:
            return
        while self._calls:
            self.call_soon(self._calls.popleft())


class _OwnChildren(Children):
    """Waits for each child by its pidfd: the process has others, which are not to be reaped."""

    adopts_orphans = False

    def watch(self, pid: int, callback: Callable[[int], None]) -> None:
        """Call `callback(wait status)` once, from the loop, after the child has ended."""
        super().watch(pid, callback)
        handle = os.pidfd_open(pid)

        def ended(_events: int) -> None:
            self._loop.remove(handle)
            os.close(handle)
            _, status = os.waitpid(pid, 0)
            self._watchers.pop(pid)(status)

        self._loop.add(handle, READ, ended)

    def adopted(self) -> list[int]:
        """Return nobody: orphans go where the system sends them."""
        return []


class _ThreadRuntime(Runtime):
    """A runtime whose clients are handed to it, one by one."""

    loop: _ThreadLoop

    def _listen(self) -> None:
        """Have no listener."""

    def _make_loop(self) -> Loop:
        return _ThreadLoop(self.log)

    def _shut_ears(self) -> None:
        """Leave signals to the process."""

    def make_children(self) -> Children:
        return _OwnChildren(self.loop)

    def log(self, line: str) -> None:
        """Hand a line to the process's log."""
        log.info("%s", line.rstrip())

    def take(self, descriptor: int) -> None:
        """Serve a client on a connected socket."""
        client = socket(fileno=descriptor)
        if self._stopping:
            client.close()
            return
        client.setblocking(False)
        self._connections.add(Connection(self.loop, self, client))

    def cut(self) -> None:
        """Break every connection and kill every program."""
        for each in list(self._connections):
            each.close()
        self.stop(0)


class RuntimeThread:
    """A runtime in a thread of this process.

    Parameters
    ----------
    config : Config
        As for any runtime, but for `listen` and `lock_fd`, which are not used.

    Warns
    -----
    NoIsolationWarning
        Always: nothing separates its programs from this process's user.

    Raises
    ------
    ValidationFailedError
        Limits are asked for: they would hold for this process, too.
    """

    def __init__(self, config: Config) -> None:
        if config.rlimits:
            raise ValidationFailedError("rlimits", "cannot hold for a thread")
        warnings.warn(
            f"Sandbox {config.sandbox_id!r} isolates nothing: its programs run as the user of this "
            "process, with all its rights.",
            NoIsolationWarning,
            stacklevel=2,
        )
        self._config = config
        self._runtime: _ThreadRuntime | None = None
        self._refused: Exception | None = None
        self._is_ready = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._serve, name=f"runtime of {config.sandbox_id}", daemon=True
        )

    def start(self) -> None:
        """Start it; returns when clients may come.

        Raises
        ------
        OSError
            The system refuses a thread a working directory of its own.
        """
        self._thread.start()
        self._is_ready.wait()
        if self._refused is not None:
            raise self._refused

    def _serve(self) -> None:
        try:
            # The loop borrows the working directory to start programs; that of others must stay.
            own_folder()
            os.chdir("/")
            share_process()
            self._runtime = runtime = _ThreadRuntime(self._config)
        except Exception as error:  # noqa: BLE001  it is told to whoever starts us
            self._refused = error
            return
        finally:
            self._is_ready.set()
        try:
            runtime.run()
        finally:
            with self._lock:
                self._runtime = None
            runtime.cut()
            runtime.loop.close()

    def take(self, descriptor: int) -> None:
        """Serve a client on a connected stream socket, which is closed here in any case."""
        if not self._tell(lambda runtime: runtime.take(descriptor)):
            os.close(descriptor)

    def stop(self, grace: float) -> None:
        """End every program, TERM first and KILL after `grace` seconds, then the runtime."""
        self._tell(lambda runtime: runtime.stop(grace))

    def cut(self) -> None:
        """End as by a power cut: connections break, programs are killed."""
        self._tell(lambda runtime: runtime.cut())

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether it has come."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _tell(self, what: Callable[[_ThreadRuntime], object]) -> bool:
        with self._lock:
            runtime = self._runtime
            if runtime is None:
                return False
            runtime.loop.call_from_thread(lambda: what(runtime))
        return True
