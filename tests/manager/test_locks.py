from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from sandbox_kernel.errors import SandboxBusyError, StorageError
from sandbox_kernel.manager import locks


def test_a_second_holder_waits_and_gives_up_in_time(tmp_path):
    """While one thread holds the lock another gets the typed error after its time."""
    with (
        locks.hold(tmp_path, "a", timeout=0.0),
        pytest.raises(SandboxBusyError),
        locks.hold(tmp_path, "a", timeout=0.05),
    ):
        pass


def test_other_ids_are_not_held_up(tmp_path):
    """Each id has a lock of its own."""
    with locks.hold(tmp_path, "a", timeout=0.0), locks.hold(tmp_path, "b", timeout=0.0):
        pass


def test_only_one_thread_at_a_time(tmp_path):
    """Threads of one process exclude each other."""
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        for _ in range(20):
            with locks.hold(tmp_path, "a", timeout=30.0):
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == 1


def test_the_death_of_a_holder_frees_the_lock(tmp_path):
    """A holder that is killed leaves no stale lock."""
    code = (
        "import sys, pathlib\n"
        "from sandbox_kernel.manager import locks\n"
        "with locks.hold(pathlib.Path(sys.argv[1]), 'a', timeout=0.0):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with (
            pytest.raises(SandboxBusyError),
            locks.hold(tmp_path, "a", timeout=0.0),
        ):
            pass
        os.kill(child.pid, signal.SIGKILL)
        child.wait()

        with locks.hold(tmp_path, "a", timeout=5.0):
            pass


def test_a_lock_whose_file_was_forgotten_excludes_nobody_for_ever(tmp_path):
    """Who waited on the removed file takes the new one, alone."""
    entered = []

    def wait_for_it():
        with locks.hold(tmp_path, "a", timeout=10.0):
            entered.append(os.path.exists(tmp_path / "a.lock"))

    threads = [threading.Thread(target=wait_for_it) for _ in range(4)]
    with locks.hold(tmp_path, "a", timeout=0.0) as lock:
        for thread in threads:
            thread.start()
        lock.forget_file()
    for thread in threads:
        thread.join()

    assert entered == [True] * 4


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    """A symbolic link cannot make us create or lock another file."""
    (tmp_path / "a.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StorageError), locks.hold(tmp_path, "a", timeout=0.0):
        pass
    assert not (tmp_path / "elsewhere").exists()
