"""An engine without isolation: the runtime as a plain child process.  For tests only.

It implements the whole `Engine` protocol, so that everything above an engine can be tested where
starting real sandboxes would be slow.  Processes of other kinds find it through the setting
``engine = "tests.support.plain_engine:PlainEngine"`` with the repository on ``PYTHONPATH``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sandbox_kernel.engines.alive import is_locked
from sandbox_kernel.engines.base import Instance, Launch, Probe, StateLayout
from sandbox_kernel.errors import EngineStartError

__all__ = ["MARK", "REFERENCE", "PlainEngine", "processes_of", "take_lock"]

REFERENCE = "tests.support.plain_engine:PlainEngine"
"""How settings and ``SANDBOX_ENGINE`` name this engine."""

_REPOSITORY = Path(__file__).resolve().parents[2]
MARK = "PLAIN_ENGINE_LIFETIME"


class PlainEngine:
    """Runs the runtime beside us, as the same user, in no namespace.

    Every process it starts carries the lifetime in its environment, by which `stop` finds all.
    """

    name = "plain"
    names_later = True

    def probe(self) -> Probe:
        return Probe(engine=self.name, works=True)

    def start(self, launch: Launch) -> Instance:
        layout = launch.layout
        for folder in (layout.run, layout.workspace, layout.home, layout.spool):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = take_lock(layout)
        if lock is None:
            raise EngineStartError(self.name, launch.sandbox_id, f"{layout.lock} is held")
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, lock)
            listener = stack.enter_context(_listen(layout.socket))
            config_read, config_write = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, config_read)
            config_file = stack.enter_context(open(config_write, "wb"))
            log = stack.enter_context(open(layout.log, "wb"))
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(_code(layout) / "sandbox_runtime" / "__main__.py"),
                    "--config-fd",
                    str(config_read),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(config_read, lock, listener.fileno()),
                env={MARK: launch.lifetime},
                start_new_session=True,
            )
            # Popen would warn about a child that is still running when it is collected.
            child.returncode = 0
            instance = Instance(
                engine=self.name,
                socket=str(layout.socket),
                data={
                    "pid": child.pid,
                    "started": _start_time(child.pid),
                    "lifetime": launch.lifetime,
                },
                isolation={"everything": "off"},
                limits={},
            )
            # Written before the runtime has its configuration: without it the runtime ends, so
            # that no moment exists at which a running one has no record.
            _record(layout).write_text(json.dumps(instance.data))
            config = self._config(launch, lock, listener.fileno())
            config_file.write(json.dumps(config).encode())
        return instance

    def _config(self, launch: Launch, lock: int, listener: int) -> dict[str, object]:
        layout, spec = launch.layout, launch.spec
        folder = spec.notebook_folder
        return {
            "sandbox_id": launch.sandbox_id,
            "token": launch.token,
            "listen": {"fd": listener},
            "lock_fd": lock,
            "sleep_after": spec.sleep_after,
            "keep_alive": spec.keep_alive,
            "cwd": str(folder if folder is not None else layout.workspace),
            "env": {
                "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
                "HOME": str(layout.home),
                "LANG": "C.UTF-8",
                **({} if launch.is_named_later else {"SANDBOX_ID": launch.sandbox_id}),
                MARK: launch.lifetime,
                **spec.env,
            },
            "spool_dir": str(layout.spool),
            "spool_limit": 1 << 30,
            "rlimits": {},
            "python": sys.executable,
            "memory_events": None,
        }

    def is_alive(self, instance: Instance, layout: StateLayout) -> bool:
        return is_locked(layout)

    def stop(self, instance: Instance | None, layout: StateLayout, *, grace: float) -> None:
        data = instance.data if instance is not None else _recorded(layout)
        if data is None:
            # Its starter died before the record: it never gets a configuration, and so ends.
            deadline = time.monotonic() + 10.0
            while is_locked(layout) and time.monotonic() < deadline:
                time.sleep(0.005)
            return
        pid, lifetime = int(data["pid"]), str(data["lifetime"])
        deadline = time.monotonic() + grace
        while is_locked(layout) and time.monotonic() < deadline:
            time.sleep(0.005)
        while True:
            found = processes_of(lifetime)
            if _start_time(pid) == data["started"]:
                found.append(pid)
            if not found:
                break
            for each in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.002)
        layout.socket.unlink(missing_ok=True)
        _record(layout).unlink(missing_ok=True)


def _record(layout: StateLayout) -> Path:
    return layout.run / "plain.json"


def _recorded(layout: StateLayout) -> dict[str, Any] | None:
    try:
        data = json.loads(_record(layout).read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def take_lock(layout: StateLayout) -> int | None:
    lock = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + 1.0
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Somebody who asks whether we live holds it for a moment.
            if time.monotonic() > deadline:
                os.close(lock)
                return None
            time.sleep(0.001)
        else:
            return lock


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    listener.listen(128)
    return listener


def _code(layout: StateLayout) -> Path:
    """Lay the packages out as they are in a sandbox."""
    code = layout.run / "code"
    code.mkdir(exist_ok=True)
    for name, source in (
        ("sandbox_runtime", _REPOSITORY / "container" / "sandbox_runtime"),
        ("sandbox_kernel", _REPOSITORY / "sandbox_kernel"),
    ):
        with contextlib.suppress(FileExistsError):
            (code / name).symlink_to(source)
    return code


def _start_time(pid: int) -> str | None:
    """Return a living process's start time; None for a dead one and a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def processes_of(lifetime: str) -> list[int]:
    """Return the living processes that belong to a lifetime."""
    mark = f"{MARK}={lifetime}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found
