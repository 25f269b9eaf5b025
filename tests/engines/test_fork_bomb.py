"""What becomes of a program that multiplies, in a sandbox with few processes allowed."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox_kernel.engines.base import USUAL_PROCESSES
from sandbox_kernel.errors import ProcessSpawnFailedError, SessionTerminatedError
from tests.support.host_user import HostSandbox, HostUser

LIMIT = 64

# Multiplies to 512 processes at most, all of which end by themselves after 30 s: should the limit
# not hold, the machine is in no danger.
BOMB = """
import errno, os, signal
signal.alarm(30)
for _ in range(9):
    try:
        if os.fork() == 0:
            signal.alarm(30)
    except OSError as error:
        os.write(1, errno.errorcode[error.errno].encode() + b"\\n")
signal.pause()
"""


def descendants(pid: int) -> set[int]:
    """All living processes below one, and itself."""
    parents = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(each.name)] = int(fields[1])
    found, more = set[int](), {pid} & parents.keys()
    while more:
        found |= more
        more = {child for child, parent in parents.items() if parent in found} - found
    return found


def until_it_grows_no_more(box: HostSandbox) -> int:
    """Return how many processes there are once a fork bomb has done what it can."""
    seen: list[int] = []
    deadline = time.monotonic() + 20
    while len(seen) < 6 or seen[-1] < 10 or len(set(seen[-5:])) > 1:
        assert time.monotonic() < deadline, seen
        seen.append(len(descendants(box.pid)))
        time.sleep(0.05)
    return seen[-1]


def test_a_fork_bomb_holds_up_nothing_but_its_sandbox(user: HostUser) -> None:
    """It gets EAGAIN; the runtime answers, the host starts programs, and stop ends all of it."""
    with user.start("bomb", limits={"processes": LIMIT}) as box:
        assert box.told["limits"]["processes"] == "hard"
        with box.client() as client, box.client() as other:
            bomb = client.begin("exec", argv=["python3", "-c", BOMB])
            said = client.event_of(bomb)
            count = until_it_grows_no_more(box)

            assert b"EAGAIN" in bytes(said.body)
            assert 10 < count <= LIMIT
            assert other.call("runtime.health") is not None
            with pytest.raises(ProcessSpawnFailedError):
                other.run("true")
            subprocess.run(["true"], check=True)
            everybody = descendants(box.pid)
    assert not any(descendants(each) for each in everybody)


def test_a_fork_bomb_in_a_session_ends_at_its_time_limit(user: HostUser) -> None:
    """However fast it multiplies: killed one by one, its members would start others meanwhile."""
    with user.start("session-bomb", limits={"processes": 800}) as box, box.client() as client:
        assert box.told["limits"]["processes"] == "hard"
        # It ends by itself after 60 s: see above.
        bomb = "sleep 60 & b() { kill -0 $! && { b | b & b; }; }; b"
        _, end = client.call("exec", command=bomb, session="default", timeout=2.0)
        assert end.timed_out or end.reason == "timeout"

        deadline = time.monotonic() + 10
        while len(descendants(box.pid)) > 20:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # On a busy machine the shell itself may have come back too late.
        with suppress(SessionTerminatedError):
            client.call("exec", command="/bin/true", session="default", timeout=5.0)
        _, end = client.call("exec", command="/bin/true", session="default", timeout=5.0)
        assert end.exit_code == 0


def test_without_being_asked_a_sandbox_has_a_bound(box: HostSandbox) -> None:
    """As root by a control group, as an ordinary user by a limit that the runtime sets."""
    assert box.told["limits"]["processes"] == "hard"
    for folder in box.told["data"]["cgroups"]:
        assert str(box.pid) in (Path(folder) / "cgroup.procs").read_text().split()
    if not box.told["data"]["cgroups"]:
        hard = box.python("import resource; print(resource.getrlimit(resource.RLIMIT_NPROC)[1])")
        assert hard == str(USUAL_PROCESSES)


def test_no_bound_by_setting(user: HostUser) -> None:
    """None is for those who want none."""
    with user.start("unbound", limits={"processes": None}) as box:
        assert box.told["limits"]["processes"] == "absent"
        assert box.told["data"]["cgroups"] == []
