"""Watching files: nothing is missed, nothing told too often, and no queue without a bound."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.errors import PathNotFoundError, ValidationFailedError, WatchStartError
from sandbox_kernel.wire.codec import decode
from sandbox_kernel.wire.operations import OPERATIONS
from sandbox_kernel.wire.rpc import End, Failed, Item
from sandbox_runtime.globs import Selection
from tests.support.runtime_child import DEADLINE, Client, RuntimeChild


class Watch:
    """A client's end of one watch."""

    def __init__(self, client: Client, path: str = ".", **fields: Any) -> None:
        self.client = client
        self.call = client.begin("file.watch", path=path, **fields)
        self.seen: list[Any] = []
        first = self.next()
        assert first.type == "watching"
        assert first.watch_id
        self.seen.clear()

    def next(self, timeout: float = DEADLINE) -> Any:
        event = self.client.event_of(self.call, timeout)
        if isinstance(event, Failed):
            raise event.error  # type: ignore[misc]
        if isinstance(event, End):
            return decode(OPERATIONS["file.watch"].result, event.value, event.body)
        assert isinstance(event, Item)
        told = decode(OPERATIONS["file.watch"].event, event.value, event.body)  # type: ignore[type-var]
        self.seen.append(told)
        if self.client.granting:
            self.client.send(self.client.protocol.grant(self.call, event.size))
        return told

    def until(self, kind: str, path: Path | str) -> Any:
        deadline = time.monotonic() + DEADLINE
        while True:
            for each in self.seen:
                if (each.event_type, each.path) == (kind, str(path)):
                    return each
            assert time.monotonic() < deadline
            self.next(max(0.01, deadline - time.monotonic()))

    def kinds(self, path: Path | str) -> list[str]:
        return [each.event_type for each in self.seen if each.path == str(path)]


def test_what_programs_do(client: Client, runtime: RuntimeChild) -> None:
    """Made, changed, renamed, deleted: each is told with its path and kind."""
    folder = runtime.workspace
    watch = Watch(client)
    (folder / "f").write_bytes(b"1")
    watch.until("create", folder / "f")
    watch.until("modify", folder / "f")
    (folder / "f").chmod(0o600)
    watch.until("attrib", folder / "f")
    (folder / "f").rename(folder / "g")
    watch.until("move_from", folder / "f")
    watch.until("move_to", folder / "g")
    (folder / "g").unlink()
    watch.until("delete", folder / "g")
    (folder / "d").mkdir()
    event = watch.until("create", folder / "d")
    assert event.is_directory
    assert abs(event.timestamp - time.time()) < 60


def test_what_clients_do(client: Client, runtime: RuntimeChild) -> None:
    """Our own writes look like a program's: a file is made, or changed; drafts are not told."""
    path = runtime.workspace / "f"
    watch = Watch(client)
    client.call("file.write", path="f", data=b"1")
    watch.until("create", path)
    client.call("file.write", path="f", data=b"2")
    watch.until("modify", path)
    (runtime.workspace / "last").mkdir()
    watch.until("create", runtime.workspace / "last")

    assert {each.path for each in watch.seen} <= {str(path), str(runtime.workspace / "last")}
    assert watch.kinds(path)[0] == "create"
    assert "move_to" not in watch.kinds(path)


def test_folders_that_come_to_be(client: Client, runtime: RuntimeChild) -> None:
    """What was in them before they could be watched is told as well, and what comes later."""
    folder = runtime.workspace
    watch = Watch(client)
    for number in range(20):
        (folder / f"d{number}" / "e" / "f").mkdir(parents=True)
        (folder / f"d{number}" / "e" / "f" / "x").write_bytes(b"1")
    for number in range(20):
        watch.until("create", folder / f"d{number}" / "e" / "f" / "x")
    (folder / "d3" / "e" / "y").write_bytes(b"1")
    watch.until("create", folder / "d3" / "e" / "y")


def test_folders_that_move(client: Client, runtime: RuntimeChild) -> None:
    """Within, they are known by their new paths; out of it, they are watched no more."""
    folder = runtime.workspace
    (folder / "a" / "b").mkdir(parents=True)
    watch = Watch(client)
    (folder / "a").rename(folder / "c")
    watch.until("move_to", folder / "c")
    (folder / "c" / "b" / "x").write_bytes(b"1")
    watch.until("create", folder / "c" / "b" / "x")
    (folder / "c").rename(runtime.folder / "outside")
    watch.until("move_from", folder / "c")
    (folder / "mark").write_bytes(b"")
    watch.until("create", folder / "mark")
    watch.seen.clear()
    (runtime.folder / "outside" / "y").write_bytes(b"1")
    (folder / "mark2").write_bytes(b"")
    watch.until("create", folder / "mark2")

    assert not [each for each in watch.seen if each.path.endswith("/y")]


