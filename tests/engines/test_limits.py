"""Where limits are set and how far they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_kernel.engines.base import USUAL_PROCESSES, Limits, Reached
from sandbox_kernel.engines.cgroups import (
    Place,
    create,
    find_place,
    limit_files,
    remove,
)
from sandbox_kernel.engines.limits import controllers_for, unmet, weigh_limits

ALL = Limits(memory_bytes=1 << 30, cpus=1.5, processes=64, file_bytes=1 << 20)
V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
V1 = (
    "30 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "31 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "33 23 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
SESSION = "/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.scope"


def place(
    membership: str,
    mountinfo: str,
    *,
    handed_down: dict[str, str] | None = None,
    writable: tuple[str, ...] = (),
) -> Place | None:
    return find_place(
        ("memory", "cpu", "pids"),
        membership,
        mountinfo,
        read=lambda path: (handed_down or {}).get(path, ""),
        may_write=lambda path: path.startswith(writable) if writable else False,
    )


def test_a_delegated_session_of_version_2() -> None:
    """The nearest folder above us that is ours and hands the controllers down."""
    slice_ = "/sys/fs/cgroup" + SESSION.rpartition("/")[0]

    found = place(
        f"0::{SESSION}\n",
        V2,
        handed_down={f"{slice_}/cgroup.subtree_control": "cpu memory pids\n"},
        writable=(slice_,),
    )

    assert found == Place(version=2, parents=dict.fromkeys(("memory", "cpu", "pids"), slice_))


def test_version_2_with_some_controllers() -> None:
    """What is not handed down is not promised."""
    slice_ = "/sys/fs/cgroup" + SESSION.rpartition("/")[0]

    found = place(
        f"0::{SESSION}\n",
        V2,
        handed_down={f"{slice_}/cgroup.subtree_control": "memory pids\n"},
        writable=(slice_,),
    )

    assert found is not None
    assert set(found.parents) == {"memory", "pids"}


@pytest.mark.parametrize(
    "membership",
    [
        f"0::{SESSION}\n",  # nothing delegated
        "0::/\n",  # in a container: our own group holds us, and there is none above
        "0::/../elsewhere\n",  # above our cgroup namespace
    ],
)
def test_version_2_without_delegation(membership: str) -> None:
    """Nowhere to write, nothing found."""
    assert place(membership, V2) is None


def test_version_1_below_our_own_groups() -> None:
    """Each controller by itself, inside the limits we ourselves are under."""
    found = place(
        "4:memory:/jupyter\n3:cpu,cpuacct:/\n2:pids:/\n0::/\n", V1, writable=("/sys/fs/cgroup/",)
    )

    assert found == Place(
        version=1,
        parents={
            "memory": "/sys/fs/cgroup/memory/jupyter",
            "cpu": "/sys/fs/cgroup/cpu,cpuacct",
            "pids": "/sys/fs/cgroup/pids",
        },
    )


def test_a_mount_that_shows_a_part_of_the_tree() -> None:
    """In a container the mount's root is our own group."""
    mount = "30 23 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"

    found = place("4:memory:/docker/abc/inner\n", mount, writable=("/sys/fs/cgroup",))

    assert found is not None
    assert found.parents == {"memory": "/sys/fs/cgroup/memory/inner"}


def test_nothing_is_looked_for_where_nothing_is_asked() -> None:
    """A file limit needs no group, and the number of processes only where nobody counts them."""
    only_files = Limits(file_bytes=1, processes=None)

    assert controllers_for(only_files, is_root=True, kernel="6.1") == []
    assert controllers_for(Limits(), is_root=False, kernel="6.1") == []
    assert controllers_for(Limits(), is_root=True, kernel="6.1") == ["pids"]
    assert controllers_for(Limits(), is_root=False, kernel="5.10") == ["pids"]
    assert controllers_for(ALL, is_root=False, kernel="6.1") == ["memory", "cpu"]


def test_the_usual_number_of_processes_is_no_demand() -> None:
    """It holds where it can be had; another number, and any other limit, is refused elsewhere."""
    absent = dict.fromkeys(("memory_bytes", "cpus", "processes", "file_bytes"), Reached.ABSENT)

    assert Limits().processes == USUAL_PROCESSES
    assert unmet(Limits(), absent) is None
    assert unmet(Limits(processes=None), absent) is None
    assert unmet(Limits(processes=100), absent) == "processes"
    assert unmet(Limits(memory_bytes=1), absent | {"memory_bytes": Reached.PER_PROCESS}) == (
        "memory_bytes"
    )
    assert unmet(ALL, dict.fromkeys(absent, Reached.HARD)) is None


@pytest.mark.parametrize(
    ("version", "controller", "files"),
    [
        (2, "memory", [("memory.max", "1073741824"), ("memory.swap.max?", "0")]),
        (2, "cpu", [("cpu.max", "150000 100000")]),
        (2, "pids", [("pids.max", "64")]),
        (1, "cpu", [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "150000")]),
        (1, "pids", [("pids.max", "64")]),
    ],
)
def test_what_is_written(version: int, controller: str, files: list[tuple[str, str]]) -> None:
    """In the kernel's units."""
    assert limit_files(version, controller, ALL) == files


def test_groups_make_limits_hard() -> None:
    """And nothing is left for the runtime but the size of files."""
    reached, rlimits = weigh_limits(
        ALL, {"memory", "cpu", "pids"}, is_root=True, kernel="6.1.0-18-amd64"
    )

    assert set(reached.values()) == {Reached.HARD}
    assert rlimits == {"fsize": 1 << 20}


def test_without_groups_as_an_ordinary_user() -> None:
    """Processes are counted for the sandbox's own user namespace, memory for each process."""
    reached, rlimits = weigh_limits(ALL, set(), is_root=False, kernel="6.1.0-18-amd64")

    assert reached == {
        "memory_bytes": Reached.PER_PROCESS,
        "cpus": Reached.ABSENT,
        "processes": Reached.HARD,
        "file_bytes": Reached.HARD,
    }
    assert rlimits == {"as": 1 << 30, "nproc": 64, "fsize": 1 << 20}


@pytest.mark.parametrize(("is_root", "kernel"), [(True, "6.1.0"), (False, "5.10.0-28-amd64")])
def test_processes_that_cannot_be_counted(is_root: bool, kernel: str) -> None:  # noqa: FBT001
    """Root's are not counted at all, older kernels count those outside too."""
    reached, rlimits = weigh_limits(ALL, set(), is_root=is_root, kernel=kernel)

    assert reached["processes"] is Reached.ABSENT
    assert "nproc" not in rlimits


def test_what_was_not_asked_for_is_absent() -> None:
    """And sets nothing."""
    reached, rlimits = weigh_limits(Limits(processes=None), set(), is_root=False, kernel="6.1")

    assert set(reached.values()) == {Reached.ABSENT}
    assert rlimits == {}


def test_a_group_that_cannot_be_made_holds_nothing(tmp_path: Path) -> None:
    """Neither is it an error: the limit is then weighed without it."""
    place = Place(version=2, parents={"memory": str(tmp_path / "gone")})

    group, holding = create(place, "sandbox-x", ALL)

    assert (group.folders, group.events, holding) == ([], None, set())


def test_removing_what_is_gone_is_fine(tmp_path: Path) -> None:
    """And twice as well."""
    (tmp_path / "group").mkdir()

    for _ in range(2):
        remove([str(tmp_path / "group")])

    assert list(tmp_path.iterdir()) == []
