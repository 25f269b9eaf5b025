"""Limits by way of systemd: who can be asked, what is asked, and a real manager's answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sandbox_kernel.engines import cgroups
from sandbox_kernel.engines import systemd as systemd_module
from sandbox_kernel.engines.base import Limits
from sandbox_kernel.engines.systemd import (
    Manager,
    busctl_call,
    enter_scope,
    find_manager,
    new_scope,
)
from tests.support.host_user import HostUser

ASKED = Limits(memory_bytes=1 << 30, cpus=1.5, processes=64)
POINT = "/sys/fs/cgroup"
USERS = f"{POINT}/user.slice/user-1000.slice/user@1000.service"
MANAGER = Manager(
    bus="unix:path=/run/user/1000/bus",
    slice_name="app.slice",
    folder=f"{USERS}/app.slice",
    path="/user.slice/user-1000.slice/user@1000.service/app.slice",
    controllers=("cpu", "memory", "pids"),
)


def find(
    uid: int = 1000,
    *,
    root: str = "/",
    files: dict[str, str] | None = None,
    without: str = "",
) -> Manager | None:
    """Ask on a machine like Ubuntu 24.04 or Fedora 40."""
    here = files or {
        f"{USERS}/cgroup.controllers": "cpu memory pids\n",
        f"{POINT}/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
    }
    there = {"/run/systemd/system", "/run/user/1000/bus", "/run/dbus/system_bus_socket"}
    return find_manager(
        uid,
        root,
        POINT,
        read=lambda path: here.get(path, ""),
        exists=lambda path: path in there - {without},
    )


def test_an_ordinary_user_asks_their_own_manager() -> None:
    """Wherever they are: in a terminal of the desktop, or in a session over ssh."""
    assert find() == MANAGER


def test_root_asks_the_machines_manager() -> None:
    """Which has all controllers."""
    manager = find(0)

    assert manager is not None
    assert manager.bus == "unix:path=/run/dbus/system_bus_socket"
    assert (manager.folder, manager.path) == (f"{POINT}/system.slice", "/system.slice")
    assert {"memory", "cpu", "pids"} <= set(manager.controllers)


def test_an_older_systemd_delegates_no_processor_time() -> None:
    """Then its user is not promised any."""
    manager = find(files={f"{USERS}/cgroup.controllers": "memory pids\n"})

    assert manager is not None
    assert manager.controllers == ("memory", "pids")


@pytest.mark.parametrize("without", ["/run/systemd/system", "/run/user/1000/bus"])
def test_nobody_to_ask(without: str) -> None:
    """Another init, or no bus of the user's."""
    assert find(without=without) is None


def test_version_1_trees_have_no_limits_to_ask_for() -> None:
    """The version 2 tree beside them has no controllers."""
    assert find(files={f"{USERS}/cgroup.controllers": "\n"}) is None


def test_a_container_that_sees_a_part_of_the_tree() -> None:
    """The paths would be those of another machine."""
    assert find(root="/docker/abc") is None


def test_what_is_asked() -> None:
    """A delegated scope in the user's slice, around this process, with the limits; no secret."""
    scope = new_scope(MANAGER, "sandbox-x", ("memory", "cpu", "pids"), ASKED)
    words = busctl_call(scope, 4711)

    assert words[:2] == ["busctl", "--address=unix:path=/run/user/1000/bus"]
    tail = words[words.index("StartTransientUnit") + 1 :]
    assert tail[:3] == ["ssa(sv)a(sa(sv))", scope.name, "fail"]
    assert scope.name.startswith("sandbox-x-")
    assert scope.name.endswith(".scope")
    triples = [
        *(("PIDs", "au", "1 4711"),),
        *(("Description", "s", "A Jupyter sandbox"), ("Slice", "s", "app.slice")),
        *(("Delegate", "b", "true"), ("CollectMode", "s", "inactive-or-failed")),
        *(("MemoryMax", "t", str(1 << 30)), ("MemorySwapMax", "t", "0")),
        *(("CPUQuotaPerSecUSec", "t", "1500000"), ("TasksMax", "t", "64")),
    ]
    assert tail[3] == str(len(triples))
    assert " ".join(tail[4:]) == " ".join([*(" ".join(each) for each in triples), "0"])


