"""Control groups of version 2: where the kernel's rules leave room for a sandbox, and where not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandbox_kernel.engines import cgroups
from sandbox_kernel.engines.base import Limits
from sandbox_kernel.engines.cgroups import Place, find_place
from tests.support.fake_cgroups import FakeTree

ASKED = Limits(memory_bytes=1 << 30, cpus=1.5, processes=64)
ALL = ("memory", "cpu", "pids")
US = "4711"


class Machine:
    """A fake tree, and what our code does in it."""

    def __init__(self, point: Path) -> None:
        self.tree = FakeTree(point)
        self.point = point

    def find(self, own: str, root: str = "/") -> Place | None:
        return find_place(
            ALL,
            f"0::{own}\n",
            f"29 23 0:26 {root} {self.point} rw,nosuid - cgroup2 cgroup2 rw\n",
            read=lambda path: Path(path).read_text() if os.path.exists(path) else "",
            may_write=self.tree.may_write,
        )

    def start_in(self, place: Place) -> tuple[dict[str, str], set[str]]:
        """Do what a start does; returns the files of the group, and what holds."""
        group, holding = cgroups.create(place, "sandbox-x", ASKED)
        cgroups.enter(group, int(US))
        (folder,) = map(Path, group.folders)
        return {each.name: each.read_text() for each in folder.iterdir()}, holding


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    fake = Machine(tmp_path / "cgroup")
    monkeypatch.setattr(os, "mkdir", fake.tree.mkdir)
    monkeypatch.setattr(cgroups, "_write", fake.tree.write)
    return fake


def test_a_service_with_a_delegated_subgroup(machine: Machine) -> None:
    """DelegateSubgroup= puts us below; the group above is ours and empty, and hands down then."""
    service = machine.tree.add("system.slice/jupyter.service", ours=True)
    (service / "cgroup.controllers").write_text("cpu memory pids")
    machine.tree.add("system.slice/jupyter.service/main", procs=US, ours=True)

    place = machine.find("/system.slice/jupyter.service/main")

    assert place == Place(version=2, parents=dict.fromkeys(ALL, str(service)), to_enable=ALL)
    files, holding = machine.start_in(place)
    assert holding == set(ALL)
    assert files["memory.max"] == str(1 << 30)
    assert files["memory.swap.max"] == "0"
    assert files["cpu.max"] == "150000 100000"
    assert files["pids.max"] == "64"
    assert files["cgroup.procs"] == f"{US}\n"


def test_a_delegated_service_that_we_are_in_ourselves(machine: Machine) -> None:
    """Delegate=yes alone: no group with processes hands down, and above it nothing is ours."""
    service = machine.tree.add("system.slice/jupyter.service", procs=US, ours=True)
    (service / "cgroup.controllers").write_text("cpu memory pids")

    assert machine.find("/system.slice/jupyter.service") is None


def test_a_group_above_that_holds_others(machine: Machine) -> None:
    """What it hands down already can be had; what it does not cannot be switched on."""
    slice_ = machine.tree.add("box", hands_down="pids", ours=True)
    (slice_ / "cgroup.controllers").write_text("cpu memory pids")
    (slice_ / "cgroup.procs").write_text("12\n")  # from before; the kernel lets it be
    machine.tree.add("box/us", procs=US, ours=True)

    assert machine.find("/box/us") == Place(version=2, parents={"pids": str(slice_)})


def test_a_login_session(machine: Machine) -> None:
    """Its scope and all above it belong to root; the user's own manager's part lies beside."""
    machine.tree.add("user.slice/user-1000.slice", hands_down="cpu memory pids")
    machine.tree.add("user.slice/user-1000.slice/user@1000.service", ours=True)
    machine.tree.add("user.slice/user-1000.slice/session-3.scope", procs=US)

    assert machine.find("/user.slice/user-1000.slice/session-3.scope") is None


def test_moving_out_of_a_session_needs_more_than_a_group_of_ones_own(machine: Machine) -> None:
    """Why a login session takes systemd: the common ancestor is root's."""
    session = machine.tree.add("user-1000.slice/session-3.scope", procs=US)
    theirs = machine.tree.add("user-1000.slice/user@1000.service", hands_down="memory", ours=True)
    place = Place(version=2, parents={"memory": str(theirs)})

    group, _ = cgroups.create(place, "sandbox-x", ASKED)

    with pytest.raises(PermissionError):
        cgroups.enter(group, int(US))
    assert (session / "cgroup.procs").read_text() == f"{US}\n"


