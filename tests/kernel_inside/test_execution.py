"""Cells of the interpreter inside: what a local kernel does, record by record."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from sandbox_kernel.wire.kernel import Channel
from tests.support.kernel_driver import Kernel
from tests.support.record_kernel import RecordConnection

SIMPLE = ["busy", "execute_input", "execute_result", "idle"]


def test_a_cell_is_broadcast_in_order_and_answered_to_the_asker(kernel: Kernel) -> None:
    """Busy, input, result, reply, idle; the reply bears the asker's identity."""
    request = kernel.cell("1 + 1")

    assert request.kinds == SIMPLE
    assert request.result == "2"
    assert request.status == "ok"
    assert request.reply is not None
    assert request.reply["identities"] == [b"client"]


def test_a_short_cell_leaves_in_one_write(kernel: Kernel) -> None:
    """Everything a short cell says comes with one read of its pipe, most of the time."""
    connection = kernel.connection
    together = 0
    for _ in range(20):
        request = kernel.execute("1")
        if len(connection.receive(10.0)) == 5:
            together += 1
        else:
            kernel.drain(0.1)
        del kernel.requests[request.msg_id]

    assert together >= 10


def test_first_record_is_ready(new_kernel: Callable[..., Kernel]) -> None:
    """A kernel says that it takes messages before it says anything else; it prints nothing."""
    kernel = new_kernel()
    connection = kernel.connection

    assert isinstance(connection, RecordConnection)
    assert connection.first == Channel.META
    assert connection.meta == [{"op": "ready"}]
    assert kernel.cell("1").result == "1"
    assert connection.said() == ""


def test_first_output_comes_while_the_cell_runs(kernel: Kernel) -> None:
    """A cell that goes on shows its first line within milliseconds, not at the next flush."""
    request = kernel.execute("import time\nprint('first')\ntime.sleep(0.5)")
    request.wait_for_text("first", 0.4)
    assert not request.is_idle
    request.wait()


def test_first_output_of_a_cell_that_computes(kernel: Kernel) -> None:
    """A loop that never gives the interpreter away does not hold its first line back."""
    code = "import time\nprint('first')\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    request = kernel.execute(code)
    request.wait_for_text("first", 0.7)
    assert not request.is_idle
    request.wait()


def test_store_history_and_silent(kernel: Kernel) -> None:
    """The count rises only for cells that are kept; a silent cell broadcasts only its state."""
    first = kernel.cell("1").content["execution_count"]
    kernel.cell("1", store_history=False)
    silent = kernel.cell("print(1); 5", silent=True, store_history=False)
    second = kernel.cell("1").content["execution_count"]

    assert second == first + 1
    assert "execute_input" not in silent.kinds
    assert "execute_result" not in silent.kinds


def test_user_expressions(kernel: Kernel) -> None:
    """Expressions are evaluated one by one; a failing one does not spoil the others."""
    found = kernel.cell("z = 3", user_expressions={"a": "z + 1", "b": "1/0"}).content
    assert found["user_expressions"]["a"]["data"]["text/plain"] == "4"
    assert found["user_expressions"]["b"]["status"] == "error"


def test_an_error_stops_the_cells_that_wait(kernel: Kernel) -> None:
    """Requests sent behind a failing cell are refused; those sent after its end run."""
    failing = kernel.execute("import time; time.sleep(0.2); 1/0")
    waiting = [kernel.execute("1") for _ in range(5)]
    failing.wait()
    for request in waiting:
        assert request.wait().status == "aborted"
    assert failing.content["ename"] == "ZeroDivisionError"
    assert kernel.cell("2").result == "2"


def test_what_is_sent_after_a_failed_cell_runs(kernel: Kernel) -> None:
    """Whoever has seen that a failing cell is idle may send the next one; 300 times."""
    for i in range(300):
        assert kernel.cell("1/0").status == "error"
        assert kernel.cell(f"{i}").result == f"{i}"


def test_stop_on_error_can_be_refused(kernel: Kernel) -> None:
    """With stop_on_error false the waiting cell runs."""
    failing = kernel.execute("import time; time.sleep(0.1); 1/0", stop_on_error=False)
    waiting = kernel.execute("7")
    assert failing.wait().status == "error"
    assert waiting.wait().result == "7"


def test_sys_exit_is_an_error_of_the_cell(kernel: Kernel) -> None:
    """SystemExit ends the cell, with its code as the value; interpreter and names survive."""
    kernel.cell("x = 5")
    for code, value in [
        ("sys.exit(0)", "0"),
        ("sys.exit('bye')", "bye"),
        ("raise SystemExit(3)", "3"),
    ]:
        request = kernel.cell("import sys\n" + code)
        assert (request.status, request.content["ename"], request.content["evalue"]) == (
            "error",
            "SystemExit",
            value,
        )
    assert kernel.cell("x").result == "5"


@pytest.mark.parametrize(
    "code",
    [
        r"print('\udcc3 \ud800')",
        r"'\udcff'",
        r"raise ValueError('\udcff')",
        r"from IPython.display import display; display({'text/plain': '\udcff'}, raw=True)",
        r"import sys; print('\udcc3', file=sys.stderr)",
        r"print('\udcc3\n' * 200_000)",
    ],
)
def test_a_lone_surrogate_is_replaced(kernel: Kernel, code: str) -> None:
    """What UTF-8 cannot say arrives as U+FFFD or as an error; every record is valid UTF-8."""
    request = kernel.cell(code, 5.0)
    said = request.text + str(request.content) + str(request.iopub)
    assert "\ufffd" in said or "UnicodeEncodeError" in said or "\\udc" in said


