"""What clients see of a relay: a kernel like a local one, plus the host's own cells."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from sandbox_kernel.manager.manager import Manager
from tests.kernel.conftest import RelayConnection
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import Kernel


def test_a_cell_runs_and_everything_has_one_session(shared_kernel: Kernel) -> None:
    """Busy, input, outputs, reply, idle; a client that met two session ids would drop outputs."""
    cell = shared_kernel.cell("print('a'); 1")

    assert cell.kinds == ["busy", "execute_input", "stdout", "execute_result", "idle"]
    assert cell.text == "a\n"
    assert cell.result == "1"
    assert cell.content["execution_count"] == 1
    assert len({message["header"]["session"] for message in shared_kernel.log}) == 1
    ids = [message["header"]["msg_id"] for message in shared_kernel.log]
    assert len(ids) == len(set(ids))


def test_nothing_is_printed_at_a_normal_start_and_end(shared_connection: RelayConnection) -> None:
    assert shared_connection.said() == ""


def test_every_subscriber_is_welcomed(
    shared_kernel: Kernel, shared_connection: RelayConnection
) -> None:
    with shared_connection.second_client() as other:
        second = Kernel(other)
        second.wait_until(
            lambda: any(m["header"]["msg_type"] == "iopub_welcome" for m in second.log),
            10.0,
            "a welcome",
        )


def test_two_clients_get_their_own_replies_and_all_outputs(
    shared_kernel: Kernel, shared_connection: RelayConnection
) -> None:
    with shared_connection.second_client() as other:
        second = Kernel(other)
        second.become_ready()
        mine, theirs = shared_kernel.execute("'one'"), second.execute("'two'")
        mine.wait()
        theirs.wait()
        shared_kernel.drain()

        assert (mine.result, theirs.result) == ("'one'", "'two'")
        replies = [m for m in shared_kernel.strays if m["channel"] == "shell"]
        assert not replies
        assert any(m["parent_header"].get("msg_id") == theirs.msg_id for m in shared_kernel.strays)


def test_input_goes_to_the_client_that_asked(
    shared_kernel: Kernel, shared_connection: RelayConnection
) -> None:
    with shared_connection.second_client() as other:
        second = Kernel(other)
        second.become_ready()
        cell = second.execute("input('name? ')", allow_stdin=True)
        asked = cell.wait_for_input()
        shared_kernel.drain()
        second.answer(cell, "Ada")

        assert cell.wait().result == "'Ada'"
        assert asked["content"] == {"prompt": "name? ", "password": False}
        assert not [m for m in shared_kernel.strays if m["channel"] == "stdin"]


def test_an_answer_nobody_asked_for_is_dropped(shared_kernel: Kernel) -> None:
    """A late answer to an interrupted question is not taken for the next one's."""
    first = shared_kernel.execute("input('one? ')", allow_stdin=True)
    first.wait_for_input()
    shared_kernel.interrupt()
    first.wait()
    shared_kernel.answer(first, "ghost")
    second = shared_kernel.execute("input('two? ')", allow_stdin=True)
    second.wait_for_input()
    shared_kernel.answer(second, "real")

    assert first.content["ename"] == "KeyboardInterrupt"
    assert second.wait().result == "'real'"


@pytest.mark.parametrize("how", ["message", "signal"])
def test_interrupts_reach_the_cell(
    shared_kernel: Kernel, shared_connection: RelayConnection, how: str
) -> None:
    """By message and by a signal to the relay; at most a second."""
    shared_kernel.cell("x = 41")
    cell = shared_kernel.execute("print('on', flush=True)\nwhile True: pass")
    cell.wait_for_text("on")
    began = time.monotonic()
    if how == "message":
        shared_kernel.interrupt()
    else:
        shared_connection.interrupt_by_signal()
    cell.wait()

    assert time.monotonic() - began < 2
    assert cell.content["ename"] == "KeyboardInterrupt"
    for _ in range(20):
        shared_connection.interrupt()
    assert shared_kernel.value("x + 1") == 42


