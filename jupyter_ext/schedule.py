"""Keeps sandboxes ready for the next kernels, while the server runs.

`sandbox_kernel.manager.policy` decides; here is the task that looks, and does what was decided, one
thing at a time.  A unit is a sandbox that shows a folder, with an interpreter in it that takes
messages and a relay before it that has nothing left to import.  A kernel that starts in that folder
gets all three, under its own id.

The registry knows the sandboxes that wait and a lock says whose they are, so that the next server
finds what one that was killed has left; what nobody finds goes to sleep by itself, and is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Any, ParamSpec, TypeVar

from jupyter_server.serverapp import ServerApp
from traitlets import CInt, Float, Int, List, Unicode
from traitlets.config import Configurable

from jupyter_ext.memory import available_bytes, total_bytes
from jupyter_ext.provisioner import SETTING, make_default
from jupyter_ext.units import Relay, Unit, take_ownership
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.kernel.connection import read_connection_file
from sandbox_kernel.kernel.plan import Plan, plan
from sandbox_kernel.kernel.standby import Order
from sandbox_kernel.kernel.started import folder_inside, passed_on
from sandbox_kernel.kernel.starter import VARIABLE
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.policy import History, Memory, Rules, Waiting, decide
from sandbox_kernel.manager.running import Running
from sandbox_kernel.manager.settings import load_settings
from sandbox_kernel.manager.wanted import fits
from sandbox_kernel.wire.pool_operations import WarmRequest

__all__ = ["SandboxPool", "Schedule", "serve_pool", "stop_with"]

Log = logging.Logger | logging.LoggerAdapter[Any]  # a server's, which traitlets declares
P = ParamSpec("P")
T = TypeVar("T")

STAY = 90.0
"""Idle seconds until a sandbox that waits ends by itself, for want of a server."""

_SHORTEST_REST = 0.01

_SHARE = 16
"""A pool of no stated size takes at most this part of the memory, and leaves twice as much."""


class SandboxPool(Configurable):
    """How many sandboxes wait for kernels on a Jupyter server."""

    size = Int(
        0,
        min=0,
        help="Sandboxes that wait for each folder, with an interpreter started; 0 is no pool.",
    ).tag(config=True)
    folders = List(
        Unicode(),
        help="Folders of notebooks that sandboxes wait for at any time; by default the server's.",
    ).tag(config=True)
    recent = Int(
        2, min=0, help="For how many of the folders used last sandboxes wait, besides."
    ).tag(config=True)
    memory_bytes = CInt(
        None,
        allow_none=True,
        help="Memory that all that wait may take; by default a sixteenth of what there is.",
    ).tag(config=True)
    pace = Float(
        3.0, min=0.0, help="Seconds between the start of a kernel and the next one for the pool."
    ).tag(config=True)

    def rules(self, total: int) -> Rules:
        """Return the policy's rules, where programs may use so many bytes in all."""
        share = total // _SHARE
        return Rules(
            size=self.size,
            memory_bytes=share if self.memory_bytes is None else self.memory_bytes,
            reserve_bytes=2 * share,
            pace=self.pace,
            look=min(15.0, STAY / 3),
        )


