"""How what a daemon has of a sandbox is named, found again, and removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.engines import docker_daemon as daemon
from sandbox_kernel.engines.base import StateLayout

if TYPE_CHECKING:
    from docker import APIClient

__all__ = [
    "LABEL",
    "data_label_of",
    "label_of",
    "remove_container",
    "remove_containers",
    "remove_volumes",
    "volume_of",
    "volumes_file",
]

LABEL = "jupyter-sandbox"
"""The label of everything that we make; further ones begin with it."""


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


def remove_containers(client: APIClient, host: str, layout: StateLayout) -> None:
    """Remove every container of a layout: by label, since another's may have one of our names."""
    label = {"label": f"{LABEL}.state={label_of(layout)}"}
    with daemon.errors(host):
        found = client.containers(all=True, filters=label)
    for each in found:
        remove_container(client, host, each["Id"])
