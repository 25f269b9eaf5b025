from __future__ import annotations

import multiprocessing
import re
import sqlite3
import stat
import statistics
import time

import pytest

from sandbox_kernel.errors import (
    InvalidPortError,
    InvalidPortTokenError,
    InvalidSandboxIdError,
    PreviewTokenError,
    StalePreviewUrlError,
    StorageError,
    ValidationFailedError,
)
from sandbox_kernel.manager.ports import new_port_token
from sandbox_kernel.manager.registry import _SCHEMA_VERSION, _SCHEMAS, Registry
from tests.support.managed import plain_manager


@pytest.fixture
def manager(tmp_path):
    with plain_manager(tmp_path / "sandbox") as made:
        yield made


def expose(manager, sandbox_id="demo", port=8000, **options):
    running = manager.ensure(sandbox_id)
    exposed = manager.ports.expose(
        sandbox_id, port, secret=running.endpoint.token, incarnation="i" * 16, **options
    )
    assert exposed is not None
    return exposed


def test_a_token_opens_its_port(manager):
    """16 characters by default; what it opens is what was exposed."""
    exposed = expose(manager, name="web")

    assert re.fullmatch(r"[a-z0-9_]{16}", exposed.token)
    assert manager.ports.check("demo", 8000, exposed.token) == exposed
    assert manager.ports.exposed("demo") == [exposed]
    assert exposed.label == f"8000-demo-{exposed.token}"
    assert exposed.token not in repr(exposed)


def test_exposing_again_keeps_token_and_name(manager):
    """Until another one is chosen, which revokes the old one at once."""
    first = expose(manager, name="web")
    again = expose(manager)
    assert (again.token, again.name) == (first.token, "web")
    chosen = expose(manager, token="mine", name="other")

    assert (chosen.token, chosen.name) == ("mine", "other")
    assert manager.ports.check("demo", 8000, "mine") == chosen
    with pytest.raises(PreviewTokenError):
        manager.ports.check("demo", 8000, first.token)


def test_a_token_is_of_one_port_of_a_sandbox(manager):
    """Another sandbox may have the same; nothing is changed by the attempt."""
    expose(manager, token="same")
    with pytest.raises(InvalidPortTokenError, match="that of port 8000") as caught:
        expose(manager, port=8001, token="same")
    expose(manager, "other", port=8001, token="same")

    assert caught.value.http_status == 400
    assert "same" not in str(caught.value)
    assert [each.port for each in manager.ports.exposed("demo")] == [8000]
    with pytest.raises(PreviewTokenError):
        manager.ports.check("demo", 8001, "same")
    with pytest.raises(PreviewTokenError):
        manager.ports.check("other", 8000, "same")


@pytest.mark.parametrize("token", ["", "A", "a-b", "é", "\u0661", "a" * 17, "a\n", " a", 7, b"a"])
def test_other_tokens_cannot_be_chosen(manager, token):
    """1 to 16 of a-z, 0-9 and _."""
    with pytest.raises(InvalidPortTokenError):
        expose(manager, token=token)
    assert manager.ports.exposed("demo") == []


@pytest.mark.parametrize("port", [0, 1023, 65536, -1, "8000", 8000.0, True, None, "\u0668\u0660"])
def test_other_ports_cannot_be_exposed(manager, port):
    """Nor asked for, and to a token they are like unknown ones."""
    with pytest.raises(InvalidPortError):
        expose(manager, port=port)
    with pytest.raises(PreviewTokenError):
        manager.ports.check("demo", port, "a")


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "\x1b[31m", 5])
def test_names_are_for_people(manager, name):
    """Printable, and not too long."""
    with pytest.raises(ValidationFailedError):
        expose(manager, name=name)


@pytest.mark.parametrize("sandbox_id", ["Demo", "DEMO", "dé", "www", "-a", ""])
def test_other_ids_have_no_ports(manager, sandbox_id):
    """An id of mixed case cannot be in a host name, so it is refused and not only warned of."""
    with pytest.raises(InvalidSandboxIdError):
        manager.ports.expose(sandbox_id, 8000, secret="x", incarnation="y")
    with pytest.raises(PreviewTokenError):
        manager.ports.check(sandbox_id, 8000, "a")


