"""The end of a sandbox on the Docker engine, and what the daemon remembers of it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.engines import docker_daemon as daemon
from sandbox_kernel.engines import incarnation
from sandbox_kernel.engines.base import Found, Instance, StateLayout
from sandbox_kernel.engines.disk import empty
from sandbox_kernel.engines.docker_body import Bind, ContainerPlan, create_body
from sandbox_kernel.engines.docker_labels import (
    LABEL,
    data_label_of,
    label_of,
    remove_containers,
    remove_volumes,
    volume_of,
    volumes_file,
)
from sandbox_kernel.engines.settings import DockerSettings
from sandbox_kernel.errors import EngineUnavailableError

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["discard", "found", "stop"]

_OF_ONE_RUN = ("code", "door", "folder", "spool")
"""Volumes that end with the container."""
_LASTING = ("workspace", "home", "packages")
_BESIDE = ("passwd", "group")
_TIDY_PATIENCE = 20.0
# The owner of a folder without permissions may give himself some.
_EMPTY_FOLDER = """
import os
os.chmod("/layer", 0o700)
for entry in list(os.scandir("/layer")):
    os.rmdir(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
"""


def stop(
    settings: DockerSettings,
    instance: Instance | None,
    layout: StateLayout,
    *,
    grace: float,
    is_alive: Callable[[Instance, StateLayout], bool],
) -> None:
    """End a sandbox; see `DockerEngine.stop`."""
    data = (
        instance.data
        if instance is not None
        else incarnation.read_json(incarnation.record_file(layout))
    )
    deadline = time.monotonic() + grace
    pause = 0.005
    while time.monotonic() < deadline:
        alive = incarnation.is_locked(layout) if instance is None else is_alive(instance, layout)
        if not alive:
            break
        time.sleep(pause)
        pause = min(0.1, pause * 1.2)
    host = str(data.get("host") or daemon.host_of(settings.host))
    try:
        with closing(daemon.connect(host)) as client:
            _remove(client, host, layout, keep_packages=bool(data.get("keep_packages", True)))
            image = str(data.get("image_id") or settings.image)
            _tidy_layer(client, host, layout, image=image, python=settings.python)
    except EngineUnavailableError:
        # Without a record nothing says that this daemon has ever heard of the sandbox.
        if data:
            raise
    incarnation.remove_files(layout)
    for name in _BESIDE:
        (layout.run / name).unlink(missing_ok=True)
    empty(layout.spool)
    if not data.get("keep_packages", True):  # without a record, nothing is thrown away
        empty(layout.packages)


def _remove(client: APIClient, host: str, layout: StateLayout, *, keep_packages: bool) -> None:
    remove_containers(client, host, layout)
    names = [*_OF_ONE_RUN, *(() if keep_packages else ("packages",))]
    remove_volumes(client, host, [volume_of(layout, name) for name in names])


def _tidy_layer(
    client: APIClient, host: str, layout: StateLayout, *, image: str, python: str
) -> None:
    """Remove what the kernel leaves beside a layer; it is root's, who mounted it.

    An ordinary user may remove the folder, but not what is in it: a container that is root there
    does that.
    """
    folder = layout.folder / "work" / "work"
    try:
        owner = folder.lstat().st_uid
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError:
        if os.geteuid() in (0, owner):
            return  # whoever removes the sandbox can remove this as well
    else:
        return
    plan = ContainerPlan(
        image=image,
        command=(python, "-I", "-S", "-c", _EMPTY_FOLDER),
        hostname="tidy",
        user="0:0",
        cwd="/",
        network="none",
        binds=(Bind(source=str(folder), dest="/layer", read_only=False),),
        labels={LABEL: "tidy", f"{LABEL}.state": label_of(layout)},
        tmp_bytes=1 << 20,
    )
    refusals = (daemon.RefusedError, daemon.NotThereError, daemon.ConflictError)
    # What stays is told when the sandbox is destroyed, with its path and the mend.
    with contextlib.suppress(*refusals, OSError), daemon.errors(host):
        container = client.create_container_from_config(create_body(plan))["Id"]
        try:
            client.start(container)
            client.wait(container, timeout=_TIDY_PATIENCE)
        finally:
            client.remove_container(container, force=True, v=True)
        folder.rmdir()


def discard(settings: DockerSettings, layout: StateLayout) -> None:
    """Remove the volumes of a sandbox; see `DockerEngine.discard`."""
    record = incarnation.read_json(volumes_file(layout))
    host = str(record.get("host") or daemon.host_of(settings.host))
    try:
        with closing(daemon.connect(host)) as client:
            names = [volume_of(layout, name) for name in (*_LASTING, *_OF_ONE_RUN)]
            remove_volumes(client, host, names)
    except EngineUnavailableError:
        if record:
            raise


def found(settings: DockerSettings, folder: Path) -> Iterator[Found]:
    """Yield what the daemon knows of a data folder; see `DockerEngine.found`."""
    host = daemon.host_of(settings.host)
    label = {"label": f"{LABEL}.data={data_label_of(StateLayout(folder / 'any'))}"}
    try:
        with closing(daemon.connect(host)) as client, daemon.errors(host):
            things = client.containers(all=True, filters=label)
            things += client.volumes(filters=label)["Volumes"] or []
    except EngineUnavailableError:
        return
    seen = set()
    for each in things:
        labels = each["Labels"]
        one = Found(
            sandbox_id=labels.get(f"{LABEL}.id", ""), lifetime=labels.get(f"{LABEL}.lifetime", "")
        )
        if one not in seen and labels.get(f"{LABEL}.state") == label_of(
            StateLayout(folder / one.lifetime)
        ):
            seen.add(one)
            yield one
