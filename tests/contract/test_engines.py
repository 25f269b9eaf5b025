"""What every engine promises, whatever isolates; one suite for all of them.

A new engine is one more line in `ENGINES`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import pytest

from sandbox_kernel.engines.base import Engine, Instance, Launch, SandboxSpec, StateLayout
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
from sandbox_kernel.errors import EngineStartError, UnauthorizedError
from tests.support.docker import client, docker_engine
from tests.support.inprocess_engine import InProcessEngine, cut
from tests.support.plain_engine import PlainEngine
from tests.support.runtime_child import Client

ENGINES: dict[str, Callable[[], Engine]] = {
    "bubblewrap": BubblewrapEngine,
    "docker": docker_engine,
    "docker by tcp": lambda: docker_engine(door="tcp"),
    "plain": PlainEngine,
    "inprocess": InProcessEngine,
}
TOKEN = "token-of-the-contract"

pytestmark = pytest.mark.filterwarnings("ignore::sandbox_runtime.in_thread.NoIsolationWarning")


@pytest.fixture(params=ENGINES)
def engine(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    warm_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Engine:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(warm_cache))
    return ENGINES[request.param]()


@pytest.fixture
def layout(engine: Engine, tmp_path: Path) -> Iterator[StateLayout]:
    found = StateLayout(tmp_path / "state")
    found.root.mkdir(0o700)
    yield found
    engine.stop(None, found, grace=0)
    engine.stop(None, found, grace=0)


@pytest.fixture(scope="module", params=ENGINES)
def started(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm_cache: Path
) -> Iterator[tuple[Engine, StateLayout, Instance]]:
    """An instance for tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("started")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("HOME", str(folder / "home"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(warm_cache))
        engine = ENGINES[request.param]()
        layout = StateLayout(folder / "state")
        layout.root.mkdir(0o700)
        try:
            yield engine, layout, engine.start(launch(layout))
        finally:
            engine.stop(None, layout, grace=0)


def launch(layout: StateLayout) -> Launch:
    return Launch(
        sandbox_id="contract",
        # Engines find by it: one per state, as several of this module's live at once.
        lifetime=f"contract-{sha256(str(layout.root).encode()).hexdigest()[:16]}",
        token=TOKEN,
        spec=SandboxSpec(sleep_after=None, env={"GIVEN": "value"}),
        layout=layout,
    )


def out_of(instance: Instance, *argv: str) -> str:
    with Client(instance.socket, TOKEN) as client:
        out, err, end = client.run(*argv)
    assert end.exit_code == 0, err
    return out.decode()


def kill(instance: Instance) -> None:
    """End a runtime as by a power cut."""
    if "pid" in instance.data:
        os.kill(instance.data["pid"], signal.SIGKILL)
        return
    if instance.engine == "inprocess":
        cut(instance.data["lifetime"])
        return
    with client() as connected:
        connected.kill(instance.data["container"])


def test_the_probe_tries(engine: Engine) -> None:
    """And names the engine; a machine where an engine does not work fails here."""
    probe = engine.probe()

    assert (probe.engine, probe.works, probe.cause) == (engine.name, True, "")


def test_a_started_runtime_answers(started: tuple[Engine, StateLayout, Instance]) -> None:
    """On the instance's socket, to the launch's token only, with the asked-for environment."""
    engine, layout, instance = started

    assert instance.engine == engine.name
    assert engine.is_alive(instance, layout)
    assert out_of(instance, "sh", "-c", 'echo "$GIVEN $SANDBOX_ID"').split()[0] == "value"
    with Client(instance.socket, "another") as client, pytest.raises(UnauthorizedError):
        client.welcome()


def test_one_runtime_at_a_time(started: tuple[Engine, StateLayout, Instance]) -> None:
    """A second start over a living one is refused and leaves it alone."""
    engine, layout, instance = started

    with pytest.raises(EngineStartError):
        engine.start(launch(layout))

    assert out_of(instance, "echo", "alive") == "alive\n"


def test_an_instance_is_found_again_from_its_json(engine: Engine, layout: StateLayout) -> None:
    """By another engine object, as another process would; no secret is in it."""
    text = json.dumps(asdict(engine.start(launch(layout))))
    assert TOKEN not in text

    again = ENGINES[engine.name]()
    instance = Instance(**json.loads(text))

    assert again.is_alive(instance, layout)
    again.stop(instance, layout, grace=0)
    assert not engine.is_alive(instance, layout)


def test_stop_ends_everything(engine: Engine, layout: StateLayout) -> None:
    """Daemons of the programs too; the socket is gone, and a second stop is fine."""
    instance = engine.start(launch(layout))
    mark = layout.workspace / "beats"
    workspace = out_of(instance, "pwd").strip()
    beat = f"while :; do echo . >> {workspace}/beats; sleep 0.02; done"
    out_of(instance, "sh", "-c", f"setsid sh -c '{beat}' >/dev/null 2>&1 &")
    deadline = time.monotonic() + 10
    while not mark.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)

    for _ in range(2):
        engine.stop(instance, layout, grace=0)

    size = mark.stat().st_size
    assert not engine.is_alive(instance, layout)
    assert not layout.socket.exists()
    time.sleep(0.2)  # ten beats, if there still were a heart
    assert mark.stat().st_size == size


def test_the_workspace_outlives_the_runtime(engine: Engine, layout: StateLayout) -> None:
    """What was written is there at the next start."""
    instance = engine.start(launch(layout))
    out_of(instance, "sh", "-c", "echo kept > kept")
    engine.stop(instance, layout, grace=0)

    assert out_of(engine.start(launch(layout)), "cat", "kept") == "kept\n"


def test_a_killed_runtime_is_dead_and_can_be_started_anew(
    engine: Engine, layout: StateLayout
) -> None:
    """Liveness is not fooled by what it left behind."""
    instance = engine.start(launch(layout))
    out_of(instance, "true")
    kill(instance)
    deadline = time.monotonic() + 10
    while engine.is_alive(instance, layout):
        assert time.monotonic() < deadline
        time.sleep(0.005)

    again = engine.start(launch(layout))

    assert out_of(again, "echo", "again") == "again\n"
