"""The acceptance checklist of the sandboxed kernel: where each point is proved.

`CHECKLIST` names the tests; one test here makes sure that they exist.  The points which need a
whole kernel and no other suite's machinery are proved below.
"""

from __future__ import annotations

import ast
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from jupyter_client.connect import write_connection_file
from zmq.utils.monitor import recv_monitor_message

from tests.support.jupyter_home import JupyterHome, describe, processes_below
from tests.support.kernel_driver import KERNEL, Kernel
from tests.support.ws_connection import JupyterServer, WsConnection
from tests.support.zmq_connection import ZmqConnection

CHECKLIST: dict[str, list[str]] = {
    "1 jupyter_kernel_test and small observations, no worse than plain": [
        "test_jupyter_kernel_test.py::test_it_passes_the_jupyter_kernel_test_suite_as_a_plain_kernel_does",
        "test_fidelity.py::test_it_behaves_as_a_plain_kernel",
    ],
    "2 nbclient's outputs equal plain's; child output never after the idle": [
        "test_notebooks.py::test_a_notebook_has_the_outputs_of_a_plain_kernel",
        "test_acceptance.py::test_output_of_children_never_comes_after_the_idle",
    ],
    "3 debugger; two clients; stdin to the asker only": [
        "test_fidelity.py::the_debugger_stops_at_breakpoints",
        "test_fidelity.py::a_second_client",
    ],
    "4 ratios; memory; modules of the relay": [
        "../../benchmarks/kernel.py::measure_all",
        "test_acceptance.py::test_the_relay_is_small",
        "test_acceptance.py::test_the_relay_loads_no_framework",
    ],
    "5 a slow subscriber loses nothing, never the idle": [
        "test_acceptance.py::test_a_slow_subscriber_loses_nothing",
    ],
    "6 the relay is killed in a cell; a broken exec stream": [
        "test_acceptance.py::test_a_killed_relay_is_succeeded_without_loss",
        "test_acceptance.py::test_a_broken_stream_is_not_noticed",
    ],
    "7 the interpreter is killed": [
        "test_acceptance.py::test_a_killed_interpreter_says_so_and_the_sandbox_stays",
        "test_kernel_cases.py::test_what_was_printed_before_a_crash_is_shown",
    ],
    "8 restart, shutdown, death of the server": [
        "test_acceptance.py::test_a_restart_keeps_files_and_clears_names",
        "test_acceptance.py::test_a_shutdown_ends_a_sandbox_of_its_own_and_keeps_a_named_one",
        "test_acceptance.py::test_the_death_of_the_server_leaves_no_relay",
    ],
    "9 interrupts within a second": [
        "test_acceptance.py::test_an_interrupt_ends_it_within_a_second",
        "test_acceptance.py::test_an_interrupt_ends_input_within_a_second",
        "test_acceptance.py::test_an_interrupt_needs_no_control_thread",
        "test_kernel_cases.py::test_interrupts_end_cells_and_never_the_kernel",
    ],
    "10 forgeries": ["../../kernel/test_policy.py", "../../kernel/test_forgery.py"],
    "11 fuzzing of wire and policy": [
        "../../wire/test_kernel_records.py",
        "../../kernel/test_policy.py",
    ],
    "12 host cells": [
        "test_acceptance.py::test_host_cells_take_their_turn_or_answer_at_once",
        "test_acceptance.py::test_a_host_restart_waits_for_its_turn",
        "../../kernel/test_host_widgets.py::test_a_host_widget_is_answered_by_the_host_and_unreachable_from_inside",
    ],
    "13 Curve; a second kernel through the bridge": [
        "test_acceptance.py::test_curve_keys_are_honoured",
        "test_acceptance.py::test_another_kernel_runs_through_the_bridge",
    ],
}

HERE = Path(__file__).parent