def test_every_wrong_token_is_the_same_error(manager):
    """Of any length and kind, and for any other port or sandbox: nothing is told apart."""
    right = expose(manager).token
    expose(manager, "other", token="b" * 16)
    wrong = ["x" * size for size in range(40)]
    wrong += [right[:size] for size in range(16)]
    wrong += [right + "x", right.upper(), " " + right, right + "\0", "\udcff", "é" * 16, "b" * 16]
    wrong += ["x" * 1_000_000]
    said = set()
    wrong += [None, 7, right.encode()]
    for token in wrong:
        if token == right:
            continue
        with pytest.raises(PreviewTokenError) as caught:
            manager.ports.check("demo", 8000, token)
        said.add((str(caught.value), repr(caught.value.context)))
    for sandbox_id, port in (("demo", 8001), ("nowhere", 8000), ("other", 8000)):
        with pytest.raises(PreviewTokenError) as caught:
            manager.ports.check(sandbox_id, port, right)
        said.add((str(caught.value), repr(caught.value.context)))

    assert len(said) == 1
    assert caught.value.http_status == 404


def test_a_wrong_token_takes_as_long_however_wrong_it_is(manager):
    """One that begins right takes no longer than one that does not."""
    right = expose(manager).token
    wrong = {"first": "!" + right[1:], "last": right[:-1] + "!", "short": "!", "none": ""}
    times = {name: [] for name in wrong}
    for _ in range(150):
        for name, token in wrong.items():
            begin = time.perf_counter()
            with pytest.raises(PreviewTokenError):
                manager.ports.check("demo", 8000, token)
            times[name].append(time.perf_counter() - begin)
    medians = [statistics.median(each) for each in times.values()]

    assert max(medians) < 1.5 * min(medians)


def test_tokens_are_kept_over_a_stop_and_stale_until_exposed_again(manager):
    """A right token of a sandbox that has stopped or started anew says so, and starts nothing."""
    exposed = expose(manager)
    manager.stop("demo")
    for _ in range(2):
        assert manager.ports.exposed("demo") == []
        with pytest.raises(StalePreviewUrlError) as caught:
            manager.ports.check("demo", 8000, exposed.token)
        with pytest.raises(PreviewTokenError):
            manager.ports.check("demo", 8000, "wrong")
        if manager.lookup("demo").state == "stopped":
            manager.ensure("demo")

    assert caught.value.http_status == 410
    again = expose(manager)
    assert again.token == exposed.token
    assert manager.ports.check("demo", 8000, exposed.token) == again


def test_nothing_is_started_by_looking(manager):
    """Checking, listing and revoking leave a sleeping sandbox asleep."""
    exposed = expose(manager)
    manager.stop("demo")
    with pytest.raises(StalePreviewUrlError):
        manager.ports.check("demo", 8000, exposed.token)
    manager.ports.exposed("demo")
    manager.ports.unexpose("demo", 8000)

    assert manager.lookup("demo").state == "stopped"
    with pytest.raises(PreviewTokenError):
        manager.ports.check("demo", 8000, exposed.token)


def test_revoking_is_idempotent(manager):
    """Unknown ports and sandboxes are fine; a port exposed anew has another token."""
    first = expose(manager)
    for _ in range(2):
        manager.ports.unexpose("demo", 8000)
    manager.ports.unexpose("nowhere", 8000)

    with pytest.raises(PreviewTokenError):
        manager.ports.check("demo", 8000, first.token)
    assert expose(manager).token != first.token


