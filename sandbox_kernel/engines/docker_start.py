"""One start of a sandbox on the Docker engine: from what was asked for to a container."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox_kernel.engines import docker_daemon as daemon
from sandbox_kernel.engines import incarnation, recipe, runtime_code
from sandbox_kernel.engines.base import FolderMode, Instance, Launch, Limits, Reached, StateLayout
from sandbox_kernel.engines.disk import empty, no_upper, storage_errors, tail
from sandbox_kernel.engines.docker_body import (
    DOOR_PORT,
    Bind,
    ContainerPlan,
    Volume,
    create_body,
    overlay_options,
)
from sandbox_kernel.engines.docker_door import DOOR_SCRIPT, Attached, address_of
from sandbox_kernel.engines.docker_handover import NAME, Handover
from sandbox_kernel.engines.docker_trial import Facts, Image, find_image, try_image
from sandbox_kernel.engines.docker_volumes import fill, make
from sandbox_kernel.engines.folders import host_folders
from sandbox_kernel.engines.limits import unmet
from sandbox_kernel.engines.machine import has_mounts_below
from sandbox_kernel.engines.notebook_folder import claim_layer, folder_to_show
from sandbox_kernel.engines.settings import DockerSettings
from sandbox_kernel.errors import (
    ContainerUnavailableError,
    EngineStartError,
    LimitNotEnforceableError,
    SandboxConfigurationError,
)
from sandbox_kernel.transports.endpoint import Endpoint, connect
from sandbox_kernel.wire.rpc import ClientConnection

if TYPE_CHECKING:
    from docker import APIClient

__all__ = [
    "LABEL",
    "Start",
    "data_label_of",
    "host_user",
    "label_of",
    "remove_container",
    "remove_volumes",
    "volume_of",
    "volumes_file",
]

LABEL = "jupyter-sandbox"
_PATIENCE = 30.0
_LOOK_AGAIN = 0.25
_DOOR_MEMORY = 64 << 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "")
_EARLIER_PATIENCE = 0.5
_SPOOL_LIMIT = 1 << 30
_START = "/run/sandbox"
_USER = "1000:1000"


def label_of(layout: StateLayout) -> str:
    """Return what names a layout among all containers of a daemon, without telling its path."""
    path = os.path.realpath(layout.root)
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def data_label_of(layout: StateLayout) -> str:
    """Return what names all sandboxes of one user's data folder."""
    path = os.path.realpath(layout.root.parent)
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def volumes_file(layout: StateLayout) -> Path:
    """Return where it is noted that a sandbox keeps its files in volumes of a daemon."""
    return layout.root / "volumes.json"


def volume_of(layout: StateLayout, what: str) -> str:
    """Return the name of a layout's volume for one purpose."""
    return f"jupyter-sandbox-{label_of(layout)}-{what}"


def host_user(settings: DockerSettings) -> str:
    """Return the user inside: as set, or ours, or an ordinary one where ours is root."""
    if settings.user:
        return settings.user
    return _USER if os.geteuid() == 0 else f"{os.geteuid()}:{os.getegid()}"


def remove_container(client: APIClient, host: str, name: str) -> None:
    """End a container and remove it with what nobody else uses; one that is not there is fine."""
    for _ in range(20):
        try:
            with daemon.errors(host, "remove a container of"):
                client.remove_container(name, force=True, v=True)
        except daemon.NotThereError:
            return
        except daemon.ConflictError:
            # Somebody else removes it at this moment.
            time.sleep(0.1)


def remove_volumes(client: APIClient, host: str, names: list[str]) -> None:
    """Remove volumes; those that are not there are fine."""
    for name in names:
        with contextlib.suppress(daemon.NotThereError), daemon.errors(host):
            client.remove_volume(name)


@dataclass
class _Shown:
    """How the notebook's folder appears."""

    how: str
    cwd: str = recipe.WORKSPACE
    bind: Bind | None = None
    volume: Volume | None = None