def test_numbers_json_does_not_have(kernel: Kernel) -> None:
    """NaN, infinities and huge integers make a message, not a lost one."""
    request = kernel.cell(
        "from IPython.display import display\n"
        "display({'application/json': {'n': float('nan'), 'i': float('inf'), 'b': 1 << 80, 2: 3}}, raw=True)"
    )
    data = request.displays[0]["application/json"]
    assert data["b"] == 1 << 80
    assert data["n"] is None


def test_await_at_the_top(kernel: Kernel) -> None:
    """Top-level await works; asyncio.run in a cell says why it cannot."""
    assert kernel.cell("import asyncio; await asyncio.sleep(0.01); 9").result == "9"
    refused = kernel.cell("asyncio.run(asyncio.sleep(0))")
    assert refused.content["ename"] == "RuntimeError"
    assert kernel.cell("8").result == "8"


def test_shell_requests(kernel: Kernel) -> None:
    """Completion, inspection, completeness, history, comms and kernel info are answered."""
    kernel.cell("import os")
    complete = kernel.ask("complete_request", code="os.path.jo", cursor_pos=10)
    assert complete["matches"] == ["join"]
    assert complete["metadata"]["_jupyter_types_experimental"]
    inspect = kernel.ask("inspect_request", code="os.path", cursor_pos=7, detail_level=0)
    assert inspect["found"]
    assert "text/plain" in inspect["data"]
    assert kernel.ask("is_complete_request", code="for i in x:")["indent"] == "    "
    tail = {"hist_access_type": "tail", "n": 1, "raw": True, "output": False}
    kernel.cell("remember = 'me'")
    history = kernel.ask("history_request", **tail)["history"]
    assert [entry[2] for entry in history] == ["remember = 'me'"]
    search = {
        "hist_access_type": "search",
        "pattern": "remember*",
        "raw": True,
        "output": False,
        "n": 5,
    }
    assert kernel.ask("history_request", **search)["history"]
    assert kernel.ask("comm_info_request")["comms"] == {}
    info = kernel.ask("kernel_info_request")
    assert info["supported_features"] == ["kernel subshells", "debugger"]
    assert info["implementation"] == "ipython"
    assert info["language_info"]["version"] == sys.version.split()[0]


def test_control_is_answered_while_a_cell_runs(kernel: Kernel) -> None:
    """Requests on the control channel do not wait for the shell."""
    running = kernel.execute("import time; time.sleep(1.0)")
    running.wait_for("execute_input")
    assert kernel.ask_control("kernel_info_request", 0.9)["status"] == "ok"
    assert not running.is_idle
    running.wait()
    assert kernel.ask_control("usage_request", 5.0)["pid"] == kernel.value("import os; os.getpid()")


def test_pager_and_next_input_are_payloads(kernel: Kernel) -> None:
    """``?`` help and set_next_input come with the reply."""
    kernel.cell("def f(): 'about f'")
    assert [p["source"] for p in kernel.cell("f?").content["payload"]] == ["page"]
    assert kernel.cell("get_ipython().set_next_input('y')").content["payload"][0]["text"] == "y"


def test_interpreter_looks_like_a_local_one(kernel: Kernel, shared_home: object) -> None:
    """Nothing of the runtime is in sight: no path, no module, no argument, no variable."""
    assert "" in kernel.value("import sys, os; sys.path")
    assert kernel.value("'PYTHONPATH' in os.environ") is False
    assert kernel.value("[m for m in sys.modules if m.startswith('sandbox_')]") == []
    assert kernel.value("os.getcwd()") == str(shared_home)
    assert kernel.value("sys.modules['__main__'].__name__") == "__main__"
    assert kernel.value("[n for n in vars(sys.modules['__main__']) if n in ('main', 'run')]") == []
    assert kernel.value("type(get_ipython()).__name__") == "ZMQInteractiveShell"
    assert kernel.value("type(sys.stdout).__name__") == "OutStream"
    assert kernel.value("sys.argv")[0].endswith("ipykernel_launcher.py")
    assert kernel.value("'IPKernelApp' in get_ipython().config")
    assert kernel.value("os.environ['MPLBACKEND']") == "module://matplotlib_inline.backend_inline"


def test_descriptors_of_children_are_the_cells(kernel: Kernel) -> None:
    """A program started by a cell finds an empty input, and none of the kernel's own pipes."""
    code = "import subprocess, sys; print(subprocess.run(['ls', '/proc/self/fd'], capture_output=True, text=True, close_fds=False).stdout.split())"
    assert kernel.cell(code).text.strip() == "['0', '1', '2', '3']"
    assert kernel.cell("!cat; echo end").text == "end\n"


def test_the_debugger_is_loaded_by_who_debugs(new_kernel: Callable[..., Kernel]) -> None:
    """Its import, a quarter of a start, is not paid by those who do not debug."""
    kernel = new_kernel()
    assert "debugger" in kernel.ask("kernel_info_request")["supported_features"]
    assert (
        kernel.value("[m for m in __import__('sys').modules if 'debug' in m and 'debugpy' in m]")
        == []
    )