def test_a_group_of_systemds_is_not_ours_to_make_or_remove() -> None:
    """It comes with its first process and goes with its last."""
    place = cgroups.Place(version=2, parents={"memory": MANAGER.folder}, manager=MANAGER)

    group, holding = cgroups.create(place, "sandbox-x", ASKED)

    assert group.folders == []
    assert group.scope is not None
    assert group.events == f"{group.scope.folder}/memory.events"
    assert holding == {"memory"}


def fake_busctl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "busctl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_refusal_is_told_in_systemds_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is an error like the kernel's."""
    fake_busctl(tmp_path, monkeypatch, "echo 'Call failed: Access denied' >&2; exit 1")
    scope = new_scope(MANAGER, "sandbox-x", (), ASKED)

    with pytest.raises(OSError, match="Access denied"):
        enter_scope(scope, 4711, read=lambda _: "")


def test_a_missing_program_is_no_accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without busctl nobody can be asked."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(FileNotFoundError):
        enter_scope(new_scope(MANAGER, "x", (), ASKED), 4711, read=lambda _: "")


@pytest.mark.parametrize(("held", "fails"), [("max\n", True), ("", True), ("1073741824\n", False)])
def test_a_limit_that_was_not_set_is_noticed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held: str,
    fails: bool,  # noqa: FBT001
) -> None:
    """A manager without the controller takes the property and does nothing."""
    fake_busctl(tmp_path, monkeypatch, "exit 0")
    scope = new_scope(MANAGER, "sandbox-x", ("memory",), ASKED)
    files = {
        "/proc/4711/cgroup": f"4:misc:/\n0::{MANAGER.path}/{scope.name}\n",
        f"{scope.folder}/memory.max": held,
    }

    if fails:
        with pytest.raises(OSError, match=r"memory\.max"):
            enter_scope(scope, 4711, read=lambda path: files.get(path, ""))
    else:
        enter_scope(scope, 4711, read=lambda path: files.get(path, ""))


@pytest.mark.parametrize("looks_until_moved", [1, 5, None])
def test_a_scope_is_entered_when_the_kernel_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks_until_moved: int | None
) -> None:
    """systemd answers that it will; what never happens is an error."""
    fake_busctl(tmp_path, monkeypatch, "exit 0")
    monkeypatch.setattr(systemd_module, "_PATIENCE", 0.2)
    scope = new_scope(MANAGER, "sandbox-x", (), ASKED)
    looks = 0

    def read(path: str) -> str:
        nonlocal looks
        assert path == "/proc/4711/cgroup"
        looks += 1
        is_moved = looks_until_moved is not None and looks >= looks_until_moved
        return f"0::{MANAGER.path}/{scope.name}\n" if is_moved else "0::/session-3.scope\n"

    if looks_until_moved is None:
        with pytest.raises(TimeoutError):
            enter_scope(scope, 4711, read=read)
    else:
        enter_scope(scope, 4711, read=read)
        assert looks == looks_until_moved


# --- a real manager ----------------------------------------------------------------------------

# Root makes a place that looks like a machine booted with systemd, in a mount namespace of its own,
# and hands a group to the user, who runs a bus, a manager, and our code.
_STAGE = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/home
cp /etc/passwd /run/passwd
echo "sandboxtest:x:$USER_ID:$USER_ID::/run/home:/bin/sh" >> /run/passwd
mount --bind /run/passwd /etc/passwd
chown $USER_ID /run/home
for each in $GROUPS_MADE; do chown -R $USER_ID $each; echo $$ > $each/cgroup.procs; done
export XDG_RUNTIME_DIR=/run/home HOME=/run/home
exec setpriv --reuid $USER_ID --regid $USER_ID --clear-groups "$@"
"""
_USER = """
import json, os, subprocess, sys, time
from pathlib import Path
from sandbox_kernel.engines import systemd
from sandbox_kernel.engines.base import Limits
home = os.environ["XDG_RUNTIME_DIR"]
bus = f"unix:path={home}/bus"
quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
daemon = subprocess.Popen(["dbus-daemon", "--session", f"--address={bus}", "--nofork",
                           "--nopidfile", "--nosyslog"], **quiet)
