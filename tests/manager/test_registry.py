from __future__ import annotations

import multiprocessing
import sqlite3
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel.engines.base import FolderMode, Instance, Limits, SandboxSpec
from sandbox_kernel.errors import EngineStartError, StorageError
from sandbox_kernel.manager.lifecycle import State
from sandbox_kernel.manager.registry import Entry, Registry
from tests.support.small_disk import run_on_read_only_disk, run_on_small_disk


def entry(sandbox_id: str = "a", **changes) -> Entry:
    return replace(
        Entry(
            sandbox_id=sandbox_id,
            lifetime=f"lifetime-of-{sandbox_id}",
            state=State.RUNNING,
            engine="plain",
            spec=SandboxSpec(
                notebook_folder=Path("/home/somebody/notebooks"),
                folder_mode=FolderMode.READ,
                env={"A": "b"},
                limits=Limits(memory_bytes=1 << 30),
            ),
            chosen=frozenset({"env", "notebook_folder"}),
            ephemeral=False,
            token="secret",
            instance=Instance(
                engine="plain",
                socket="/run/s",
                data={"pid": 1},
                isolation={"network": "off"},
                limits={"memory": "hard"},
                notices=["one"],
            ),
            created_at=1.5,
            started_at=2.5,
        ),
        **changes,
    )


@pytest.fixture
def registry(tmp_path):
    made = Registry(tmp_path / "registry.sqlite3")
    yield made
    made.close()


def test_what_is_put_comes_back(registry):
    """Every field of an entry survives the way to the disk and back."""
    registry.put(entry())

    assert registry.get("a") == entry()
    assert registry.get("b") is None


def test_all_are_listed_by_id(registry):
    """The list is in the order of ids."""
    for name in ("c", "a", "b"):
        registry.put(entry(name))

    assert [each.sandbox_id for each in registry.all()] == ["a", "b", "c"]