@pytest.mark.parametrize("point", CHECKLIST)
def test_every_point_is_proved_by_tests_that_exist(point: str) -> None:
    """The list names files and functions that are there."""
    for reference in CHECKLIST[point]:
        name, _, function = reference.partition("::")
        tree = ast.parse((HERE / name).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not function or function in names, reference


def zmq_of(kernel: Kernel) -> ZmqConnection:
    assert isinstance(kernel.connection, ZmqConnection)
    return kernel.connection


def relay_command(connection: ZmqConnection) -> list[str]:
    return [sys.executable, "-m", "sandbox_kernel.kernel.launch", str(connection.connection_file)]


@pytest.mark.slow
def test_output_of_children_never_comes_after_the_idle(shared_kernel: Kernel) -> None:
    """200 cells whose children write to descriptors 1 and 2: all of it is before the idle."""
    for n in range(200):
        cell = shared_kernel.cell(f"import os; x = os.system('echo {n}; echo e{n} >&2')")
        assert cell.stream("stdout") == f"{n}\n"
        assert cell.stream("stderr") == f"e{n}\n"
        assert cell.kinds[-1] == "idle"


def test_the_relay_is_small(kernel: Kernel) -> None:
    """After some work the relay itself takes at most 15 MB that it shares with nobody."""
    kernel.cell("for i in range(1000): print(i)")
    kernel.cell("import os; display(os.urandom(1000))")

    used = psutil.Process(zmq_of(kernel).pid).memory_full_info().uss / 1e6
    assert used <= 15, f"{used:.1f} MB"


def test_the_relay_loads_no_framework(kernel: Kernel) -> None:
    """A relay that has worked has mapped none of the slow packages' extension modules."""
    kernel.cell("1")
    maps = Path(f"/proc/{zmq_of(kernel).pid}/maps").read_text()

    assert "zmq" in maps
    for package in ("tornado", "aiohttp", "_asyncio", "psutil", "/IPython/"):
        assert package not in maps, package


@pytest.mark.slow
def test_a_slow_subscriber_loses_nothing(kernel: Kernel) -> None:
    """A client that reads nothing while 8000 displays are published gets each of them after that."""
    with zmq_of(kernel).second_client() as connection:
        slow = Kernel(connection)
        slow.become_ready()
        cell = kernel.cell(
            "for i in range(8000): display({'text/plain': f'{i} ' + 'x' * 2000}, raw=True)", 90
        )
        slow.wait_until(
            lambda: any(
                m["header"]["msg_type"] == "status"
                and m["parent_header"].get("msg_id") == cell.msg_id
                and m["content"]["execution_state"] == "idle"
                for m in slow.strays[-50:]
            ),
            60,
            "the idle at the slow client",
        )
        seen = [
            m["content"]["data"]["text/plain"].split()[0]
            for m in slow.strays
            if m["header"]["msg_type"] == "display_data"
        ]

    assert seen == [str(i) for i in range(8000)]
    assert len(cell.displays) == 8000


@pytest.mark.slow
def test_a_killed_relay_is_succeeded_without_loss(start_kernel: Callable[..., Kernel]) -> None:
    """A new relay on the same connection file finds the interpreter; no line is lost or doubled.

    What the killed one had sent but not acknowledged comes again under the ids it had; a client
    that compares ids, as the server's connection does, sees each message once.
    """
    kernel = start_kernel(SANDBOX_ID="survivor")
    connection = zmq_of(kernel)
    kernel.cell("import os, time; kept = 'here'")
    pid = kernel.value("os.getpid()")
    cell = kernel.execute("for i in range(20): print(i, flush=True); time.sleep(.1)\n'end'")
    cell.wait_for_text("7\n")
    session = cell.iopub[0]["header"]["session"]
    os.kill(connection.pid, signal.SIGKILL)

    with open(connection.home.root / "successor.log", "wb") as log:
        successor = subprocess.Popen(
            relay_command(connection),
            env=connection.home.env(SANDBOX_ID="survivor"),
            cwd=connection.home.work,
            stderr=log,
        )
        try:
            cell.wait(20)
            kernel.become_ready()
            again = kernel.value("(os.getpid(), kept)")
            shut = kernel.ask_control("shutdown_request", restart=False)
            successor.wait(10)
        finally:
            successor.kill()
            successor.wait()

    assert cell.text == "".join(f"{i}\n" for i in range(20))
    assert cell.result == "'end'"
    assert cell.kinds[-1] == "idle"
    assert again == (pid, "here")
    assert {m["header"]["session"] for m in kernel.log} == {session}
    assert len(kernel.repeats) <= 3, "more than was in flight"
    assert shut["status"] == "ok"


def test_a_broken_stream_is_not_noticed(kernel: Kernel) -> None:
    """When the relay's connection to the sandbox breaks in a cell, it comes back by itself."""
    relay = psutil.Process(zmq_of(kernel).pid)
    cell = kernel.execute("import time\nfor i in range(20): print(i, flush=True); time.sleep(.1)")
    cell.wait_for_text("5\n")
    broken = break_unix_streams(relay.pid)
    cell.wait(20)

    assert broken
    assert relay.is_running()
    assert cell.text == "".join(f"{i}\n" for i in range(20))
    assert kernel.value("i") == 19


def break_unix_streams(pid: int) -> bool:
    """Shut down every unix stream of a process, from outside."""
    descriptor = os.pidfd_open(pid)
    broken = False
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            if not os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):
                continue
            with socket.socket(fileno=pidfd_getfd(descriptor, int(number))) as copy:
                if copy.family == socket.AF_UNIX and copy.type == socket.SOCK_STREAM:
                    copy.shutdown(socket.SHUT_RDWR)
                    broken = True
    finally:
        os.close(descriptor)
    return broken


