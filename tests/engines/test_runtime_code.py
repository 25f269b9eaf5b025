"""The prepared copy of the runtime's code."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandbox_kernel.engines import runtime_code
from sandbox_kernel.engines.machine import mounts_below, type_of_mount
from sandbox_kernel.errors import StorageError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_every_module_is_compiled_and_never_checked() -> None:
    """Each source has its compiled file, of the kind that is not compared with the source."""
    code = Path(runtime_code.prepare())

    sources = list(code.rglob("*.py"))
    assert sources
    for source in sources:
        (compiled,) = source.parent.glob(f"__pycache__/{source.stem}.*.pyc")
        assert compiled.read_bytes()[4:8] == b"\x01\0\0\0", "unchecked hash"


def test_only_what_the_runtime_may_import() -> None:
    """Of our package the errors and the wire; nothing else is shown inside."""
    code = Path(runtime_code.prepare())

    found = {each.name for each in code.iterdir()}
    assert found == {"sandbox_runtime", "sandbox_kernel", runtime_code.DIGEST}
    names = {each.name for each in (code / "sandbox_kernel").iterdir()} - {"__pycache__"}
    assert names == {"__init__.py", "errors.py", "wire"}


def test_the_copy_works_by_itself() -> None:
    """Without site packages and with nothing else on the path."""
    code = runtime_code.prepare()

    subprocess.run(
        [
            *(sys.executable, "-I", "-S", "-c"),
            f"import sys; sys.path.insert(0, {code!r}); import sandbox_runtime.server",
        ],
        check=True,
    )


def test_it_is_made_once_and_anew_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """By size and time of change of each source."""
    first = runtime_code.prepare()
    assert runtime_code.prepare() == first
    real = runtime_code._sources
    monkeypatch.setattr(
        runtime_code, "_sources", lambda: [(*each[:2], each[2] + 1, each[3]) for each in real()]
    )

    assert runtime_code.prepare() != first
    assert os.path.isdir(first), "a living sandbox may still run on it"


def test_where_the_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox's own folder does as well; without one, the error names the cache."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert runtime_code.prepare(str(tmp_path / "own")).startswith(str(tmp_path / "own"))
    with pytest.raises(StorageError, match="XDG_CACHE_HOME"):
        runtime_code.prepare()


def test_a_copy_of_another_user_is_not_run() -> None:
    """It may hold anything."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    code = runtime_code.prepare()
    os.chown(code, 64123, 64123)

    with pytest.raises(StorageError, match="another user"):
        runtime_code.prepare()


def test_copies_nobody_used_for_long_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the making of a new one."""
    old = Path(runtime_code.cache_folder()) / "old"
    old.mkdir(parents=True)
    os.utime(old, (1, 1))

    runtime_code.prepare()

    assert not old.exists()


def test_many_processes_may_be_the_first() -> None:
    """All get the same whole copy."""
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(runtime_code.prepare())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len(set(found)) == 1
    assert [each for each in os.listdir(runtime_code.cache_folder()) if each.startswith(".")] == []


MOUNTS = (
    "20 1 254:0 / / rw - ext4 /dev/vda rw\n"
    "21 20 0:30 / /home/ada\\040b rw - nfs4 server:/x rw\n"
    "22 20 0:31 / /home rw - xfs /dev/vdb rw\n"
    "23 20 0:32 / /home rw - btrfs /dev/vdc rw\n"
)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv", "ext4"),
        ("/home/ada", "btrfs"),
        ("/home/ada b/x", "nfs4"),
        ("/homely", "ext4"),
        ("/", "ext4"),
    ],
)
def test_the_disk_under_a_path(path: str, kind: str) -> None:
    """The deepest mount holds it, of two at one place the later."""
    assert type_of_mount(path, MOUNTS) == kind


@pytest.mark.parametrize(
    ("path", "has_some"),
    [("/", True), ("/home", True), ("/home/ada", False), ("/home/ada b", False), ("/ho", False)],
)
def test_the_mounts_below_a_path(path: str, has_some: bool) -> None:  # noqa: FBT001
    """What is mounted on the path itself is not below it."""
    assert mounts_below(path, MOUNTS) is has_some


def test_the_copy_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code has the same name wherever it was copied; others may read it."""
    one = Path(runtime_code.prepare())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    two = Path(runtime_code.prepare())

    assert one != two
    assert (one / runtime_code.DIGEST).read_text() == (two / runtime_code.DIGEST).read_text()
    assert two.stat().st_mode & 0o777 == 0o755
    assert (two / "sandbox_runtime" / "__main__.py").stat().st_mode & 0o777 == 0o644
