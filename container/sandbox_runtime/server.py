"""The runtime as a whole: its listening socket, its parts, its idle sleep and its end."""

from __future__ import annotations

import os
import time

from sandbox_kernel.errors import ValidationFailedError
from sandbox_runtime.activity import ANSWERED_ASLEEP, LOOKUPS, Activity
from sandbox_runtime.connection import Connection
from sandbox_runtime.loop import READ, Loop
from sandbox_runtime.quick import signal
from sandbox_runtime.sockets import accept, adopt_listener, listen_unix

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

    from sandbox_kernel.wire.rpc import Call
    from sandbox_runtime.children import Children
    from sandbox_runtime.config import Config
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.loop import Timer
    from sandbox_runtime.workshop import Workshop

__all__ = ["TERM_GRACE", "Runtime"]

TERM_GRACE = 2.0
"""Seconds that programs get to end by themselves when the runtime is told to stop by a signal."""

_ENDING = (signal.SIGTERM, signal.SIGINT)

MOST_STRANGERS = 128
"""Clients that have not named the token yet; one more, and the oldest has to go."""

LAST_WORDS = 0.5
"""Seconds that clients get to take what is still queued for them at the end."""


class Runtime:
    """One incarnation of a sandbox, from its configuration to its exit."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sandbox_id = config.sandbox_id
        self.incarnation = os.urandom(8).hex()
        self._token = config.token.encode()
        self.began = time.monotonic()
        self._connections: set[Connection] = set()
        self._strangers: dict[Connection, None] = {}
        self._is_full = False
        self._stopping = False
        self._falls_asleep = False
        self._sleep_timer: Timer | None = None
        self._workshop: Workshop | None = None
        self._give_up_at = 0.0
        _set_limits(config.rlimits)
        # The other half of the descriptors is for what clients ask for.
        self._most_connections = max(2, _descriptors() // 2)
        self._most_strangers = min(MOST_STRANGERS, self._most_connections // 2)
        if config.lock_fd is not None:
            # Kept open and not inherited: the lock ends with this very process.
            os.set_inheritable(config.lock_fd, False)
        self._listener = self._listen()
        self.loop: Loop = self._make_loop()
        self.activity = Activity(
            self.began, sleep_after=config.sleep_after, keep_alive=config.keep_alive
        )
        self._admit_clients()
        for number in _ENDING:
            self.loop.on_signal(number, lambda: self.stop(TERM_GRACE))
        self._shut_ears()

    # What a runtime that shares its process does otherwise; see `in_thread`.

    def _listen(self) -> _socket.socket | None:
        """Return where clients come from."""
        return _listen(self.config)

    def _make_loop(self) -> Loop:
        return Loop(self.log)

    def _shut_ears(self) -> None:
        """Where programs could end the sandbox by a signal, hear those of the outside only."""
        if os.getpid() == 1:
            from sandbox_runtime.outside_signals import heed_outside_only  # noqa: PLC0415

            heed_outside_only(_ENDING, self.loop.tell_signal)

    def make_children(self) -> Children:
        """Return who waits for the programs."""
        from sandbox_runtime.children import Children  # noqa: PLC0415  part of the workshop

        return Children(self.loop)

    def log(self, line: str) -> None:
        """Write a line to the log, which the engine keeps; one that has no room there is lost."""
        text = f"{line.rstrip()}\n".encode("utf-8", "backslashreplace")
        try:  # noqa: SIM105  contextlib costs two milliseconds of every start
            os.write(2, text)
        except OSError:
            # The log may lie on the very disk whose being full is what there is to tell.
            pass

    def run(self) -> None:
        """Serve until stopped or idle for too long."""
        self.check_idle()
        self.loop.run()

    # --- clients ------------------------------------------------------------------------------

    def _accept(self, _events: int) -> None:
        assert self._listener is not None  # noqa: S101  or nobody would call
        sock = None
        if len(self._strangers) >= self._most_strangers:
            self.loop.call_soon(self._drop_stranger)
            return
        if len(self._connections) >= self._most_connections:
            # The others wait in the backlog until somebody leaves.
            self._is_full = True
            self.loop.remove(self._listener.fileno())
            return
        try:
            sock = accept(self._listener)
            connection = Connection(self.loop, self, sock)
            self._connections.add(connection)
            self._strangers[connection] = None
        except BlockingIOError:
            return
        except (OSError, MemoryError) as error:
            # Out of descriptors or memory: clients wait in the backlog; a busy loop helps nobody.
            if sock is not None:
                sock.close()
            self.log(f"accept: {error}")
            self.loop.remove(self._listener.fileno())
            self.loop.call_later(0.1, self._admit_clients)

    def _drop_stranger(self) -> None:
        """Make room for a client in the place of the one that has said nothing for longest."""
        if len(self._strangers) >= self._most_strangers:
            oldest = next(iter(self._strangers))
            # It may have spoken, and nobody has listened yet.
            oldest.drain()
            if oldest in self._strangers:
                oldest.close()

    def _admit_clients(self) -> None:
        if not self._stopping and self._listener is not None:
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
        workshop = self._open_workshop()
        if self._falls_asleep and call.operation not in ANSWERED_ASLEEP:
            # Nobody wants it ended: the client has a later incarnation do it.
            exchange.fail(workshop.falls_asleep_error())
        else:
            workshop.dispatch(call, exchange)

    def _open_workshop(self) -> Workshop:
        if self._workshop is None:
            from sandbox_runtime.workshop import Workshop  # noqa: PLC0415  half of the start's time

            self._workshop = Workshop(self)
            if self._stopping:
                self._workshop.stop(0)
        return self._workshop

    def welcomed(self, connection: Connection) -> None:
        """Get ready for the first operation while the client reads its welcome."""
        self._strangers.pop(connection, None)
        if self._workshop is None:
            self.loop.call_soon(self._open_workshop)

    def gone(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._connections.discard(connection)
        self._strangers.pop(connection, None)
        if self._is_full:
            self._is_full = False
            self._admit_clients()

    # --- the end ------------------------------------------------------------------------------

    def check_idle(self) -> None:
        """Go to sleep if it is time, else look again when it may be."""
        if self._sleep_timer is not None:
            self._sleep_timer.cancel()
            self._sleep_timer = None
        if self._stopping:
            return
        if self._workshop is not None:
            self._workshop.check_foreground()
        now = time.monotonic()
        sleep_at = self.activity.sleep_at()
        if sleep_at is not None and sleep_at <= now:
            self.log(f"sandbox {self.sandbox_id}: idle, goes to sleep")
            self._falls_asleep = True
            self.stop(TERM_GRACE)
            return
        # While something holds the sandbox awake there is no time to wait for; what lets go touches
        # the idle clock, so looking again after one idle time is early enough.
        period = self.activity.sleep_after
        if sleep_at is not None:
            self._sleep_timer = self.loop.call_at(sleep_at, self.check_idle)
        elif period is not None and not self.activity.keep_alive:
            self._sleep_timer = self.loop.call_later(period, self.check_idle)

    def stop(self, grace: float) -> None:
        """End every program, TERM first and KILL after `grace` seconds, then leave the loop."""
        if self._stopping:
            return
        self._stopping = True
        if self._listener is not None:
            self.loop.remove_if_added(self._listener.fileno())
            self._listener.close()
        if self._workshop is not None:
            self._workshop.stop(grace)
        self._give_up_at = time.monotonic() + grace + LAST_WORDS
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        now = time.monotonic()
        if now < self._give_up_at and self._workshop is not None and self._workshop.running:
            self.loop.call_later(0.005, self._wait_for_end)
            return
        for each in list(self._connections):
            each.take_leave()
        self._give_up_at = now + LAST_WORDS
        self._wait_for_clients()

    def _wait_for_clients(self) -> None:
        if self._connections and time.monotonic() < self._give_up_at:
            self.loop.call_later(0.005, self._wait_for_clients)
        else:
            self.loop.stop()


def _descriptors() -> int:
    """Return how many descriptors this process may have."""
    most = os.sysconf("SC_OPEN_MAX")
    return most if most > 0 else 1 << 20


def _listen(config: Config) -> _socket.socket:
    """Return the listening socket the configuration names."""
    where = config.listen
    if isinstance(where, dict) and isinstance(where.get("fd"), int):
        return adopt_listener(where["fd"])
    if isinstance(where, dict) and isinstance(where.get("unix"), str):
        return listen_unix(where["unix"])
    if isinstance(where, dict) and isinstance(where.get("tcp"), int):
        return _listen_tcp(where["tcp"])
    raise ValidationFailedError("listen", "must be {'fd': N}, {'unix': PATH} or {'tcp': PORT}")


def _listen_tcp(port: int) -> _socket.socket:
    """Listen on every address of the sandbox: an engine publishes the port, to whom it decides."""
    import _socket  # noqa: PLC0415  rarely needed by name

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", port))  # noqa: S104  the sandbox's own network
    listener.listen(512)
    listener.setblocking(False)
    return listener


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