class Start:
    """The steps of a start, over what they share."""

    def __init__(
        self, launch: Launch, settings: DockerSettings, client: APIClient, host: str
    ) -> None:
        self.launch = launch
        self.spec = launch.spec
        self.layout = launch.layout
        self.settings = settings
        self.client = client
        self.host = host
        self.label = label_of(launch.layout)
        self.name = f"jupyter-sandbox-{launch.sandbox_id[:32]}-{self.label}"
        self.user = host_user(settings)
        self.uid, _, gid = self.user.partition(":")
        self.gid = gid or self.uid
        self.notices: list[str] = []
        self.labels = {
            LABEL: "sandbox",
            f"{LABEL}.id": launch.sandbox_id,
            f"{LABEL}.lifetime": launch.lifetime,
            f"{LABEL}.state": self.label,
            f"{LABEL}.data": data_label_of(launch.layout),
        }

    def run(self) -> Instance:
        """Start the sandbox, or leave nothing behind; see `DockerEngine.start`."""
        self._await_earlier_end()
        host = host_folders(
            (
                str(self.layout.root),
                os.path.dirname(runtime_code.cache_folder()),
                *self.settings.private_folders,
            )
        )
        folder = folder_to_show(self.spec, host, self.notices)
        image = find_image(self.client, self.host, self.settings.image)
        facts = try_image(
            self.client,
            self.host,
            image,
            user=self.user,
            runtime=self.settings.runtime,
            python=self.settings.python,
        )
        reached = self._limits(facts)
        self.has_files = facts.writes_files and self.settings.storage != "volume"
        self.has_sockets = facts.shares_sockets and self.settings.door != "tcp"
        self._make_folders()
        shown = self._shown(folder, facts)
        try:
            try:
                return self._attempt(image, facts, shown, reached)
            except daemon.RefusedError as error:
                if shown.volume is None or "mount" not in str(error):
                    raise
                self._forget(shown)
                assert folder is not None  # noqa: S101  it is shown
                shown = self._plain(folder, str(error).strip().rstrip("."))
                return self._attempt(image, facts, shown, reached)
        except (daemon.RefusedError, daemon.NotThereError, daemon.ConflictError) as error:
            self._clean_up(shown)
            raise daemon.start_error(self.launch.sandbox_id, error) from error
        except BaseException:
            self._clean_up(shown)
            raise

    def _await_earlier_end(self) -> None:
        """Leave a container that runs alone: what follows takes its files over."""
        deadline = time.monotonic() + _EARLIER_PATIENCE
        while incarnation.is_locked(self.layout):
            if time.monotonic() > deadline:
                raise self._failed("an earlier container of it still runs")
            time.sleep(0.005)

    def _failed(self, reason: str) -> EngineStartError:
        return EngineStartError(
            daemon.ENGINE, self.launch.sandbox_id, reason, tail(self.layout.log)
        )

    # Limits ---------------------------------------------------------------------------------

    def _limits(self, facts: Facts) -> dict[str, str]:
        asked = self.spec.limits
        reached = dict.fromkeys(("memory_bytes", "cpus", "processes", "file_bytes"), Reached.ABSENT)
        for name in facts.limits:
            if getattr(asked, name) is not None:
                reached[name] = Reached.HARD
        if asked.file_bytes is not None:
            reached["file_bytes"] = Reached.HARD
        lacking = unmet(asked, reached)
        if lacking is not None and not self.spec.accept_weaker_limits:
            raise LimitNotEnforceableError(
                lacking,
                daemon.ENGINE,
                reached[lacking].value,
                "in a trial its containers did not have it (see 'jupyter sandbox doctor')",
            )
        return {name: how_far.value for name, how_far in reached.items()}

    # Folders on the host --------------------------------------------------------------------

    def _make_folders(self) -> None:
        layout = self.layout
        for path in (layout.root, layout.run):
            with storage_errors(path, "create"):
                os.makedirs(path, mode=0o700, exist_ok=True)
        if not self.has_files:
            self._note_volumes()
            return
        for path in (layout.workspace, layout.home, layout.spool, layout.packages / "user"):
            with storage_errors(path, "create"):
                os.makedirs(path, mode=0o700, exist_ok=True)
                self._give_to_user(path)
        empty(layout.spool)
        if not self.spec.keep_packages:
            empty(layout.packages / "user")

    def _note_volumes(self) -> None:
        """Write down that a destroy has to ask the daemon, and which."""
        path = volumes_file(self.layout)
        with storage_errors(path, "write"):
            path.write_text(json.dumps({"host": self.host}))

    def _give_to_user(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, int(self.uid), int(self.gid), follow_symlinks=False)

    # The notebook's folder ------------------------------------------------------------------

    def _shown(self, folder: str | None, facts: Facts) -> _Shown:
        if folder is None:
            return _Shown(how="not shown")
        if not facts.shares_files:
            self.notices.append(
                f"Folder {folder} is not shown, since the Docker engine does not see this"
                f" machine's files. Use {recipe.WORKSPACE} instead."
            )
            return _Shown(how="not shown")
        real = os.path.realpath(folder)
        mode = self.spec.folder_mode
        self._warn_of_owner(folder, real)
        if mode is FolderMode.WRITE:
            bind = Bind(source=real, dest=folder, read_only=False)
            return _Shown(how="writable", cwd=folder, bind=bind)
        if mode is FolderMode.READ:
            return self._read_only(folder, real)
        reason = no_upper(self.layout.root) or claim_layer(self.layout, real, uid=int(self.uid))
        options = overlay_options(
            real, upper=str(self.layout.folder / "upper"), work=str(self.layout.folder / "work")
        )
        if not reason and options is None:
            reason = "its path has signs that a layer's cannot have"
        if reason:
            return self._plain(folder, reason)
        volume = Volume(name=volume_of(self.layout, "folder"), dest=folder, options=options)
        how = "writable layer, host files unchanged"
        return _Shown(how=how, cwd=folder, volume=volume)

    def _read_only(self, folder: str, real: str) -> _Shown:
        """Show it so that programs inside reach no socket, pipe or lock of the host in it."""
        nothing = self.layout.root / "empty"
        with storage_errors(nothing, "create"):
            os.makedirs(nothing, mode=0o700, exist_ok=True)
            # The upper one's owner and permissions are those of the folder that is seen.
            self._give_to_user(nothing)
        options = overlay_options(real, nothing=str(nothing))
        if options is None or has_mounts_below(real):
            return self._bound(folder, real)
        name = volume_of(self.layout, "folder")
        volume = Volume(name=name, dest=folder, options=options, read_only=True)
        return _Shown(how="read-only", cwd=folder, volume=volume)

    def _plain(self, folder: str, reason: str) -> _Shown:
        """Fall back to what always works, and say so."""
        if self.spec.folder_mode is FolderMode.OVERLAY:
            self.notices.append(
                f"Folder {folder} is shown read-only, since no writable layer can be put over it:"
                f" {reason}. Write to {recipe.WORKSPACE} instead."
            )
        return self._bound(folder, os.path.realpath(folder))

    def _bound(self, folder: str, real: str) -> _Shown:
        self.notices.append(
            f"Programs inside can talk to programs of the host by sockets, pipes and locks in"
            f" {folder}."
        )
        how = "read-only, with the host's sockets and pipes"
        return _Shown(how=how, cwd=folder, bind=Bind(source=real, dest=folder))

    def _warn_of_owner(self, folder: str, real: str) -> None:
        if os.stat(real).st_uid != int(self.uid):
            self.notices.append(
                f"Files in {folder} belong to another user than {self.uid}, as whom programs run"
                " inside; they read and change what its permissions allow. See DockerEngine.user."
            )

    # The container --------------------------------------------------------------------------

    def _attempt(
        self, image: Image, facts: Facts, shown: _Shown, reached: Mapping[str, str]
    ) -> Instance:
        config = {
            "sandbox_id": self.launch.sandbox_id,
            "token": self.launch.token,
            "sleep_after": self.spec.sleep_after,
            "keep_alive": self.spec.keep_alive,
            "cwd": shown.cwd,
            "env": self._env(image, facts),
            "spool_dir": recipe.SPOOL,
            "spool_limit": _SPOOL_LIMIT,
            "rlimits": {"fsize": self.spec.limits.file_bytes}
            if self.spec.limits.file_bytes
            else {},
            "python": "",
            "memory_events": facts.events or None,
        }
        record: dict[str, Any] = {
            "host": self.host,
            "name": self.name,
            "image": self.settings.image,
            "image_id": image.id,
            "keep_packages": self.spec.keep_packages,
            "notebook_folder": shown.cwd if shown.cwd != recipe.WORKSPACE else None,
        }
        with storage_errors(self.layout.run, "write to"):
            incarnation.record_file(self.layout).write_text(json.dumps(record))
        plan = self._plan(image, facts, shown)
        if self.has_sockets:
            address, found = self._by_socket(plan, config)
        elif self.spec.network:
            address, found = self._by_port(plan, config)
        else:
            address, found = self._by_door(plan, config)
        return Instance(
            engine=daemon.ENGINE,
            socket=address,
            data=record | found,
            isolation=self._isolation(shown),
            limits=dict(reached),
            notices=self.notices,
        )

    def _by_socket(
        self, plan: ContainerPlan, config: Mapping[str, object]
    ) -> tuple[str, dict[str, Any]]:
        """Listen here, and hand the listening socket to the runtime."""
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(_locked(self))
            listener = stack.enter_context(_listening(self.layout.socket))
            log = stack.enter_context(_log(self.layout.log))
            handover = stack.enter_context(Handover(self.layout.run / "start"))
            start = Bind(source=str(handover.folder), dest=_START)
            plan = replace(plan, binds=(*plan.binds, start), command=_fetching(plan.command))
            container = self._created(plan)
            self._start(container)
            out = stack.enter_context(_config_pipe(_handed_over(config)))
            pid = handover.give(
                [out, listener.fileno(), lock, log],
                timeout=_PATIENCE,
                has_ended=lambda: self._has_ended(container),
            )
            if pid is None:
                raise self._ended_early(container)
        return str(self.layout.socket), {"container": container, "pid": pid}

    def _by_port(
        self, plan: ContainerPlan, config: Mapping[str, object]
    ) -> tuple[str, dict[str, Any]]:
        """Have the runtime listen, and its port published by the engine."""
        address = self._address()
        container = self._created(replace(plan, publish=address, reads_stdin=True))
        with contextlib.closing(Attached(self.client, self.host, container)) as attached:
            self._start(container)
            # The configuration ends with the connection.
            attached.send(
                recipe.runtime_config({**config, "listen": {"tcp": DOOR_PORT}, "lock_fd": None})
            )
        reached = address_of(self.client, self.host, container, address)
        endpoint = Endpoint(
            sandbox_id=self.launch.sandbox_id, socket=reached, token=self.launch.token
        )
        if not _is_welcome(endpoint, has_ended=lambda: self._has_ended(container)):
            raise self._ended_early(container)
        return reached, {"container": container}

    def _by_door(
        self, plan: ContainerPlan, config: Mapping[str, object]
    ) -> tuple[str, dict[str, Any]]:
        """Let a second container listen, so that the sandbox has no network for it."""
        address = self._address()
        name = volume_of(self.layout, "door")
        make(self.client, self.host, {name: self.labels}, image=plan.image, user=self.user)
        shared = Volume(name=name, dest=_START)
        door = self._created(
            ContainerPlan(
                image=plan.image,
                command=(self.settings.python, "-I", "-S", "-c", DOOR_SCRIPT),
                hostname="door",
                user=self.user,
                cwd="/",
                network="bridge",
                volumes=(shared,),
                labels=self.labels | {LABEL: "door"},
                limits=Limits(memory_bytes=_DOOR_MEMORY, processes=8),
                tmp_bytes=1 << 20,
                read_only=True,
                publish=address,
                reads_stdin=True,
            ),
            name=f"{self.name}-door",
        )
        content = recipe.runtime_config(_handed_over(config))
        with contextlib.closing(Attached(self.client, self.host, door)) as attached:
            self._start(door)
            attached.send(b"%d\n" % len(content) + content)
            if not attached.wait_for(b"open\n", timeout=_PATIENCE):
                raise self._failed(f"its door did not open: {attached.said[-500:]}")
            shown = replace(shared, read_only=True)
            container = self._created(
                replace(plan, volumes=(*plan.volumes, shown), command=_fetching(plan.command))
            )
            self._start(container)
            reached = address_of(self.client, self.host, door, address)
            deadline = time.monotonic() + _PATIENCE
            while not attached.wait_for(b"taken\n", timeout=_LOOK_AGAIN):
                if time.monotonic() > deadline or self._has_ended(container):
                    raise self._ended_early(container)
        return reached, {"container": container, "door": door}

    def _address(self) -> str:
        """Return the address of the engine's host at which a door may be published."""
        given = self.settings.address
        kind, _, rest = self.host.partition("://")
        machine = rest.rpartition("@")[2].partition("/")[0].rpartition(":")[0] or rest
        is_here = kind in ("unix", "http+unix", "npipe") or machine in _LOOPBACK
        if given in _LOOPBACK and not is_here:
            raise SandboxConfigurationError(
                f"The Docker engine at {self.host} runs on another machine, and a sandbox's door"
                f" at {given} could not be reached there.",
                hint="Set DockerEngine.address to an address of that machine which only you and it"
                " can reach, such as that of a tunnel: what passes there is not encrypted.",
                context={"setting": "DockerEngine.address"},
            )
        return given

    def _start(self, container: str) -> None:
        with daemon.errors(self.host, "start a container on"):
            self.client.start(container)

    def _plan(self, image: Image, facts: Facts, shown: _Shown) -> ContainerPlan:
        settings = self.settings
        binds, volumes = self._storage(image, facts)
        if shown.bind is not None:
            binds.append(shown.bind)
        if shown.volume is not None:
            volumes.append(shown.volume)
        return ContainerPlan(
            image=image.id,
            command=(
                *(settings.python, "-I", "-S", f"{recipe.CODE}/sandbox_runtime/container_main.py"),
            ),
            hostname=self.launch.sandbox_id,
            user=self.user,
            cwd=recipe.WORKSPACE,
            network="bridge" if self.spec.network else "none",
            binds=tuple(binds),
            volumes=tuple(volumes),
            labels=self.labels,
            limits=self.spec.limits,
            tmp_bytes=settings.tmp_bytes,
            read_only=settings.read_only,
            runtime=settings.runtime,
        )

    def _storage(self, image: Image, facts: Facts) -> tuple[list[Bind], list[Volume]]:
        """Return what persists, and the runtime's code, as this daemon can have them."""
        layout = self.layout
        binds: list[Bind] = []
        volumes: list[Volume] = []
        if self.has_files:
            binds += [
                Bind(source=str(path), dest=dest, read_only=False)
                for path, dest in (
                    (layout.workspace, recipe.WORKSPACE),
                    (layout.home, recipe.HOME),
                    (layout.spool, recipe.SPOOL),
                    (layout.packages / "user", recipe.PACKAGES),
                )
            ]
        else:
            places = {
                "workspace": recipe.WORKSPACE,
                "home": recipe.HOME,
                "spool": recipe.SPOOL,
                "packages": recipe.PACKAGES,
            }
            volumes += [
                Volume(name=volume_of(layout, what), dest=dest) for what, dest in places.items()
            ]
            labels = self.labels | {LABEL: "volume"}
            names = {each.name: labels for each in volumes}
            make(self.client, self.host, names, image=image.id, user=self.user)
        code = runtime_code.prepare(otherwise=str(layout.root / "code"))
        if image.labels.get(f"{LABEL}.runtime") == _digest_of(code):
            pass
        elif facts.shares_files:
            binds.append(Bind(source=code, dest=recipe.CODE))
        else:
            name = volume_of(layout, "code")
            fill(self.client, self.host, name, code, image=image.id, labels=self.labels)
            volumes.append(Volume(name=name, dest=recipe.CODE, read_only=True))
        if facts.shares_files:
            binds += [
                Bind(source=os.path.realpath(path), dest=path) for path in self.settings.extra_paths
            ]
            if image.labels.get(f"{LABEL}.user") != self.user:
                binds += self._user_files(facts)
        return binds, volumes

    def _user_files(self, facts: Facts) -> list[Bind]:
        """Give the user a name where the image does not know it."""
        files = {
            "passwd": (
                "root:x:0:0:root:/root:/bin/sh\n"
                f"user:x:{self.uid}:{self.gid}:user:{recipe.HOME}:{facts.shell}\n"
                "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
            "group": f"root:x:0:\nuser:x:{self.gid}:\nnogroup:x:65534:\n",
        }
        binds = []
        for name, text in files.items():
            path = self.layout.run / name
            with storage_errors(path, "write"):
                path.write_text(text, encoding="ascii")
                path.chmod(0o644)
            binds.append(Bind(source=str(path), dest=f"/etc/{name}"))
        return binds

    def _env(self, image: Image, facts: Facts) -> dict[str, str]:
        """Return the environment of every program: the image's, and ours; nothing of the host's."""
        site = f"{recipe.PACKAGES}/site"
        inherited = image.env.get(
            "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        )
        # An image may say that its Python looks there by itself.
        looks = image.labels.get(f"{LABEL}.packages") == site
        return {
            "LANG": "C.UTF-8",
            **image.env,
            **({} if looks else {"PYTHONPATH": site}),
            "HOME": recipe.HOME,
            "USER": "user",
            "LOGNAME": "user",
            "SHELL": facts.shell,
            "TERM": "xterm-256color",
            "SANDBOX_ID": self.launch.sandbox_id,
            # The image's own Python may be root's, or be claimed by its distribution.
            "PIP_TARGET": site,
            "PIP_BREAK_SYSTEM_PACKAGES": "1",
            "PATH": f"{site}/bin:{recipe.HOME}/.local/bin:{inherited}",
            **self.spec.env,
        }

    def _created(self, plan: ContainerPlan, *, name: str | None = None) -> str:
        """Create a container; one that an earlier start left under its name goes first."""
        name = name or self.name
        for attempt in (1, 2):
            try:
                with daemon.errors(self.host, "create a container on"):
                    return str(
                        self.client.create_container_from_config(create_body(plan), name)["Id"]
                    )
            except daemon.ConflictError as error:
                if attempt == 2 or not self._is_left_over(name):
                    raise self._failed(f"another container has the name {name!r}") from error
                remove_container(self.client, self.host, name)
        raise AssertionError

    def _is_left_over(self, name: str) -> bool:
        """Whether a container is of an earlier start of ours, and nobody's any more."""
        try:
            with daemon.errors(self.host):
                found = self.client.inspect_container(name)
        except daemon.NotThereError:
            return True
        if found["Config"]["Labels"].get(f"{LABEL}.state") != self.label:
            return False
        # With a socket of ours we hold its lock; by TCP there is none.
        return self.has_sockets or not found["State"]["Running"]

    def _has_ended(self, container: str) -> bool:
        try:
            with daemon.errors(self.host):
                return not self.client.inspect_container(container)["State"]["Running"]
        except daemon.NotThereError:
            return True

    def _ended_early(self, container: str) -> EngineStartError:
        """Return the error of a runtime that did not come up, with what its container said."""
        with contextlib.suppress(daemon.NotThereError, OSError), daemon.errors(self.host):
            said = self.client.logs(container, stdout=True, stderr=True, tail=20)
            with open(self.layout.log, "ab") as log:
                log.write(said)
        return self._failed("its runtime ended before it answered")

    def _forget(self, shown: _Shown) -> None:
        # By label: another's container may have the name that ours was to have.
        label = {"label": f"{LABEL}.state={self.label}"}
        with daemon.errors(self.host):
            containers = self.client.containers(all=True, filters=label)
        for each in containers:
            remove_container(self.client, self.host, each["Id"])
        names = [volume_of(self.layout, "door")]
        if shown.volume is not None:
            names.append(shown.volume.name)
        remove_volumes(self.client, self.host, names)

    def _clean_up(self, shown: _Shown) -> None:
        with contextlib.suppress(Exception):  # what failed first is what is told
            self._forget(shown)
        if not incarnation.is_locked(self.layout):
            incarnation.remove_files(self.layout)

    def _isolation(self, shown: _Shown) -> dict[str, str]:
        return {
            "door": "unix socket" if self.has_sockets else f"TCP at {self.settings.address}",
            "namespaces": "process, mount, IPC, name"
            + ("" if self.spec.network else ", network without a way out"),
            "network": "the engine's bridge" if self.spec.network else "off",
            "privileges": "none, and none to be had",
            "user": self.user,
            "system calls": "the engine's default filter",
            "runtime": self.settings.runtime or "the engine's default",
            "container's own files": "read-only" if self.settings.read_only else "writable",
            "notebook folder": shown.how,
        }


def _fetching(command: tuple[str, ...]) -> tuple[str, ...]:
    return (*command, f"{_START}/{NAME}")


def _handed_over(config: Mapping[str, object]) -> dict[str, object]:
    """Add where the runtime puts what it is given; see `sandbox_runtime.container_main`."""
    return {**config, "listen": {"fd": 21}, "lock_fd": 22}


def _is_welcome(endpoint: Endpoint, *, has_ended: Callable[[], bool]) -> bool:
    """Wait until the runtime greets a client: a published port takes connections before that."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(ContainerUnavailableError, OSError),
            connect(endpoint, timeout=_LOOK_AGAIN) as client,
        ):
            client.settimeout(_PATIENCE)
            client.sendall(ClientConnection().hello(endpoint.token, "engine"))
            if client.recv(1):
                return True
        if has_ended():
            return False
        time.sleep(0.01)
    return False


def _digest_of(code: str) -> str:
    try:
        return Path(code, runtime_code.DIGEST).read_text(encoding="ascii")
    except OSError:
        return ""


@contextlib.contextmanager
def _locked(start: Start) -> Iterator[int]:
    """Hold the lock that the runtime will hold: ours is given up once it has a copy of it."""
    path = start.layout.lock
    with storage_errors(path, "open"):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + _EARLIER_PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                # Whoever asks whether the sandbox lives holds it for an instant, too.
                if time.monotonic() > deadline:
                    raise start._failed("an earlier container of it still runs") from error  # noqa: SLF001
                time.sleep(0.001)
            else:
                break
        yield lock
    finally:
        os.close(lock)


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    with (
        storage_errors(path, "listen on"),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as listener,
    ):
        path.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        path.chmod(0o600)
        listener.listen(128)
        yield listener


@contextlib.contextmanager
def _log(path: Path) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with storage_errors(path, "open"):
        log = os.open(path, flags, 0o600)
    try:
        yield log
    finally:
        os.close(log)


@contextlib.contextmanager
def _config_pipe(config: Mapping[str, object]) -> Iterator[int]:
    """Yield the end of a pipe that holds the configuration; what is read from it is gone."""
    content = recipe.runtime_config(config)
    out, into = os.pipe()
    try:
        try:
            capacity = fcntl.fcntl(into, fcntl.F_GETPIPE_SZ)
            if capacity < len(content):
                with contextlib.suppress(OSError):
                    capacity = fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, len(content))
            if len(content) > capacity:
                raise SandboxConfigurationError(
                    f"The environment of the sandbox is too large ({len(content)} bytes).",
                    hint=f"Keep what 'env' adds below {capacity} bytes in all.",
                )
            view = memoryview(content)
            while view:
                view = view[os.write(into, view) :]
        finally:
            os.close(into)
        yield out
    finally:
        os.close(out)