def test_an_interrupt_before_the_interpreter_is_ready_does_no_harm(home: JupyterHome) -> None:
    with Kernel(RelayConnection("sandbox-python", home)) as kernel:
        for _ in range(10):
            kernel.connection.interrupt()
        kernel.become_ready()

        assert kernel.value("1 + 1") == 2


def test_a_large_buffer_comes_back_whole(shared_kernel: Kernel) -> None:
    """Widgets carry binary buffers both ways."""
    shared_kernel.cell("import ipywidgets as w; image = w.Image(format='png')")
    comm_id = shared_kernel.value("image.comm.comm_id")
    data = bytes(range(256)) * 40_000
    moved = {"method": "update", "state": {}, "buffer_paths": [["value"]]}
    sent = shared_kernel.request("comm_msg", {"comm_id": comm_id, "data": moved}, buffers=[data])
    answer = sent.wait_for("comm_msg")

    assert answer["content"]["data"] == {**moved, "method": "echo_update"}
    assert bytes(answer["buffers"][0]) == data
    assert shared_kernel.value("len(image.value)") == len(data)


def test_host_cells_take_their_turn_and_looking_does_not_wait(shared_kernel: Kernel) -> None:
    """A command that only looks is answered while a cell runs; others wait, and are waited for."""
    shared_kernel.cell("%sandbox outputs")  # what clients of other tests have left
    running = shared_kernel.execute("import time; print('on', flush=True); time.sleep(1.5); a = 1")
    running.wait_for_text("on")
    outputs = shared_kernel.execute("%sandbox outputs")
    after = shared_kernel.execute("a + 1")
    status = shared_kernel.execute("%sandbox status").wait()

    assert not running.is_done
    assert "sandbox" in status.text
    assert after.wait().result == "2"
    assert outputs.is_done
    order = [m["parent_header"]["msg_id"] for m in shared_kernel.log if m["channel"] == "shell"][
        -4:
    ]
    assert order == [status.msg_id, running.msg_id, outputs.msg_id, after.msg_id]
    assert outputs.kinds == ["busy", "execute_input", "stdout", "idle"]
    assert after.content["execution_count"] == running.content["execution_count"] + 1


def test_outputs_of_a_cell_whose_page_was_closed_are_there_for_the_next_page(
    kernel: Kernel,
) -> None:
    """All of them, under the cell's first line; a page in use is not shown its own again."""
    kernel.cell("print('seen')")
    lost = kernel.execute("print('before')\nimport time; time.sleep(0.3)\n1/0")
    kernel.connection.session = "another page"
    lost.wait()
    kept = kernel.cell("%sandbox outputs")

    assert "--- print('before')" in kept.text
    assert "before\n" in kept.text.splitlines(keepends=True)
    assert "seen" not in kept.text
    assert kept.of_type("error")[0]["content"]["ename"] == "ZeroDivisionError"
    assert "2 outputs of 1 cell" in kept.text
    assert "Nothing is kept" in kernel.cell("%sandbox outputs").text


def test_an_error_stops_host_cells_too(shared_kernel: Kernel) -> None:
    """As an interpreter does with the cells that it has queued."""
    failing = shared_kernel.execute("import time; time.sleep(0.5); 1/0")
    host = shared_kernel.execute("%sandbox outputs")
    behind = shared_kernel.execute("5")

    assert failing.wait().status == "error"
    assert host.wait().status == "aborted"
    assert behind.wait().status == "aborted"
    assert shared_kernel.cell("6").result == "6"


@pytest.mark.parametrize("code", ["%sandbox explode", "%sandbox status\nx = 1"])
def test_a_host_cell_that_makes_no_sense_is_an_error(shared_kernel: Kernel, code: str) -> None:
    cell = shared_kernel.cell(code)

    assert cell.status == "error"
    assert cell.content["ename"] == "UsageError"
    assert cell.kinds == ["busy", "execute_input", "error", "idle"]


