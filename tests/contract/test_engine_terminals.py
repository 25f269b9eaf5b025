"""What a terminal is inside every engine: a real one, with job control, sizes and an end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.engines.base import Engine, Launch, SandboxSpec, StateLayout
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
from sandbox_kernel.wire import terminal as wire
from tests.support.docker import docker_engine
from tests.support.inprocess_engine import InProcessEngine
from tests.support.plain_engine import PlainEngine
from tests.support.runtime_child import Client
from tests.support.terminal_channel import PROMPT, TerminalChannel, run_in_foreground

ENGINES: dict[str, Callable[[], Engine]] = {
    "bubblewrap": BubblewrapEngine,
    "docker": docker_engine,
    "plain": PlainEngine,
    "inprocess": InProcessEngine,
}
TOKEN = "token-of-the-terminals"

pytestmark = pytest.mark.filterwarnings("ignore::sandbox_runtime.in_thread.NoIsolationWarning")


@pytest.fixture(scope="module", params=ENGINES)
def socket(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm_cache: Path
) -> Iterator[str]:
    """That of a sandbox for all tests: each makes terminals of its own."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CACHE_HOME", str(warm_cache))
        yield from _started(ENGINES[request.param], tmp_path_factory.mktemp("t"), monkeypatch)


def _started(
    make: Callable[[], Engine], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("MY_SERVER_SECRET", "s3cr3t")
    monkeypatch.setenv("PYTHONPATH", "bogus")
    engine = make()
    layout = StateLayout(folder / "state")
    layout.root.mkdir(0o700)
    spec = SandboxSpec(sleep_after=None)
    started = engine.start(
        Launch(
            sandbox_id="t",
            lifetime=f"terminals-{os.getpid()}",
            token=TOKEN,
            spec=spec,
            layout=layout,
        )
    )
    yield started.socket
    engine.stop(None, layout, grace=0)


@pytest.fixture
def client(socket: str) -> Iterator[Client]:
    with Client(socket, TOKEN) as connected:
        yield connected


@pytest.fixture
def view(client: Client, socket: str) -> Iterator[TerminalChannel]:
    with Client(socket, TOKEN) as other:
        info = client.call("terminal.create", argv=["bash", "--norc", "-i"])
        yield TerminalChannel(other, info.terminal_id, cursor=info.cursor, cols=101, rows=37)


def test_job_control(view: TerminalChannel) -> None:
    """No warning, `monitor on`, a controlling terminal, Ctrl-C, Ctrl-Z, jobs and fg."""
    view.read_until(PROMPT)
    view.type(b"set -o | grep monitor; ps -o tty=,tpgid= -p $$\r")
    told = view.read_until(PROMPT)
    assert b"no job control" not in told
    assert b"monitor        \ton" in told
    assert b"pts/" in told
    view.type(b"true\r")
    run_in_foreground(view, b"sleep 100")
    view.type(b"\x03")
    run_in_foreground(view, b"sleep 101")
    view.type(b"\x1a")
    view.read_until(b"Stopped")
    view.read_until(PROMPT)
    view.type(b"jobs\r")
    view.read_until(b"Stopped")
    view.type(b"kill %1; fg\r")
    view.read_until(b"Terminated")
    view.read_until(PROMPT)


def test_size_and_environment(view: TerminalChannel) -> None:
    """The viewer's size, the terminal's own variables, nothing of the server's."""
    view.type(
        b"stty size; echo $TERM $(tput colors) [$COLUMNS] [$MY_SERVER_SECRET] [$PYTHONPATH]\r"
    )
    view.read_until(b"37 101")
    view.read_until(b"xterm-256color 256 [101] [] []")
    view.resize(90, 30)
    view.type(b"stty size\r")
    view.read_until(b"30 90")


def test_exit(view: TerminalChannel) -> None:
    """Though a background job has the terminal."""
    view.type(b"sleep 300 & exit 7\r")

    assert view.wait_for(wire.Exited, timeout=5).exit_code == 7
