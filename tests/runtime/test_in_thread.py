"""A runtime in a thread: it says what it does not do, and leaves the process as it is."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.transports.local_doors import close_door, connect_here, open_door
from sandbox_runtime.config import Config
from sandbox_runtime.in_thread import NoIsolationWarning, RuntimeThread
from tests.support.runtime_child import Client

TOKEN = "token-of-the-thread"
quiet = pytest.mark.filterwarnings("ignore::sandbox_runtime.in_thread.NoIsolationWarning")


def config(folder: Path, **changes: object) -> Config:
    fields = {
        "sandbox_id": "thread",
        "token": TOKEN,
        "listen": None,
        "cwd": str(folder),
        "env": {"PATH": "/usr/bin:/bin"},
        "spool_dir": str(folder),
    }
    return Config(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    runtime = RuntimeThread(config(tmp_path))
    runtime.start()
    opened = open_door("test", runtime.take)
    yield opened
    close_door(opened)
    runtime.stop(0)
    assert runtime.join(10)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def held() -> list[str]:
    found = []
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found.append(os.readlink(f"/proc/self/fd/{each}"))
    return sorted(found)


def process_state() -> dict[str, object]:
    libc = ctypes.CDLL(None)
    subreaper = ctypes.c_int()
    libc.prctl(37, ctypes.byref(subreaper), 0, 0, 0)
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    return {
        "folder": os.getcwd(),
        "dumpable": libc.prctl(3, 0, 0, 0, 0),
        "subreaper": subreaper.value,
        "wakeup": wakeup,
        "SIGCHLD": signal.getsignal(signal.SIGCHLD),
        "SIGTERM": signal.getsignal(signal.SIGTERM),
        "oom score": Path("/proc/self/oom_score_adj").read_text(),
    }


def test_it_warns_that_nothing_is_isolated(tmp_path: Path) -> None:
    """Each time: whoever means it has to say so."""
    for _ in range(2):
        with pytest.warns(NoIsolationWarning, match="'thread' isolates nothing"):
            RuntimeThread(config(tmp_path))


def test_limits_are_refused(tmp_path: Path) -> None:
    """They would be set on the whole process, and stay."""
    with pytest.raises(ValidationFailedError, match="cannot hold for a thread"):
        RuntimeThread(config(tmp_path, rlimits={"nofile": 10}))


@quiet
def test_the_process_stays_as_it_is(address: str) -> None:
    """Its folder at every moment, its signals, its memory's protection, its score."""
    before = process_state()
    folders = set()
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.is_set():
            folders.add(os.getcwd())

    watching = threading.Thread(target=watch)
    watching.start()
    with Client(address, TOKEN) as client:
        for _ in range(50):
            assert client.run("true")[2].exit_code == 0
    is_done.set()
    watching.join()

    assert process_state() == before
    assert folders == {before["folder"]}


@quiet
def test_children_of_others_are_left_to_them(address: str) -> None:
    """They keep their exit codes, and a runtime that ends kills none of them."""
    with (
        Client(address, TOKEN) as client,
        subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as short,
        subprocess.Popen(["sleep", "60"]) as long,
    ):
        wait_until(lambda: Path(f"/proc/{short.pid}/stat").read_text().split()[2] == "Z")
        client.run("true")
        client.call("runtime.shutdown", grace=0)
        client.socket.settimeout(10)
        assert client.socket.recv(1) == b""

        assert short.wait() == 7
        assert long.poll() is None
        long.kill()


@quiet
def test_little_of_what_it_held_stays(tmp_path: Path) -> None:
    """Its thread goes; of descriptors those of kept output and of its workers stay."""

    def once() -> None:
        runtime = RuntimeThread(config(tmp_path))
        runtime.start()
        opened = open_door("short", runtime.take)
        with Client(opened, TOKEN) as client:
            client.call("process.start", argv=["sleep", "60"])
            client.run("sh", "-c", "yes | head -c 3000000")
            client.call("file.write", path="f", data=b"x")
        runtime.stop(0)
        assert runtime.join(10)
        close_door(opened)
        with pytest.raises(OSError, match="not in this one"):
            Client(opened, TOKEN)

    others = set(threading.enumerate())
    once()
    before = held()
    for _ in range(3):
        once()

    assert len(held()) <= len(before) + 3 * 4
    left = set(threading.enumerate()) - others
    assert not [each for each in left if each.name.startswith("runtime of")]


@quiet
def test_a_client_that_comes_too_late_is_hung_up_on(tmp_path: Path) -> None:
    """As by any runtime that has ended."""
    runtime = RuntimeThread(config(tmp_path))
    runtime.start()
    opened = open_door("late", runtime.take)
    runtime.cut()
    assert runtime.join(10)

    with connect_here(opened) as client:
        assert client.recv(1) == b""
    close_door(opened)
