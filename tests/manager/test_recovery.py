from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.wire.operations import Empty
from tests.support.managed import plain_settings
from tests.support.plain_engine import processes_of

REPOSITORY = Path(__file__).resolve().parents[2]

# A program that does one verb and kills itself, as SIGKILL would, at one point of it.
VICTIM = """
import os, signal, sys
from pathlib import Path
from sandbox_kernel.manager import manager as module
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.registry import Registry
from tests.support.managed import plain_settings
from tests.support.plain_engine import REFERENCE, PlainEngine

data_dir, verb, point = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def dies_after(function):
    def wrapped(*args, **kwargs):
        function(*args, **kwargs)
        die()
    return wrapped

class Engine(PlainEngine):
    if point == "before the engine starts":
        start = die
    if point == "after the engine has started":
        start = dies_after(PlainEngine.start)
    if point == "while the engine starts":
        _config = die
    if point == "before the engine stops":
        stop = die
    if point == "after the engine has stopped":
        stop = dies_after(PlainEngine.stop)

if point == "after the id is free":
    Registry.remove = dies_after(Registry.remove)
if point == "before the id is free":
    Registry.remove = die
if point == "before files go":
    module.remove_tree = die
if point == "after files went":
    module.remove_tree = dies_after(module.remove_tree)

manager = Manager(plain_settings(data_dir), engines={REFERENCE: Engine()})
getattr(manager, verb)("a")
print("lived")
"""


def crash(data_dir: Path, verb: str, point: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, str(data_dir), verb, point],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)


def incarnation(running) -> str:
    return call_once(running.endpoint, "runtime.health", Empty(), timeout=10.0).incarnation


def leftovers(data_dir: Path) -> set[str]:
    return {each.name for each in (data_dir / "sandboxes").iterdir()}


STARTS = ["before the engine starts", "while the engine starts", "after the engine has started"]


@pytest.mark.parametrize("point", STARTS)
@pytest.mark.parametrize("known", [False, True])
def test_a_starter_that_is_killed(manager, data_dir, point, known):
    """Wherever it died: the next call starts one sandbox, with its files, and no orphan lives."""
    if known:
        first = manager.ensure("a")
        (first.layout.workspace / "kept").write_text("x")
        manager.stop("a")
    crash(data_dir, "ensure", point)
    assert manager.lookup("a").state == "stopped"

    running = manager.ensure("a")

    assert running.started
    assert len(incarnation(running)) == 16
    if known:
        assert (running.layout.workspace / "kept").read_text() == "x"
    manager.stop("a")
    assert processes_of(running.lifetime) == []
    assert leftovers(data_dir) == {running.lifetime}


@pytest.mark.parametrize("point", STARTS)
def test_what_a_killed_starter_left_can_be_destroyed(manager, data_dir, point):
    """destroy ends an orphan that no record names."""
    crash(data_dir, "ensure", point)
    lifetime = manager.lookup("a").lifetime

    manager.destroy("a")

    assert processes_of(lifetime) == []
    assert leftovers(data_dir) == set()
    assert manager.list() == []


@pytest.mark.parametrize("point", STARTS)
def test_gc_ends_what_a_killed_starter_left(manager, data_dir, point):
    """Without anybody asking for the id again, gc finds the orphan."""
    crash(data_dir, "ensure", point)

    manager.gc()

    info = manager.lookup("a")
    assert info.state == "stopped"
    assert processes_of(info.lifetime) == []


@pytest.mark.parametrize("point", ["before the engine stops", "after the engine has stopped"])
@pytest.mark.parametrize("verb", ["stop", "destroy"])
def test_a_stopper_that_is_killed(manager, data_dir, verb, point):
    """A stop is finished by the next start; a destroy too, and then the lifetime is another."""
    first = manager.ensure("a")
    (first.layout.workspace / "kept").write_text("x")
    crash(data_dir, verb, point)

    running = manager.ensure("a")

    assert running.started
    assert (running.lifetime == first.lifetime) == (verb == "stop")
    assert (running.layout.workspace / "kept").exists() == (verb == "stop")
    assert len(incarnation(running)) == 16
    manager.gc()
    assert leftovers(data_dir) == {running.lifetime}


