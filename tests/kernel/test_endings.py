"""How interpreters and relays end, and what stays: `lifecycle`'s table, row by row."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from sandbox_kernel.manager.manager import Manager
from tests.kernel.conftest import RelayConnection
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import KERNEL, Kernel


def connection_of(kernel: Kernel) -> RelayConnection:
    assert isinstance(kernel.connection, RelayConnection)
    return kernel.connection


def wait_until(condition: Callable[[], bool], timeout: float = 15.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_shutdown_ends_interpreter_relay_and_sandbox(
    kernel: Kernel, connection: RelayConnection
) -> None:
    """A sandbox made for one kernel leaves nothing; the reply comes on control and iopub."""
    inside = kernel.value("__import__('os').getpid()")
    reply = kernel.request("shutdown_request", {"restart": False}, channel="control")
    kernel.wait_until(lambda: reply.reply is not None, 5.0, "the reply")

    assert reply.content == {"status": "ok", "restart": False}
    assert connection.wait_until_ended() == 0
    wait_until(lambda: not psutil.pid_exists(inside))
    wait_until(lambda: not Manager().list())
    kernel.drain()
    assert reply.of_type("shutdown_reply")


def test_a_restart_clears_the_names_and_keeps_the_files(kernel: Kernel) -> None:
    kernel.cell("x = 1; open('f', 'w').write('kept')")
    before = kernel.value("__import__('os').getppid()")
    began = time.monotonic()
    kernel.restart()

    assert time.monotonic() - began < 10
    assert kernel.value("'x' in dir(), open('f').read()") == (False, "kept")
    assert kernel.value("__import__('os').getppid()") == before


def test_exit_handlers_run_at_shutdown(kernel: Kernel, connection: RelayConnection) -> None:
    """As at the end of a local kernel."""
    kernel.cell("import atexit; atexit.register(lambda: open('bye', 'w').close())")
    kernel.close()

    assert (connection.home.work / "bye").exists()


def test_a_restart_during_a_busy_cell_does_not_wait_for_it(kernel: Kernel) -> None:
    cell = kernel.execute("print('on', flush=True)\nwhile True: pass")
    cell.wait_for_text("on")
    kernel.restart()

    assert kernel.value("1") == 1


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("import os; os._exit(3)", "exit code 3"),
    ],
)
def test_a_dead_interpreter_says_why_and_a_fresh_one_follows(
    kernel: Kernel, connection: RelayConnection, code: str, told: str
) -> None:
    """The cell and what waits behind it get errors; the restarted relay is in the same sandbox."""
    sandbox = kernel.value("__import__('os').getppid()")
    cell, behind = kernel.execute(code), kernel.execute("2", stop_on_error=False)
    completion = kernel.request("complete_request", {"code": "o", "cursor_pos": 1})
    host = kernel.execute("%sandbox outputs")

    assert cell.wait().status == "error"
    assert told in cell.content["evalue"]
    assert told in cell.of_type("error")[0]["content"]["evalue"]
    assert behind.wait().content["ename"] == "InterpreterDied"
    assert completion.wait().status == "error"
    assert host.wait().status == "error"
    assert connection.wait_until_ended() == 1
    connection.start_again()
    kernel.become_ready()
    assert kernel.value("__import__('os').getppid()") == sandbox


def test_exit_in_a_cell_is_no_crash(kernel: Kernel, connection: RelayConnection) -> None:
    cell = kernel.cell("exit()")

    assert cell.content["payload"][0]["source"] == "ask_exit"
    assert connection.wait_until_ended() == 0


@pytest.mark.parametrize("how", ["stopped", "killed", "removed"])
def test_a_sandbox_that_is_gone_is_told_and_comes_anew(
    start: Callable[..., Kernel], home: JupyterHome, how: str
) -> None:
    """Ended by its owner or behind everybody's back: the cell has an error, the next start works."""
    kernel = start(SANDBOX_ID="gone")
    cell = kernel.execute("import time; print('on', flush=True); time.sleep(60)")
    cell.wait_for_text("on")
    info = Manager().lookup("gone")
    assert info is not None
    assert info.instance is not None
    if how == "stopped":
        Manager().stop("gone", grace=0.1)
    else:
        os.kill(info.instance.data["pid"], signal.SIGKILL)
    if how == "removed":
        shutil.rmtree(info.layout.root, ignore_errors=True)

    assert cell.wait(10).content["ename"] == "InterpreterDied"
    assert connection_of(kernel).wait_until_ended() == 1
    connection_of(kernel).start_again()
    kernel.become_ready()
    assert kernel.value("'time' in dir()") is False
    kernel.close()
    Manager().destroy("gone")


def test_sigterm_leaves_the_interpreter_of_a_lasting_sandbox(start: Callable[..., Kernel]) -> None:
    """Nobody asked to end the kernel, so whoever comes back finds it."""
    kernel = start(SANDBOX_ID="lasting")
    kernel.cell("x = 41")
    os.kill(connection_of(kernel).pid, signal.SIGTERM)

    assert connection_of(kernel).wait_until_ended() == 0
    connection_of(kernel).start_again()
    kernel.become_ready()
    assert kernel.value("x + 1") == 42
    kernel.close()
    assert [info.state for info in Manager().list()] == ["running"]
    Manager().destroy("lasting")


PARENT = """
import os, sys, time
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name=sys.argv[1], connection_file=sys.argv[2])
manager.start_kernel()
client = manager.client(); client.start_channels(); client.wait_for_ready(timeout=60)
client.execute_interactive("x = 41", timeout=30)
print(manager.provisioner.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("sandbox_id", ["lasting", ""])
def test_a_relay_goes_with_its_parent(home: JupyterHome, sandbox_id: str) -> None:
    """The interpreter of a lasting sandbox keeps its lease; a sandbox for one kernel ends."""
    file = str(home.runtime / "kernel-p.json")
    environment = home.env(
        SANDBOX_ENGINE=os.environ["SANDBOX_ENGINE"], PYTHONPATH=os.getcwd(), SANDBOX_ID=sandbox_id
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, KERNEL, file],
        env=environment,
        cwd=home.work,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        relay = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    relay.wait(10)
    manager = Manager()

    if not sandbox_id:
        wait_until(lambda: not manager.list())
        return
    with Kernel(RelayConnection(KERNEL, home, SANDBOX_ID="lasting")) as other:
        other.become_ready()
        assert other.value("1") == 1
    assert [info.state for info in manager.list()] == ["running"]
    manager.destroy("lasting")


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"SANDBOX_ENGINE": "nonsense"}, "nonsense"),
        ({"SANDBOX_ID": "Not An Id"}, "Not An Id"),
        ({"SANDBOX_CONFIG": "{"}, "SANDBOX_CONFIG"),
    ],
)
def test_a_start_that_cannot_succeed_says_so_and_ends(
    home: JupyterHome, extra: dict[str, str], told: str
) -> None:
    """One message with the reason, exit code 1, within a moment, and nothing left."""
    connection = RelayConnection(KERNEL, home, **extra)

    assert connection.wait_until_ended(20) == 1
    assert told in connection.said()
    assert "Traceback" not in connection.said()
    assert not Manager().list()
    connection.close()