def test_destroy_ends_every_token(manager):
    """The same id is another sandbox then, and the file keeps nothing of the first."""
    exposed = expose(manager)
    manager.destroy("demo")
    with pytest.raises(PreviewTokenError):
        manager.ports.check("demo", 8000, exposed.token)
    manager.ensure("demo")
    with pytest.raises(PreviewTokenError):
        manager.ports.check("demo", 8000, exposed.token)
    assert manager.ports.exposed("demo") == []
    manager.close()
    with sqlite3.connect(manager.settings.data_dir / "registry.sqlite3") as connection:
        assert connection.execute("SELECT count(*) FROM port").fetchone() == (0,)
    connection.close()


def test_an_incarnation_that_ended_meanwhile_exposes_nothing(manager):
    """What was asked about the port is gone: its successor must be asked."""
    running = manager.ensure("demo")
    manager.stop("demo")
    secret = running.endpoint.token
    assert manager.ports.expose("demo", 8000, secret=secret, incarnation="i") is None
    manager.ensure("demo")
    assert manager.ports.expose("demo", 8000, secret=secret, incarnation="i") is None
    manager.destroy("demo")
    assert manager.ports.expose("demo", 8000, secret=secret, incarnation="i") is None
    assert manager.ports.exposed("demo") == []


def test_looking_makes_no_files(tmp_path):
    """A user without sandboxes stays one."""
    with plain_manager(tmp_path / "sandbox") as manager:
        assert manager.ports.exposed("demo") == []
        manager.ports.unexpose("demo", 8000)
        with pytest.raises(PreviewTokenError):
            manager.ports.check("demo", 8000, "a")
    assert not (tmp_path / "sandbox").exists()


def _expose_in_child(data_dir, results):
    with plain_manager_left_alone(data_dir) as manager:
        results.put(expose(manager).token)


class plain_manager_left_alone:  # noqa: N801  used like the function
    def __init__(self, data_dir):
        from sandbox_kernel.manager.manager import Manager
        from tests.support.managed import plain_settings
        from tests.support.plain_engine import REFERENCE, PlainEngine

        self.manager = Manager(plain_settings(data_dir), engines={REFERENCE: PlainEngine()})

    def __enter__(self):
        return self.manager

    def __exit__(self, *_):
        self.manager.close()


def test_processes_that_expose_at_once_agree(manager):
    """Each gets the token that the first one has made."""
    manager.ensure("demo")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    data_dir = manager.settings.data_dir
    children = [
        context.Process(target=_expose_in_child, args=(data_dir, results)) for _ in range(4)
    ]
    for child in children:
        child.start()
    tokens = {results.get(timeout=30) for _ in children}
    for child in children:
        child.join(30)

    assert tokens == {manager.ports.exposed("demo")[0].token}


def test_tokens_are_random():
    """From every letter, and never twice."""
    made = [new_port_token() for _ in range(2000)]

    assert len(set(made)) == 2000
    assert set("".join(made)) == set("abcdefghijklmnopqrstuvwxyz0123456789_")


def test_a_file_of_the_first_version_is_brought_up_to_date(tmp_path):
    """Its sandboxes stay as they are; the file stays private."""
    path = tmp_path / "registry.sqlite3"
    with sqlite3.connect(path) as connection:
        for statement in _SCHEMAS[0].split(";"):
            connection.execute(statement)
        connection.execute("INSERT INTO leftover VALUES ('life', 'demo')")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    path.chmod(0o600)
    registry = Registry(path, lambda: pytest.fail("a file that is there is the truth"))

    assert [each.sandbox_id for each in registry.leftovers()] == ["demo"]
    assert registry.ports("life") == []
    registry.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (_SCHEMA_VERSION,)
    connection.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_update_that_breaks_off_is_none(tmp_path):
    """The version is the old one until all of the new one is there."""
    path = tmp_path / "registry.sqlite3"
    with sqlite3.connect(path) as connection:
        for statement in _SCHEMAS[0].split(";"):
            connection.execute(statement)
        connection.execute("CREATE TABLE port (in_the_way TEXT)")
        connection.execute("PRAGMA user_version = 1")
    connection.close()

    with pytest.raises(StorageError):
        Registry(path).forget_leftover("life")
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()
