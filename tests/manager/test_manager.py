from __future__ import annotations

import os
import signal
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from sandbox_kernel.engines.base import Limits, SandboxSpec
from sandbox_kernel.errors import (
    EngineStartError,
    InvalidProcessEnvironmentError,
    InvalidSandboxIdError,
    SandboxConfigurationError,
    SandboxError,
    SandboxRunningError,
    StorageError,
)
from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.wall.modes import Mode
from sandbox_kernel.wire.operations import Empty, StartProcessRequest
from tests.support.managed import plain_manager, plain_settings
from tests.support.plain_engine import REFERENCE, PlainEngine, processes_of
from tests.support.small_disk import run_on_read_only_disk, run_on_small_disk


def health(running):
    return call_once(running.endpoint, "runtime.health", Empty(), timeout=10.0)


def test_the_first_ensure_starts_and_the_next_finds(manager):
    """Same id, same incarnation; only the first call starts anything."""
    first = manager.ensure("a")
    second = manager.ensure("a")

    assert (first.started, second.started) == (True, False)
    assert first.endpoint == second.endpoint
    assert health(first).incarnation == health(second).incarnation
    assert health(first).sandbox_id == "a"


def test_a_fresh_manager_finds_what_another_started(manager, data_dir):
    """The truth is on disk: another process of the user adopts the sandbox."""
    first = manager.ensure("a")
    other = Manager(plain_settings(data_dir))

    second = other.ensure("a")
    other.close()

    assert not second.started
    assert health(first).incarnation == health(second).incarnation


def test_looking_never_starts(manager, data_dir):
    """Lookup, list and find_running of nothing make nothing, not even a folder."""
    assert manager.lookup("a") is None
    assert manager.list() == []
    assert manager.find_running("a") is None
    manager.stop("a")
    manager.destroy("a")
    assert manager.gc() == ()
    assert not data_dir.exists()

    manager.ensure("a")
    manager.stop("a")
    assert manager.lookup("a").state == "stopped"
    assert [info.state for info in manager.list()] == ["stopped"]
    assert manager.find_running("a") is None


def test_stop_keeps_the_files_and_the_lifetime(manager):
    """After a stop the next start has the same workspace, another incarnation and token."""
    first = manager.ensure("a")
    incarnation = health(first).incarnation
    (first.layout.workspace / "kept").write_text("x")
    manager.stop("a")
    assert processes_of(first.lifetime) == []

    second = manager.ensure("a")

    assert second.started
    assert second.lifetime == first.lifetime
    assert (second.layout.workspace / "kept").read_text() == "x"
    assert second.endpoint.token != first.endpoint.token
    assert health(second).incarnation != incarnation


def test_stop_lets_programs_end_by_themselves(manager):
    """SIGTERM first: what a program does then is kept; one that ignores it is killed in time."""
    running = manager.ensure("a")
    kept = running.layout.workspace / "kept"
    for code in (f"trap 'echo x > {kept}; exit' TERM", "trap '' TERM"):
        script = f"{code}; echo ready > {running.layout.workspace}/$$.ready; while :; do sleep 0.05; done"
        request = StartProcessRequest(argv=["sh", "-c", script])
        call_once(running.endpoint, "process.start", request, timeout=10.0)
    wait_until(lambda: len(list(running.layout.workspace.glob("*.ready"))) == 2)
    begin = time.monotonic()
    manager.stop("a", grace=0.5)

    assert kept.exists()
    assert 0.4 < time.monotonic() - begin < 5
    assert processes_of(running.lifetime) == []