@pytest.mark.parametrize(
    "point",
    ["before the id is free", "after the id is free", "before files go", "after files went"],
)
def test_a_destroy_that_is_killed_is_finished_by_gc(manager, data_dir, point):
    """Nothing of a destroyed sandbox stays on the disk for ever."""
    first = manager.ensure("a")
    crash(data_dir, "destroy", point)
    assert manager.lookup("a") is None

    manager.gc()

    assert manager.list() == []
    assert leftovers(data_dir) == set()
    assert list((data_dir / "locks").iterdir()) == []
    assert processes_of(first.lifetime) == []
    assert manager.ensure("a").lifetime != first.lifetime
    manager.gc()
    assert [each.name for each in (data_dir / "locks").iterdir()] == ["a.lock"]


@pytest.mark.parametrize("removed", ["nothing", "run", "root", "socket", "lock"])
def test_removed_behind_our_back(manager, removed):
    """Killed, and its folder gone or half gone: the list is right and the next call starts."""
    first = manager.ensure("a")
    os.kill(first.instance.data["pid"], signal.SIGKILL)
    if removed == "root":
        shutil.rmtree(first.layout.root)
    elif removed == "run":
        shutil.rmtree(first.layout.run)
    elif removed == "socket":
        first.layout.socket.unlink()
    elif removed == "lock":
        first.layout.lock.unlink()
    wait_for_death(first)

    assert [info.state for info in manager.list()] == ["stopped"]
    second = manager.ensure("a")
    assert second.started
    assert len(incarnation(second)) == 16


@pytest.mark.parametrize("verb", ["stop", "destroy"])
def test_ending_what_is_gone_is_no_error(manager, verb):
    """stop and destroy of a sandbox that was removed behind our back just tidy up."""
    first = manager.ensure("a")
    os.kill(first.instance.data["pid"], signal.SIGKILL)
    shutil.rmtree(first.layout.root)

    getattr(manager, verb)("a")

    assert processes_of(first.lifetime) == []


def test_a_folder_removed_under_a_living_runtime(manager):
    """The runtime that lost its folder is ended, and a new one takes its place."""
    first = manager.ensure("a")
    shutil.rmtree(first.layout.root)
    assert manager.lookup("a").state == "stopped"

    second = manager.ensure("a")

    assert second.started
    assert second.instance.data["pid"] != first.instance.data["pid"]
    assert first.instance.data["pid"] not in processes_of(first.lifetime)


def test_the_whole_data_folder_removed_while_we_run(manager, data_dir):
    """A manager notices that its registry is another file, and goes on with an empty one."""
    manager.ensure("a")
    manager.stop("a")
    shutil.rmtree(data_dir)

    assert manager.list() == []
    assert manager.ensure("a").started
    other = Manager(plain_settings(data_dir))
    assert [info.sandbox_id for info in other.list()] == ["a"]
    other.close()


@pytest.mark.parametrize("content", ["{unrelated}", "1", "0", "-1", "", "abc", "x" * (1 << 20)])
def test_stale_files_with_any_content_do_not_matter(manager, content):
    """Numbers in files are never believed; an unrelated process of that number lives on."""
    first = manager.ensure("a")
    manager.stop("a")
    with contextlib.ExitStack() as stack:
        unrelated = stack.enter_context(subprocess.Popen(["sleep", "9999"]))
        stack.callback(unrelated.kill)
        text = content.replace("{unrelated}", str(unrelated.pid))
        for name in ("alive.lock", "plain.json", "runtime.pid"):
            (first.layout.run / name).write_text(text)
        with socket.socket(socket.AF_UNIX) as dead:
            bind(dead, first.layout.socket)

            running = manager.ensure("a")

        assert len(incarnation(running)) == 16
        assert unrelated.poll() is None


def test_a_foreign_listener_on_the_socket_is_replaced(manager):
    """Somebody else's socket at our path is not talked to."""
    first = manager.ensure("a")
    manager.stop("a")
    with socket.socket(socket.AF_UNIX) as foreign:
        bind(foreign, first.layout.socket)
        foreign.listen()

        assert len(incarnation(manager.ensure("a"))) == 16


def test_an_old_endpoint_reaches_nobody_new(manager):
    """The address of an earlier incarnation does not open the later one."""
    first = manager.ensure("a")
    manager.stop("a")
    manager.ensure("a")

    with pytest.raises(SandboxError) as caught:
        incarnation(first)
    assert caught.value.code == "UNAUTHORIZED"


def bind(listener: socket.socket, path: Path) -> None:
    """Bind to a path that may be longer than a socket's address."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def wait_for_death(running) -> None:
    deadline = time.monotonic() + 10
    while processes_of(running.lifetime):
        assert time.monotonic() < deadline
        time.sleep(0.005)
