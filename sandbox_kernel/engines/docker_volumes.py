"""Named volumes, where the daemon does not see this machine's files."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandbox_kernel.engines import docker_daemon as daemon
from sandbox_kernel.engines.docker_body import ContainerPlan, Volume, create_body

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["fill", "make"]

_SEED = "/seed"


def make(
    client: APIClient, host: str, names: Mapping[str, Mapping[str, str]], *, image: str, user: str
) -> None:
    """Make volumes that belong to the user inside; those that are there are left as they are.

    Parameters
    ----------
    names : mapping of str to mapping
        The volumes, each with its labels.
    image : str
        Any image.
    user : str
        ``UID:GID``.
    """
    new = [name for name in names if not _exists(client, host, name)]
    if not new:
        return
    for name in new:
        with daemon.errors(host, "make a volume in"):
            client.create_volume(name, driver="local", labels=dict(names[name]))
    uid, _, gid = user.partition(":")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in new:
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o700
            entry.uid, entry.gid = int(uid), int(gid or uid)
            archive.addfile(entry)
    _seed(client, host, image, {name: f"{_SEED}/{name}" for name in new}, content.getvalue())


def fill(
    client: APIClient,
    host: str,
    name: str,
    folder: str,
    *,
    image: str,
    labels: Mapping[str, str],
) -> None:
    """Make a volume with a copy of a folder."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(folder, arcname=name, filter=_as_roots)
    with daemon.errors(host, "make a volume in"):
        client.create_volume(name, driver="local", labels=dict(labels))
    _seed(client, host, image, {name: f"{_SEED}/{name}"}, content.getvalue())


def _as_roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _exists(client: APIClient, host: str, name: str) -> bool:
    try:
        with daemon.errors(host):
            client.inspect_volume(name)
    except daemon.NotThereError:
        return False
    return True


def _seed(
    client: APIClient, host: str, image: str, volumes: Mapping[str, str], content: bytes
) -> None:
    """Unpack an archive over volumes, through a container that is never started."""
    plan = ContainerPlan(
        image=image,
        command=("true",),
        hostname="seed",
        user="0:0",
        cwd="/",
        network="none",
        volumes=tuple(Volume(name=name, dest=dest) for name, dest in volumes.items()),
        labels={"jupyter-sandbox": "seed"},
        tmp_bytes=1 << 20,
    )
    with daemon.errors(host, "fill a volume in"):
        container = client.create_container_from_config(create_body(plan))["Id"]
        try:
            client.put_archive(container, _SEED, content)
        except BaseException:
            # Half filled is worse than none.
            with contextlib.suppress(Exception):
                client.remove_container(container, force=True)
                for name in volumes:
                    client.remove_volume(name)
            raise
        client.remove_container(container, force=True)
