"""Sandboxes that wait in a pool: unseen, and somebody's only once they are claimed."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sandbox_kernel.errors import SandboxConfigurationError, SandboxError, ValidationFailedError
from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.running import Running
from sandbox_kernel.wire.operations import (
    Empty,
    StartKernelRequest,
    StartProcessRequest,
    WaitRequest,
)
from sandbox_kernel.wire.pool_operations import ClaimRequest, WarmRequest
from tests.support.managed import plain_manager
from tests.support.plain_engine import PlainEngine, processes_of


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with plain_manager(tmp_path / "sandbox") as manager:
        yield manager
        for each in manager.waiting():
            manager.destroy(each.sandbox_id)


def warm(manager: Manager, stay: float = 60.0) -> Running:
    return manager.warm(manager.settings.spec(), WarmRequest(), stay=stay)


def test_one_that_waits_is_no_sandbox_of_anybodys(manager: Manager) -> None:
    """Lists and lookups do not know it."""
    running = warm(manager)

    assert manager.list() == []
    assert manager.lookup(running.sandbox_id) is None
    assert [each.sandbox_id for each in manager.waiting()] == [running.sandbox_id]


def test_a_claimed_one_is_the_sandbox_of_its_new_id(manager: Manager) -> None:
    """Registry, runtime and label say the new id; the old one is nobody's any more."""
    running = warm(manager)

    claimed = manager.claim(running, "mine", manager.settings.spec())

    assert claimed is not None
    assert manager.waiting() == ()
    assert [each.sandbox_id for each in manager.list()] == ["mine"]
    again = manager.ensure("mine")
    assert (again.lifetime, again.started) == (running.lifetime, False)
    assert call_once(again.endpoint, "runtime.health", Empty(), timeout=5).sandbox_id == "mine"
    label = json.loads((again.layout.root / "sandbox.json").read_bytes())
    assert (label["sandbox_id"], label["ephemeral"]) == ("mine", False)
    assert not list((manager.settings.data_dir / "locks").glob("pool-*"))


def test_programs_see_the_new_id_and_never_another(manager: Manager) -> None:
    """SANDBOX_ID is unset until the sandbox has an id."""
    running = warm(manager)
    seen = [_variable(running)]

    claimed = manager.claim(running, "mine", manager.settings.spec())
    assert claimed is not None
    seen.append(_variable(claimed))

    assert seen == ["", "mine"]


def _variable(running: Running) -> str:
    request = StartProcessRequest(argv=["sh", "-c", "echo $SANDBOX_ID > id"])
    started = call_once(running.endpoint, "process.start", request, timeout=5)
    waiting = WaitRequest(process_id=started.process_id)
    call_once(running.endpoint, "process.wait", waiting, timeout=10)
    return (running.layout.workspace / "id").read_text().strip()


def test_a_claimed_one_sleeps_by_the_rules_of_its_new_life(manager: Manager) -> None:
    """Those of the pool were for one that nobody claims."""
    running = warm(manager, stay=60.0)
    spec = manager.settings.spec(sleep_after=1234.0)

    claimed = manager.claim(running, "mine", spec)

    assert claimed is not None
    health = call_once(claimed.endpoint, "runtime.health", Empty(), timeout=5)
    assert health.sleeps_in == pytest.approx(1234.0, abs=30.0)
    assert claimed.spec == spec


def test_an_id_that_is_somebodys_is_not_given_again(manager: Manager) -> None:
    """A notebook's files are in the sandbox it has had before."""
    before = manager.ensure("mine")
    manager.stop("mine")
    running = warm(manager)

    assert manager.claim(running, "mine", manager.settings.spec()) is None
    assert manager.ensure("mine").lifetime == before.lifetime
    assert manager.stays(running)


@pytest.mark.parametrize(
    "change", [{"network": True}, {"env": {"A": "b"}}, {"keep_packages": True}]
)
def test_one_that_is_not_what_is_asked_for_is_left(
    manager: Manager, change: dict[str, object]
) -> None:
    """Only the rules of idle sleep and of outputs can change in what runs."""
    running = warm(manager)

    assert manager.claim(running, "mine", manager.settings.spec(**change)) is None
    assert manager.list() == []
    assert manager.stays(running)


