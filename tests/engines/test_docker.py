"""Sandboxes on a real Docker engine, from start to stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.engines import docker_folder, docker_start
from sandbox_kernel.engines.base import (
    FolderMode,
    Instance,
    Launch,
    Limits,
    SandboxSpec,
    StateLayout,
)
from sandbox_kernel.engines.docker import DockerEngine
from sandbox_kernel.engines.docker_labels import label_of
from sandbox_kernel.engines.docker_reach import Reach
from sandbox_kernel.errors import (
    EngineStartError,
    EngineUnavailableError,
    LimitNotEnforceableError,
    NotebookFolderRefusedError,
    SandboxConfigurationError,
    UnauthorizedError,
)
from tests.support.docker import BARE, HOST, IMAGE, client, docker_engine, need_docker
from tests.support.host_user import HostUser
from tests.support.runtime_child import Client

TOKEN = "secret-token-of-the-docker-tests"
DEADLINE = 20.0
USER = 1000 if os.geteuid() == 0 else os.geteuid()


def until(condition: Callable[[], object], what: str, timeout: float = DEADLINE) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.02)


class Box:
    """One sandbox, and what is left of it."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.layout = StateLayout(root / "sandboxes" / "lifetime1")
        self.layout.root.mkdir(0o700, parents=True)
        self.engine = docker_engine(**options)
        self.label = label_of(self.layout)

    def launch(self, **spec: Any) -> Launch:
        return Launch(
            sandbox_id="box",
            lifetime="lifetime1",
            token=TOKEN,
            spec=SandboxSpec(**{"sleep_after": None, **spec}),
            layout=self.layout,
        )

    def start(self, **spec: Any) -> Instance:
        return self.engine.start(self.launch(**spec))

    def end(self) -> None:
        self.engine.stop(None, self.layout, grace=0)
        self.engine.discard(self.layout)

    def left(self) -> list[str]:
        """What the daemon has of it."""
        wanted = {"label": f"jupyter-sandbox.state={self.label}"}
        with client() as connected:
            containers = connected.containers(all=True, filters=wanted)
            volumes = connected.volumes()["Volumes"] or []
        return [each["Names"][0] for each in containers] + [
            each["Name"] for each in volumes if self.label in each["Name"]
        ]


@pytest.fixture
def make(
    tmp_path: Path, warm_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Box]]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(warm_cache))
    made: list[Box] = []

    def make_one(**options: Any) -> Box:
        made.append(Box(tmp_path / f"state{len(made)}", **options))
        return made[-1]

    yield make_one
    for each in made:
        each.end()
        assert each.left() == []


def run(instance: Instance, script: str, *, token: str = TOKEN) -> tuple[str, str, Any]:
    with Client(instance.socket, token) as connected:
        out, err, end = connected.run("sh", "-c", script)
    return out.decode(), err.decode(), end


def said(instance: Instance, script: str) -> str:
    out, err, end = run(instance, script)
    assert end.exit_code == 0, err
    return out.strip()


def a_folder(root: Path) -> Path:
    folder = root / "notebooks"
    folder.mkdir()
    (folder / "data.txt").write_text("of the host")
    os.chown(folder, USER, -1)
    os.chown(folder / "data.txt", USER, -1)
    return folder


# --- isolation ------------------------------------------------------------------------------------


def test_what_a_program_has(make: Callable[..., Box]) -> None:
    """No privilege and none to be had, an ordinary user, no network, the default system calls."""
    instance = make().start()

    status = dict(
        line.split(":\t", 1)
        for line in said(instance, "cat /proc/self/status").splitlines()
        if ":\t" in line
    )
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert said(instance, "id -u") == str(USER)
    interfaces = said(instance, "tail -n +3 /proc/net/dev | cut -d: -f1").split()
    assert interfaces == ["lo"]
    assert run(instance, "unshare --user true")[2].exit_code != 0
    assert said(instance, "cp /bin/true /tmp/true && /tmp/true && echo runs") == "runs"
    assert instance.isolation["network"] == "off"