def test_the_file_is_private_and_has_a_log(registry, tmp_path):
    """Tokens are in it: nobody else may read it; readers do not wait for a writer."""
    registry.put(entry())

    for name in ("registry.sqlite3", "registry.sqlite3-wal"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_removal_remembers_the_files(registry):
    """An id is free at once, and its lifetime's files are known until they are gone."""
    registry.put(entry())
    registry.remove(entry())
    registry.put(entry(lifetime="second"))

    assert [each.lifetime for each in registry.leftovers()] == ["lifetime-of-a"]
    registry.forget_leftover("lifetime-of-a")
    assert registry.leftovers() == []


def test_failures_are_counted_with_their_error(registry):
    """Who waited for a start learns the class and the words of what went wrong."""
    assert registry.failures("a").count == 0
    registry.add_failure("a", EngineStartError("plain", "a", "first"))
    registry.add_failure("a", EngineStartError("plain", "a", "second"))

    failures = registry.failures("a")
    assert failures.count == 2
    assert isinstance(failures.error, EngineStartError)
    assert "second" in str(failures.error)


def test_fields_of_a_newer_release_are_passed_over(registry, tmp_path):
    """A specification with a field we do not know can still be read."""
    registry.put(entry())
    with sqlite3.connect(tmp_path / "registry.sqlite3") as connection:
        connection.execute(
            "UPDATE sandbox SET spec = json_set(spec, '$.newer', 1),"
            " instance = json_set(instance, '$.newer', 1)"
        )
    connection.close()

    assert registry.get("a") == entry()


def test_a_newer_schema_is_refused_with_the_mend(tmp_path):
    """A file of a newer release is not touched."""
    path = tmp_path / "registry.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    registry = Registry(path)

    with pytest.raises(StorageError) as caught:
        registry.get("a")
    assert str(path) in str(caught.value)
    assert "Upgrade" in caught.value.hint


@pytest.mark.parametrize("content", [b"x" * 10000, b"SQLite format 3\0" + b"\xff" * 8000])
def test_a_damaged_file_is_named_with_the_mend(tmp_path, content):
    """The error says which file and what to do, and the file stays as it is."""
    path = tmp_path / "registry.sqlite3"
    path.write_bytes(content)
    registry = Registry(path)

    with pytest.raises(StorageError) as caught:
        registry.put(entry())
    assert str(path) in str(caught.value)
    assert "Move it away" in caught.value.hint
    assert path.read_bytes() == content


def test_a_new_file_takes_up_what_is_found(tmp_path):
    """Sandboxes whose folders are there come back when the registry is lost."""
    registry = Registry(
        tmp_path / "registry.sqlite3",
        lambda: iter([entry(state=State.STOPPED, token=None, instance=None, started_at=None)]),
    )

    assert [each.sandbox_id for each in registry.all()] == ["a"]
    registry.close()


def test_threads_share_one_registry(registry):
    """Any thread may use it; nothing is lost."""

    def work(number: int) -> None:
        for turn in range(10):
            registry.put(entry(f"s-{number}-{turn}", lifetime=f"l-{number}-{turn}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(registry.all()) == 80


def _put_ten(path: str, number: int) -> None:
    registry = Registry(Path(path))
    for turn in range(10):
        registry.put(entry(f"s-{number}-{turn}", lifetime=f"l-{number}-{turn}"))
    registry.close()


def test_processes_make_the_file_together(tmp_path):
    """Several processes that create the registry at once end up with one."""
    path = tmp_path / "registry.sqlite3"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_put_ten, args=(str(path), each)) for each in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)

    assert [worker.exitcode for worker in workers] == [0] * 4
    registry = Registry(path)
    assert len(registry.all()) == 40
    registry.close()


_FULL = """
import os, sys
from dataclasses import replace
from pathlib import Path
from sandbox_kernel.errors import StorageFullError
from sandbox_kernel.manager.registry import Registry
from tests.manager.test_registry import entry
folder = Path(sys.argv[1])
registry = Registry(folder / "registry.sqlite3")
registry.put(entry())
with open(folder / "ballast", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
refused = 0
for number in range(400):
    try:
        registry.put(entry(f"n-{number}", lifetime=f"l-{number}"))
    except StorageFullError as error:
        assert str(folder) in str(error) and error.hint
        refused += 1
print("refused", refused > 0)
print("read", registry.get("a") == entry())
registry.close()
again = Registry(folder / "registry.sqlite3")
print("read by a fresh process", again.get("a") == entry())
again.close()
os.unlink(folder / "ballast")
registry.put(entry("later", lifetime="later"))
print("after freeing", registry.get("later") is not None, registry.get("a") == entry())
registry.close()
"""


def test_a_full_disk_loses_nothing(tmp_path):
    """Writing is refused with the typed error; reading goes on; after freeing all is normal."""
    folder = tmp_path / "disk"
    folder.mkdir()

    printed = run_on_small_disk(folder, 2 << 20, _FULL, str(folder))

    assert printed.splitlines() == [
        "refused True",
        "read True",
        "read by a fresh process True",
        "after freeing True True",
    ]


_SPARE = """
import sys
from pathlib import Path
from sandbox_kernel.manager.registry import Registry
from tests.manager.test_registry import entry
folder = Path(sys.argv[1])
registry = Registry(folder / "registry.sqlite3")
registry.put(entry())
registry.close()
with open(folder / "ballast", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
registry.remove(entry())
print(registry.get("a"))
registry.close()
"""


def test_on_a_full_disk_a_sandbox_can_still_be_destroyed(tmp_path):
    """Space is held in reserve for the very operations that free some."""
    folder = tmp_path / "disk"
    folder.mkdir()

    assert run_on_small_disk(folder, 2 << 20, _SPARE, str(folder)) == "None\n"


_READ_ONLY = """
import sys
from pathlib import Path
from sandbox_kernel.errors import StorageError
from sandbox_kernel.manager.registry import Registry
from tests.manager.test_registry import entry
path = Path(sys.argv[1]) / "registry.sqlite3"
registry = Registry(path)
print("read", registry.get("a") == entry())
try:
    registry.put(entry("b"))
except StorageError as error:
    print("named", str(path) in str(error), bool(error.hint))
"""


def test_a_read_only_folder_can_be_read(tmp_path):
    """Listing works where nothing can be written, and writing says why it does not."""
    folder = tmp_path / "disk"
    folder.mkdir()
    registry = Registry(folder / "registry.sqlite3")
    registry.put(entry())
    registry.close()

    printed = run_on_read_only_disk(folder, _READ_ONLY, str(folder))

    assert printed.splitlines() == ["read True", "named True True"]
