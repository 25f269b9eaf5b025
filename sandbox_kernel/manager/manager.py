"""The verbs over sandboxes: ensure, lookup, list, stop, destroy, gc.

Any number of processes of one user may each have a `Manager`: the truth is the registry on disk
and what the engine finds, and one lock per id keeps them from acting on a sandbox at the same time.
Before anything is started the intention is written down, so that whoever comes after a crash at
any point knows what may be lying about.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sandbox_kernel.engines.alive import is_locked
from sandbox_kernel.engines.base import Engine, Found, Instance, Launch, SandboxSpec, StateLayout
from sandbox_kernel.engines.possible import check_image, check_possible
from sandbox_kernel.errors import (
    EngineStartError,
    InvalidProcessCwdError,
    SandboxBusyError,
    SandboxConfigurationError,
    SandboxError,
    SandboxRunningError,
    StorageError,
)
from sandbox_kernel.manager import locks, log
from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.manager.ending import end_reason
from sandbox_kernel.manager.engine_choice import load_engine
from sandbox_kernel.manager.identity import (
    check_sandbox_id,
    new_lifetime,
    new_pool_id,
    new_token,
)
from sandbox_kernel.manager.lifecycle import Event, State, Step, advance, steps_to_running
from sandbox_kernel.manager.registry import Entry, Registry
from sandbox_kernel.manager.running import Running
from sandbox_kernel.manager.settings import Settings, load_settings
from sandbox_kernel.manager.storage import (
    make_private_folder,
    storage_errors,
    usable_umask,
    write_private_file,
)
from sandbox_kernel.manager.trees import remove_tree
from sandbox_kernel.manager.wanted import (
    Wanted,
    differences,
    fits,
    live_rules_differ,
    want,
    with_live_rules,
)
from sandbox_kernel.transports.endpoint import Endpoint
from sandbox_kernel.wire.operations import ConfigureRequest, Empty, ShutdownRequest
from sandbox_kernel.wire.pool_operations import ClaimRequest, WarmRequest

if TYPE_CHECKING:
    from sandbox_kernel.manager.activity import ActivityLog, ActivityPage
    from sandbox_kernel.manager.ports import PortTokens
    from sandbox_kernel.manager.stats import SandboxStats
    from sandbox_kernel.wire.operations import Health

__all__ = ["Leftovers", "Manager", "SandboxInfo"]


_LABEL = "sandbox.json"
_ANSWER_TIMEOUT = 2.0
_WARM_TIMEOUT = 60.0

_LAST_WORDS = 1.0
"""Seconds beyond the grace of its programs in which a runtime may tell its clients and end."""


@dataclass(frozen=True, kw_only=True)
class SandboxInfo:
    """What is known of a sandbox, whether it runs or not."""

    sandbox_id: str
    lifetime: str
    state: str
    """``running`` or ``stopped``."""
    engine: str
    spec: SandboxSpec = field(repr=False)
    instance: Instance | None = field(repr=False)
    created_at: float
    started_at: float | None
    ephemeral: bool
    layout: StateLayout = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """What `Manager.gc` would clean up."""

    sandboxes: tuple[str, ...] = ()
    """Ids that would go with their files: ephemeral ones that ended, half destroyed ones."""
    ended: tuple[str, ...] = ()
    """Ids that ended without having been stopped: what they left is ended, their files stay."""
    files: tuple[str, ...] = ()
    """Lifetimes that were destroyed, of which there are files."""
    activity: tuple[str, ...] = ()
    """Files of the activity log of lifetimes that ended long ago."""


class Manager:
    """Starts, finds and ends the sandboxes of this user.

    Constructing one does no I/O apart from reading the configuration; every method may be called
    from any thread.

    Parameters
    ----------
    settings : Settings, optional
        By default those of `load_settings`.
    engines : mapping of str to Engine, optional
        Engines to use under these names instead of the installed ones.
    """

    def __init__(
        self, settings: Settings | None = None, *, engines: Mapping[str, Engine] | None = None
    ) -> None:
        self.settings = settings if settings is not None else load_settings()
        self._data = self.settings.data_dir
        self._engines: dict[str, Engine] = dict(engines or {})
        self._registry = Registry(self._data / "registry.sqlite3", self._found_folders)
        self._is_prepared = False
        self._ports: PortTokens | None = None
        self._activity: ActivityLog | None = None

    def close(self) -> None:
        """Close the registry; sandboxes run on, and the next use opens it again."""
        self._registry.close()

    @property
    def ports(self) -> PortTokens:
        """The exposed ports of all sandboxes."""
        if self._ports is None:
            from sandbox_kernel.manager.ports import PortTokens  # noqa: PLC0415  no kernel needs it

            self._ports = PortTokens(
                self._registry, is_there=self._data.is_dir, is_alive=self._is_alive
            )
        return self._ports

    @property
    def activity(self) -> ActivityLog | None:
        """What was done in which sandbox, and by whom; None where the settings want no such log."""
        if self._activity is None and self.settings.activity_log:
            from sandbox_kernel.manager.activity import activity_log  # noqa: PLC0415  as above

            self._activity = activity_log(self.settings)
        return self._activity

    # --- the verbs ---

    def ensure(
        self,
        sandbox_id: str,
        spec: SandboxSpec | None = None,
        *,
        changes: Mapping[str, Any] | None = None,
        ephemeral: bool = False,
    ) -> Running:
        """Return the running sandbox of this id; create or start it when it does not run.

        Two callers at once, of one process or of several, get the same sandbox.  When a start
        fails, all who waited for it get its error; the next call tries anew.

        Parameters
        ----------
        sandbox_id : str
            See `check_sandbox_id` for the rules.
        spec : SandboxSpec, optional
            What it shall be.  By default what the settings say, with what was chosen for this
            sandbox before; fields that differ from the settings count as chosen.  One that runs
            already goes on as it is, and the differences are in `Running.notices`; `sleep_after`,
            `keep_alive` and `output_policy` are changed on the spot.
        changes : mapping, optional
            Fields of the specification that are chosen from now on.
        ephemeral : bool
            A new sandbox goes, with its files, once it no longer runs (see `gc`).

        Raises
        ------
        InvalidSandboxIdError
            The id breaks a rule.
        InvalidProcessEnvironmentError, SandboxConfigurationError
            No sandbox can be what is asked for; see `check_possible`.
        EngineUnavailableError, EngineStartError, LimitNotEnforceableError
            The engine could not start it; nothing of the attempt is left.
        SandboxBusyError
            Another process is starting or stopping it for longer than `start_timeout`.
        StorageError, StorageFullError
            The manager's files cannot be used.
        """
        name = check_sandbox_id(sandbox_id)
        self._prepare()
        entry = self._registry.get(name)
        if entry is not None and entry.state is State.RUNNING:
            wanted = self._wanted(entry, spec, changes)
            if not live_rules_differ(entry.spec, wanted.spec) and self._is_alive(entry):
                return self._running(entry, wanted.spec, started=False)
        seen = self._registry.failures(name).count
        with locks.hold(self._locks, name, timeout=self.settings.start_timeout):
            entry = self._registry.get(name)
            wanted = self._wanted(entry, spec, changes)
            state = entry.state if entry is not None else State.ABSENT
            alive = entry is not None and entry.state is State.RUNNING and self._is_alive(entry)
            steps = steps_to_running(state, alive=alive)
            if not steps and entry is not None:
                entry = self._reconfigured(entry, wanted)
                return self._running(entry, wanted.spec, started=False)
            failures = self._registry.failures(name)
            if failures.error is not None and failures.count > seen:
                # The start that we waited for has failed; it was ours as much as its caller's.
                raise failures.error
            for step in steps:
                match step:
                    case Step.CLEAN if entry is not None:
                        entry = self._stopped(entry, grace=0.0)
                    case Step.FINISH_DESTROY if entry is not None:
                        self._ended(entry)
                        entry = None
                    case Step.CREATE:
                        entry = self._created(name, wanted, ephemeral=ephemeral)
                    case Step.START if entry is not None:
                        entry = replace(entry, spec=wanted.spec, chosen=wanted.chosen)
                        entry = self._started(entry, is_new=Step.CREATE in steps)
            assert entry is not None  # noqa: S101  every list of steps ends with START
            return self._running(entry, wanted.spec, started=True)

    def was_ended(self, running: Running) -> bool:
        """Whether somebody has stopped, destroyed or restarted a sandbox since it was started."""
        entry = self._registry.get(running.sandbox_id)
        return (
            entry is None
            or entry.state is not State.RUNNING
            or entry.token != running.endpoint.token  # each start makes a new one
        )

    def failed_start(self, running: Running) -> EngineStartError:
        """Return the error for a sandbox that was started and then did not answer."""
        from sandbox_kernel.engines.disk import tail  # noqa: PLC0415  rarely needed

        return EngineStartError(
            running.instance.engine,
            running.sandbox_id,
            "its runtime ended before it answered",
            tail(running.layout.log),
        )

    def lookup(self, sandbox_id: str) -> SandboxInfo | None:
        """Return what is known of a sandbox, or None; never starts or changes anything."""
        name = check_sandbox_id(sandbox_id)
        if not self._data.is_dir():
            return None
        entry = self._registry.get(name)
        if entry is None or entry.state is State.DESTROYING or entry.pooled:
            return None
        return self._info(entry)

    def find_running(self, sandbox_id: str) -> Running | None:
        """Return how to reach a sandbox that runs already, or None; never starts anything."""
        name = check_sandbox_id(sandbox_id)
        if not self._data.is_dir():
            return None
        entry = self._registry.get(name)
        if entry is None or entry.state is not State.RUNNING or not self._is_alive(entry):
            return None
        return self._running(entry, entry.spec, started=False)

    def stats(self, sandbox_id: str, *, disk: bool = False) -> SandboxStats | None:
        """Return what a sandbox uses and how it is, or None; never starts or changes anything.

        Parameters
        ----------
        disk : bool
            Count its files too, which may take seconds.

        Raises
        ------
        EngineUnavailableError
            The engine that has to be asked does not answer.
        """
        from sandbox_kernel.manager.stats import disk_usage, stats_of  # noqa: PLC0415

        name = check_sandbox_id(sandbox_id)
        entry = self._registry.get(name) if self._data.is_dir() else None
        if entry is None or entry.state is State.DESTROYING or entry.pooled:
            return None
        layout = self._layout(entry.lifetime)
        runs = entry.state is State.RUNNING and self._is_alive(entry)
        usage = health = reason = None
        if runs and entry.instance is not None:
            ask = getattr(self._engine(entry.engine), "usage", None)
            usage = ask(entry.instance) if ask is not None else None
            health = self._health(entry)
        elif entry.state is State.RUNNING:
            reason = end_reason(layout)
        limits = entry.spec.limits
        return stats_of(
            sandbox_id=name,
            engine=entry.engine,
            created_at=entry.created_at,
            started_at=entry.started_at,
            limits={name: value for name, value in vars(limits).items() if value is not None},
            instance=entry.instance if runs else None,
            usage=usage,
            health=health,
            end_reason=reason,
            disk=disk_usage(layout) if disk else None,
        )

    def _health(self, entry: Entry) -> Health | None:
        try:
            answer = call_once(
                self._endpoint(entry), "runtime.health", Empty(), timeout=_ANSWER_TIMEOUT
            )
        except SandboxError:
            return None  # it has just ended, or is too busy to say
        return cast("Health", answer)

    def read_activity(
        self, sandbox_id: str, *, since: str | None = None, limit: int = 1000
    ) -> ActivityPage:
        """Return what was done in the present sandbox of an id, or else in the last one.

        Raises
        ------
        ValidationFailedError
            There is no such cursor.
        SandboxConfigurationError
            The settings want no such log.
        StorageError
            It cannot be read.
        """
        from sandbox_kernel.manager.activity import ActivityPage  # noqa: PLC0415  rarely needed

        name = check_sandbox_id(sandbox_id)
        if self.activity is None:
            raise SandboxConfigurationError(
                "No activity is noted here.", hint="Set SandboxManager.activity_log = True."
            )
        info = self.lookup(name)
        lifetimes = [info.lifetime] if info is not None else self.activity.lifetimes(name)[-1:]
        if not lifetimes:
            return ActivityPage(items=[], cursor=since or "0-0")
        return self.activity.read(name, lifetimes[0], since=since, limit=limit)

    def list(self) -> list[SandboxInfo]:
        """Return every sandbox, by id; never starts or changes anything."""
        if not self._data.is_dir():
            return []
        return [
            self._info(entry)
            for entry in self._registry.all()
            if entry.state is not State.DESTROYING and not entry.pooled
        ]

    def configure(self, sandbox_id: str, changes: Mapping[str, Any]) -> bool:
        """Choose fields of a sandbox's specification; starts nothing.

        Returns
        -------
        bool
            False if there is no such sandbox.

        Raises
        ------
        SandboxRunningError
            It runs, and something else than its rules of idle sleep and of outputs is to change.
        InvalidSandboxIdError, InvalidProcessEnvironmentError, SandboxConfigurationError
            No sandbox can be what is asked for.
        """
        name = check_sandbox_id(sandbox_id)
        if not self._data.is_dir() or self._registry.get(name) is None:
            return False
        self._prepare()
        with locks.hold(self._locks, name, timeout=self.settings.start_timeout):
            entry = self._registry.get(name)
            if entry is None or entry.state is State.DESTROYING:
                return False
            wanted = self._wanted(entry, None, changes)
            if entry.state is State.RUNNING and self._is_alive(entry):
                live = with_live_rules(Wanted(spec=entry.spec), wanted).spec
                later = [field for field, value in changes.items() if getattr(live, field) != value]
                if later:
                    raise SandboxRunningError(name, f"change {', '.join(later)}")
                self._reconfigured(entry, wanted)
            else:
                self._registry.put(replace(entry, spec=wanted.spec, chosen=wanted.chosen))
        return True

    def stop(self, sandbox_id: str, *, grace: float = 5.0) -> None:
        """End every process of a sandbox; its files stay, and the next `ensure` starts it again.

        Returns when nothing of it runs.  One that does not run, or is not known, is fine.

        Parameters
        ----------
        grace : float
            Seconds the programs have to end by themselves after SIGTERM.
        """
        name = check_sandbox_id(sandbox_id)
        if not self._data.is_dir() or self._registry.get(name) is None:
            return
        self._prepare()
        with locks.hold(self._locks, name, timeout=self.settings.start_timeout):
            entry = self._registry.get(name)
            if entry is None or entry.state is State.STOPPED:
                return
            if entry.state is State.DESTROYING:
                self._ended(entry)
                return
            self._stopped(entry, grace=grace)

    def destroy(self, sandbox_id: str) -> None:
        """End a sandbox and remove its files; the id is free at once, for a new lifetime.

        Concurrent calls share one teardown, and one that is not known is fine.

        Raises
        ------
        StorageError
            Some file could not be removed; the sandbox is gone all the same, and `gc` tries again.
        """
        name = check_sandbox_id(sandbox_id)
        if not self._data.is_dir() or self._registry.get(name) is None:
            return
        self._prepare()
        with locks.hold(self._locks, name, timeout=self.settings.start_timeout) as lock:
            entry = self._registry.get(name)
            if entry is None:
                return
            self._ended(entry)
            lock.forget_file()
        # Outside the lock: a huge tree must not keep the id's next lifetime waiting.
        self._remove_files(entry.lifetime)

    def leftovers(self) -> Leftovers:
        """Return what `gc` would remove or end now; removes nothing."""
        if not self._data.is_dir():
            return Leftovers()
        sandboxes, ended = [], []
        entries = self._registry.all()
        for entry in entries:
            try:
                with locks.hold(self._locks, entry.sandbox_id, timeout=0.0):
                    now = self._registry.get(entry.sandbox_id)
                    if now is None or (now.state is State.RUNNING and self._is_alive(now)):
                        continue
            except SandboxError:
                continue  # busy, or its engine does not answer: `gc` would leave it
            if now.ephemeral or now.state is State.DESTROYING:
                sandboxes.append(now.sandbox_id)
            elif now.state is not State.STOPPED:
                ended.append(now.sandbox_id)
        activity: list[str] = []
        if self.activity is not None:
            living = frozenset(entry.lifetime for entry in entries)
            activity = [path.name for path in self.activity.old(living, now=time.time())]
        return Leftovers(
            sandboxes=tuple(sandboxes),
            ended=tuple(ended),
            files=tuple(each.lifetime for each in self._registry.leftovers()),
            activity=tuple(activity),
        )

    def gc(self, *, on_progress: Callable[[int, int], object] = lambda *_: None) -> tuple[str, ...]:
        """Clean up after crashes and sleeps, and return the ids of the sandboxes that went.

        Ends what half-done starts and stops left, removes ephemeral sandboxes that no longer run,
        and the files of destroyed ones.  What is busy or fails is left for the next time, with a
        warning in the log.

        Parameters
        ----------
        on_progress : callable
            Called with how many sandboxes and leftovers were looked at, and how many there are.
        """
        if not self._data.is_dir():
            return ()
        self._prepare()
        gone = []
        entries = self._registry.all()
        for number, entry in enumerate(entries):
            on_progress(number, len(entries))
            try:
                if self._tidy(entry.sandbox_id):
                    gone.append(entry.sandbox_id)
            except SandboxBusyError:
                continue
            except SandboxError as error:
                log.warning("sandbox %s: not cleaned up: %s", entry.sandbox_id, error)
        leftovers = self._registry.leftovers()
        total = len(entries) + len(leftovers)
        for number, leftover in enumerate(leftovers, len(entries)):
            on_progress(number, total)
            try:
                self._remove_files(leftover.lifetime)
            except SandboxError as error:
                log.warning("sandbox %s: files stay: %s", leftover.sandbox_id, error)
        self._forget_locks()
        if self.activity is not None:
            living = frozenset(entry.lifetime for entry in self._registry.all())
            try:
                self.activity.forget(living, now=time.time())
            except StorageError as error:
                log.warning("old activity stays: %s", error)
        on_progress(total, total)
        return tuple(gone)

    # --- sandboxes that wait in a pool ---

    def warm(
        self,
        spec: SandboxSpec,
        request: WarmRequest,
        *,
        stay: float,
        first: Callable[[StateLayout], object] = lambda _: None,
    ) -> Running:
        """Start a sandbox for nobody yet, with an interpreter in it that takes messages.

        It is not listed, has an id that only tells its place, and `claim` gives it another.

        Parameters
        ----------
        spec : SandboxSpec
            What it shall be, but for the rules of its idle sleep.
        request : WarmRequest
            What the interpreter is started with.
        stay : float
            Idle seconds until it ends by itself; `stays` starts them anew.
        first : callable
            Called once its folder is there, before anybody else can see it.

        Raises
        ------
        SandboxConfigurationError
            The engine cannot start a sandbox that gets its id later.
        SandboxError
            As of `ensure`, or the interpreter did not start; nothing of the attempt is left.
        """
        self._prepare()
        name = new_pool_id()
        wanted = Wanted(spec=replace(spec, sleep_after=stay, keep_alive=False))
        check_possible(wanted.spec)
        if wanted.spec.image is not None:
            check_image(wanted.spec, self._engine(wanted.spec.engine or self.settings.engine))
        engine = self._engine(spec.engine or self.settings.engine)
        if not getattr(engine, "names_later", False):
            raise SandboxConfigurationError(
                f"The engine {engine.name} cannot keep sandboxes in a pool.",
                hint="Set SandboxPool.size = 0, or use the engine bubblewrap.",
            )
        with locks.hold(self._locks, name, timeout=self.settings.start_timeout):
            entry = replace(self._created(name, wanted, ephemeral=True), pooled=True)
            layout = self._layout(entry.lifetime)
            # Entered first: a folder that no record names would stay for ever.
            self._registry.put(entry)
            self._make_root(entry, layout)
            first(layout)
            entry = self._started(entry, is_new=True)
        running = self._running(entry, wanted.spec, started=True)
        try:
            self._warm_up(running.endpoint, request)
        except SandboxError:
            self.destroy(name)
            raise
        return running

    def _warm_up(self, endpoint: Endpoint, request: WarmRequest) -> None:
        try:
            call_once(endpoint, "pool.warm", request, timeout=_WARM_TIMEOUT)
        except InvalidProcessCwdError:
            # A folder that may not be shown, as a home folder; kernels do without it, too.
            elsewhere = WarmRequest(env=request.env)
            call_once(endpoint, "pool.warm", elsewhere, timeout=_WARM_TIMEOUT)

    def waiting(self) -> tuple[Running, ...]:
        """Return the living sandboxes that wait in a pool, whoever has started them."""
        if not self._data.is_dir():
            return ()
        return tuple(
            self._running(entry, entry.spec, started=False)
            for entry in self._registry.all()
            if entry.pooled and entry.state is State.RUNNING and self._is_alive(entry)
        )

    def stays(self, waiting: Running) -> bool:
        """Keep one that waits for another while; whether it still waits, and under its own id."""
        try:
            call_once(
                waiting.endpoint, "runtime.configure", ConfigureRequest(), timeout=_ANSWER_TIMEOUT
            )
            health = call_once(waiting.endpoint, "runtime.health", Empty(), timeout=_ANSWER_TIMEOUT)
        except SandboxError:
            return False
        # A claim that was cut off in the middle has named it already.
        return bool(health.sandbox_id == waiting.sandbox_id and health.kernels)

    def claim(
        self,
        waiting: Running,
        sandbox_id: str,
        spec: SandboxSpec,
        *,
        ephemeral: bool = False,
    ) -> Running | None:
        """Make one that waits in a pool the new sandbox of this id; it is as if just started.

        Returns
        -------
        Running or None
            None if there is a sandbox of this id already, if it is not what is asked for, or if
            it has gone; `ensure` is then the way.

        Raises
        ------
        InvalidSandboxIdError, SandboxBusyError, StorageError, StorageFullError
            As of `ensure`.
        """
        name = check_sandbox_id(sandbox_id)
        wanted = self._wanted(None, spec, None)
        if not fits(waiting.spec, wanted.spec):
            return None
        self._prepare()
        with locks.hold(self._locks, name, timeout=self.settings.start_timeout):
            if self._registry.get(name) is not None:
                return None
            with locks.hold(self._locks, waiting.sandbox_id, timeout=_ANSWER_TIMEOUT) as place:
                entry = self._registry.get(waiting.sandbox_id)
                if entry is None or entry.token != waiting.endpoint.token or not entry.pooled:
                    return None
                claimed = self._claimed(entry, name, wanted, ephemeral=ephemeral)
                if claimed is None:
                    return None
                place.forget_file()
        log.info("sandbox %s: taken from the pool", name)
        self._note(self._registry.get(name) or entry, "started", engine=entry.engine)
        return self._running(claimed, wanted.spec, started=True)

    def _claimed(
        self, entry: Entry, sandbox_id: str, wanted: Wanted, *, ephemeral: bool
    ) -> Entry | None:
        claimed = replace(
            entry,
            sandbox_id=sandbox_id,
            spec=wanted.spec,
            chosen=wanted.chosen,
            ephemeral=ephemeral,
            pooled=False,
            created_at=time.time(),
            started_at=time.time(),
        )
        request = ClaimRequest(
            sandbox_id=sandbox_id,
            sleep_after=wanted.spec.sleep_after,
            keep_alive=wanted.spec.keep_alive,
        )
        try:
            # First the sandbox: one that was named and not entered here is ended, see `stays`.
            call_once(self._endpoint(entry), "pool.claim", request, timeout=_ANSWER_TIMEOUT)
        except SandboxError as error:
            log.warning("sandbox %s: not taken from the pool: %s", sandbox_id, error)
            return None
        self._write_label(claimed, self._layout(entry.lifetime))
        return claimed if self._registry.claim(entry, claimed) else None

    # --- one step each; the caller holds the lock of the id ---

    def _created(self, sandbox_id: str, wanted: Wanted, *, ephemeral: bool) -> Entry:
        return Entry(
            sandbox_id=sandbox_id,
            lifetime=new_lifetime(),
            state=advance(State.ABSENT, Event.CREATE),
            engine=wanted.spec.engine or self.settings.engine,
            spec=wanted.spec,
            chosen=wanted.chosen,
            ephemeral=ephemeral,
            token=None,
            instance=None,
            created_at=time.time(),
            started_at=None,
        )

    def _started(self, entry: Entry, *, is_new: bool) -> Entry:
        asked = entry.spec.engine or self.settings.engine
        engine = self._engine(asked)
        # Under "auto" the engine found is what the sandbox has to be ended with.
        name = engine.name if asked == "auto" else asked
        layout = self._layout(entry.lifetime)
        starting = replace(
            entry,
            state=advance(entry.state, Event.START),
            engine=name,
            token=new_token(),
            instance=None,
            started_at=None,
        )
        assert starting.token is not None  # noqa: S101  made three lines above
        instance = None
        try:
            self._registry.put(starting)
            self._make_root(starting, layout)
            self._end_orphan(starting, engine, layout)
            _show_host_again(layout)
            launch = Launch(
                sandbox_id=entry.sandbox_id,
                lifetime=entry.lifetime,
                token=starting.token,
                spec=entry.spec,
                layout=layout,
                is_named_later=entry.pooled,
            )
            with usable_umask():
                instance = engine.start(launch)
            running = replace(
                starting,
                state=advance(starting.state, Event.STARTED),
                instance=instance,
                started_at=time.time(),
            )
            self._registry.put(running)
        except SandboxError as error:
            self._give_up(starting, error, engine, instance, is_new=is_new)
            raise
        log.info("sandbox %s: started on %s", entry.sandbox_id, name)
        self._note(running, "started", engine=name)
        return running

    def _give_up(
        self,
        starting: Entry,
        error: SandboxError,
        engine: Engine,
        instance: Instance | None,
        *,
        is_new: bool,
    ) -> None:
        """Leave nothing of a failed start; what fails here is found again by its state."""
        try:
            if instance is not None:
                engine.stop(instance, self._layout(starting.lifetime), grace=0.0)
            self._registry.add_failure(starting.sandbox_id, error)
            if is_new:
                self._registry.remove(starting)
                self._remove_files(starting.lifetime)
            else:
                state = advance(starting.state, Event.FAILED)
                self._registry.put(replace(starting, state=state, token=None))
        except SandboxError as second:
            log.warning("sandbox %s: after a failed start: %s", starting.sandbox_id, second)

    def _stopped(self, entry: Entry, *, grace: float) -> Entry:
        layout = self._layout(entry.lifetime)
        ended_by_itself = entry.state is State.RUNNING and not self._is_alive(entry)
        reason = end_reason(layout) if ended_by_itself else None
        stopping = replace(entry, state=advance(entry.state, Event.STOP))
        self._registry.put(stopping)
        self._end_processes(stopping, grace=grace)
        remove_tree(layout.spool)
        stopped = replace(
            stopping,
            state=advance(stopping.state, Event.STOPPED),
            token=None,
            instance=None,
            started_at=None,
        )
        self._registry.put(stopped)
        log.info("sandbox %s: stopped", entry.sandbox_id)
        self._note(entry, "stopped" if reason is None else "ended", reason=reason)
        return stopped

    def _ended(self, entry: Entry) -> None:
        destroying = replace(entry, state=advance(entry.state, Event.DESTROY))
        self._registry.put(destroying)
        if entry.state is not State.STOPPED or is_locked(self._layout(entry.lifetime)):
            self._end_processes(destroying, grace=0.0)
        self._discard(destroying)
        advance(destroying.state, Event.DESTROYED)
        self._registry.remove(destroying)
        log.info("sandbox %s: destroyed", entry.sandbox_id)
        self._note(entry, "destroyed")

    def _note(self, entry: Entry, kind: str, **details: Any) -> None:
        """Append to the activity log; one that takes nothing keeps nobody from working."""
        if self.activity is None or entry.pooled:
            return
        try:
            self.activity.add(entry.sandbox_id, entry.lifetime, kind, **details)
        except StorageError as error:
            log.warning("sandbox %s: activity is not noted: %s", entry.sandbox_id, error)

    def _discard(self, entry: Entry) -> None:
        """Have an engine forget what it keeps of a sandbox outside the sandbox's own folder."""
        try:
            discard = getattr(self._engine(entry.engine), "discard", None)
        except SandboxConfigurationError:
            return  # it is no longer installed
        if discard is not None:
            discard(self._layout(entry.lifetime))

    def _end_processes(self, entry: Entry, *, grace: float) -> None:
        engine = self._engine(entry.engine)
        layout = self._layout(entry.lifetime)
        patience = 0.0
        if grace > 0 and self._is_alive(entry) and self._ask_to_shut_down(entry, grace):
            patience = grace + _LAST_WORDS
        # An entry without an instance: its starter died before it could write one.
        engine.stop(entry.instance, layout, grace=patience)

    def _ask_to_shut_down(self, entry: Entry, grace: float) -> bool:
        """Have the runtime end its programs; whether it will."""
        try:
            call_once(
                self._endpoint(entry),
                "runtime.shutdown",
                ShutdownRequest(grace=grace),
                timeout=_ANSWER_TIMEOUT,
            )
        except SandboxError as error:
            log.debug("sandbox %s: does not shut down by itself: %s", entry.sandbox_id, error)
            return False
        return True

    def _end_orphan(self, entry: Entry, engine: Engine, layout: StateLayout) -> None:
        """End a runtime that no record names, as after the loss of the registry."""
        if not is_locked(layout):
            return
        engine.stop(None, layout, grace=0.0)
        if is_locked(layout):
            raise EngineStartError(
                engine.name,
                entry.sandbox_id,
                f"a runtime of an earlier start holds {layout.lock} and does not end",
            )

    def _reconfigured(self, entry: Entry, wanted: Wanted) -> Entry:
        if not live_rules_differ(entry.spec, wanted.spec):
            return entry
        runs = with_live_rules(Wanted(spec=entry.spec, chosen=entry.chosen), wanted)
        # None in the request means "as it is"; a sandbox that never sleeps is kept alive.
        request = ConfigureRequest(
            sleep_after=runs.spec.sleep_after,
            keep_alive=runs.spec.keep_alive or runs.spec.sleep_after is None,
        )
        call_once(self._endpoint(entry), "runtime.configure", request, timeout=_ANSWER_TIMEOUT)
        changed = replace(entry, spec=runs.spec, chosen=runs.chosen)
        self._registry.put(changed)
        return changed

    def _tidy(self, sandbox_id: str) -> bool:
        """Bring one id into a resting state; whether it went for good."""
        with locks.hold(self._locks, sandbox_id, timeout=0.0) as lock:
            entry = self._registry.get(sandbox_id)
            if entry is None or (entry.state is State.RUNNING and self._is_alive(entry)):
                return False
            if entry.ephemeral or entry.state is State.DESTROYING:
                self._ended(entry)
                lock.forget_file()
            elif entry.state is not State.STOPPED:
                self._stopped(entry, grace=0.0)
                return False
            else:
                return False
        self._remove_files(entry.lifetime)
        return True

    def _forget_locks(self) -> None:
        """Remove the locks of ids that are gone, where somebody was killed before he could."""
        known = {entry.sandbox_id for entry in self._registry.all()}
        for path in self._locks.glob("*.lock"):
            if path.stem in known:
                continue
            with (
                contextlib.suppress(SandboxError),  # another one has it: it is no leftover
                locks.hold(self._locks, path.stem, timeout=0.0) as lock,
            ):
                if self._registry.get(path.stem) is None:
                    lock.forget_file()

    # --- files ---

    @property
    def _locks(self) -> Path:
        return self._data / "locks"

    def _layout(self, lifetime: str) -> StateLayout:
        # A damaged record leads neither out of the folder of all sandboxes nor to it as a whole.
        is_name = lifetime not in {"", ".", ".."} and os.sep not in lifetime
        return StateLayout(self._data / "sandboxes" / (lifetime if is_name else "no-such-lifetime"))

    def _prepare(self) -> None:
        if self._is_prepared and self._locks.is_dir():
            return
        for folder in (self._data, self._locks, self._data / "sandboxes"):
            make_private_folder(folder)
        self._is_prepared = True

    def _make_root(self, entry: Entry, layout: StateLayout) -> None:
        # The engine would make the ones inside as well, but under the umask of who starts it.
        make_private_folder(layout.root)
        for folder in (layout.workspace, layout.home, layout.run, layout.spool):
            if not os.path.lexists(folder):
                make_private_folder(folder)
        self._write_label(entry, layout)

    def _write_label(self, entry: Entry, layout: StateLayout) -> None:
        label = {
            "sandbox_id": entry.sandbox_id,
            "ephemeral": entry.ephemeral,
            "created_at": entry.created_at,
        }
        write_private_file(layout.root / _LABEL, json.dumps(label).encode())

    def _remove_files(self, lifetime: str) -> None:
        remove_tree(self._layout(lifetime).root)
        self._registry.forget_leftover(lifetime)

    def _found_folders(self) -> Iterator[Entry]:
        """Yield the sandboxes whose folders are there although the registry is new."""
        try:
            folders = sorted((self._data / "sandboxes").iterdir())
        except OSError:
            folders = []
        # Of an engine's own things no lock here tells whether they are still in use.
        state = State.STOPPED if self._finder() is None else State.STOPPING
        for folder in folders:
            try:
                label = json.loads((folder / _LABEL).read_bytes())
                sandbox_id = check_sandbox_id(label["sandbox_id"])
                created_at = float(label["created_at"])
                ephemeral = bool(label["ephemeral"])
            except (OSError, ValueError, KeyError, TypeError, SandboxError):
                continue
            log.warning("sandbox %s: found again in %s", sandbox_id, folder)
            yield self._found_again(
                sandbox_id, folder.name, state, created_at=created_at, ephemeral=ephemeral
            )
        yield from self._found_by_engine({folder.name for folder in folders})

    def _found_by_engine(self, known: set[str]) -> Iterator[Entry]:
        """Yield the sandboxes of which nothing is left but what the engine knows."""
        found = self._finder()
        for each in found(self._data / "sandboxes") if found is not None else ():
            try:
                sandbox_id = check_sandbox_id(each.sandbox_id)
            except SandboxError:
                continue
            if each.lifetime and each.lifetime not in known and each.lifetime.isalnum():
                log.warning("sandbox %s: found again in the engine", sandbox_id)
                # What runs there is ended before anything else: nobody knows its secret.
                yield self._found_again(sandbox_id, each.lifetime, State.STOPPING)

    def _finder(self) -> Callable[[Path], Iterator[Found]] | None:
        """Return the method of the engine that finds sandboxes by itself, if it has one."""
        try:
            return getattr(self._engine(self.settings.engine), "found", None)
        except SandboxError:
            return None  # the first start will say what is wrong

    def _found_again(
        self,
        sandbox_id: str,
        lifetime: str,
        state: State,
        *,
        created_at: float | None = None,
        ephemeral: bool = False,
    ) -> Entry:
        return Entry(
            sandbox_id=sandbox_id,
            lifetime=lifetime,
            state=state,
            engine=self.settings.engine,
            spec=self.settings.spec(),
            chosen=frozenset(),
            ephemeral=ephemeral,
            token=None,
            instance=None,
            created_at=time.time() if created_at is None else created_at,
            started_at=None,
        )

    # --- looking ---

    def _engine(self, name: str) -> Engine:
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = load_engine(name, self.settings)
        return engine

    def _is_alive(self, entry: Entry) -> bool:
        if entry.instance is None:
            return False
        layout = self._layout(entry.lifetime)
        try:
            engine = self._engine(entry.engine)
        except SandboxConfigurationError:
            # An engine that is no longer installed must not keep the others from being listed.
            return is_locked(layout)
        return engine.is_alive(entry.instance, layout)

    def _endpoint(self, entry: Entry) -> Endpoint:
        socket = entry.instance.socket if entry.instance is not None else None
        return Endpoint(
            sandbox_id=entry.sandbox_id,
            socket=socket or str(self._layout(entry.lifetime).socket),
            token=entry.token or "",
        )

    def _wanted(
        self,
        entry: Entry | None,
        spec: SandboxSpec | None,
        changes: Mapping[str, Any] | None,
    ) -> Wanted:
        before = None
        if entry is not None and entry.state is not State.DESTROYING:
            before = Wanted(spec=entry.spec, chosen=entry.chosen)
        wanted = want(self.settings.spec(), before, spec, changes or {})
        check_possible(wanted.spec)
        if wanted.spec.image is not None:
            check_image(wanted.spec, self._engine(wanted.spec.engine or self.settings.engine))
        return wanted

    def _running(self, entry: Entry, wanted: SandboxSpec, *, started: bool) -> Running:
        assert entry.instance is not None  # noqa: S101  callers pass entries that run
        runs_with = replace(entry.spec, engine=entry.engine)
        return Running(
            sandbox_id=entry.sandbox_id,
            lifetime=entry.lifetime,
            endpoint=self._endpoint(entry),
            instance=entry.instance,
            spec=entry.spec,
            layout=self._layout(entry.lifetime),
            started=started,
            notices=[*entry.instance.notices, *differences(runs_with, wanted)],
        )

    def _info(self, entry: Entry) -> SandboxInfo:
        runs = entry.state is State.RUNNING and self._is_alive(entry)
        return SandboxInfo(
            sandbox_id=entry.sandbox_id,
            lifetime=entry.lifetime,
            state="running" if runs else "stopped",
            engine=entry.engine,
            spec=entry.spec,
            instance=entry.instance if runs else None,
            created_at=entry.created_at,
            started_at=entry.started_at if runs else None,
            ephemeral=entry.ephemeral,
            layout=self._layout(entry.lifetime),
        )


def _show_host_again(layout: StateLayout) -> None:
    """Take what the host has taken over out of the folder's layer, before it is mounted."""
    if not layout.taken_over.exists():
        return
    from sandbox_kernel.folder import forget_taken_over  # noqa: PLC0415  most starts need none

    with storage_errors(layout.folder, "tidy"):
        forget_taken_over(layout)