def test_the_secret_is_nowhere(make: Callable[..., Box]) -> None:
    """Neither in what the daemon tells of the container, nor in a file or environment inside."""
    box = make()
    instance = box.start()

    with client() as connected:
        told = json.dumps(connected.inspect_container(instance.data["container"]))
        logs = connected.logs(instance.data["container"])
    assert TOKEN not in told
    assert TOKEN.encode() not in logs
    search = f"grep -rsl {TOKEN[:-1]}'[{TOKEN[-1]}]' /run /tmp /etc /opt /proc/[0-9]*/environ"
    assert run(instance, search)[0] == ""
    assert said(instance, "ls -A /run/sandbox") == ""


def test_the_door_is_the_users_own(make: Callable[..., Box]) -> None:
    """Nobody else reaches the socket, and it has no path inside."""
    box = make()
    instance = box.start()

    assert os.stat(instance.socket).st_mode & 0o777 == 0o600
    assert os.stat(box.layout.run).st_mode & 0o777 == 0o700
    assert run(instance, "find / -name runtime.sock 2>/dev/null")[0] == ""
    with Client(instance.socket, "wrong") as other, pytest.raises(UnauthorizedError):
        other.welcome()
    if os.geteuid() == 0:
        assert reach_as_nobody(instance.socket) == "PermissionError"


def reach_as_nobody(path: str) -> str:
    """Return what another user of this machine meets who connects to a socket."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.connect(path)
            os.write(into, b"connected")
        except OSError as error:
            os.write(into, type(error).__name__.encode())
        os._exit(0)
    os.close(into)
    with open(out, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


def test_a_read_only_root(make: Callable[..., Box]) -> None:
    """Workspace, home and /tmp can be written all the same."""
    instance = make(read_only=True, user="4321:4321").start()

    assert "Read-only" in run(instance, "touch /usr/mine")[1]
    for place in ("/workspace", "$HOME", "/tmp"):
        said(instance, f"touch {place}/mine")
    assert said(instance, "id -un; stat -c %u /workspace").split() == ["user", "4321"]


def test_another_runtime(make: Callable[..., Box]) -> None:
    """Any that the daemon knows; another is a typed error."""
    with client() as connected:
        known = connected.info()
        others = [each for each in known["Runtimes"] if each == "other"]
        name = others[0] if others else "io.containerd.runc.v2"  # which each daemon has
        assert name != known["DefaultRuntime"]

        instance = make(runtime=name).start()

        found = connected.inspect_container(instance.data["container"])
    assert found["HostConfig"]["Runtime"] == name
    with pytest.raises(EngineUnavailableError, match="nonsense"):
        make(runtime="nonsense").start()


# --- limits ---------------------------------------------------------------------------------------


def test_limits_hold_under_load(make: Callable[..., Box]) -> None:
    """Memory, processes, processor time and file size, as reported."""
    limits = Limits(memory_bytes=96 << 20, cpus=0.5, processes=40, file_bytes=1 << 20)
    instance = make().start(limits=limits)

    assert instance.limits == dict.fromkeys(
        ("memory_bytes", "cpus", "processes", "file_bytes"), "hard"
    )
    end = run(instance, "exec python3 -c 'bytearray(300 << 20)'")[2]
    assert (end.signal, end.reason) == (9, "memory_limit")
    forks = (
        "python3 -c '\nimport os, time\nn = 0\ntry:\n  while n < 200:\n"
        "    if os.fork() == 0: time.sleep(30); os._exit(0)\n    n += 1\n"
        "except OSError: pass\nprint(n, flush=True)\nos.killpg(0, 9)'"
    )
    assert 5 < int(run(instance, forks)[0]) < 40
    # Killed ones count until they are reaped.
    deadline = time.monotonic() + 10
    while run(instance, "(true)")[2].exit_code:
        assert time.monotonic() < deadline
    burn = (
        "python3 -c 'import time; a = time.time(); c = time.process_time()\n"
        "while time.time() < a + 1: pass\nprint(time.process_time() - c)'"
    )
    assert float(said(instance, burn)) < 0.8
    run(instance, "head -c 3000000 /dev/zero > /workspace/big")
    assert said(instance, "stat -c %s /workspace/big") == str(1 << 20)


def test_a_limit_that_does_not_hold_is_refused(
    make: Callable[..., Box], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a runtime that leaves control groups alone; unless that is accepted, and said."""
    real = docker_start.try_image
    monkeypatch.setattr(
        docker_start, "try_image", lambda *a, **k: replace(real(*a, **k), limits=[])
    )
    box = make()

    with pytest.raises(LimitNotEnforceableError):
        box.start(limits=Limits(memory_bytes=1 << 28))

    instance = box.start(limits=Limits(memory_bytes=1 << 28), accept_weaker_limits=True)
    assert instance.limits["memory_bytes"] == "absent"