class Schedule:
    """The pool of one server; used on its event loop.

    Parameters
    ----------
    pool : SandboxPool
        What is wanted.
    manager : Manager
        Of the settings that the server hands to its kernels.
    folder : str
        The server's own folder of notebooks.
    environ : mapping
        The environment that its kernels inherit.
    log : Logger
        Where to say what began, ended or failed.
    """

    def __init__(
        self,
        pool: SandboxPool,
        manager: Manager,
        *,
        folder: str,
        environ: Mapping[str, str],
        log: Log,
    ) -> None:
        self._rules = pool.rules(total_bytes())
        self._recent = pool.recent
        self._folders = [_real(each) for each in pool.folders] or [_real(folder)]
        self._manager = manager
        self._environ = environ
        self._log = log
        self._history: History[str] = History()
        self._used: list[str] = []
        self._units: list[Unit] = []
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[Any]] = set()  # of whatever result

    def __repr__(self) -> str:
        return f"<Schedule units={self._units} wanted={self._wanted()}>"

    @property
    def units(self) -> Sequence[Unit]:
        """Those that wait for a kernel now."""
        return tuple(self._units)

    # --- the task -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; within a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="sandbox pool")

    def look(self) -> None:
        """Look now what has changed."""
        self._bell.set()

    async def aclose(self) -> None:
        """End what waits; twice is fine."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        # What is under way in a thread comes to its end there, and may have added one.
        await asyncio.gather(*self._under_way, return_exceptions=True)
        units, self._units = self._units, []
        await asyncio.gather(*(asyncio.to_thread(self._end, each) for each in units))

    async def _run(self) -> None:
        self._used += await self._in_thread(self._adopt)
        while True:
            self._bell.clear()
            try:
                rest = await self._turn()
            except SandboxError as error:
                self._log.warning("pool: %s", error)
                rest = self._rules.look
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), rest)

    async def _turn(self) -> float:
        """Look, and do one thing; return the seconds until the next look."""
        units = list(self._units)
        lost = await self._in_thread(self._lost, units)
        for unit in lost:
            self._log.warning("pool: %s has ended", unit.name)
            await self._drop(unit)
        seen = await self._in_thread(_look, units)
        now, wanted = time.monotonic(), self._wanted()
        names = {each.name for each in self._units}
        waiting = [each for each in seen if each.name in names]
        self._history = self._history.looked(now, waiting, wanted)
        decision = decide(
            self._rules,
            now,
            wanted=wanted,
            waiting=waiting,
            memory=Memory(available=available_bytes()),
            history=self._history,
        )
        for unit in [each for each in units if each.name in decision.end]:
            self._log.info("pool: %s is not needed", unit.name)
            await self._drop(unit)
        if decision.start is not None:
            is_well = await self._in_thread(self._add, decision.start)
            history, now = self._history, time.monotonic()
            self._history = (
                history.succeeded(now) if is_well else history.failed(now, decision.start)
            )
        return max(decision.again_in, _SHORTEST_REST)

    async def _drop(self, unit: Unit) -> None:
        """End one, unless a kernel has got it meanwhile."""
        if unit in self._units:
            self._units.remove(unit)
            await self._in_thread(self._end, unit)

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Work without holding the server up; when we are cancelled, it still comes to its end."""
        task = asyncio.get_running_loop().create_task(asyncio.to_thread(work, *args, **kwargs))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    def _wanted(self) -> list[str]:
        folders = [*self._used[: self._recent], *self._folders]
        return [each for each in dict.fromkeys(folders) if os.path.isdir(each)]

    # --- in threads: `_units` may be added to, the loop alone takes from it --------------------

    def _adopt(self) -> list[str]:
        """Take over what a server has left that was killed; return the folders used last."""
        try:
            for running in self._manager.waiting():
                owner = take_ownership(running.layout)
                if owner is not None and not self._take_over(running, owner):
                    os.close(owner)
                    self._manager.destroy(running.sandbox_id)
            self._manager.gc()
            return _recent_folders(self._manager)
        except (OSError, SandboxError) as error:
            self._log.warning("pool: what an earlier server left stays: %s", error)
            return []

    def _take_over(self, running: Running, owner: int) -> bool:
        folder = str(running.spec.notebook_folder)
        spec = self._manager.settings.spec(notebook_folder=Path(folder))
        if not fits(running.spec, spec) or not self._manager.stays(running):
            return False
        self._units.append(Unit(running, self._ready_relay(), owner))
        self._log.info("pool: %s taken over, for %s", running.sandbox_id, folder)
        return True

    def _add(self, folder: str) -> bool:
        """Start one more; whether that went well."""
        owners: list[int | None] = []
        running = None
        spec = self._manager.settings.spec(notebook_folder=Path(folder))
        request = WarmRequest(cwd=folder_inside(spec, folder), env=passed_on(self._environ))
        try:
            running = self._manager.warm(
                spec,
                request,
                stay=STAY,
                first=lambda layout: owners.append(take_ownership(layout)),
            )
            self._units.append(Unit(running, self._ready_relay(), owners[0]))
        except (OSError, SandboxError) as error:
            for each in filter(None, owners):
                os.close(each)
            self._log.warning("pool: nothing waits for %s: %s", folder, error)
            if running is not None:
                self._destroy(running.sandbox_id)
            return False
        self._log.info("pool: %s waits, for %s", running.sandbox_id, folder)
        return True

    def _ready_relay(self) -> Relay:
        relay = Relay(self._environ)
        if not relay.wait_until_ready():
            relay.end()
            raise SandboxError("The relay did not start.")
        return relay

    def _lost(self, units: list[Unit]) -> list[Unit]:
        """Return those that have ended; the others stay for another while."""
        return [
            each
            for each in units
            if not (each.relay.is_alive() and self._manager.stays(each.running))
        ]

    def _end(self, unit: Unit) -> None:
        unit.relay.end()
        self._destroy(unit.name)
        unit.let_go()

    def _destroy(self, name: str) -> None:
        try:
            self._manager.destroy(name)
        except SandboxError as error:
            self._log.warning("pool: %s: %s", name, error)

    # --- kernels ------------------------------------------------------------------------------

    async def launch(
        self, connection_file: str, environ: Mapping[str, str], cwd: str
    ) -> Popen[bytes] | None:
        """Have a kernel served by what waits; None if it has to be started.

        Parameters
        ----------
        connection_file : str
            The kernel's, written already.
        environ : mapping
            The whole environment of its relay.
        cwd : str
            Its working directory.
        """
        folder = _real(cwd)
        self._history = self._history.used(time.monotonic())
        self._used = [folder, *(each for each in self._used if each != folder)]
        self.look()
        try:
            planned = _plan(connection_file, environ, folder)
            unit = self._fitting(planned, folder) if VARIABLE not in environ else None
            if unit is None:
                return None
            return await self._handed_over(unit, planned, connection_file, environ)
        except SandboxError as error:
            # The relay that is started in its place says it to the user.
            self._log.warning("pool: a kernel in %s: %s", folder, error)
            return None

    async def _handed_over(
        self, unit: Unit, planned: Plan, connection_file: str, environ: Mapping[str, str]
    ) -> Popen[bytes] | None:
        handing = asyncio.ensure_future(
            self._in_thread(self._hand_over, unit, planned, connection_file, environ)
        )
        try:
            return await asyncio.shield(handing)
        except asyncio.CancelledError:
            # The start was given up; nobody else knows of the process.
            handing.add_done_callback(_end_process)
            raise

    def _fitting(self, planned: Plan, folder: str) -> Unit | None:
        """Take one out of the pool that is what a kernel needs, if there is one."""
        ours = self._manager.settings
        if replace(planned.settings, kernel=ours.kernel) != ours:
            return None
        for unit in self._units:
            if unit.folder == folder and fits(unit.running.spec, planned.spec):
                self._units.remove(unit)
                return unit
        return None

    def _hand_over(
        self, unit: Unit, planned: Plan, connection_file: str, environ: Mapping[str, str]
    ) -> Popen[bytes] | None:
        identity = planned.identity
        try:
            running = self._manager.claim(
                unit.running, identity.sandbox_id, planned.spec, ephemeral=identity.ephemeral
            )
        except BaseException:
            self._end(unit)
            raise
        if running is None:
            # The notebook has its sandbox already, or the unit is lost; the next turn finds out.
            self._units.append(unit)
            return None
        unit.let_go()
        order = Order(
            connection_file=connection_file,
            environ=dict(environ),
            cwd=unit.folder,
            started=planned.started(running),
        )
        refusal = unit.relay.order(order)
        if refusal is None:
            return unit.relay.process
        self._log.warning("pool: %s: its relay does not serve it: %s", running.sandbox_id, refusal)
        unit.relay.end()
        return None