def test_a_runtime_that_does_not_answer_is_ended_all_the_same(manager):
    """A frozen runtime delays a stop by the time its answer is waited for, not by the grace."""
    running = manager.ensure("a")
    health(running)
    os.kill(running.instance.data["pid"], signal.SIGSTOP)
    begin = time.monotonic()
    manager.stop("a", grace=60.0)

    assert time.monotonic() - begin < 15
    assert processes_of(running.lifetime) == []
    assert manager.ensure("a").started


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"env": {"A=B": "c"}}, InvalidProcessEnvironmentError),
        ({"env": {"": "c"}}, InvalidProcessEnvironmentError),
        ({"env": {"A\0B": "c"}}, InvalidProcessEnvironmentError),
        ({"env": {"A": "\0"}}, InvalidProcessEnvironmentError),
        ({"limits": Limits(processes=1)}, SandboxConfigurationError),
        ({"limits": Limits(memory_bytes=1)}, SandboxConfigurationError),
        ({"limits": Limits(cpus=0.0)}, SandboxConfigurationError),
        ({"limits": Limits(file_bytes=-1)}, SandboxConfigurationError),
        ({"sleep_after": -1.0}, SandboxConfigurationError),
        ({"sleep_after": float("nan")}, SandboxConfigurationError),
    ],
)
def test_what_no_sandbox_can_be_is_refused_at_once(manager, changes, error):
    """With an error that names the setting, whoever set it; nothing is made."""
    for ask in ({"changes": changes}, {"spec": SandboxSpec(**changes)}):
        with pytest.raises(error) as caught:
            manager.ensure("a", **ask)
        assert caught.value.context.keys() & {"setting", "name"}

    assert manager.lookup("a") is None


def test_destroy_ends_the_lifetime_and_its_files(manager):
    """After a destroy the id begins anew, and nothing of the old one is left."""
    first = manager.ensure("a")
    (first.layout.workspace / "gone").write_text("x")
    manager.destroy("a")
    assert manager.lookup("a") is None
    assert not first.layout.root.exists()
    assert processes_of(first.lifetime) == []

    second = manager.ensure("a")

    assert second.lifetime != first.lifetime
    assert not (second.layout.workspace / "gone").exists()


def test_fifty_times_destroyed_and_made_anew(manager):
    """The same id can be used again at once, every time."""
    lifetimes = set()
    for _ in range(50):
        running = manager.ensure("x")
        (running.layout.workspace / "f").write_text("x")
        lifetimes.add(running.lifetime)
        manager.destroy("x")

    assert len(lifetimes) == 50
    assert manager.list() == []
    assert list(running.layout.root.parent.iterdir()) == []
    assert list((running.layout.root.parent.parent / "locks").iterdir()) == []