def test_of_many_that_claim_at_once_one_gets_it(manager: Manager) -> None:
    """The others have to start a sandbox of their own."""
    running = warm(manager)

    with ThreadPoolExecutor(8) as threads:
        claims = list(
            threads.map(
                lambda n: manager.claim(running, f"mine-{n}", manager.settings.spec()), range(8)
            )
        )

    assert sum(claim is not None for claim in claims) == 1
    assert len(manager.list()) == 1


def test_one_that_was_named_and_not_entered_is_known_for_lost(manager: Manager) -> None:
    """As when the claimer is killed between the two."""
    running = warm(manager)
    call_once(running.endpoint, "pool.claim", ClaimRequest(sandbox_id="half"), timeout=5)

    assert not manager.stays(running)
    assert manager.claim(running, "mine", manager.settings.spec()) is None


def test_an_id_once_given_stays(manager: Manager) -> None:
    """Nobody can rename a sandbox that somebody uses."""
    claimed = manager.claim(warm(manager), "mine", manager.settings.spec())
    named = manager.ensure("other")

    for running in (claimed, named):
        assert running is not None
        with pytest.raises(ValidationFailedError):
            call_once(running.endpoint, "pool.claim", ClaimRequest(sandbox_id="x"), timeout=5)


def test_one_that_nobody_wants_ends_by_itself_and_is_cleaned_up(manager: Manager) -> None:
    """A killed server leaves nothing behind, though nobody starts another one."""
    running = warm(manager, stay=0.3)
    _wait_until_gone(running)

    assert manager.waiting() == ()
    assert manager.gc() == (running.sandbox_id,)
    assert not running.layout.root.exists()


def _wait_until_gone(running: Running) -> None:
    deadline = time.monotonic() + 20.0
    while processes_of(running.lifetime):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_nothing_is_left_where_the_interpreter_does_not_start(manager: Manager) -> None:
    """The error is told, and the sandbox of the attempt is gone."""
    with pytest.raises(SandboxError):
        manager.warm(manager.settings.spec(), WarmRequest(env={"=": "no name"}), stay=60.0)

    assert manager.waiting() == ()
    assert not list((manager.settings.data_dir / "sandboxes").iterdir())


class _OldEngine(PlainEngine):
    names_later = False


def test_an_engine_that_names_at_the_start_has_no_pool(tmp_path: Path) -> None:
    """It says so, with the setting that ends the message."""
    with (
        plain_manager(tmp_path / "sandbox", _OldEngine()) as manager,
        pytest.raises(SandboxConfigurationError, match="pool"),
    ):
        warm(manager)


def test_a_registry_of_an_earlier_release_is_brought_up_to_date(tmp_path: Path) -> None:
    """What it holds waits in no pool."""
    with plain_manager(tmp_path) as manager:
        lifetime = manager.ensure("mine").lifetime
        manager.close()
        with closing(sqlite3.connect(tmp_path / "registry.sqlite3")) as connection:
            connection.execute("ALTER TABLE sandbox DROP COLUMN pooled")
            connection.execute("PRAGMA user_version = 2")
            connection.commit()

        assert manager.ensure("mine").lifetime == lifetime
        assert manager.waiting() == ()


def test_the_interpreter_that_waits_is_the_next_kernel(manager: Manager) -> None:
    """Under whatever id, and it was not there before for whoever asks."""
    claimed = manager.claim(warm(manager), "mine", manager.settings.spec())
    assert claimed is not None

    first = call_once(
        claimed.endpoint, "kernel.start", StartKernelRequest(kernel_id="one"), timeout=30
    )
    second = call_once(
        claimed.endpoint, "kernel.start", StartKernelRequest(kernel_id="two"), timeout=30
    )

    assert (first.kernel_id, first.existing, first.acked) == ("one", False, 0)
    assert second.pid != first.pid