def test_one_level_only(client: Client, runtime: RuntimeChild) -> None:
    """Without `recursive` what is below is not told."""
    folder = runtime.workspace
    (folder / "d").mkdir()
    watch = Watch(client, recursive=False)
    (folder / "d" / "x").write_bytes(b"1")
    (folder / "e").mkdir()
    (folder / "e" / "x").write_bytes(b"1")
    (folder / "y").write_bytes(b"1")
    watch.until("create", folder / "y")
    assert not [each for each in watch.seen if each.path.endswith("/x")]


def test_one_file(client: Client, runtime: RuntimeChild) -> None:
    """Its changes, and the end of the watch with its own."""
    path = runtime.workspace / "f"
    path.write_bytes(b"1")
    watch = Watch(client, "f")
    path.write_bytes(b"2")
    watch.until("modify", path)
    path.unlink()
    while True:
        event = watch.next()
        if event.reason is not None:
            break
    assert (event.type, event.reason) == ("stopped", "deleted")
    assert watch.next().reason == "deleted"


def test_patterns(client: Client, runtime: RuntimeChild) -> None:
    """Only what is included, or all but what is excluded; not both."""
    folder = runtime.workspace
    (folder / "skipped").mkdir()
    with_names = Watch(client, include=["*.py"])
    without = Watch(client, exclude=["skipped", "*.tmp"])
    for name in ("a.py", "b.txt", "c.tmp", "skipped/d.py"):
        (folder / name).write_bytes(b"1")
    with_names.until("create", folder / "skipped" / "d.py")
    without.until("create", folder / "b.txt")
    (folder / "last.py").write_bytes(b"1")
    for each in (with_names, without):
        each.until("create", folder / "last.py")

    assert {os.path.basename(each.path) for each in with_names.seen} == {"a.py", "d.py", "last.py"}
    assert {os.path.basename(each.path) for each in without.seen} == {"a.py", "b.txt", "last.py"}
    with pytest.raises(ValidationFailedError):
        Watch(client, include=["a"], exclude=["b"])


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "d/a.py", True),
        ("*.py", "a.pyc", False),
        ("node_modules", "x/node_modules/y/z", True),
        ("node_modules/", "x/node_modules", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "x/src/a.py", False),
        ("src/gen", "src/gen/deep/x", True),
        ("[ab]?", "a1", True),
        (".git", ".gitignore", False),
        ("odd\udcff*", "odd\udcff\n", True),
    ],
)
def test_what_patterns_mean(pattern: str, path: str, matches: bool) -> None:  # noqa: FBT001
    """Names on the way, or whole paths where there is a slash."""
    assert Selection([pattern], []).has(path) is matches
    assert Selection([], [pattern]).hides(path) is matches
    assert Selection([], [pattern]).has(path) is not matches


def test_the_same_again_is_told_once(client: Client, runtime: RuntimeChild) -> None:
    """A program that writes in a thousand small steps is told of in few."""
    path = runtime.workspace / "f"
    watch = Watch(client)
    with path.open("wb", buffering=0) as file:
        for _ in range(5000):
            file.write(b"x")
    (runtime.workspace / "last").write_bytes(b"")
    watch.until("create", runtime.workspace / "last")

    assert 1 <= watch.kinds(path).count("modify") < 500


def test_a_client_that_does_not_read(client: Client, runtime: RuntimeChild) -> None:
    """Its events are bounded: it is told to look anew, then what comes after."""
    watch = Watch(client, credit=400)
    client.granting = False
    # Its credit is used up first: on a fast machine it would still take the news of the flood.
    for number in range(3010):
        (runtime.workspace / f"f{number}").write_bytes(b"")
        if number == 9:
            while watch.client.event_within(watch.call, 0.3) is not None:
                pass
    client.call("runtime.health")
    while watch.client.event_within(watch.call, 0.3) is not None:
        pass
    client.granting = True
    client.send(client.protocol.grant(watch.call, 1 << 20))
    while watch.next().type != "resync":
        pass
    assert watch.seen[-1].reason == "overflow"
    (runtime.workspace / "last").write_bytes(b"")
    watch.until("create", runtime.workspace / "last")
    assert len(watch.seen) < 2500