def pidfd_getfd(descriptor: int, number: int) -> int:
    copy = ctypes.CDLL(None, use_errno=True).syscall(438, descriptor, number, 0)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return int(copy)


@pytest.mark.slow
def test_a_killed_interpreter_says_so_and_the_sandbox_stays(
    new_home: Callable[[], JupyterHome],
) -> None:
    """The cell shows the reason, waiting requests end with errors, a restart keeps the files."""
    home = new_home()
    with (
        JupyterServer(home, SANDBOX_ID="kept") as server,
        Kernel(WsConnection(server, KERNEL)) as kernel,
    ):
        kernel.become_ready()
        kernel.cell("open('/workspace/kept.txt', 'w').write('kept'); x = 1")
        cell = kernel.execute("import os, time; time.sleep(.5); os.kill(os.getpid(), 9)")
        waiting = [
            kernel.execute("x"),
            kernel.request("complete_request", {"code": "p", "cursor_pos": 1}),
        ]
        cell.wait(10)
        for request in waiting:
            kernel.wait_until(lambda r=request: r.reply is not None, 10, "an error reply")

        error = cell.of_type("error")[0]["content"]
        assert "SIGKILL" in error["evalue"] + "\n".join(error["traceback"])
        assert cell.status == "error"
        assert {request.status for request in waiting} <= {"error", "aborted"}

        # The server's restarter looks every three seconds.
        kernel.wait_until(
            lambda: any(
                m["header"]["msg_type"] == "status"
                and m["content"]["execution_state"] in ("restarting", "starting")
                for m in kernel.strays
            ),
            20,
            "the restart",
        )
        kernel.become_ready()
        assert kernel.cell("x").content["ename"] == "NameError"
        assert kernel.value("open('/workspace/kept.txt').read()") == "kept"


def test_a_restart_keeps_files_and_clears_names(kernel: Kernel) -> None:
    """Same sandbox, fresh interpreter: files are there, names are not, counts begin again."""
    kernel.cell("x = 1; open('/workspace/f', 'w').write('a'); open('beside.txt', 'w').write('b')")
    sandbox = kernel.value("__import__('os').environ['SANDBOX_ID']")
    kernel.restart()

    assert kernel.cell("x").content["ename"] == "NameError"
    assert kernel.value("open('/workspace/f').read() + open('beside.txt').read()") == "ab"
    assert kernel.value("__import__('os').environ['SANDBOX_ID']") == sandbox


def test_a_shutdown_ends_a_sandbox_of_its_own_and_keeps_a_named_one(
    start_kernel: Callable[..., Kernel], home: JupyterHome
) -> None:
    """A nameless sandbox goes with its kernel; a named one stays, with its files."""
    fresh = start_kernel()
    named = start_kernel(SANDBOX_ID="lasting")
    named.cell("open('/workspace/f', 'w').write('here')")
    fresh.close()
    named.close()

    deadline = time.monotonic() + 10
    while len(list(home.sandboxes.glob("sandboxes/*"))) != 1:
        assert time.monotonic() < deadline, list(home.sandboxes.glob("sandboxes/*"))
        time.sleep(0.1)
    again = start_kernel(SANDBOX_ID="lasting")
    assert again.value("open('/workspace/f').read()") == "here"


