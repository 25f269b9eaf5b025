"""One start of a sandbox on the Docker engine: from what was asked for to a container."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox_kernel.engines import docker_daemon as daemon
from sandbox_kernel.engines import incarnation, recipe, runtime_code
from sandbox_kernel.engines.base import Instance, Launch, Reached
from sandbox_kernel.engines.disk import empty, storage_errors, tail
from sandbox_kernel.engines.docker_body import Bind, ContainerPlan, Volume
from sandbox_kernel.engines.docker_folder import NotebookFolder, Shown
from sandbox_kernel.engines.docker_labels import (
    LABEL,
    data_label_of,
    label_of,
    remove_container,
    remove_volumes,
    volume_of,
    volumes_file,
)
from sandbox_kernel.engines.docker_reach import Reach
from sandbox_kernel.engines.docker_trial import Facts, Image, find_image, try_image
from sandbox_kernel.engines.docker_volumes import fill, make
from sandbox_kernel.engines.folders import host_folders
from sandbox_kernel.engines.limits import unmet
from sandbox_kernel.engines.notebook_folder import folder_to_show
from sandbox_kernel.engines.settings import DockerSettings
from sandbox_kernel.errors import (
    EngineStartError,
    LimitNotEnforceableError,
    SandboxConfigurationError,
)

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Start", "host_user"]

_EARLIER_PATIENCE = 0.5
_SPOOL_LIMIT = 1 << 30
_USER = "1000:1000"


def host_user(settings: DockerSettings) -> str:
    """Return the user inside: as set, or ours, or an ordinary one where ours is root.

    Raises
    ------
    SandboxConfigurationError
        What is set is no pair of numbers.
    """
    if settings.user:
        if not all(each.isdecimal() for each in settings.user.split(":", 1)):
            raise SandboxConfigurationError(
                f"DockerEngine.user = {settings.user!r} is no pair of numbers.",
                hint="Give it as 'UID:GID', such as '1000:1000'.",
                context={"setting": "DockerEngine.user"},
            )
        return settings.user
    return _USER if os.geteuid() == 0 else f"{os.geteuid()}:{os.getegid()}"


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
        self.user = host_user(settings)
        self.uid, _, gid = self.user.partition(":")
        self.gid = gid or self.uid
        self.notices: list[str] = []
        self.labels = {
            LABEL: "sandbox",
            f"{LABEL}.id": launch.sandbox_id,
            f"{LABEL}.lifetime": launch.lifetime,
            f"{LABEL}.state": label_of(launch.layout),
            f"{LABEL}.data": data_label_of(launch.layout),
        }

    def run(self) -> Instance:
        """Start the sandbox, or leave nothing behind; see `DockerEngine.start`."""
        for name, choices in (("door", ("auto", "tcp")), ("storage", ("auto", "volume"))):
            if getattr(self.settings, name) not in choices:
                raise SandboxConfigurationError(
                    f"DockerEngine.{name} = {getattr(self.settings, name)!r} is unknown.",
                    hint=f"There are: {', '.join(choices)}.",
                    context={"setting": f"DockerEngine.{name}"},
                )
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
        self.reach = Reach(
            self.launch,
            self.client,
            self.host,
            address=self.settings.address,
            python=self.settings.python,
            has_sockets=facts.shares_sockets and self.settings.door != "tcp",
        )
        self.reach.check_alone()
        self._make_folders()
        notebook = NotebookFolder(
            self.layout,
            self.spec.folder_mode,
            uid=int(self.uid),
            # A layer must not be touched while it is mounted, which only the lock tells.
            no_layer="" if self.reach.has_sockets else "the sandbox is reached by TCP",
            notices=self.notices,
        )
        shown = notebook.show(folder, sees_files=facts.shares_files)
        try:
            try:
                return self._attempt(image, facts, shown, reached)
            except daemon.RefusedError as error:
                if shown.volume is None or "mount" not in str(error):
                    raise
                self._forget(shown)
                assert folder is not None  # noqa: S101  it is shown
                shown = notebook.plain(folder, str(error).strip().rstrip("."))
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

    # The container --------------------------------------------------------------------------

    def _attempt(
        self, image: Image, facts: Facts, shown: Shown, reached: Mapping[str, str]
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
            "name": self.reach.name,
            "image": self.settings.image,
            "image_id": image.id,
            "keep_packages": self.spec.keep_packages,
            "notebook_folder": shown.cwd if shown.cwd != recipe.WORKSPACE else None,
        }
        with storage_errors(self.layout.run, "write to"):
            incarnation.record_file(self.layout).write_text(json.dumps(record))
        plan = self._plan(image, facts, shown)
        if self.reach.has_sockets:
            address, found = self.reach.by_socket(plan, config)
        elif self.spec.network:
            address, found = self.reach.by_port(plan, config)
        else:
            address, found = self.reach.by_door(plan, config)
        return Instance(
            engine=daemon.ENGINE,
            socket=address,
            data=record | found,
            isolation=self._isolation(shown),
            limits=dict(reached),
            notices=self.notices,
        )

    def _plan(self, image: Image, facts: Facts, shown: Shown) -> ContainerPlan:
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

    def _forget(self, shown: Shown) -> None:
        for container in self.reach.made:
            remove_container(self.client, self.host, container)
        names = [volume_of(self.layout, "door")]
        if shown.volume is not None:
            names.append(shown.volume.name)
        remove_volumes(self.client, self.host, names)

    def _clean_up(self, shown: Shown) -> None:
        with contextlib.suppress(Exception):  # what failed first is what is told
            self._forget(shown)
        if not incarnation.is_locked(self.layout):
            incarnation.remove_files(self.layout)

    def _isolation(self, shown: Shown) -> dict[str, str]:
        return {
            "door": "unix socket" if self.reach.has_sockets else f"TCP at {self.settings.address}",
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


def _digest_of(code: str) -> str:
    try:
        return Path(code, runtime_code.DIGEST).read_text(encoding="ascii")
    except OSError:
        return ""
