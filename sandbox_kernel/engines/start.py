"""One start of a sandbox in bubblewrap: from what was asked for to a plan, then to an instance."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from functools import cached_property

from sandbox_kernel.engines import cgroups, etc, incarnation, recipe, runtime_code
from sandbox_kernel.engines.base import (
    USUAL_PROCESSES,
    FolderMode,
    Instance,
    Launch,
    SandboxSpec,
)
from sandbox_kernel.engines.disk import empty, no_upper, storage_errors, tail
from sandbox_kernel.engines.folders import HostFolders, host_folders
from sandbox_kernel.engines.limits import controllers_for, unmet, weigh_limits
from sandbox_kernel.engines.machine import has_mounts_below
from sandbox_kernel.engines.notebook_folder import claim_layer, folder_to_show
from sandbox_kernel.engines.program_environment import program_environment
from sandbox_kernel.engines.python_environment import PythonEnvironment, look_up
from sandbox_kernel.engines.recipe import Mount, MountKind, Plan
from sandbox_kernel.engines.seccomp import seccomp_filter
from sandbox_kernel.engines.settings import BubblewrapSettings
from sandbox_kernel.engines.spawn import (
    Command,
    GroupRefusedError,
    OverlayRefusedError,
    spawn,
)
from sandbox_kernel.errors import EngineStartError, LimitNotEnforceableError

__all__ = ["Start"]

_ENGINE = "bubblewrap"
_UNNAMED = "sandbox"
"""Host name of a sandbox that gets its id later: nobody can change it from outside."""
_SPOOL_LIMIT = 1 << 30
_EARLIER_PATIENCE = 0.5
# Readable by root only, and the sandbox of root is root to the file system: they tell of the
# memory of the whole machine.
_MASKED = tuple(
    f"/proc/{name}"
    for name in (
        *("kpagecgroup", "kpagecount", "kpageflags", "pagetypeinfo", "slabinfo", "timer_list"),
        "vmallocinfo",
    )
)
_SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")
_SHOWN_AS = {
    MountKind.READ: "read-only, with the host's sockets and pipes",
    MountKind.READ_OVERLAY: "read-only",
    MountKind.WRITE: "writable",
    MountKind.OVERLAY: "writable layer, host files unchanged",
    MountKind.MEMORY_OVERLAY: "writable layer in memory",
}


@dataclass(frozen=True, kw_only=True)
class _Limits:
    """What the limits came to: how far each holds, and by what."""

    reached: dict[str, str]
    rlimits: dict[str, int]
    group: cgroups.Group | None
    is_group_urgent: bool


class Start:
    """The steps of a start, over what they share."""

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
        """Start the sandbox, or leave nothing behind; see `BubblewrapEngine.start`."""
        seccomp = seccomp_filter(os.uname().machine, allow_ptrace=self.spec.allow_ptrace)
        self._await_earlier_end()
        folder = folder_to_show(self.spec, self.host, self.notices)
        self._make_folders()
        code = runtime_code.prepare(otherwise=str(self.layout.root / "code"))
        no_overlays = no_group = ""
        try:
            while True:
                limits = self._limits(no_group=no_group)
                try:
                    return self._attempt(folder, code, seccomp, limits, no_overlays=no_overlays)
                except OverlayRefusedError as error:
                    _remove_group(limits.group)
                    if no_overlays:
                        raise
                    no_overlays = error.diagnosis.cause
                except GroupRefusedError as error:
                    _remove_group(limits.group)
                    no_group = str(error)
                except BaseException:
                    _remove_group(limits.group)
                    raise
        except BaseException:
            if not incarnation.is_locked(self.layout):
                incarnation.remove_files(self.layout)
            raise

    def _await_earlier_end(self) -> None:
        """Leave a container that runs alone: what follows takes its files and groups over."""
        deadline = time.monotonic() + _EARLIER_PATIENCE
        while incarnation.is_locked(self.layout):
            if time.monotonic() > deadline:
                raise EngineStartError(
                    _ENGINE,
                    self.launch.sandbox_id,
                    "an earlier container of it still runs",
                    tail(self.layout.log),
                )
            time.sleep(0.005)

    @cached_property
    def _no_upper(self) -> str:
        """Why the disk of the sandbox's own files takes no layers, or an empty string."""
        return no_upper(self.layout.root)

    # The notebook's folder ------------------------------------------------------------------

    def _folder_mount(self, given: str, *, no_overlays: str) -> Mount:
        real = os.path.realpath(given)
        mode = self.spec.folder_mode
        if mode is FolderMode.OVERLAY:
            reason = no_overlays or self._no_upper or claim_layer(self.layout, real)
            if not reason:
                return Mount(
                    kind=MountKind.OVERLAY,
                    source=real,
                    dest=given,
                    upper=str(self.layout.folder / "upper"),
                    work=str(self.layout.folder / "work"),
                )
            self.notices.append(
                f"Folder {given} is shown read-only, since no writable layer can be put over it:"
                f" {reason}. Write to {recipe.WORKSPACE} instead."
            )
        if mode is FolderMode.WRITE:
            return Mount(kind=MountKind.WRITE, source=real, dest=given)
        return self._read_mount(real, given, no_overlays=no_overlays)

    def _read_mount(self, source: str, dest: str, *, no_overlays: str) -> Mount:
        """Show a folder so that programs inside reach no socket, pipe or lock of the host in it.

        A plain mount lets them, read-only or not.  An overlay does not show what is mounted in the
        folder, so such a folder gets a plain one.
        """
        is_folder = os.path.isdir(source)
        reason = no_overlays
        if is_folder and has_mounts_below(os.path.realpath(source)):
            reason = "something is mounted in it"
        if reason or not is_folder:
            if is_folder:
                self.notices.append(
                    f"Programs inside can talk to programs of the host by sockets, pipes and locks"
                    f" in {dest}: {reason}."
                )
            return Mount(kind=MountKind.READ, source=source, dest=dest)
        nothing = self.layout.root / "empty"
        with storage_errors(nothing, "create"):
            os.makedirs(nothing, mode=0o700, exist_ok=True)
        return Mount(kind=MountKind.READ_OVERLAY, source=source, dest=dest, upper=str(nothing))

    # Folders on the host --------------------------------------------------------------------

    def _make_folders(self) -> None:
        layout = self.layout
        for path in (layout.root, layout.workspace, layout.home, layout.run, layout.spool):
            with storage_errors(path, "create"):
                os.makedirs(path, mode=0o700, exist_ok=True)
        empty(layout.spool)
        if not self.spec.keep_packages:
            empty(layout.packages)

    def _packages(self, python: PythonEnvironment, *, no_overlays: str) -> Mount:
        """Return where pip's installations go: over the environment, or beside it."""
        packages = self.layout.packages
        if python.layered is None or no_overlays:
            with storage_errors(packages, "create"):
                os.makedirs(packages / "user", mode=0o700, exist_ok=True)
            return Mount(kind=MountKind.WRITE, source=str(packages / "user"), dest=recipe.PACKAGES)
        if self._no_upper:
            if self.spec.keep_packages:
                self.notices.append(
                    f"Packages installed inside end with the sandbox, since {packages} takes no"
                    f" layer: {self._no_upper}."
                )
            return Mount(kind=MountKind.MEMORY_OVERLAY, source=python.layered, dest=python.layered)
        # One layer for each environment: what was installed over one does not fit another.
        layer = packages / python.layered.strip("/").replace("/", "-")[-80:]
        with storage_errors(packages, "create"):
            for name in ("upper", "work"):
                os.makedirs(layer / name, mode=0o700, exist_ok=True)
        return Mount(
            kind=MountKind.OVERLAY,
            source=python.layered,
            dest=python.layered,
            upper=str(layer / "upper"),
            work=str(layer / "work"),
        )

    # Limits ---------------------------------------------------------------------------------

    def _limits(self, *, no_group: str) -> _Limits:
        """Make the control group, unless it is known why there can be none."""
        asked = self.spec.limits
        is_root, kernel = os.geteuid() == 0, os.uname().release
        controllers = controllers_for(asked, is_root=is_root, kernel=kernel)
        place = cgroups.locate(controllers) if controllers and not no_group else None
        group, holding = None, set[str]()
        if place is not None:
            group, holding = cgroups.create(place, f"sandbox-{self.launch.lifetime}", asked)
        reached, rlimits = weigh_limits(asked, holding, is_root=is_root, kernel=kernel)
        lacking = unmet(asked, reached)
        if lacking is not None and not self.spec.accept_weaker_limits:
            _remove_group(group)
            reason = no_group or "no control group can be made for it here"
            raise LimitNotEnforceableError(
                lacking,
                _ENGINE,
                reached[lacking].value,
                f"{reason} (see 'jupyter sandbox doctor')",
            )
        return _Limits(
            reached={name: how_far.value for name, how_far in reached.items()},
            rlimits=rlimits,
            group=group,
            is_group_urgent=holding != {"pids"} or asked.processes != USUAL_PROCESSES,
        )

    # The plan, and its execution ------------------------------------------------------------

    def _attempt(
        self, folder: str | None, code: str, seccomp: bytes, limits: _Limits, no_overlays: str = ""
    ) -> Instance:
        spec = self.spec
        python = look_up(spec.python_prefix, spec.python_base_prefix, self.host)
        packages = self._packages(python, no_overlays=no_overlays)
        is_layered = packages.dest != recipe.PACKAGES
        shown = None if folder is None else self._folder_mount(folder, no_overlays=no_overlays)
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        events = limits.group.events if limits.group is not None else None
        extra = [
            self._read_mount(path, path, no_overlays=no_overlays)
            for path in self.settings.extra_paths
        ]
        plan = self._plan(python, [packages, *extra], shown, shell=shell, code=code, events=events)
        config = {
            "sandbox_id": self.launch.sandbox_id,
            "token": self.launch.token,
            "sleep_after": spec.sleep_after,
            "keep_alive": spec.keep_alive,
            "cwd": recipe.WORKSPACE if shown is None else shown.dest,
            "env": program_environment(
                spec,
                None if self.launch.is_named_later else self.launch.sandbox_id,
                python,
                shell=shell,
                is_layered=is_layered,
            ),
            "spool_dir": recipe.SPOOL,
            "spool_limit": _SPOOL_LIMIT,
            "rlimits": limits.rlimits,
            "python": python.interpreter,
            "memory_events": recipe.EVENTS if events is not None else None,
        }
        record = {
            "cgroups": limits.group.folders if limits.group is not None else [],
            "keep_packages": spec.keep_packages,
            "notebook_folder": folder,
        }
        pid = spawn(
            self.launch,
            Command(
                bwrap=self.bwrap,
                plan=plan,
                seccomp=seccomp,
                interpreter=python.runtime_interpreter,
                config=config,
                record=record,
                group=limits.group,
                is_group_urgent=limits.is_group_urgent,
            ),
        )
        data = record | {
            "pid": pid,
            "start_time": incarnation.start_time(pid),
            "boot_id": incarnation.boot_id(),
            "bwrap": self.bwrap,
            "python": python.interpreter,
        }
        with contextlib.suppress(OSError):  # the record of the spawn is good enough for a stop
            incarnation.record_file(self.layout).write_text(json.dumps(data))
        return Instance(
            engine=_ENGINE,
            socket=str(self.layout.socket),
            data=data,
            isolation=_isolation(spec, shown),
            limits=limits.reached,
            notices=self.notices,
        )

    def _plan(
        self,
        python: PythonEnvironment,
        more: list[Mount],
        folder: Mount | None,
        *,
        shell: str,
        code: str,
        events: str | None,
    ) -> Plan:
        spec, layout = self.spec, self.layout
        read = [
            *etc.etc_mounts(network=spec.network, exists=os.path.exists),
            *python.folders,
        ]
        if python.layered is not None and python.layered not in {each.dest for each in more}:
            read.append(python.layered)
        mounts = [
            Mount(kind=MountKind.WRITE, source=str(layout.workspace), dest=recipe.WORKSPACE),
            Mount(kind=MountKind.WRITE, source=str(layout.home), dest=recipe.HOME),
            Mount(kind=MountKind.WRITE, source=str(layout.spool), dest=recipe.SPOOL),
            *(Mount(kind=MountKind.READ, source=path, dest=path) for path in read),
            *more,
        ]
        if folder is not None:
            mounts.append(folder)
        links = etc.etc_links(_readlink) | python.links
        hostname = _UNNAMED if self.launch.is_named_later else self.launch.sandbox_id[:63]
        files = etc.etc_files(hostname, network=spec.network, shell=shell, read=_read)
        return Plan(
            hostname=hostname,
            network=spec.network,
            system=_system_folders(),
            mounts=tuple(mounts),
            links=links,
            files={path: content for path, content in files.items() if path not in links},
            masked=tuple(each for each in _MASKED if os.path.exists(each))
            if os.geteuid() == 0
            else (),
            tmp_bytes=self.settings.tmp_bytes,
            code=code,
            memory_events=events,
        )


def _remove_group(group: cgroups.Group | None) -> None:
    if group is not None:
        cgroups.kill(group.folders)
        cgroups.remove(group.folders)


def _isolation(spec: SandboxSpec, folder: Mount | None) -> dict[str, str]:
    return {
        "namespaces": "user, process, mount, IPC, name, control group"
        + ("" if spec.network else ", network"),
        "network": "shared with the host" if spec.network else "off",
        "privileges": "none, and none to be had",
        "system calls": "filtered" + (", tracing allowed" if spec.allow_ptrace else ""),
        "notebook folder": "not shown" if folder is None else _SHOWN_AS[folder.kind],
    }


def _system_folders() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _SYSTEM_FOLDERS:
        if os.path.islink(name):
            found[name] = os.readlink(name)
        elif os.path.isdir(name):
            found[name] = None
    return found


def _readlink(path: str) -> str | None:
    return os.path.realpath(path) if os.path.islink(path) else None


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
