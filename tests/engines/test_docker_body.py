"""What the daemon is told of a container; and of a layer over a folder."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.engines.base import Limits
from sandbox_kernel.engines.docker_body import (
    DOOR_PORT,
    Bind,
    ContainerPlan,
    Volume,
    create_body,
    overlay_options,
)


def body(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "image": "sha256:1",
        "command": ("python3", "main.py"),
        "hostname": "box",
        "user": "1000:1000",
        "cwd": "/workspace",
        "network": "none",
        "tmp_bytes": 1 << 20,
        **changes,
    }
    return create_body(ContainerPlan(**values))


def test_nothing_is_given_that_was_not_asked_for() -> None:
    """No network, no capability, none to be gained, the daemon's own system call filter."""
    host = body()["HostConfig"]

    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["IpcMode"] == "private"
    assert host["Tmpfs"] == {"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=1048576"}
    assert host["ReadonlyRootfs"] is False
    assert body()["User"] == "1000:1000"
    for name in ("Privileged", "CapAdd", "Devices", "PidMode", "PortBindings", "Runtime"):
        assert name not in host


def test_the_image_starts_nothing_of_its_own() -> None:
    """Neither its entry point nor its command nor its health check."""
    whole = body()

    assert (whole["Entrypoint"], whole["Cmd"]) == (["python3", "main.py"], [])
    assert whole["Healthcheck"] == {"Test": ["NONE"]}
    assert "Env" not in whole


def test_limits() -> None:
    """Memory without swap; processor time as a share, which may be more than the machine has."""
    limits = Limits(memory_bytes=1 << 28, cpus=64.5, processes=50, file_bytes=7)

    host = body(limits=limits)["HostConfig"]

    assert (host["Memory"], host["MemorySwap"]) == (1 << 28, 1 << 28)
    assert host["CpuQuota"] / host["CpuPeriod"] == 64.5
    assert host["PidsLimit"] == 50
    nothing = body(limits=Limits(processes=None))["HostConfig"]
    assert not {"Memory", "CpuQuota", "PidsLimit"} & nothing.keys()


def test_a_published_door() -> None:
    """At the one address, with a number that the daemon chooses."""
    whole = body(publish="127.0.0.1", network="bridge", reads_stdin=True)

    assert whole["HostConfig"]["PortBindings"] == {
        f"{DOOR_PORT}/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]
    }
    assert whole["OpenStdin"] is whole["StdinOnce"] is True


def test_mounts() -> None:
    """Read-only unless said otherwise; a mount of the host does not travel on."""
    options = {"type": "overlay"}
    bind, volume, layer = body(
        binds=(Bind(source="/a", dest="/b"),),
        volumes=(
            Volume(name="v", dest="/c"),
            Volume(name="w", dest="/d", read_only=True, options=options),
        ),
    )["HostConfig"]["Mounts"]

    assert bind["ReadOnly"] is True
    assert bind["BindOptions"] == {"Propagation": "rprivate"}
    assert (volume["Type"], volume["ReadOnly"]) == ("volume", False)
    assert volume["VolumeOptions"]["NoCopy"] is True
    assert layer["VolumeOptions"]["DriverConfig"] == {"Name": "local", "Options": options}


def test_a_layer() -> None:
    """With marks that its owner can read; without an upper folder it is one to look at."""
    assert overlay_options("/a", upper="/u", work="/w") == {
        "type": "overlay",
        "device": "overlay",
        "o": "lowerdir=/a,upperdir=/u,workdir=/w,userxattr",
    }
    written = overlay_options("/a", nothing="/n")
    assert written is not None
    assert written["o"] == "lowerdir=/n:/a,userxattr"


@pytest.mark.parametrize("sign", [",", ":", "\\", '"', "'", "\n"])
def test_a_path_that_would_end_an_option(sign: str) -> None:
    """Gets no layer: the daemon and the kernel read such signs in ways of their own."""
    assert overlay_options(f"/a{sign}upperdir=/etc", upper="/u", work="/w") is None