# --- the notebook's folder ------------------------------------------------------------------------


def test_a_layer_over_the_notebooks_folder(make: Callable[..., Box], tmp_path: Path) -> None:
    """The host's files are read and stay as they are; changes are the sandbox's, and last."""
    folder = a_folder(tmp_path)
    box = make()
    instance = box.start(notebook_folder=folder)

    assert said(instance, "pwd; cat data.txt") == f"{folder}\nof the host"
    said(instance, "echo changed > data.txt; echo new > new.txt")
    box.engine.stop(instance, box.layout, grace=0)

    assert sorted(each.name for each in folder.iterdir()) == ["data.txt"]
    assert (folder / "data.txt").read_text() == "of the host"
    assert (box.layout.folder / "upper" / "new.txt").read_text() == "new\n"
    again = box.start(notebook_folder=folder)
    assert said(again, "cat data.txt new.txt") == "changed\nnew"
    assert again.notices == []


def test_other_ways_to_show_it(make: Callable[..., Box], tmp_path: Path) -> None:
    """Read-only, writable, and not at all."""
    folder = a_folder(tmp_path)

    read = make().start(notebook_folder=folder, folder_mode=FolderMode.READ)
    assert said(read, "cat data.txt") == "of the host"
    assert "Read-only" in run(read, "touch mine")[1]
    write = make().start(notebook_folder=folder, folder_mode=FolderMode.WRITE)
    said(write, "echo more > more.txt")
    assert (folder / "more.txt").read_text() == "more\n"
    none = make().start(notebook_folder=folder, folder_mode=FolderMode.NONE)
    assert said(none, f"pwd; ls {folder} 2>/dev/null || echo no") == "/workspace\nno"


def test_where_no_layer_is_to_be_had(make: Callable[..., Box], tmp_path: Path) -> None:
    """It is shown read-only, and the notice says where to write."""
    folder = a_folder(tmp_path).rename(tmp_path / "a,b")

    instance = make().start(notebook_folder=folder)

    assert said(instance, "cat data.txt") == "of the host"
    assert "Read-only" in run(instance, "touch mine")[1]
    assert any("Write to /workspace instead" in each for each in instance.notices)