@pytest.mark.slow
def test_the_death_of_the_server_leaves_no_relay(new_home: Callable[[], JupyterHome]) -> None:
    """A killed server's relays go by themselves; a named sandbox keeps its lease."""
    home = new_home()
    server = JupyterServer(home, SANDBOX_ID="leased")
    kernel = Kernel(WsConnection(server, KERNEL))
    assert isinstance(kernel.connection, WsConnection)
    kernel.become_ready()
    kernel.cell("x = 5")
    relays = [
        p for p in processes_below(home.root) if "sandbox_kernel.kernel.launch" in p.cmdline()
    ]
    server.process.kill()
    server.process.wait()
    kernel.connection.disconnect()

    _, left = psutil.wait_procs(relays, timeout=10)
    assert relays
    assert not left, [describe(p) for p in left]
    assert processes_below(home.root), "the sandbox lives on"
    with Kernel(ZmqConnection(KERNEL, home, SANDBOX_ID="leased")) as later:
        later.become_ready()
        assert later.value("__import__('os').environ['SANDBOX_ID']") == "leased"


WAITS: dict[str, str] = {
    "loop": "print('go', flush=True)\nwhile True: pass",
    "sleep": "print('go', flush=True)\nimport time; time.sleep(60)",
    "child": "print('go', flush=True)\nimport subprocess; subprocess.run(['sleep', '60'])",
    "command": "!echo go; sleep 60",
    "bash": "%%bash\necho go; sleep 60",
    "await": "print('go', flush=True)\nimport asyncio; await asyncio.sleep(60)",
    "lock": "print('go', flush=True)\nimport threading; threading.Event().wait(60)",
    "select": "print('go', flush=True)\nimport select; select.select([], [], [], 60)",
}


@pytest.mark.parametrize("how", ["message", "signal"])
@pytest.mark.parametrize("what", WAITS)
def test_an_interrupt_ends_it_within_a_second(shared_kernel: Kernel, what: str, how: str) -> None:
    """Whatever a cell waits for, a message or a signal ends it within a second."""
    cell = shared_kernel.execute(WAITS[what])
    cell.wait_for_text("go")
    asked = time.monotonic()
    if how == "signal":
        zmq_of(shared_kernel).interrupt_by_signal()
    else:
        shared_kernel.ask_control("interrupt_request")
    cell.wait(10)

    assert cell.reply is not None
    assert cell.reply["at"] - asked < 1
    if what != "command":
        assert cell.status == "error"
    assert shared_kernel.value("1 + 1") == 2


@pytest.mark.parametrize("how", ["message", "signal"])
def test_an_interrupt_ends_input_within_a_second(shared_kernel: Kernel, how: str) -> None:
    """A cell that waits for the user's answer is interrupted as any other."""
    cell = shared_kernel.execute("input()", allow_stdin=True)
    cell.wait_for_input()
    asked = time.monotonic()
    if how == "signal":
        zmq_of(shared_kernel).interrupt_by_signal()
    else:
        shared_kernel.request("interrupt_request", channel="control")
    cell.wait(10)

    assert time.monotonic() - asked < 1
    assert cell.content["ename"] == "KeyboardInterrupt"


def test_an_interrupt_needs_no_control_thread(kernel: Kernel) -> None:
    """A cell whose interpreter holds its lock in C is signalled although no thread can answer."""
    cell = kernel.execute(
        "import ctypes, time; print('go', flush=True)\n"
        "ctypes.PyDLL(None).usleep(3_000_000)\nwhile True: pass"
    )
    cell.wait_for_text("go")
    kernel.request("interrupt_request", channel="control")
    cell.wait(10)

    assert cell.content["ename"] == "KeyboardInterrupt"


def test_host_cells_take_their_turn_or_answer_at_once(kernel: Kernel) -> None:
    """Looking is answered while a cell runs; the count of the interpreter is left alone."""
    before = kernel.cell("1").content["execution_count"]
    running = kernel.execute("import time; time.sleep(2); print('slept')")
    running.wait_for("execute_input")
    status = kernel.execute("%sandbox status")
    status.wait(1.5)

    assert running.reply is None, "the status came while the cell ran"
    assert "bubblewrap" in status.text
    assert "outputs          default" in status.text
    running.wait()
    assert kernel.cell("1").content["execution_count"] == before + 2
    assert "%sandbox status" in kernel.cell("%sandbox help").text
    unknown = kernel.cell("%sandbox fly")
    assert unknown.status == "error"
    assert "fly" in unknown.content["evalue"]


