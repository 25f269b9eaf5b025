"""An engine without isolation and without a process: the runtime in a thread of this one.

The local fake of the contract suites.  It says in every way that it has that it isolates nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from sandbox_kernel.engines.alive import is_locked
from sandbox_kernel.engines.base import Instance, Launch, Probe, Reached, StateLayout
from sandbox_kernel.engines.limits import unmet
from sandbox_kernel.errors import EngineStartError, LimitNotEnforceableError
from sandbox_kernel.transports.local_doors import close_door, open_door
from sandbox_runtime.config import Config
from sandbox_runtime.in_thread import RuntimeThread
from tests.support.plain_engine import MARK, processes_of, take_lock

__all__ = ["INPROCESS_REFERENCE", "InProcessEngine", "cut"]

INPROCESS_REFERENCE = "tests.support.inprocess_engine:InProcessEngine"
"""How settings name this engine."""

_NOTICE = "Nothing is isolated: programs run as the user of this process, with all its rights."

_running: dict[str, tuple[RuntimeThread, int]] = {}
"""The runtimes of this process by their lifetimes, with their locks."""


def cut(lifetime: str) -> None:
    """End a runtime as by a power cut, behind the engine's back."""
    runtime, lock = _running.pop(lifetime)
    runtime.cut()
    assert runtime.join(10)
    os.close(lock)


def _is_file(lock: int, layout: StateLayout) -> bool:
    """Whether a lock is that of a layout."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), os.stat(layout.lock))
    return False


class InProcessEngine:
    """Runs the runtime in a thread of this process; ends with it at the latest."""

    name = "inprocess"

    def probe(self) -> Probe:
        return Probe(engine=self.name, works=True, facts={"isolation": _NOTICE})

    def start(self, launch: Launch) -> Instance:
        layout, spec = launch.layout, launch.spec
        limits = dict.fromkeys(("memory_bytes", "cpus", "processes", "file_bytes"), Reached.ABSENT)
        limit = unmet(spec.limits, limits)
        if limit is not None and not spec.accept_weaker_limits:
            raise LimitNotEnforceableError(limit, self.name, "absent", "nothing is isolated")
        for folder in (layout.run, layout.workspace, layout.home, layout.spool):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = take_lock(layout)
        if lock is None:
            raise EngineStartError(self.name, launch.sandbox_id, f"{layout.lock} is held")
        runtime = RuntimeThread(
            Config(
                sandbox_id=launch.sandbox_id,
                token=launch.token,
                listen=None,
                sleep_after=spec.sleep_after,
                keep_alive=spec.keep_alive,
                cwd=str(spec.notebook_folder or layout.workspace),
                env={
                    "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
                    "HOME": str(layout.home),
                    "LANG": "C.UTF-8",
                    "SANDBOX_ID": launch.sandbox_id,
                    MARK: launch.lifetime,
                    **spec.env,
                },
                spool_dir=str(layout.spool),
                python=sys.executable,
            )
        )
        try:
            runtime.start()
        except BaseException:
            os.close(lock)
            raise
        _running[launch.lifetime] = (runtime, lock)
        return Instance(
            engine=self.name,
            socket=open_door(launch.lifetime, runtime.take),
            data={"lifetime": launch.lifetime},
            isolation={"everything": "off"},
            limits={name: how.value for name, how in limits.items()},
            notices=[_NOTICE],
        )

    def is_alive(self, instance: Instance, layout: StateLayout) -> bool:
        self._forget_ended()
        return is_locked(layout)

    def stop(self, instance: Instance | None, layout: StateLayout, *, grace: float) -> None:
        for lifetime, (runtime, lock) in list(_running.items()):
            if not _is_file(lock, layout):
                continue
            if grace:
                runtime.join(grace)
            runtime.cut()
            assert runtime.join(10)
            self._end(lifetime)

    def _forget_ended(self) -> None:
        for lifetime, (runtime, _) in list(_running.items()):
            if runtime.join(0):
                self._end(lifetime)

    def _end(self, lifetime: str) -> None:
        _, lock = _running.pop(lifetime)
        address = f"inprocess:{os.getpid()}/{lifetime}"
        close_door(address)
        deadline = time.monotonic() + 10
        while found := processes_of(lifetime):
            assert time.monotonic() < deadline
            for each in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            time.sleep(0.002)
        os.close(lock)