def test_a_layer_that_the_daemon_cannot_mount(
    make: Callable[..., Box], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Falls back in the same way."""
    folder = a_folder(tmp_path)
    options = {"type": "overlay", "device": "overlay", "o": "lowerdir=/no/such/folder"}
    monkeypatch.setattr(docker_folder, "overlay_options", lambda *_, **__: options)

    instance = make().start(notebook_folder=folder)

    assert said(instance, "cat data.txt") == "of the host"
    assert any("no writable layer can be put over it" in each for each in instance.notices)


def test_a_refused_folder(make: Callable[..., Box], tmp_path: Path) -> None:
    """As on every engine: the home folder is never shown."""
    home = tmp_path / "home"
    home.mkdir()
    box = make()

    instance = box.start(notebook_folder=home)

    assert any("it is your home folder" in each for each in instance.notices)
    assert said(instance, "pwd") == "/workspace"
    with pytest.raises(NotebookFolderRefusedError):
        make().start(notebook_folder=home, folder_required=True)


# --- any image ------------------------------------------------------------------------------------


def test_an_image_that_knows_nothing_of_us(make: Callable[..., Box]) -> None:
    """Debian and its Python: the runtime is mounted, and the user has a name."""
    instance = make(image=BARE).start(env={"GIVEN": "value"})

    assert said(instance, 'echo "$(id -un) $HOME $GIVEN"') == "user /home/user value"
    assert run(instance, "echo > /opt/sandbox/mine")[2].exit_code != 0


def test_packages_are_installed_beside_the_image(make: Callable[..., Box]) -> None:
    """They are found at once, and end with the sandbox unless they are to be kept."""
    box = make()
    package = "mkdir -p $PIP_TARGET && echo 'answer = 42' > $PIP_TARGET/question.py"
    ask = "python3 -c 'import question; print(question.answer)'"
    instance = box.start(keep_packages=True)
    said(instance, package)
    assert said(instance, ask) == "42"
    box.engine.stop(instance, box.layout, grace=0)
    kept = box.start(keep_packages=False)
    assert run(kept, ask)[2].exit_code == 1


def test_images_that_cannot_be_used(make: Callable[..., Box]) -> None:
    """One that is not there, and one without Python: the mend is named."""
    with pytest.raises(EngineUnavailableError, match="no image 'no-such-image'") as missing:
        make(image="no-such-image").start()
    assert "container/build.sh" in missing.value.hint
    with pytest.raises(EngineUnavailableError, match="it has no program 'python9'") as lacking:
        make(python="python9").start()
    assert "Python 3.11 or later" in lacking.value.hint


@pytest.mark.parametrize(
    "wrong", [{"user": "somebody"}, {"door": "window"}, {"storage": "attic"}], ids=str
)
def test_settings_that_mean_nothing(make: Callable[..., Box], wrong: dict[str, str]) -> None:
    """Are named, and nothing is started."""
    with pytest.raises(SandboxConfigurationError, match=f"DockerEngine.{next(iter(wrong))}"):
        make(**wrong).start()


# --- the door by TCP ------------------------------------------------------------------------------


def test_a_door_by_tcp(make: Callable[..., Box]) -> None:
    """The sandbox itself has no network for it; the port is published on this machine only."""
    box = make(door="tcp")
    instance = box.start()

    assert instance.socket.startswith("tcp://127.0.0.1:")
    assert said(instance, "tail -n +3 /proc/net/dev | cut -d: -f1").split() == ["lo"]
    with Client(instance.socket, "wrong") as other, pytest.raises(UnauthorizedError):
        other.welcome()
    with client() as connected:
        for name in ("container", "door"):
            told = connected.inspect_container(instance.data[name])
            assert TOKEN not in json.dumps(told)
            assert TOKEN.encode() not in connected.logs(instance.data[name])
        (port,) = connected.inspect_container(instance.data["door"])["NetworkSettings"][
            "Ports"
        ].values()
    assert [each["HostIp"] for each in port] == ["127.0.0.1"]
    assert box.engine.is_alive(instance, box.layout)

    with Client(instance.socket, TOKEN) as connected:
        connected.call("runtime.shutdown", grace=0)
    until(lambda: not box.engine.is_alive(instance, box.layout), "the runtime ends")
    until(lambda: not is_running(instance.data["door"]), "its door ends with it")


def is_running(container: str) -> bool:
    with client() as connected:
        return bool(connected.inspect_container(container)["State"]["Running"])


def test_a_door_of_a_sandbox_with_a_network(make: Callable[..., Box]) -> None:
    """Its own port is published."""
    box = make(door="tcp")
    instance = box.start(network=True)

    assert instance.socket.startswith("tcp://127.0.0.1:")
    assert "eth0" in said(instance, "tail -n +3 /proc/net/dev | cut -d: -f1")
    assert run(instance, "grep -c 'secret-token' /proc/1/environ /proc/1/cmdline")[0] != "1"
    box.engine.stop(instance, box.layout, grace=0)
    assert not box.engine.is_alive(instance, box.layout)


def test_a_daemon_that_does_not_see_our_files(
    make: Callable[..., Box], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another machine: files are kept in volumes, the folder is not shown, and that is said."""
    real = docker_start.try_image
    alone = {"shares_files": False, "writes_files": False, "shares_sockets": False}
    monkeypatch.setattr(docker_start, "try_image", lambda *a, **k: replace(real(*a, **k), **alone))
    folder = a_folder(tmp_path)
    box = make(image=BARE)
    instance = box.start(notebook_folder=folder)

    assert any("does not see this machine's files" in each for each in instance.notices)
    said(instance, "echo kept > /workspace/kept; echo home > ~/home")
    box.engine.stop(instance, box.layout, grace=0)
    assert said(box.start(), "cat /workspace/kept ~/home") == "kept\nhome"
    (found,) = box.engine.found(box.layout.root.parent)
    assert (found.sandbox_id, found.lifetime) == ("box", "lifetime1")


def test_a_daemon_elsewhere_wants_an_address() -> None:
    """A door at 127.0.0.1 of another machine would be nobody's."""
    for host, is_refused in (
        ("tcp://10.0.0.5:2376", True),
        ("ssh://me@far.example", True),
        ("tcp://127.0.0.1:2375", False),
        ("unix:///run/docker.sock", False),
    ):
        reach = Reach.__new__(Reach)
        reach.host, reach.address = host, DockerEngine().settings.address
        if is_refused:
            with pytest.raises(SandboxConfigurationError, match="another machine"):
                reach._address()
        else:
            assert reach._address() == "127.0.0.1"


# --- failures -------------------------------------------------------------------------------------


def test_no_daemon(tmp_path: Path) -> None:
    """The probe and a start say the same, and how it is mended."""
    engine = DockerEngine(host=f"unix://{tmp_path}/none.sock")

    probe = engine.probe()

    assert not probe.works
    assert "no daemon answers" in probe.cause
    assert "systemctl start docker" in probe.mend


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_daemon_that_one_may_not_use() -> None:
    """The mend is its group, with a warning of what that means."""
    need_docker()
    from sandbox_kernel.engines import docker_daemon

    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            docker_daemon.connect(HOST)
        except EngineUnavailableError as error:
            os.write(into, f"{error.message} {error.hint}".encode())
        os._exit(0)
    os.close(into)
    with open(out, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)

    assert "you may not use the daemon" in text
    assert "usermod -aG docker" in text


def test_a_container_removed_by_hand(make: Callable[..., Box]) -> None:
    """Is dead at once, and the next start is none the worse."""
    box = make()
    instance = box.start()
    said(instance, "echo kept > /workspace/kept")

    with client() as connected:
        connected.remove_container(instance.data["container"], force=True)
    until(lambda: not box.engine.is_alive(instance, box.layout), "it is seen to be dead")
    again = box.start()

    assert said(again, "cat /workspace/kept") == "kept"
    with client() as connected:
        connected.kill(again.data["container"])
    box.engine.stop(again, box.layout, grace=0)


def test_a_container_that_is_stopped_by_hand(make: Callable[..., Box]) -> None:
    """The daemon's signal ends it, with its grace for programs; the same from inside does not."""
    box = make()
    instance = box.start()
    said(instance, "kill -TERM 1; kill -INT 1")
    waits = "trap 'touch asked; exit' TERM; touch ready; while :; do sleep 0.02; done"
    said(instance, f"cd /workspace; ({waits}) >/dev/null 2>&1 & until test -e ready; do :; done")

    with client() as connected:
        connected.stop(instance.data["container"], timeout=60)
        state = connected.inspect_container(instance.data["container"])["State"]

    assert (state["Status"], state["ExitCode"]) == ("exited", 0)
    assert said(box.start(), "ls /workspace/asked") == "/workspace/asked"


def test_a_foreign_container_has_the_name(make: Callable[..., Box]) -> None:
    """It is left alone, and the error names it."""
    box = make()
    name = f"jupyter-sandbox-box-{box.label}"
    with client() as connected:
        foreign = connected.create_container(BARE, ["true"], name=name)["Id"]
        try:
            with pytest.raises(EngineStartError, match="another container has the name"):
                box.start()
            assert connected.inspect_container(foreign)["Id"] == foreign
        finally:
            connected.remove_container(foreign)


CUT_SHORT = {
    "before the container": "self.client.create_container_from_config = die",
    "before its start": "self.client.start = die",
    "before the handover": "Handover.give = die",
    "after it": "Instance = die",
}


@pytest.mark.parametrize(
    ("moment", "door"),
    [*((moment, "auto") for moment in CUT_SHORT), ("before its start", "tcp"), ("after it", "tcp")],
)
def test_a_starter_that_is_killed(make: Callable[..., Box], moment: str, door: str) -> None:
    """Whenever that is: a stop finds what is left by its labels, and a start goes over it."""
    box = make(door=door)
    script = f"""
import os, sys
from pathlib import Path
from sandbox_kernel.engines import docker_folder, docker_start
from sandbox_kernel.engines.base import Launch, SandboxSpec, StateLayout
from sandbox_kernel.engines.docker import DockerEngine
from sandbox_kernel.engines.docker_handover import Handover
def die(*_, **__):
    os.kill(os.getpid(), 9)
make_plan = docker_start.Start._plan
def plan(self, *given):
    {CUT_SHORT[moment].replace("Instance =", "docker_start.Instance =")}
    return make_plan(self, *given)
docker_start.Start._plan = plan
engine = DockerEngine(host={HOST!r}, image={IMAGE!r}, door={door!r})
engine.start(Launch(sandbox_id="box", lifetime="lifetime1", token="t", spec=SandboxSpec(),
    layout=StateLayout(Path({str(box.layout.root)!r}))))
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    if moment == "after it":
        assert box.left() != []

    box.engine.stop(None, box.layout, grace=0)

    assert box.left() == []
    if moment == "before its start":
        assert said(box.start(), "echo well") == "well"


# --- an ordinary user -----------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_an_ordinary_user_of_the_machine() -> None:
    """Programs inside have its own id: what they write is the user's, and can all be removed."""
    need_docker()
    if not HOST.startswith("unix://"):
        pytest.skip("whoever reaches a daemon by TCP is its user")
    user = HostUser(
        ordinary=True,
        groups=[os.stat(HOST.removeprefix("unix://")).st_gid],
        packages=("docker", "requests", "urllib3", "idna", "certifi", "charset_normalizer"),
    )
    folder = user.mkdir("notebooks")
    user.write(folder / "data.txt", "of the host")
    (folder / "sub").mkdir()
    os.chown(folder / "sub", user.uid, user.uid)
    script = f"""
import os, shutil, sys
from pathlib import Path
from sandbox_kernel.engines.base import Launch, SandboxSpec, StateLayout
from sandbox_kernel.engines.docker import DockerEngine
layout = StateLayout(Path({str(user.home / "state")!r}))
engine = DockerEngine(host={HOST!r}, image={IMAGE!r})
spec = SandboxSpec(notebook_folder=Path({str(folder)!r}))
instance = engine.start(
    Launch(sandbox_id="box", lifetime="ordinary", token="t", spec=spec, layout=layout))
print(instance.socket, *instance.notices, flush=True)
sys.stdin.readline()
engine.stop(instance, layout, grace=0)
engine.discard(layout)
shutil.rmtree(layout.root)
print("all removed", flush=True)
"""
    with user.popen(script) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        door, *notices = process.stdout.readline().split()
        assert notices == []
        with Client(door, "t") as connected:
            out, err, end = connected.run(
                "sh",
                "-c",
                "id -u; echo new > new.txt; echo more >> data.txt; rm -r sub; mkdir sub; ls; whoami",
            )
        assert end.exit_code == 0, err
        assert out.decode().split() == [str(user.uid), "data.txt", "new.txt", "sub", "user"]
        assert (folder / "data.txt").read_text() == "of the host"
        written = user.home / "state" / "folder" / "upper" / "new.txt"
        assert written.stat().st_uid == user.uid
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stdout.read().strip() == "all removed"
    user.close()
