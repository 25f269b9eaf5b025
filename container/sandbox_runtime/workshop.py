"""Everything that does the work behind the door; loaded when the first client is greeted."""

from __future__ import annotations

import os
import time

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.wire.operations import ConfigureRequest, Empty, Health, ShutdownRequest
from sandbox_runtime.dispatch import dispatch
from sandbox_runtime.draft_ledger import has_drafts
from sandbox_runtime.kernels import Kernels
from sandbox_runtime.leftovers import Leftovers
from sandbox_runtime.memory_events import MemoryEvents
from sandbox_runtime.processes import Processes, stopping_error
from sandbox_runtime.quick import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_kernel.errors import SandboxError
    from sandbox_kernel.wire.pool_operations import ClaimRequest
    from sandbox_kernel.wire.rpc import Call
    from sandbox_runtime.children import Children
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.files import Files
    from sandbox_runtime.git import Checkouts
    from sandbox_runtime.ports import Ports
    from sandbox_runtime.server import Runtime
    from sandbox_runtime.sessions import Sessions
    from sandbox_runtime.terminals import Terminals

__all__ = ["Workshop"]


class Workshop:
    """The processes, kernels and terminals of a runtime, and its own operations."""

    def __init__(self, runtime: Runtime) -> None:
        self.incarnation = runtime.incarnation
        self.log = runtime.log
        self._runtime = runtime
        self._stopping = False
        self._terminals: Terminals | None = None
        self._sessions: Sessions | None = None
        self._files: Files | None = None
        self._checkouts: Checkouts | None = None
        self._ports: Ports | None = None
        self.children: Children = runtime.make_children()
        children = self.children
        self._memory_events = memory_events = MemoryEvents(runtime.config.memory_events)
        self._leftovers = leftovers = Leftovers(runtime.loop)
        self.processes: Processes = Processes(
            runtime.loop,
            runtime.config,
            self.incarnation,
            children=children,
            activity=runtime.activity,
            memory_events=memory_events,
            leftovers=leftovers,
            log=self.log,
        )
        self.kernels: Kernels = Kernels(
            runtime.loop,
            runtime.config,
            self.incarnation,
            package_folder=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            children=children,
            activity=runtime.activity,
            memory_events=memory_events,
            log=self.log,
        )
        if has_drafts(runtime.config.env.get("HOME")):
            # An earlier runtime was killed while it wrote; what it left is removed at the start.
            runtime.loop.call_soon(lambda: self.files)

    @property
    def terminals(self) -> Terminals:
        """The terminals; their modules are loaded when the first one is asked for."""
        if self._terminals is None:
            from sandbox_runtime.terminals import Terminals  # noqa: PLC0415  few need it at once

            self._terminals = Terminals(
                self._runtime.loop,
                self._runtime.config,
                self.incarnation,
                children=self.children,
                activity=self._runtime.activity,
                memory_events=self._memory_events,
                leftovers=self._leftovers,
            )
            self._terminals.stopping = self._stopping
        return self._terminals

    @property
    def files(self) -> Files:
        """The files; their modules are loaded when the first one is asked for."""
        if self._files is None:
            from sandbox_runtime.files import Files  # noqa: PLC0415  likewise

            runtime = self._runtime
            self._files = Files(
                runtime.loop,
                runtime.config,
                self.incarnation,
                activity=runtime.activity,
                log=self.log,
            )
        return self._files

    @property
    def checkouts(self) -> Checkouts:
        """The clones of repositories; likewise."""
        if self._checkouts is None:
            from sandbox_runtime.git import Checkouts  # noqa: PLC0415  likewise

            runtime = self._runtime
            self._checkouts = Checkouts(runtime.loop, runtime.config, self.children, self.files)
        return self._checkouts

    @property
    def ports(self) -> Ports:
        """The ports of programs; their modules are loaded when one is asked for."""
        if self._ports is None:
            from sandbox_runtime.ports import Ports  # noqa: PLC0415  likewise

            self._ports = Ports(
                self._runtime.loop,
                self._runtime.config,
                self.incarnation,
                processes=self.processes,
                activity=self._runtime.activity,
            )
        return self._ports

    @property
    def sessions(self) -> Sessions:
        """The sessions; their modules are loaded when the first one is asked for."""
        if self._sessions is None:
            from sandbox_runtime.sessions import Sessions  # noqa: PLC0415  likewise

            self._sessions = Sessions(self.processes)
        return self._sessions

    def session_state(self, session_id: str | None) -> tuple[str | None, dict[str, str] | None]:
        """Return folder and environment of a session as last known, if there is one."""
        session = None if self._sessions is None else self._sessions.find(session_id)
        return (None, None) if session is None else (session.cwd, session.known_env)

    def look_at_session(self, session_id: str | None, then: Callable[[], None]) -> None:
        """Bring `session_state` up to date if that takes no waiting, then go on."""
        session = None if self._sessions is None else self._sessions.find(session_id)
        if session is None:
            then()
        else:
            session.look(then)

    def falls_asleep_error(self) -> SandboxError:
        """Return what is told while the sandbox ends for want of use."""
        return stopping_error(self._runtime.config, "it goes to sleep")

    def dispatch(self, call: Call, exchange: Exchange) -> None:
        """Begin an operation."""
        dispatch(self, call, exchange)

    @property
    def running(self) -> int:
        """How many processes, kernels and terminals run, and how many others they left to us."""
        shells = 0 if self._sessions is None else len(self._sessions)
        started = len(self.processes) + len(self.kernels) + self._living_terminals + shells
        return started + len(self.children.adopted())

    @property
    def _living_terminals(self) -> int:
        return 0 if self._terminals is None else len(self._terminals)

    def check_foreground(self) -> None:
        """Let terminals say whether they hold the sandbox awake, which only looking tells."""
        if self._terminals is not None:
            self._terminals.check_foreground()

    def stop(self, grace: float) -> None:
        """End them all; new ones are refused from now on."""
        self._stopping = True
        self.processes.stop(grace)
        if self._sessions is not None:
            self._sessions.stop(grace)
        self.kernels.stop(grace)
        if self._terminals is not None:
            self._terminals.stop(grace)
        self.children.end_adopted(signal.SIGTERM)
        self._runtime.loop.call_later(grace, lambda: self.children.end_adopted(signal.SIGKILL))

    # --- operations on the runtime itself -----------------------------------------------------

    def health(self) -> Health:
        """Return how the runtime is."""
        self.check_foreground()
        runtime, now = self._runtime, time.monotonic()
        since = runtime.activity.idle_since(now)
        sleep_at = runtime.activity.sleep_at()
        return Health(
            sandbox_id=runtime.sandbox_id,
            incarnation=self.incarnation,
            pid=os.getpid(),
            uptime=now - runtime.began,
            idle_for=0.0 if since is None else now - since,
            sleeps_in=None if since is None or sleep_at is None else max(0.0, sleep_at - now),
            busy=runtime.activity.busy(now),
            processes=len(self.processes),
            kernels=len(self.kernels),
            terminals=self._living_terminals,
        )

    def configure(self, request: ConfigureRequest) -> Empty:
        """Change the idle rules; the idle time starts anew."""
        if request.sleep_after is not None and not 0 < request.sleep_after < 1e9:
            raise ValidationFailedError("sleep_after", "must be a number of seconds above zero")
        self._runtime.activity.configure(
            time.monotonic(), sleep_after=request.sleep_after, keep_alive=request.keep_alive
        )
        self._runtime.check_idle()
        return Empty()

    def claim(self, request: ClaimRequest) -> Empty:
        """Take an id; one that was taken, or given at the start, stays."""
        runtime = self._runtime
        env = runtime.config.env
        if env.get("SANDBOX_ID", request.sandbox_id) != request.sandbox_id:
            raise ValidationFailedError("sandbox_id", "must be what it is: the sandbox has its id")
        # None in the other request means "as it is".
        never = request.sleep_after is None
        self.configure(
            ConfigureRequest(
                sleep_after=request.sleep_after, keep_alive=request.keep_alive or never
            )
        )
        runtime.sandbox_id = env["SANDBOX_ID"] = request.sandbox_id
        return Empty()

    def shut_down(self, request: ShutdownRequest) -> Empty:
        """Begin to end everything; the answer comes at once."""
        if not 0 <= request.grace <= 300:
            raise ValidationFailedError("grace", "must be 0 to 300 seconds")
        self._runtime.loop.call_soon(lambda: self._runtime.stop(request.grace))
        return Empty()