manager = None
try:
    deadline = time.monotonic() + 15
    while not os.path.exists(f"{home}/bus") and time.monotonic() < deadline:
        time.sleep(0.01)
    manager = subprocess.Popen([sys.argv[1], "--user", "--unit=basic.target"], **quiet)
    while time.monotonic() < deadline and subprocess.run(
        ["busctl", f"--address={bus}", "status", "org.freedesktop.systemd1"], **quiet
    ).returncode:
        time.sleep(0.05)
    path = f"/{sys.argv[2]}/app.slice"
    place = systemd.Manager(bus=bus, slice_name="app.slice", folder=path, path=path, controllers=())
    inside = subprocess.Popen(["sleep", "60"], **quiet)
    asked = Limits(memory_bytes=1 << 28, cpus=1.5, processes=64)
    scope = systemd.new_scope(place, "sandbox-x", ("memory", "cpu", "pids"), asked)
    # A manager below version 1 trees takes the limits and cannot set them: only look at the move.
    scope = systemd.Scope(manager=place, name=scope.name, properties=scope.properties, files=())
    read = lambda path: Path(path).read_text()
    systemd.enter_scope(scope, inside.pid, read=read)
    shown = subprocess.run(
        ["busctl", f"--address={bus}", "get-property", "org.freedesktop.systemd1",
         "/org/freedesktop/systemd1/unit/" + scope.name.replace("-", "_2d").replace(".", "_2e"),
         "org.freedesktop.systemd1.Scope", "MemoryMax", "MemorySwapMax", "CPUQuotaPerSecUSec",
         "TasksMax", "OOMPolicy", "Delegate"], capture_output=True, text=True)
    print(json.dumps({"group": read(f"/proc/{inside.pid}/cgroup"), "name": scope.name,
                      "shown": shown.stdout.split("\\n"), "said": shown.stderr}), flush=True)
    inside.kill()
    inside.wait()
finally:
    for each in (manager, daemon):
        if each is not None:
            each.kill()
            each.wait()
"""


def test_a_real_manager_makes_the_scope(user: HostUser) -> None:
    """It takes every property, moves the process, and would not stop it all for one OOM kill."""
    systemd = shutil.which("systemd", path="/usr/lib/systemd:/lib/systemd")
    lacking = [each for each in ("busctl", "dbus-daemon", "setpriv") if not shutil.which(each)]
    if systemd is None or lacking:
        pytest.skip(f"not installed: {', '.join([*lacking, *([] if systemd else ['systemd'])])}")
    if not user.is_switched:
        pytest.skip("only root can make the place; the ordinary user's turn is the test")
    name = f"sandbox-test-{os.getpid()}"
    trees = [Path(each) for each in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")]
    if not trees[0].exists():
        trees = [Path("/sys/fs/cgroup")]
    groups = [each / name for each in trees if os.access(each / "cgroup.procs", os.W_OK)]
    if not groups:
        pytest.skip("no control group can be written here")
    for each in groups:
        each.mkdir()
    try:
        done = subprocess.run(
            [
                *("unshare", "--mount", "--propagation", "private", "sh", "-c", _STAGE, "stage"),
                *(user.interpreter, "-c", _USER, systemd, name),
            ],
            env=user.environment()
            | {"USER_ID": str(user.uid), "GROUPS_MADE": " ".join(map(str, groups))},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        for each in groups:
            cgroups.kill(str(path) for path in each.rglob("*") if path.is_dir())
            cgroups.kill([str(each)])
            for path in sorted(each.rglob("*"), reverse=True):
                if path.is_dir():
                    cgroups.remove([str(path)])
            cgroups.remove([str(each)])

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert f"0::/{name}/app.slice/{told['name']}" in told["group"].splitlines()
    assert told["shown"][:6] == [
        *("t 268435456", "t 0", "t 1500000", "t 64", 's "continue"', "b true"),
    ], told["said"]
