"""Below an error that a wall of the real sandbox has made: the reason, and the setting that changes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL, Kernel, Request
from tests.support.zmq_connection import ZmqConnection

pytestmark = pytest.mark.skipif(KERNEL == "python3", reason="a plain kernel has no walls")

# As an ordinary user memory may only be bounded for each process; the hint is the same.
LIMITS = json.dumps(
    {
        "SandboxManager": {
            "memory_bytes": 1500 << 20,
            "processes": 80,
            "accept_weaker_limits": True,
        }
    }
)


@pytest.fixture(scope="module")
def limited(new_home: Callable[[], JupyterHome]) -> Iterator[Kernel]:
    """A kernel in a sandbox with limits."""
    with Kernel(ZmqConnection(KERNEL, new_home(), SANDBOX_CONFIG=LIMITS)) as kernel:
        kernel.become_ready()
        yield kernel


def hint_below(cell: Request) -> str:
    """Return what stands below a cell's error, or a text without a hint."""
    (error,) = cell.of_type("error")
    return str(error["content"]["traceback"][-1])


THREADS = """
import threading
end = threading.Event()
try:
    for _ in range(200): threading.Thread(target=end.wait).start()
finally:
    end.set()
"""
PROCESSES = """
import subprocess
children = []
try:
    for _ in range(200): children.append(subprocess.Popen(['sleep', '60']))
finally:
    for child in children: child.kill(); child.wait()
"""
ADDRESS = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
NAME = "import urllib.request; urllib.request.urlopen('http://example.invalid/')"


@pytest.mark.parametrize(
    ("code", "ename", "setting"),
    [
        (ADDRESS, "OSError", "SandboxManager.network"),
        (NAME, "URLError", "SandboxManager.network"),
        ("open('/srv/data.csv')", "FileNotFoundError", "BubblewrapEngine.extra_paths"),
        (THREADS, "RuntimeError", "SandboxManager.processes"),
        (PROCESSES, "BlockingIOError", "SandboxManager.processes"),
    ],
    ids=["address", "name", "folder", "threads", "processes"],
)
def test_an_error_that_a_wall_made_names_its_setting(
    limited: Kernel, code: str, ename: str, setting: str
) -> None:
    """The walls are those of the engine, and the errors those that programs meet there."""
    cell = limited.cell(code)

    assert cell.content["ename"] == ename
    assert f"c.{setting}" in hint_below(cell)
    assert "Sandbox:" not in hint_below(limited.cell("1 / 0"))


def test_running_out_of_memory_names_its_setting(
    start_kernel: Callable[..., Kernel],
) -> None:
    """Whether the program is told or killed: the cell says which limit that was."""
    kernel = start_kernel(SANDBOX_CONFIG=LIMITS)

    cell = kernel.cell("filled = bytearray(3 << 30)", 60)

    assert cell.content["ename"] in ("MemoryError", "InterpreterDied")
    assert "c.SandboxManager.memory_bytes" in hint_below(cell)


def test_a_folder_that_is_not_shared_is_named_when_a_file_is_missing(home: JupyterHome) -> None:
    """A notebook in the home folder itself: that is never shared, and the error says so."""
    (home.work / "data.csv").write_text("a\n1\n")
    with Kernel(ZmqConnection(KERNEL, home, HOME=str(home.work))) as kernel:
        kernel.become_ready()
        cell = kernel.cell("open('data.csv')")

    assert cell.content["ename"] == "FileNotFoundError"
    assert "your home folder" in hint_below(cell)
