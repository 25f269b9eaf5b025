"""The runtime as a whole: its listening socket, its parts, its idle sleep and its end."""

from __future__ import annotations

import os
import signal
import sys
import time

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.wire.operations import ConfigureRequest, Empty, Health, ShutdownRequest
from sandbox_runtime.activity import LOOKUPS, Activity
from sandbox_runtime.children import Children
from sandbox_runtime.connection import Connection
from sandbox_runtime.dispatch import dispatch
from sandbox_runtime.kernels import Kernels
from sandbox_runtime.loop import READ, Loop
from sandbox_runtime.memory_events import MemoryEvents
from sandbox_runtime.processes import Processes
from sandbox_runtime.sockets import accept, adopt_listener, listen_unix

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

    from sandbox_kernel.wire.rpc import Call
    from sandbox_runtime.config import Config
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.loop import Timer

__all__ = ["TERM_GRACE", "Runtime"]

TERM_GRACE = 2.0
"""Seconds that programs get to end by themselves when the runtime is told to stop by a signal."""

LAST_WORDS = 0.5
"""Seconds that clients get to take what is still queued for them at the end."""


class Runtime:
    """One incarnation of a sandbox, from its configuration to its exit."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sandbox_id = config.sandbox_id
        self.incarnation = os.urandom(8).hex()
        self._token = config.token.encode()
        self._began = time.monotonic()
        self._connections: set[Connection] = set()
        self._stopping = False
        self._sleep_timer: Timer | None = None
        self._give_up_at = 0.0
        _set_limits(config.rlimits)
        if config.lock_fd is not None:
            # Kept open and not inherited: the lock ends with this very process.
            os.set_inheritable(config.lock_fd, False)
        self._listener = _listen(config)
        self.loop: Loop = Loop(self.log)
        self.children = Children(self.loop)
        self.activity = Activity(
            self._began, sleep_after=config.sleep_after, keep_alive=config.keep_alive
        )
        memory_events = MemoryEvents(config.memory_events)
        self.processes: Processes = Processes(
            self.loop,
            config,
            self.incarnation,
            children=self.children,
            activity=self.activity,
            memory_events=memory_events,
            log=self.log,
        )
        self.kernels: Kernels = Kernels(
            self.loop,
            config,
            self.incarnation,
            package_folder=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            children=self.children,
            activity=self.activity,
            memory_events=memory_events,
            log=self.log,
        )
        self.loop.add(self._listener.fileno(), READ, self._accept)
        self.loop.on_signal(signal.SIGTERM, lambda: self.stop(TERM_GRACE))
        self.loop.on_signal(signal.SIGINT, lambda: self.stop(TERM_GRACE))

    def log(self, line: str) -> None:
        """Write a line to the log, which the engine keeps."""
        sys.stderr.write(f"{line.rstrip()}\n")
        sys.stderr.flush()

    def run(self) -> None:
        """Serve until stopped or idle for too long."""
        self._check_idle()
        self.loop.run()

    # --- clients ------------------------------------------------------------------------------

    def _accept(self, _events: int) -> None:
        try:
            sock = accept(self._listener)
        except BlockingIOError:
            return
        except OSError as error:
            # Out of descriptors: the client waits in the backlog; a busy loop helps nobody.
            self.log(f"accept: {error}")
            self.loop.remove(self._listener.fileno())
            self.loop.call_later(0.1, self._accept_again)
            return
        self._connections.add(Connection(self.loop, self, sock))

    def _accept_again(self) -> None:
        if not self._stopping:
            self.loop.add(self._listener.fileno(), READ, self._accept)

    def admits(self, token: str) -> bool:
        """Whether this is the incarnation's token; takes as long whatever the difference."""
        given = token.encode("utf-8", "surrogatepass")
        difference = len(given) ^ len(self._token)
        for left, right in zip(given, self._token, strict=False):
            difference |= left ^ right
        return difference == 0

    def dispatch(self, call: Call, exchange: Exchange) -> None:
        """Begin an operation."""
        if call.operation not in LOOKUPS:
            self.activity.touch(time.monotonic())
        dispatch(self, call, exchange)

    def gone(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._connections.discard(connection)

    # --- operations on the runtime itself -----------------------------------------------------

    def health(self) -> Health:
        """Return how the runtime is."""
        now = time.monotonic()
        since = self.activity.idle_since(now)
        sleep_at = self.activity.sleep_at()
        return Health(
            sandbox_id=self.sandbox_id,
            incarnation=self.incarnation,
            pid=os.getpid(),
            uptime=now - self._began,
            idle_for=0.0 if since is None else now - since,
            sleeps_in=None if since is None or sleep_at is None else max(0.0, sleep_at - now),
            busy=self.activity.busy(now),
            processes=len(self.processes),
            kernels=len(self.kernels),
        )

    def configure(self, request: ConfigureRequest) -> Empty:
        """Change the idle rules; the idle time starts anew."""
        if request.sleep_after is not None and not 0 < request.sleep_after < 1e9:
            raise ValidationFailedError("sleep_after", "must be a number of seconds above zero")
        self.activity.configure(
            time.monotonic(), sleep_after=request.sleep_after, keep_alive=request.keep_alive
        )
        self._check_idle()
        return Empty()

    def shut_down(self, request: ShutdownRequest) -> Empty:
        """Begin to end everything; the answer comes at once."""
        if not 0 <= request.grace <= 300:
            raise ValidationFailedError("grace", "must be 0 to 300 seconds")
        self.loop.call_soon(lambda: self.stop(request.grace))
        return Empty()

    # --- the end ------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        if self._sleep_timer is not None:
            self._sleep_timer.cancel()
            self._sleep_timer = None
        if self._stopping:
            return
        now = time.monotonic()
        sleep_at = self.activity.sleep_at()
        if sleep_at is not None and sleep_at <= now:
            self.log(f"sandbox {self.sandbox_id}: idle, goes to sleep")
            self.stop(TERM_GRACE)
            return
        # While something holds the sandbox awake there is no time to wait for; what lets go touches
        # the idle clock, so looking again after one idle time is early enough.
        period = self.activity.sleep_after
        if sleep_at is not None:
            self._sleep_timer = self.loop.call_at(sleep_at, self._check_idle)
        elif period is not None and not self.activity.keep_alive:
            self._sleep_timer = self.loop.call_later(period, self._check_idle)

    def stop(self, grace: float) -> None:
        """End every program, TERM first and KILL after `grace` seconds, then leave the loop."""
        if self._stopping:
            return
        self._stopping = True
        self.loop.remove_if_added(self._listener.fileno())
        self._listener.close()
        self.processes.stop(grace)
        self.kernels.stop(grace)
        self._give_up_at = time.monotonic() + grace + LAST_WORDS
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        now = time.monotonic()
        if now < self._give_up_at and (len(self.processes) or len(self.kernels)):
            self.loop.call_later(0.005, self._wait_for_end)
            return
        for each in list(self._connections):
            each.close_when_sent()
        self._give_up_at = now + LAST_WORDS
        self._wait_for_clients()

    def _wait_for_clients(self) -> None:
        if self._connections and time.monotonic() < self._give_up_at:
            self.loop.call_later(0.005, self._wait_for_clients)
        else:
            self.loop.stop()


def _listen(config: Config) -> _socket.socket:
    """Return the listening socket the configuration names."""
    where = config.listen
    if isinstance(where, dict) and isinstance(where.get("fd"), int):
        return adopt_listener(where["fd"])
    if isinstance(where, dict) and isinstance(where.get("unix"), str):
        return listen_unix(where["unix"])
    raise ValidationFailedError("listen", "must be {'fd': N} or {'unix': PATH}")


def _set_limits(limits: dict[str, int]) -> None:
    """Set resource limits for this process and all it will start."""
    if not limits:
        return
    import resource  # noqa: PLC0415

    for name, value in limits.items():
        if name not in ("nproc", "fsize", "as", "nofile"):
            raise ValidationFailedError("rlimits", f"knows no limit {name[:40]!r}")
        number = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(number)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (allowed, allowed))
