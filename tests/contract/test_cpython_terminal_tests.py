"""CPython's own tests of terminals, in a sandbox's terminal, give what they give outside."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.engines.base import Launch, SandboxSpec, StateLayout
from sandbox_kernel.engines.bubblewrap import BubblewrapEngine
from sandbox_kernel.wire import terminal as wire
from tests.support.runtime_child import Client
from tests.support.terminal_channel import TerminalChannel

TOKEN = "token-of-the-tests"
MODULES = ("test_pty", "test_tty", "test_termios", "test_ioctl")
ARGUMENTS = ["-m", "test", "-v", *MODULES]


def results(output: bytes) -> list[tuple[str, str]]:
    """Return each test with its result."""
    text = output.decode("utf-8", "replace").replace("\r", "")
    found = re.findall(
        r"^(test_\w+ \([\w.]+\)).*?(ok|skipped [^\n]*|FAIL|ERROR|expected failure)$",
        text,
        re.MULTILINE | re.DOTALL,
    )
    return sorted(set(found))


def run_outside(folder: Path) -> bytes:
    """Run the tests on a plain terminal."""
    spawn = "import pty, sys; pty.spawn(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", spawn, sys.executable, *ARGUMENTS],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.stdout


def run_inside(folder: Path) -> bytes:
    """Run them on a terminal of a sandbox."""
    engine, layout = BubblewrapEngine(), StateLayout(folder / "state")
    layout.root.mkdir(0o700)
    spec = SandboxSpec(sleep_after=None)
    launch = Launch(sandbox_id="t", lifetime="tests", token=TOKEN, spec=spec, layout=layout)
    socket = engine.start(launch).socket
    try:
        with Client(socket, TOKEN) as client, Client(socket, TOKEN) as other:
            info = client.call("terminal.create", argv=["python3", *ARGUMENTS])
            view = TerminalChannel(other, info.terminal_id, cursor=info.cursor)
            view.wait_for(wire.Exited, timeout=120)
            return view.data
    finally:
        engine.stop(None, layout, grace=0)


@pytest.mark.skipif(
    importlib.util.find_spec("test.test_pty") is None,
    reason="this interpreter comes without CPython's own tests",
)
def test_the_same_list(tmp_path: Path, warm_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test by test: what passes outside passes inside, and nothing is skipped for our sake."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(warm_cache))
    (tmp_path / "outside").mkdir()
    outside, inside = results(run_outside(tmp_path / "outside")), results(run_inside(tmp_path))

    assert len(outside) > 20
    assert inside == outside