@pytest.mark.parametrize("kind", ["threaded", "domain threaded", "domain invalid"])
def test_threaded_groups_are_passed_over(machine: Machine, kind: str) -> None:
    """Below one there are threads, no processes, and no memory controller."""
    outer = machine.tree.add("outer", hands_down="memory pids", ours=True)
    machine.tree.add("outer/inner", hands_down="pids", ours=True, kind=kind)
    machine.tree.add("outer/inner/us", procs=US, ours=True)

    found = machine.find("/outer/inner/us")

    assert found is not None
    assert set(found.parents.values()) == {str(outer)}


def test_the_root_of_the_machine(machine: Machine) -> None:
    """It alone may hand down although it holds processes: root, with no service manager."""
    machine.tree.ours.add(str(machine.point))
    (machine.point / "cgroup.procs").write_text(f"1\n{US}\n")

    place = machine.find("/")

    assert place is not None
    assert machine.start_in(place)[1] == set(ALL)


def test_the_top_of_a_container(machine: Machine) -> None:
    """It looks like the root, but its type tells: it holds us, and hands nothing down."""
    machine.tree.ours.add(str(machine.point))
    (machine.point / "cgroup.type").write_text("domain\n")
    (machine.point / "cgroup.procs").write_text(f"{US}\n")

    assert machine.find("/") is None


def test_a_container_with_its_processes_in_a_group(machine: Machine) -> None:
    """As images that run a service manager or Docker make it: the top is empty, and can be used."""
    machine.tree.ours.add(str(machine.point))
    (machine.point / "cgroup.type").write_text("domain\n")
    machine.tree.add("init", procs=US, ours=True)

    place = machine.find("/init")

    assert place is not None
    assert machine.start_in(place)[1] == set(ALL)


def test_a_read_only_tree(machine: Machine) -> None:
    """As in an ordinary container."""
    machine.tree.add("init", procs=US)

    assert machine.find("/init") is None


def test_a_group_above_our_namespace(machine: Machine) -> None:
    """Its path climbs out of what is mounted."""
    assert machine.find("/../elsewhere") is None


def test_a_tree_mounted_in_part(machine: Machine) -> None:
    """A container that keeps the machine's namespace sees its own group's part."""
    machine.tree.add("us", procs=US, ours=True)
    machine.tree.ours.add(str(machine.point))
    (machine.point / "cgroup.type").write_text("domain\n")

    found = machine.find("/docker/abc/us", root="/docker/abc")

    assert found is not None
    assert set(found.parents.values()) == {str(machine.point)}


def test_a_controller_that_cannot_be_switched_on_does_not_hold(machine: Machine) -> None:
    """Between looking and doing somebody else has put a process there."""
    box = machine.tree.add("box", ours=True)
    (box / "cgroup.controllers").write_text("cpu memory pids")
    machine.tree.add("box/us", procs=US, ours=True)
    place = machine.find("/box/us")
    assert place is not None
    (box / "cgroup.procs").write_text("12\n")

    group, holding = cgroups.create(place, "sandbox-x", ASKED)

    assert holding == set()
    assert group.events is None


# --- the kernel's own tree ---------------------------------------------------------------------


def _real_tree() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4])
        if after.startswith("cgroup2 ") and os.access(point / "cgroup.procs", os.W_OK):
            return point
    return None


def test_processes_in_a_real_group_of_version_2() -> None:
    """Made, entered by a process and its children, killed as a whole, and removed."""
    tree = _real_tree()
    if tree is None:
        pytest.skip("no cgroup2 tree can be written here; the fake tree stands in")
    folder = tree / f"sandbox-test-{os.getpid()}"
    folder.mkdir()
    group = cgroups.Group(version=2, folders=[str(folder)], events=None)
    command = ["sh", "-c", "read go; sleep 60 & echo; sleep 60"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as inside:
        try:
            assert inside.stdin is not None
            assert inside.stdout is not None
            cgroups.enter(group, inside.pid)
            assert (folder / "cgroup.procs").read_text() == f"{inside.pid}\n"
            with pytest.raises(ProcessLookupError):
                cgroups.enter(group, 2**22 + 1)
            inside.stdin.write(b"go\n")
            assert inside.stdout.read(1) == b"\n"
            assert len((folder / "cgroup.procs").read_text().split()) > 1

            cgroups.kill(group.folders)

            assert inside.wait(10) == -9
        finally:
            inside.kill()
            cgroups.remove(group.folders)
    assert not folder.exists()
