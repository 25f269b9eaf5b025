"""A relay that is killed is replaced by one that finds the same interpreter and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

from sandbox_kernel.manager.manager import Manager
from tests.kernel.conftest import RelayConnection
from tests.support.kernel_driver import Kernel

TICKS = (
    "import time\nfor i in range(20):\n    print('tick', i, flush=True); time.sleep(0.1)\ny = 7\ny"
)


def kill_and_start(connection: RelayConnection) -> None:
    os.kill(connection.pid, signal.SIGKILL)
    connection.wait_until_ended()
    connection.start_again()


def test_a_killed_relay_loses_and_doubles_nothing(
    kernel: Kernel, connection: RelayConnection
) -> None:
    """Same interpreter, same session, every line once under its own cell, reply and idle too."""
    kernel.cell("x = 41")
    cell = kernel.execute(TICKS)
    cell.wait_for_text("tick 4")
    kill_and_start(connection)
    cell.wait()

    assert cell.text == "".join(f"tick {i}\n" for i in range(20))
    assert cell.result == "7"
    assert kernel.value("(x, y)") == (41, 7)
    assert len({message["header"]["session"] for message in kernel.log}) == 1
    kept = kernel.cell("%sandbox outputs")
    assert "tick 19" in kept.text
    assert "Nothing is kept" in kernel.cell("%sandbox outputs").text
    assert "no request" not in kernel.cell("%sandbox status").text


def test_what_ended_while_no_relay_was_there_is_delivered(
    kernel: Kernel, connection: RelayConnection
) -> None:
    cell = kernel.execute("import time; print('on', flush=True); time.sleep(0.5); 'done'")
    cell.wait_for_text("on")
    os.kill(connection.pid, signal.SIGKILL)
    connection.wait_until_ended()
    kernel.drain(1.0)
    connection.start_again()

    assert cell.wait().result == "'done'"
    assert kernel.cell("%sandbox outputs").status == "ok"


def test_a_relay_killed_at_rest_leaves_nothing_open(
    kernel: Kernel, connection: RelayConnection
) -> None:
    """A cell that had ended does not hold up the host's cells for ever."""
    for number in range(3):
        kernel.cell(str(number))
        kill_and_start(connection)
        kernel.become_ready()

    assert kernel.cell("%sandbox outputs").status == "ok"
    assert kernel.value("_ih[1:4]") == ["0", "1", "2"]


def test_an_interpreter_that_died_unattended_is_reported(
    kernel: Kernel, connection: RelayConnection
) -> None:
    """Its cell gets an error from the next relay instead of silence."""
    cell = kernel.execute("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    cell.wait_for_text("\n")
    os.kill(connection.pid, signal.SIGKILL)
    connection.wait_until_ended()
    os.kill(int(cell.text), signal.SIGKILL)
    connection.start_again()

    assert cell.wait().content["ename"] == "InterpreterDied"
    kernel.become_ready()
    assert kernel.value("1") == 1


def test_a_notebook_reopened_by_another_server_finds_its_interpreter(
    start: Callable[..., Kernel],
) -> None:
    """Another connection file, the same notebook: variables are there."""
    notebook = {"SANDBOX_ID": "reopened", "JPY_SESSION_NAME": "/x/nb.ipynb"}
    first = start(**notebook)
    first.cell("x = 41")
    connection = first.connection
    assert isinstance(connection, RelayConnection)
    os.kill(connection.pid, signal.SIGKILL)
    connection.wait_until_ended()
    second = start(**notebook)

    assert second.value("x + 1") == 42
    second.close()
    Manager().destroy("reopened")


def test_a_broken_stream_is_invisible(kernel: Kernel, connection: RelayConnection) -> None:
    """The relay reconnects with its cursor, at rest and busy; clients see every line once."""
    kernel.cell("x = 1")
    break_stream(connection)
    cell = kernel.execute(TICKS)
    for tick in (4, 9, 14):
        cell.wait_for_text(f"tick {tick}")
        break_stream(connection)

    assert cell.wait().text == "".join(f"tick {i}\n" for i in range(20))
    assert kernel.value("x") == 1
    assert connection.is_alive()


_BREAK = """
import ctypes, os, socket, sys
pid, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)
handle = os.pidfd_open(pid)
for name in os.listdir(f"/proc/{pid}/fd"):
    if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
        continue
    copy = libc.syscall(438, handle, int(name), 0)  # pidfd_getfd
    assert copy >= 0, os.strerror(ctypes.get_errno())
    with socket.socket(fileno=copy) as copied:
        if copied.family == socket.AF_UNIX and "runtime.sock" in str(copied.getpeername()):
            copied.shutdown(socket.SHUT_RDWR)
            print("broken")
"""


def break_stream(connection: RelayConnection) -> None:
    """Shut the relay's connection to the runtime down, from outside."""
    said = subprocess.run(
        [sys.executable, "-c", _BREAK, str(connection.pid)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert said.stdout == "broken\n", said.stderr