def test_the_folders_are_private_whatever_the_umask(manager, data_dir):
    """Data folders are 0700 and the registry 0600."""
    before = os.umask(0)
    try:
        running = manager.ensure("a")
    finally:
        os.umask(before)

    for folder in (data_dir, data_dir / "locks", data_dir / "sandboxes", running.layout.root):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    for file in (data_dir / "registry.sqlite3", data_dir / "locks" / "a.lock"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_umask_that_forbids_everything_hides_no_file_from_its_owner(manager, data_dir):
    """What the manager makes can be used by who started the sandbox."""
    before = os.umask(0o777)
    try:
        running = manager.ensure("a")
    finally:
        os.umask(before)

    layout = running.layout
    for folder in (data_dir, data_dir / "locks", layout.root, layout.workspace, layout.home):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    for file in (data_dir / "registry.sqlite3", data_dir / "locks/a.lock"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@pytest.mark.parametrize(
    "damage",
    [
        "state = 'odd'",
        "spec = '{'",
        "spec = '[]'",
        "instance = '{}'",
        "engine = CAST(X'ff' AS TEXT)",
    ],
)
def test_a_damaged_record_spoils_one_sandbox_only(manager, data_dir, damage):
    """All are listed, nothing goes by itself, and the damaged one can be destroyed."""
    for name in ("good", "spoilt"):
        manager.ensure(name, ephemeral=True)
    layout = manager.lookup("spoilt").layout
    with sqlite3.connect(data_dir / "registry.sqlite3") as connection:
        connection.execute(f"UPDATE sandbox SET {damage} WHERE sandbox_id = 'spoilt'")  # noqa: S608  words of this test
    connection.close()

    assert [info.sandbox_id for info in manager.list()] == ["good", "spoilt"]
    assert manager.find_running("good") is not None
    if "engine" not in damage:
        manager.gc()
        assert manager.lookup("spoilt") is not None
        manager.destroy("spoilt")
        assert [info.sandbox_id for info in manager.list()] == ["good"]
        assert not layout.root.exists()
    else:
        with sqlite3.connect(data_dir / "registry.sqlite3") as connection:
            connection.execute("UPDATE sandbox SET engine = ?", (REFERENCE,))
        connection.close()


@pytest.mark.parametrize("lifetime", ["", ".", "..", "../x"])
def test_a_damaged_lifetime_removes_no_other_files(manager, data_dir, lifetime):
    """Destroying such a sandbox forgets it and touches nothing outside its folder."""
    manager.ensure("good")
    manager.ensure("spoilt")
    manager.stop("spoilt")
    (data_dir / "x").mkdir()
    with sqlite3.connect(data_dir / "registry.sqlite3") as connection:
        connection.execute(
            "UPDATE sandbox SET lifetime = ? WHERE sandbox_id = 'spoilt'", (lifetime,)
        )
    connection.close()

    manager.destroy("spoilt")

    assert (data_dir / "x").is_dir()
    assert [info.state for info in manager.list()] == ["running"]


def test_an_open_data_folder_is_closed(tmp_path):
    """A data folder that others could enter is made private at the first start."""
    data_dir = tmp_path / "sandbox"
    data_dir.mkdir(mode=0o755)
    with plain_manager(data_dir) as manager:
        manager.ensure("a")

        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700


def test_the_token_is_not_shown(manager):
    """What is printed or logged of a running sandbox does not hold its secret."""
    running = manager.ensure("a")

    assert running.endpoint.token not in repr(running)
    assert running.endpoint.token not in repr(manager.lookup("a"))


def test_another_specification_is_reported_and_the_sandbox_kept(manager, tmp_path):
    """A second notebook with other wishes gets the running sandbox and sentences about it."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    manager.ensure("a", SandboxSpec(notebook_folder=one))

    second = manager.ensure("a", SandboxSpec(notebook_folder=other, network=True))

    assert not second.started
    assert second.spec.notebook_folder == one
    assert len(second.notices) == 2
    assert any(str(other) in each and str(one) in each for each in second.notices)
    assert any("network" in each for each in second.notices)
    assert manager.ensure("a", SandboxSpec(notebook_folder=one)).notices == []
    assert manager.ensure("a").notices == []


def test_the_next_start_takes_the_new_specification(manager, tmp_path):
    """What was asked for while it ran holds when it is asked for again after a stop."""
    manager.ensure("a")
    manager.stop("a")

    running = manager.ensure("a", SandboxSpec(notebook_folder=tmp_path))

    assert running.spec.notebook_folder == tmp_path
    assert running.notices == []


def test_without_a_specification_a_sandbox_starts_as_it_last_did(manager, tmp_path):
    """A sandbox remembers what it is across stops and managers."""
    manager.ensure("a", SandboxSpec(notebook_folder=tmp_path, env={"A": "1"}))
    manager.stop("a")

    running = manager.ensure("a", changes={"keep_alive": True})

    assert running.spec.notebook_folder == tmp_path
    assert running.spec.env == {"A": "1"}
    assert running.spec.keep_alive


def test_settings_hold_for_a_known_sandbox_and_choices_stay(manager, data_dir, tmp_path):
    """What nobody chose follows the settings at the next start; what somebody chose does not."""
    manager.ensure("a", changes={"env": {"A": "1"}, "sleep_after": 50.0})
    manager.stop("a")
    settings = plain_settings(data_dir, network=True, env={"B": "2"}, sleep_after=70.0)
    later = Manager(settings)

    running = later.ensure("a")

    assert running.spec.network
    assert running.spec.env == {"A": "1"}
    assert running.spec.sleep_after == 50.0
    # A notebook asks for its folder and otherwise for what the settings say.
    again = later.ensure("a", settings.spec(notebook_folder=tmp_path))
    assert len(again.notices) == 1
    assert health(running).sleeps_in <= 50.0
    later.close()


def test_the_output_policy_is_that_of_the_last_call(manager):
    """It is the host's, so it changes while the sandbox runs, and is remembered."""
    assert manager.ensure("a").spec.output_policy is Mode.DEFAULT

    running = manager.ensure("a", changes={"output_policy": Mode.STRICT})

    assert not running.started
    assert running.notices == []
    assert running.spec.output_policy is Mode.STRICT
    assert manager.lookup("a").spec.output_policy is Mode.STRICT
    manager.stop("a")
    assert manager.ensure("a").spec.output_policy is Mode.STRICT


def test_idle_rules_reach_a_running_sandbox(manager):
    """sleep_after and keep_alive are changed on the spot and remembered; off re-arms."""
    running = manager.ensure("a")
    assert health(running).sleeps_in is not None

    kept = manager.ensure("a", changes={"keep_alive": True})
    assert not kept.started
    assert kept.notices == []
    assert health(running).sleeps_in is None

    manager.ensure("a", changes={"keep_alive": False, "sleep_after": 100.0})
    assert 0 < health(running).sleeps_in <= 100.0
    assert manager.lookup("a").spec.sleep_after == 100.0

    manager.ensure("a", changes={"sleep_after": None})
    assert health(running).sleeps_in is None


def test_configure_starts_nothing_and_changes_a_running_one_only_in_its_rules(manager):
    """Rules of idle sleep at once; the rest when it does not run, for its next start."""
    assert not manager.configure("demo", {"keep_alive": True})
    assert manager.list() == []
    manager.ensure("demo")
    assert manager.configure("demo", {"keep_alive": True})
    assert manager.lookup("demo").spec.keep_alive
    with pytest.raises(SandboxRunningError, match="keep_packages"):
        manager.configure("demo", {"keep_alive": False, "keep_packages": True})
    assert manager.lookup("demo").spec.keep_alive

    manager.stop("demo", grace=0.0)
    assert manager.configure("demo", {"keep_packages": True})
    assert manager.lookup("demo").state == "stopped"
    assert manager.ensure("demo").spec.keep_packages


def test_a_sandbox_that_fell_asleep_is_started_by_the_next_ensure(manager):
    """Idle sleep is the runtime's own doing; everybody finds out and starts it again."""
    first = manager.ensure("a", changes={"sleep_after": 0.05})
    wait_until(lambda: manager.lookup("a").state == "stopped")

    second = manager.ensure("a", changes={"sleep_after": 60.0})

    assert second.started
    assert second.lifetime == first.lifetime


def test_ephemeral_sandboxes_go_when_they_no_longer_run(manager):
    """gc leaves running ones alone and destroys ephemeral ones that have ended."""
    running = manager.ensure("k-1", ephemeral=True)
    manager.ensure("named")
    assert manager.gc() == ()
    manager.stop("k-1")
    manager.stop("named")

    assert manager.gc() == ("k-1",)
    assert [info.sandbox_id for info in manager.list()] == ["named"]
    assert not running.layout.root.exists()


def test_an_invalid_id_is_refused_by_every_verb(manager, data_dir):
    """An id can never be a path."""
    for verb in (manager.ensure, manager.lookup, manager.stop, manager.destroy):
        with pytest.raises(InvalidSandboxIdError):
            verb("../../etc")
    assert not data_dir.exists()


def test_an_unknown_engine_is_named_with_those_installed(data_dir):
    """A misspelt engine is a configuration error, and nothing stays of the attempt."""
    manager = Manager(plain_settings(data_dir, engine="bublewrap"))

    with pytest.raises(SandboxConfigurationError, match="bublewrap") as caught:
        manager.ensure("a")
    assert "bubblewrap" in caught.value.hint
    assert manager.list() == []
    manager.close()


def test_an_engine_by_dotted_path_that_is_missing_is_named(data_dir):
    """``module:Class`` of a package that is not installed says so."""
    manager = Manager(plain_settings(data_dir, engine="no_such_package:Engine"))

    with pytest.raises(SandboxConfigurationError, match="no_such_package"):
        manager.ensure("a")
    manager.close()


def test_an_engine_that_is_gone_hides_no_sandbox(manager, data_dir):
    """Sandboxes of an engine that was uninstalled are listed, and stopped ones can be destroyed."""
    manager.ensure("running")
    manager.ensure("stopped")
    manager.stop("stopped")
    with sqlite3.connect(data_dir / "registry.sqlite3") as connection:
        connection.execute("UPDATE sandbox SET engine = 'no_such_package:Engine'")
    connection.close()

    states = {info.sandbox_id: info.state for info in manager.list()}
    assert states == {"running": "running", "stopped": "stopped"}
    manager.destroy("stopped")
    with pytest.raises(SandboxConfigurationError, match="no_such_package"):
        manager.destroy("running")

    with sqlite3.connect(data_dir / "registry.sqlite3") as connection:
        connection.execute("UPDATE sandbox SET engine = ?", (REFERENCE,))
    connection.close()


class FailingEngine(PlainEngine):
    """Starts nothing until it is mended."""

    broken = True

    def start(self, launch):
        if self.broken:
            raise EngineStartError(self.name, launch.sandbox_id, "made to fail", "last words")
        return super().start(launch)


def test_a_failed_first_start_leaves_nothing(data_dir):
    """The error is typed and holds the log; no entry, no folder; the next try works."""
    engine = FailingEngine()
    with plain_manager(data_dir, engine) as manager:
        with pytest.raises(EngineStartError, match="last words"):
            manager.ensure("t")
        assert manager.list() == []
        assert list((data_dir / "sandboxes").iterdir()) == []

        engine.broken = False
        assert manager.ensure("t").started


def test_a_failed_later_start_keeps_the_files(data_dir):
    """A sandbox that cannot start now is stopped, not lost."""
    engine = FailingEngine()
    engine.broken = False
    with plain_manager(data_dir, engine) as manager:
        first = manager.ensure("t")
        (first.layout.workspace / "kept").write_text("x")
        manager.stop("t")
        engine.broken = True
        with pytest.raises(EngineStartError):
            manager.ensure("t")
        assert manager.lookup("t").state == "stopped"

        engine.broken = False
        again = manager.ensure("t")
        assert (again.layout.workspace / "kept").read_text() == "x"


def test_files_that_cannot_be_removed_are_named_and_tried_again(manager, monkeypatch):
    """destroy frees the id in any case; gc removes the rest when it can."""
    running = manager.ensure("a")
    real = os.rmdir

    def refuse(path, **kwargs):
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(StorageError, match=running.lifetime):
        manager.destroy("a")
    assert manager.lookup("a") is None
    assert manager.ensure("a").lifetime != running.lifetime
    assert manager.gc() == ()
    assert running.layout.root.exists()

    monkeypatch.setattr(os, "rmdir", real)
    manager.gc()
    assert not running.layout.root.exists()


def test_a_data_folder_that_is_a_file_is_named(tmp_path):
    """Something in the way of the data folder gives a typed error with path and mend."""
    (tmp_path / "sandbox").write_text("x")
    manager = Manager(plain_settings(tmp_path / "sandbox"), engines={REFERENCE: PlainEngine()})

    with pytest.raises(StorageError) as caught:
        manager.ensure("a")
    assert str(tmp_path / "sandbox") in str(caught.value)
    assert caught.value.hint


def test_a_missing_data_folder_is_made(tmp_path):
    """Parents too; and again when somebody removed it meanwhile."""
    with plain_manager(tmp_path / "not" / "yet" / "there") as manager:
        assert manager.ensure("a").started


_FULL_DISK = """
import os, sys
from pathlib import Path
from sandbox_kernel.errors import SandboxError, StorageFullError
from tests.support.managed import plain_manager
from tests.manager.test_manager import health
folder = Path(sys.argv[1])
with plain_manager(folder / "sandbox") as manager:
    running = manager.ensure("old")
    (running.layout.workspace / "keep.txt").write_bytes(b"old" * 100)
    with open(folder / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    try:
        for number in range(300):
            manager.ensure(f"new-{number}")
            manager.destroy(f"new-{number}")
        print("never full")
    except StorageFullError as error:
        print("create", str(folder) in str(error), bool(error.hint))
    print("list", [info.sandbox_id for info in manager.list() if info.state == "running"])
    print("find", manager.ensure("old").started, health(running).sandbox_id)
    print("kept", (running.layout.workspace / "keep.txt").read_bytes() == b"old" * 100)
    os.unlink(folder / "ballast")
    print("after", manager.ensure("later").started, manager.ensure("old").started)
"""


def test_a_full_disk_gives_typed_errors_and_keeps_what_runs(tmp_path):
    """Creating fails with the path and the mend; what runs goes on; freeing space is enough."""
    folder = tmp_path / "disk"
    folder.mkdir()

    printed = run_on_small_disk(folder, 3 << 20, _FULL_DISK, str(folder))

    assert printed.splitlines() == [
        "create True True",
        "list ['old']",
        "find False old",
        "kept True",
        "after True False",
    ]


_READ_ONLY_DISK = """
import sys
from pathlib import Path
from sandbox_kernel.errors import StorageError
from sandbox_kernel.manager.manager import Manager
from tests.support.managed import plain_settings
folder = Path(sys.argv[1])
manager = Manager(plain_settings(folder / "sandbox"))
print([info.sandbox_id for info in manager.list()])
for verb in (manager.ensure, manager.destroy):
    try:
        verb("a")
    except StorageError as error:
        print(str(folder) in str(error), error.hint)
"""


def test_a_read_only_data_folder_is_named_with_the_mend(tmp_path):
    """Looking works; changing says which path cannot be written and what to do."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with plain_manager(folder / "sandbox") as manager:
        manager.ensure("a")
        manager.stop("a")
        manager.close()

        printed = run_on_read_only_disk(folder, _READ_ONLY_DISK, str(folder)).splitlines()

    assert printed[0] == "['a']"
    assert len(printed) == 3
    assert all(line.startswith("True ") and "JUPYTER_DATA_DIR" in line for line in printed[1:])


def test_ensure_of_a_running_sandbox_costs_no_registry_write(manager, data_dir):
    """The way every kernel launch takes reads one row and probes one lock."""
    manager.ensure("a")
    before = (data_dir / "registry.sqlite3-wal").stat()

    for _ in range(10):
        manager.ensure("a")

    after = (data_dir / "registry.sqlite3-wal").stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_every_error_of_a_verb_is_ours(manager, data_dir):
    """A registry that was damaged while we ran gives a SandboxError, not one of SQLite."""
    manager.ensure("a")
    manager.close()
    content = Path(data_dir, "registry.sqlite3").read_bytes()
    Path(data_dir, "registry.sqlite3").write_bytes(b"x" * 5000)
    for verb in (manager.ensure, manager.stop, manager.destroy, manager.lookup):
        with pytest.raises(SandboxError, match="registry"):
            verb("a")
    Path(data_dir, "registry.sqlite3").write_bytes(content)


def test_a_lost_registry_loses_no_sandbox(manager, data_dir):
    """After the mend that the error names, the ids and their files are there again."""
    running = manager.ensure("a")
    (running.layout.workspace / "kept").write_text("x")
    for name in ("registry.sqlite3", "registry.sqlite3-wal", "registry.sqlite3-shm"):
        (data_dir / name).unlink(missing_ok=True)

    again = manager.ensure("a")

    assert again.started
    assert again.lifetime == running.lifetime
    assert (again.layout.workspace / "kept").read_text() == "x"
    assert health(again).sandbox_id == "a"


def wait_until(condition, *, timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)