def test_a_host_restart_waits_for_its_turn(kernel: Kernel) -> None:
    """``%sandbox restart`` runs behind the cells before it and gives a fresh interpreter."""
    kernel.cell("x = 1")
    first = kernel.execute("import time; time.sleep(.5); print(x)")
    restart = kernel.execute("%sandbox restart")
    after = kernel.execute("x")
    first.wait()
    restart.wait()
    after.wait()

    assert first.text == "1\n"
    assert after.content["ename"] == "NameError"


@pytest.fixture
def curve_client(home: JupyterHome) -> Iterator[dict[str, Any]]:
    """A relay whose connection file demands encryption; yields the file's content."""
    public, secret = zmq.curve_keypair()
    path, _ = write_connection_file(str(home.runtime / "kernel-curve.json"), ip="127.0.0.1")
    info = {
        **json.loads(Path(path).read_text()),
        "curve_publickey": public.decode(),
        "curve_secretkey": secret.decode(),
    }
    Path(path).write_text(json.dumps(info))
    relay = subprocess.Popen(
        [sys.executable, "-m", "sandbox_kernel.kernel.launch", path], env=home.env(), cwd=home.work
    )
    yield info
    relay.terminate()
    relay.wait(20)


@pytest.mark.parametrize("channel", ["shell", "control", "stdin", "iopub", "hb"])
def test_curve_keys_are_honoured(curve_client: dict[str, Any], channel: str) -> None:
    """With the keys of the connection file each socket lets a client in; without them none does."""
    info = curve_client
    with zmq.Context() as context:
        entered = {
            encrypted: is_let_in(context, info, channel, encrypted=encrypted)
            for encrypted in (True, False)
        }

    assert entered == {True: True, False: False}


def is_let_in(
    context: zmq.Context[Any], info: dict[str, Any], channel: str, *, encrypted: bool
) -> bool:
    """Whether a socket's handshake with one of the relay's succeeds."""
    kind = {"iopub": zmq.SUB, "hb": zmq.REQ}.get(channel, zmq.DEALER)
    events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
    with context.socket(kind) as client:
        client.linger = 0
        if encrypted:
            client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
            client.curve_serverkey = info["curve_publickey"].encode()
        with client.get_monitor_socket(events) as monitor:
            client.connect(f"tcp://127.0.0.1:{info[f'{channel}_port']}")
            assert monitor.poll(20_000), "the relay listens"
            event = recv_monitor_message(monitor)["event"]
            client.disable_monitor()
    return bool(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)


def test_another_kernel_runs_through_the_bridge(
    start_kernel: Callable[..., Kernel], home: JupyterHome
) -> None:
    """Any kernel of the image, as its own process behind the bridge, is served by the relay."""
    spec = home.data / "kernels" / "bridged"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps(
            {
                "argv": [
                    *(sys.executable, "-m", "sandbox_kernel.kernel.launch", "{connection_file}"),
                    *("--", "python", "-m", "ipykernel_launcher", "-f", "@connection_file@"),
                ],
                "display_name": "bridged",
                "language": "python",
                "interrupt_mode": "message",
            }
        )
    )

    kernel = start_kernel("bridged")
    cell = kernel.cell("print('out'); display(1); 2")
    loop = kernel.execute("print('go', flush=True)\nwhile True: pass")
    loop.wait_for_text("go")
    kernel.interrupt()
    loop.wait(10)
    asked = kernel.execute("input('q')", allow_stdin=True)
    asked.wait_for_input()
    kernel.answer(asked, "a")
    asked.wait()

    assert cell.kinds == [
        "busy",
        "execute_input",
        "stdout",
        "display_data",
        "execute_result",
        "idle",
    ]
    assert loop.content["ename"] == "KeyboardInterrupt"
    assert asked.result == "'a'"
    assert "SANDBOX_ID" in kernel.value("list(__import__('os').environ)")
    kernel.restart()
    assert kernel.value("1 + 1") == 2