def serve_pool(serverapp: ServerApp, pool: SandboxPool) -> Schedule | None:
    """Begin a server's pool, where one is wanted; within its event loop."""
    if pool.size == 0:
        return None
    if not make_default(serverapp):
        serverapp.log.warning(
            "pool: none, as KernelProvisionerFactory.default_provisioner_name is set"
        )
        return None
    schedule = Schedule(
        pool,
        Manager(load_settings()),
        folder=serverapp.root_dir,
        environ=os.environ,
        log=serverapp.log,
    )
    serverapp.web_app.settings[SETTING] = schedule
    schedule.start()
    return schedule


async def stop_with(serverapp: ServerApp) -> None:
    """Stop every sandbox of the user, as the server is about to stop."""
    # First the kernels: one whose sandbox has gone would be started anew.
    await serverapp.cleanup_kernels()
    await asyncio.to_thread(_stop_all, serverapp.log)


def _stop_all(log: Log) -> None:
    with contextlib.closing(Manager(load_settings())) as manager:
        for each in manager.list():
            if each.state != "running":
                continue
            try:
                manager.stop(each.sandbox_id)
            except SandboxError as error:
                log.warning("sandbox %s: runs on: %s", each.sandbox_id, error)


def _end_process(handing: asyncio.Future[Popen[bytes] | None]) -> None:
    if not handing.cancelled() and handing.exception() is None:
        process = handing.result()
        if process is not None:
            process.terminate()


def _look(units: list[Unit]) -> list[Waiting[str]]:
    return [Waiting(name=each.name, kind=each.folder, bytes_used=each.memory()) for each in units]


def _plan(connection_file: str, environ: Mapping[str, str], cwd: str) -> Plan:
    info = read_connection_file(connection_file)
    return plan(connection_file, info.key, environ=environ, cwd=cwd)


def _recent_folders(manager: Manager) -> list[str]:
    """Return the folders of this user's sandboxes, the one used last first."""
    known = sorted(
        (max(each.started_at or 0.0, each.created_at), str(each.spec.notebook_folder))
        for each in manager.list()
        if each.spec.notebook_folder is not None
    )
    return list(dict.fromkeys(folder for _, folder in reversed(known)))


def _real(folder: str) -> str:
    return os.path.abspath(os.path.expanduser(folder))