def test_the_host_can_replace_the_interpreter(shared_kernel: Kernel) -> None:
    """A fresh namespace in the same sandbox, and the same client goes on."""
    shared_kernel.cell("x = 1; open('kept.txt', 'w').write('k')")
    restart = shared_kernel.cell("%sandbox restart")

    assert restart.status == "ok"
    assert shared_kernel.value("'x' in dir(), open('kept.txt').read()") == (False, "k")
    assert len({message["header"]["session"] for message in shared_kernel.log}) == 1


def test_hints_name_what_the_sandbox_did(shared_kernel: Kernel) -> None:
    error = shared_kernel.cell("raise OSError(101, 'Network is unreachable')").of_type("error")[0]
    plain = shared_kernel.cell("1/0").of_type("error")[0]

    assert "c.SandboxManager.network" in error["content"]["traceback"][-1]
    assert "Sandbox:" not in plain["content"]["traceback"][-1]


def test_a_subscriber_that_does_not_read_loses_nothing(
    shared_kernel: Kernel, shared_connection: RelayConnection
) -> None:
    """Thousands of messages and the idle wait for it."""
    with shared_connection.second_client() as other:
        slow = Kernel(other)
        slow.become_ready()
        cell = shared_kernel.execute(
            "from IPython.display import display\n"
            "for i in range(4000): display({'text/plain': 'y' * 5000}, raw=True)"
        )
        cell.wait()
        copy = slow.requests[cell.msg_id] = type(cell)(slow, cell.message)
        slow.wait_until(lambda: copy.is_idle, 30.0, "the idle")

        assert len(copy.of_type("display_data")) == 4000


def test_text_of_one_cell_is_joined(shared_kernel: Kernel) -> None:
    """A flood of prints becomes few messages, and not a character less."""
    cell = shared_kernel.cell("for i in range(50_000): print(i)")

    assert cell.text == "".join(f"{i}\n" for i in range(50_000))
    assert len(cell.of_type("stream")) < 500


def test_a_taken_port_is_one_clear_line_and_no_interpreter(
    shared_kernel: Kernel, shared_connection: RelayConnection
) -> None:
    """The manager will choose other ports, so there is nothing to wait for."""
    second = subprocess.run(
        [
            sys.executable,
            "-m",
            "sandbox_kernel.kernel.launch",
            str(shared_connection.connection_file),
        ],
        env={**shared_connection.relay.environ(), "JPY_SESSION_NAME": "/x/other.ipynb"},
        cwd=shared_connection.home.work,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert second.returncode == 1
    assert len(second.stderr.strip().splitlines()) == 1
    assert "cannot listen" in second.stderr
    assert shared_kernel.value("1") == 1
    (left,) = [info for info in Manager().list() if info.sandbox_id.startswith("nb-other")]
    assert not Manager().ensure(left.sandbox_id).started
    Manager().destroy(left.sandbox_id)


def test_a_second_notebook_in_one_sandbox_has_its_own_interpreter(
    start: Callable[..., Kernel],
) -> None:
    one = start(SANDBOX_ID="shared", JPY_SESSION_NAME="/x/one.ipynb")
    two = start(SANDBOX_ID="shared", JPY_SESSION_NAME="/x/two.ipynb")
    twin = start(SANDBOX_ID="shared", JPY_SESSION_NAME="/x/one.ipynb")
    one.cell("x = 1")

    assert one.value("'x' in dir()")
    assert not two.value("'x' in dir()")
    assert not twin.value("'x' in dir()")
    assert len({k.value("__import__('os').getppid()") for k in (one, two, twin)}) == 1
    for each in (one, two, twin):
        each.close()
    Manager().destroy("shared")


def test_the_settings_may_name_the_sandbox_of_every_notebook(start: Callable[..., Kernel]) -> None:
    """It stays when the kernel ends, as one that the environment names."""
    chosen = json.dumps({"SandboxKernelApp": {"sandbox_id": "chosen"}})
    for name in ("one", "two"):
        kernel = start(SANDBOX_CONFIG=chosen, JPY_SESSION_NAME=f"/x/{name}.ipynb")
        assert kernel.value("__import__('os').environ['SANDBOX_ID']") == "chosen"
        kernel.close()

    assert [info.sandbox_id for info in Manager().list()] == ["chosen"]
    Manager().destroy("chosen")
