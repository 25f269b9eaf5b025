"""What the manager makes of an engine whose daemon has a life of its own."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.engines.base import SandboxSpec, StateLayout
from sandbox_kernel.engines.docker import DockerEngine
from sandbox_kernel.engines.docker_labels import data_label_of
from sandbox_kernel.errors import EngineUnavailableError, StorageFullError
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.docker import BARE, client, docker_engine, ours
from tests.support.own_daemon import OwnDaemon
from tests.support.plain_engine import PlainEngine
from tests.support.runtime_child import Client

DEADLINE = 30.0


def manager_of(folder: Path, engine: DockerEngine | None = None) -> Manager:
    engines = {"docker": engine or docker_engine(), "plain": PlainEngine()}
    return Manager(Settings(data_dir=folder, engine="docker"), engines=engines)


@pytest.fixture
def data() -> Iterator[Path]:
    # Short: the path of a socket has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="docker-") as folder:
        yield Path(folder, "data")


@pytest.fixture
def manager(data: Path) -> Iterator[Manager]:
    with contextlib.closing(manager_of(data)) as made:
        yield made
        for info in made.list():
            made.destroy(info.sandbox_id)
        assert made.gc() == ()


def said(manager: Manager, sandbox_id: str, script: str) -> str:
    running = manager.ensure(sandbox_id)
    with Client(running.endpoint.socket, running.endpoint.token) as connected:
        out, err, end = connected.run("sh", "-c", script)
    assert end.exit_code == 0, err
    return out.decode().strip()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_one_id_is_one_container(manager: Manager, data: Path) -> None:
    """Whoever asks, at the same time; stop keeps its files, and destroy leaves nothing."""
    others = [manager_of(data) for _ in range(3)]
    found: list[str] = []

    def ensure(one: Manager) -> None:
        found.append(str(one.ensure("shared").instance.data["container"]))

    threads = [threading.Thread(target=ensure, args=(each,)) for each in (manager, *others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in others:
        each.close()

    assert len(found) == 4
    assert len(set(found)) == 1
    said(manager, "shared", "echo kept > kept")
    manager.stop("shared", grace=1.0)
    info = manager.lookup("shared")
    assert info is not None
    assert (info.state, info.engine) == ("stopped", "docker")
    assert said(manager, "shared", "cat kept") == "kept"
    label = found[0]
    manager.destroy("shared")
    with client() as connected:
        ids = [each["Id"] for each in connected.containers(all=True)]
    assert label not in ids
    assert not info.layout.root.exists()


def test_the_engine_is_chosen_for_a_sandbox(manager: Manager) -> None:
    """And stays chosen; the settings' one is for all others."""
    manager.ensure("mine", changes={"engine": "plain"})

    again = manager.ensure("mine")

    assert again.instance.engine == "plain"
    assert again.notices == []
    asked = manager.ensure("mine", SandboxSpec(engine="docker"))
    assert any("keeps engine = plain until its next start" in each for each in asked.notices)


def test_a_registry_that_is_lost(data: Path) -> None:
    """With all folders: the volumes are found by their labels, and so is what was kept in them."""
    engine = docker_engine(storage="volume")
    with contextlib.closing(manager_of(data, engine)) as first:
        said(first, "lost", "echo kept > /workspace/kept")
    shutil.rmtree(data)

    with contextlib.closing(manager_of(data, engine)) as second:
        assert [info.sandbox_id for info in second.list()] == []
        second.ensure("other")
        assert [info.sandbox_id for info in second.list()] == ["lost", "other"]
        assert said(second, "lost", "cat /workspace/kept") == "kept"
        for name in ("lost", "other"):
            second.destroy(name)
    label = data_label_of(StateLayout(data / "sandboxes" / "any"))
    with client() as connected:
        wanted = {"label": f"jupyter-sandbox.data={label}"}
        assert connected.containers(all=True, filters=wanted) == []
        assert not connected.volumes(filters=wanted)["Volumes"]


# --- a daemon of one's own ------------------------------------------------------------------------


@pytest.fixture
def own_daemon() -> Iterator[OwnDaemon]:
    with OwnDaemon() as daemon:
        yield daemon


def test_a_daemon_that_restarts_and_a_disk_that_fills(own_daemon: OwnDaemon, data: Path) -> None:
    """Its containers end with it and are started anew; a full disk is an error of its own."""
    engine = DockerEngine(host=own_daemon.host, image=BARE)
    with contextlib.closing(manager_of(data, engine)) as manager:
        said(manager, "box", "echo kept > kept")
        own_daemon.stop()
        until(lambda: manager.find_running("box") is None, "the sandbox ends with the daemon")
        info = manager.lookup("box")
        assert info is not None
        assert info.state == "stopped"
        with pytest.raises(EngineUnavailableError, match="no daemon answers"):
            manager.ensure("box")

        own_daemon.start()
        assert said(manager, "box", "cat kept") == "kept"

        with (
            open(own_daemon.data / "filler", "wb") as filler,
            contextlib.suppress(OSError),
        ):
            while True:
                filler.write(bytes(1 << 20))
        with pytest.raises(StorageFullError):
            manager.ensure("another")
        assert manager.lookup("another") is None
        (own_daemon.data / "filler").unlink()
        assert said(manager, "another", "echo well") == "well"
        for name in ("box", "another"):
            manager.destroy(name)
    with contextlib.closing(own_daemon.client()) as its:
        assert ours(its) == []
