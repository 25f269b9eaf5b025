"""What the manager makes of an engine whose daemon has a life of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
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
from tests.support.docker import BARE, client, docker_engine, need_docker, ours
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

_DISK = 700 << 20


class Daemon:
    """A second daemon on a small disk, which may be stopped, started and filled up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [
                    # A daemon without a bridge removes that of every other: it gets a network of its own.
                    *("unshare", "--net"),
                    *("dockerd", "--host", self.host, "--data-root", str(self.folder / "data")),
                    *("--exec-root", str(self.folder / "exec")),
                    *("--pidfile", str(self.folder / "pid"), "--bridge", "none"),
                    *("--iptables=false", "--config-file", str(self.folder / "daemon.json")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(
            lambda: DockerEngine(host=self.host, image="none").probe().cause[:11] == "there is no",
            "no daemon",
        )

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None


@pytest.fixture
def own_daemon() -> Iterator[Daemon]:
    need_docker()
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("only root can start a daemon")
    folder = Path(tempfile.mkdtemp(prefix="dockerd-", dir="/run"))
    (folder / "daemon.json").write_text("{}")
    (folder / "data").mkdir()
    disk = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "none", str(folder / "data")]
    subprocess.run(disk, check=True)
    daemon = Daemon(folder)
    try:
        daemon.start()
        with client() as theirs, contextlib.closing(_client_of(daemon)) as its:
            its.load_image(theirs.get_image(BARE))
        yield daemon
    finally:
        daemon.stop()
        subprocess.run(["umount", "-R", str(folder / "data")], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _client_of(daemon: Daemon):
    from sandbox_kernel.engines import docker_daemon

    return docker_daemon.connect(daemon.host)


def test_a_daemon_that_restarts_and_a_disk_that_fills(own_daemon: Daemon, data: Path) -> None:
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
            open(own_daemon.folder / "data" / "filler", "wb") as filler,
            contextlib.suppress(OSError),
        ):
            while True:
                filler.write(bytes(1 << 20))
        with pytest.raises(StorageFullError):
            manager.ensure("another")
        assert manager.lookup("another") is None
        (own_daemon.folder / "data" / "filler").unlink()
        assert said(manager, "another", "echo well") == "well"
        for name in ("box", "another"):
            manager.destroy(name)
    with contextlib.closing(_client_of(own_daemon)) as its:
        assert ours(its) == []
