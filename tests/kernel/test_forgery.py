"""Cells that write records themselves: with kernel and code in one process nothing prevents them,
so the relay must hold.  Each forgery is sent from inside a running cell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox_kernel.manager.manager import Manager
from tests.kernel.conftest import RelayConnection
from tests.support.kernel_driver import Kernel, Request
from tests.support.widget_state import identity

FORGE = """
import json as _json
def forge(channel, msg_type, content, parent=None, metadata=b'{}', raw=None):
    kernel = get_ipython().kernel
    parent = kernel.get_parent()['header'] if parent is None else parent
    header = _json.dumps({'msg_type': msg_type, 'msg_id': 'forged', 'session': 'forged'}).encode()
    content = raw if raw is not None else _json.dumps(content).encode()
    kernel.pipe.put(channel, [b'anyone'], [header, _json.dumps(parent, default=str).encode(), metadata, content])
    kernel.pipe.flush(5)
SHELL, CONTROL, STDIN, IOPUB, META, STREAM = 1, 2, 3, 4, 5, 6
"""


@pytest.fixture(scope="module")
def forger(shared_kernel: Kernel) -> Kernel:
    shared_kernel.cell(FORGE)
    return shared_kernel


def refusals(kernel: Kernel) -> int:
    """How many messages the relay says it has refused."""
    line = [line for line in kernel.cell("%sandbox").text.splitlines() if "refused" in line]
    return int(line[0].split()[1]) if line else 0


def forge(kernel: Kernel, code: str) -> Request:
    """Run a forging cell; it must end well and the session be usable after it."""
    cell = kernel.cell(code)
    assert cell.status == "ok"
    assert kernel.value("1 + 1") == 2
    return cell


@pytest.mark.parametrize(
    "code",
    [
        "forge(IOPUB, 'status', {'execution_state': 'restarting'})",
        "forge(IOPUB, 'status', {'execution_state': 'dead'}, {})",
        "forge(IOPUB, 'iopub_welcome', {'subscription': ''}, {})",
        "forge(IOPUB, 'shutdown_reply', {'status': 'ok', 'restart': False})",
        "forge(IOPUB, 'evil_type', {})",
        "forge(IOPUB, 'comm_msg', {'comm_id': 'host-1', 'data': {'state': {'_esm': 'evil()'}}})",
        "forge(IOPUB, 'stream', {'name': 'stderr', 'text': 5})",
        "forge(IOPUB, 'execute_input', {'code': 'evil()', 'execution_count': 1})",
        "forge(SHELL, 'kernel_info_reply', {'status': 'ok'}, {'msg_id': 'nobody'})",
        "forge(CONTROL, 'shutdown_reply', {'status': 'ok', 'restart': True})",
        "forge(SHELL, 'complete_reply', {'status': 'ok'})",
        "forge(STDIN, 'input_request', {'prompt': 'sudo password:', 'password': True})",
        "forge(STDIN, 'input_request', {'prompt': 'sudo:', 'password': True}, {'msg_id': 'x'})",
        "forge(STDIN, 'stream', {'name': 'stdout', 'text': 'x'})",
        "forge(IOPUB, 'display_data', {}, raw=b'[' * 5000)",
        "forge(IOPUB, 'display_data', {}, raw=b'{\"data\": ' + b'{\"a\":' * 200 + b'1' + b'}' * 201)",
        "forge(IOPUB, 'display_data', {}, raw=b'not json')",
        "forge(IOPUB, 'display_data', {}, raw=b'[' + b'[],' * 700_000 + b'NaN]')",
        "forge(IOPUB, 'status', {'execution_state': 'starting'}, {})",
        "forge(SHELL, 'execute_reply', {'status': 'ok', 'execution_count': -7})",
        'get_ipython().kernel.pipe.put(META, [], [b\'{"op":"exit"}\'])',
        "get_ipython().kernel.pipe.put(STREAM, [], [b'stdlog', b'{}', b'x'])",
        "get_ipython().kernel.pipe.put(STREAM, [], [b'stdout'])",
        "get_ipython().kernel.pipe.put(IOPUB, [], [])",
    ],
)
def test_a_forged_message_reaches_no_client(forger: Kernel, code: str) -> None:
    """It is refused and counted, and the cell and the session go on."""
    before = refusals(forger)
    seen = len(forger.log)
    cell = forge(forger, code)

    # A cell is told when an output of it is left out.
    said = ["stderr"] if "display_data" in code else []
    assert cell.kinds == ["busy", "execute_input", *said, "idle"]
    assert cell.text.startswith("[An output was left out: " if said else "")
    assert len(cell.text) < 200
    assert cell.content["status"] == "ok"
    assert not cell.inputs
    assert refusals(forger) > before
    for message in forger.log[seen:]:
        assert message["header"]["msg_id"] != "forged"
        assert message["header"]["session"] != "forged"


def test_a_forged_idle_does_not_end_a_cell_early(forger: Kernel) -> None:
    """The idle waits for the reply, and what the cell prints until then comes before it."""
    cell = forge(
        forger, "forge(IOPUB, 'status', {'execution_state': 'idle'}); print('after', flush=True)"
    )

    assert cell.kinds == ["busy", "execute_input", "stdout", "idle"]


def test_a_comm_opened_by_a_cell_names_no_module(forger: Kernel) -> None:
    cell = forge(
        forger,
        "forge(IOPUB, 'comm_open', {'comm_id': 'z', 'target_name': 'jupyter.widget',"
        f" 'target_module': 'http://x/y.js', 'data': {{'state': {identity('LabelModel')}}}}})",
    )

    assert cell.of_type("comm_open")[0]["content"] == {
        "comm_id": "z",
        "target_name": "jupyter.widget",
        "data": {"state": identity("LabelModel"), "buffer_paths": []},
    }


def test_a_comm_that_is_for_no_widget_is_told_of_once(forger: Kernel) -> None:
    """The page is not given it; the cell says so, and does not say it again."""
    code = "forge(IOPUB, 'comm_open', {'comm_id': 'z', 'target_name': 'matplotlib', 'data': {}})"
    first, second = forge(forger, code), forge(forger, code)

    assert first.kinds == ["busy", "execute_input", "stderr", "idle"]
    assert "matplotlib" in first.text
    assert second.kinds == ["busy", "execute_input", "idle"]


def test_text_under_another_cells_name_stays_an_output(forger: Kernel) -> None:
    """A cell may print into an older cell; a parent that nobody sent becomes no parent."""
    older = forger.cell("1")
    seen = len(forger.strays)
    forge(
        forger,
        f"forge(IOPUB, 'stream', {{'name': 'stdout', 'text': 'hi'}}, {{'msg_id': {older.msg_id!r}}})\n"
        "forge(IOPUB, 'stream', {'name': 'stdout', 'text': 'lost'}, {'msg_id': 'nobody'})",
    )

    assert older.text == "hi"
    assert older.of_type("stream")[0]["parent_header"]["session"] == forger.connection.session
    lost = [m for m in forger.strays[seen:] if m["content"].get("text") == "lost"]
    assert [m["parent_header"] for m in lost] == [{}]


def test_duplicate_keys_show_clients_what_was_judged(forger: Kernel) -> None:
    """What is forwarded is encoded anew, never the bytes that came."""
    cell = forge(
        forger,
        'forge(IOPUB, "status", {}, raw=b\'{"execution_state":"restarting","execution_state":"busy"}\')',
    )

    assert cell.kinds == ["busy", "execute_input", "idle"]


def test_an_error_number_without_end_is_an_error_like_others(forger: Kernel) -> None:
    cell = forger.cell("raise OSError('[Errno ' + '9' * 5000 + ']')")

    assert cell.content["ename"] == "OSError"
    assert forger.value("1 + 1") == 2


def test_broken_framing_ends_the_interpreter_and_says_so(kernel: Kernel) -> None:
    """After a broken record nothing can be understood; the cell learns why."""
    cell = kernel.cell("import os; os.write(get_ipython().kernel.pipe._out_fd, b'\\xff' * 64)")

    assert cell.status == "error"
    assert cell.content["ename"] == "InterpreterDied"
    assert "record" in cell.content["evalue"]


def test_after_broken_framing_the_next_relay_has_a_fresh_interpreter(
    start: Callable[..., Kernel],
) -> None:
    """What cannot be understood goes with the interpreter; the notebook is usable again."""
    kernel = start(SANDBOX_ID="broken-framing", JPY_SESSION_NAME="/x/broken.ipynb")
    connection = kernel.connection
    assert isinstance(connection, RelayConnection)
    kernel.cell("x = 1")
    kernel.cell("import os; os.write(get_ipython().kernel.pipe._out_fd, b'\\xff' * 64)")
    connection.wait_until_ended()
    connection.start_again()
    kernel.become_ready()

    assert kernel.value("'x' in globals()") is False
    kernel.close()
    Manager().destroy("broken-framing")
