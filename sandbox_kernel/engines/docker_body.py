"""The body with which the Docker engine is told to make a sandbox's container: a plan in, JSON out.

Nothing here looks at the machine or speaks to a daemon, so that every field can be tested.  Why
each one is there is said beside it; the names are those of the Engine API, version 1.41.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox_kernel.engines.base import Limits

__all__ = ["DOOR_PORT", "Bind", "ContainerPlan", "Volume", "create_body", "overlay_options"]

DOOR_PORT = 8970
"""The port of the frame door inside, where it is reached by TCP."""

_LOG_BYTES = "1m"


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A file or folder of the engine's host, which must exist."""

    source: str
    dest: str
    read_only: bool = True


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A named volume; it is made when it does not exist.

    `options` are of the driver ``local``: what it is to mount.
    """

    name: str
    dest: str
    read_only: bool = False
    options: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class ContainerPlan:
    """A container with everything about the machine decided.

    Parameters
    ----------
    image : str
        Its image, best by id.
    command : tuple of str
        The runtime's command.
    hostname : str
        Its name inside.
    user : str
        ``UID:GID`` of every program inside.
    cwd : str
        Working directory of the command; made if it is not there.
    network : str
        ``none``, or the name of a network.
    binds, volumes : tuple
        What is mounted.
    labels : mapping of str to str
        By which the container is found again; anybody who may ask the engine reads them.
    limits : Limits
        Of the container as a whole; a limit on the size of files is the runtime's.
    tmp_bytes : int
        Size of /tmp and of /dev/shm.
    read_only : bool
        Whether the container's own files can be changed.
    runtime : str, optional
        Another OCI runtime than the daemon's default.
    publish : str, optional
        Address of the engine's host at which the frame door's port appears.
    reads_stdin : bool
        Whether the configuration comes by the standard input.
    """

    image: str
    command: tuple[str, ...]
    hostname: str
    user: str
    cwd: str
    network: str
    binds: tuple[Bind, ...] = ()
    volumes: tuple[Volume, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    tmp_bytes: int
    read_only: bool = False
    runtime: str | None = None
    publish: str | None = None
    reads_stdin: bool = False


def create_body(plan: ContainerPlan) -> dict[str, Any]:
    """Return the body of ``POST /containers/create``."""
    body: dict[str, Any] = {
        "Image": plan.image,
        # Both, so that nothing of the image's own start is run.
        "Entrypoint": list(plan.command),
        "Cmd": [],
        "Hostname": plan.hostname[:63],
        "User": plan.user,
        "WorkingDir": plan.cwd,
        "Labels": dict(plan.labels),
        # A health check of the image would be run beside our programs.
        "Healthcheck": {"Test": ["NONE"]},
        "Tty": False,
        "AttachStdin": plan.reads_stdin,
        "OpenStdin": plan.reads_stdin,
        "StdinOnce": plan.reads_stdin,
        "HostConfig": _host_config(plan),
    }
    if plan.publish is not None:
        body["ExposedPorts"] = {f"{DOOR_PORT}/tcp": {}}
    return body


def _host_config(plan: ContainerPlan) -> dict[str, Any]:
    size = f"size={plan.tmp_bytes}"
    config: dict[str, Any] = {
        "NetworkMode": plan.network,
        "Mounts": [*map(_bind, plan.binds), *map(_volume, plan.volumes)],
        "Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,{size}"},  # noqa: S108  inside
        "ShmSize": plan.tmp_bytes,
        "ReadonlyRootfs": plan.read_only,
        "CapDrop": ["ALL"],
        # The engine's own system call filter holds as long as none is named here.
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "LogConfig": {"Type": "json-file", "Config": {"max-size": _LOG_BYTES, "max-file": "1"}},
        "RestartPolicy": {"Name": "no"},
        # What ended is looked at, and removed by whoever started it.
        "AutoRemove": False,
        **_limits(plan.limits),
    }
    if plan.runtime is not None:
        config["Runtime"] = plan.runtime
    if plan.publish is not None:
        # Without a number the engine chooses a free one.
        config["PortBindings"] = {f"{DOOR_PORT}/tcp": [{"HostIp": plan.publish, "HostPort": ""}]}
    return config


def _limits(limits: Limits) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if limits.memory_bytes is not None:
        result["Memory"] = limits.memory_bytes
        # The sum of both: no swap.
        result["MemorySwap"] = limits.memory_bytes
    if limits.cpus is not None:
        # Not as a number of cores, of which the engine refuses more than it has.
        result["CpuPeriod"] = 100_000
        result["CpuQuota"] = max(1000, int(limits.cpus * 100_000))
    if limits.processes is not None:
        result["PidsLimit"] = limits.processes
    return result


def _bind(bind: Bind) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": bind.source,
        "Target": bind.dest,
        "ReadOnly": bind.read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }


def _volume(volume: Volume) -> dict[str, Any]:
    mount: dict[str, Any] = {
        "Type": "volume",
        "Source": volume.name,
        "Target": volume.dest,
        "ReadOnly": volume.read_only,
    }
    # An empty one would be given the files and the owner of what the image has at that path.
    options: dict[str, Any] = {"NoCopy": True}
    if volume.options is not None:
        options["DriverConfig"] = {"Name": "local", "Options": dict(volume.options)}
    labels = {"jupyter-sandbox": "volume"}
    mount["VolumeOptions"] = {**options, "Labels": labels}
    return mount


def overlay_options(
    lower: str, *, upper: str = "", work: str = "", nothing: str = ""
) -> dict[str, str] | None:
    """Return the options of a volume that is a layer over a folder, or None if it can be none.

    Parameters
    ----------
    lower : str
        The folder.
    upper, work : str
        Where changes go; without them the volume cannot be written.
    nothing : str
        An empty folder, for a volume that cannot be written: the kernel wants two.
    """
    paths = (lower, upper, work, nothing)
    # They end an option or a path; the daemon and the kernel each read them in their own way.
    if any(sign in path for path in paths for sign in ",:\\\"'\n"):
        return None
    # Marks of the layer as a user's own mount would keep them, so that its owner can read them.
    if upper:
        options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
    else:
        options = f"lowerdir={nothing}:{lower},userxattr"
    return {"type": "overlay", "device": "overlay", "o": options}