def test_leaving(client: Client, runtime: RuntimeChild) -> None:
    """It stops, holds the sandbox awake no longer, and its descriptors are given back."""
    before = len(os.listdir(f"/proc/{runtime.pid}/fd"))
    watches = [Watch(client) for _ in range(5)]
    assert client.call("runtime.health").busy == ["file.watch"]
    for each in watches:
        client.send(client.protocol.cancel(each.call))
    for each in watches:
        event = each.next()
        assert (event.type, event.reason) == ("stopped", "cancelled")
        assert each.next().reason == "cancelled"
    assert client.call("runtime.health").busy == []

    deadline = time.monotonic() + DEADLINE
    # The threads' pipe stays.
    while len(os.listdir(f"/proc/{runtime.pid}/fd")) > before + 3:
        assert time.monotonic() < deadline
        client.call("runtime.health")


def test_what_cannot_be_watched(client: Client) -> None:
    """Nothing there, or more watches than there may be."""
    with pytest.raises(PathNotFoundError):
        Watch(client, "none")
    for _ in range(64):
        Watch(client)
    with pytest.raises(WatchStartError):
        Watch(client)


# --- versions ---------------------------------------------------------------------------------


def test_versions(client: Client, runtime: RuntimeChild) -> None:
    """What happened before the question counts in its answer; nothing holds the sandbox awake."""
    folder = runtime.workspace
    first = client.call("file.check_changes", path=".")
    assert first.status == "unchanged"
    assert client.call("file.check_changes", path=".", since=first.version) == first
    (folder / "d" / "e").mkdir(parents=True)
    second = client.call("file.check_changes", path=".", since=first.version)
    assert second.status == "changed"
    for number in range(3000):
        (folder / f"f{number}").write_bytes(b"")
    third = client.call("file.check_changes", path=".", since=second.version)
    assert third.status == "changed"
    assert client.call("runtime.health").busy == []


def test_versions_know_what_is_meant(client: Client, runtime: RuntimeChild) -> None:
    """Patterns and depth belong to the question; what does not count changes nothing."""
    (runtime.workspace / "d").mkdir()
    ways = [{"include": ["*.py"]}, {"exclude": ["*.txt"]}, {"recursive": False}]
    before = [client.call("file.check_changes", path=".", **way) for way in ways]
    (runtime.workspace / "d" / "x.txt").write_bytes(b"")
    for way, version in zip(ways, before, strict=True):
        after = client.call("file.check_changes", path=".", since=version.version, **way)
        assert after.status == "unchanged", way
    (runtime.workspace / "x.py").write_bytes(b"")
    for way, version in zip(ways, before, strict=True):
        after = client.call("file.check_changes", path=".", since=version.version, **way)
        assert after.status == "changed", way


def test_versions_that_are_not_known(client: Client, runtime: RuntimeChild) -> None:
    """Of an earlier start, of one that was forgotten, and of nothing at all."""
    version = client.call("file.check_changes", path=".").version
    incarnation, name, count = version.split(".")
    answer = client.call("file.check_changes", path=".", since=f"{'0' * 16}.{name}.{count}")
    assert (answer.status, answer.reason) == ("resync", "restarted")
    answer = client.call("file.check_changes", path=".", since=f"{incarnation}.{'0' * 16}.0")
    assert (answer.status, answer.reason) == ("resync", "expired")
    with pytest.raises(ValidationFailedError):
        client.call("file.check_changes", path=".", since="x")
    for number in range(40):
        (runtime.workspace / f"d{number}").mkdir()
        client.call("file.check_changes", path=f"d{number}")
    answer = client.call("file.check_changes", path=".", since=version)
    assert (answer.status, answer.reason) == ("resync", "expired")


def test_versions_of_what_is_not_there(client: Client, runtime: RuntimeChild) -> None:
    """An error, and after it is there an answer; also when it went meanwhile."""
    with pytest.raises(PathNotFoundError):
        client.call("file.check_changes", path="d")
    (runtime.workspace / "d").mkdir()
    version = client.call("file.check_changes", path="d").version
    (runtime.workspace / "d").rmdir()
    deadline = time.monotonic() + DEADLINE
    while True:
        assert time.monotonic() < deadline
        try:
            client.call("file.check_changes", path="d", since=version)
        except PathNotFoundError:
            break
    (runtime.workspace / "d").mkdir()
    answer = client.call("file.check_changes", path="d", since=version)
    assert (answer.status, answer.reason) == ("resync", "expired")
