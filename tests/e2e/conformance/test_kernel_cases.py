"""What users of Jupyter kernels have reported over the years, each as a test.

================================================  ==================================================
reported as                                        proved by
================================================  ==================================================
interrupt leaves subprocesses (marimo 10468)       test_an_interrupt_ends_what_the_cell_waits_for,
                                                   test_an_interrupt_ends_busy_pool_workers
input() ignores interrupts (ipykernel 400)         test_input_can_be_interrupted_and_used_again
a command that asks hangs (ipython 514)            test_a_command_that_asks_ends_by_itself
a forked child is a second kernel (notebook 3106)  test_a_forked_child_is_no_second_kernel,
                                                   test_a_restart_ends_a_forked_child
output of threads (ipywidgets 2358)                test_output_of_threads_is_complete_and_has_a_parent
a lone surrogate (notebook 2680)                   test_a_lone_surrogate_is_only_a_character
restart leaves subprocesses (jupyter_client 104)   test_a_restart_ends_what_cells_started,
                                                   test_a_shutdown_ends_what_cells_started
the interpreter is killed (nbclient 88)            test_frontends.py, test_a_killed_interpreter_…
dead at start (jupyter_client 7)                   test_start.py
sys.exit() in a cell (papermill 536)               test_sys_exit_is_an_error_and_no_end, and
                                                   test_frontends.py for papermill
a C write holding the lock (ipykernel 752)         test_a_c_write_larger_than_the_pipe_ends
output after idle (pyodide-kernel 133)             test_idle_is_the_last_message_of_a_request,
                                                   test_idle_is_the_last_message_of_a_comm_message
early messages to a widget (anywidget 803)         not here: it is about the terminal widget's module
                                                   loading late, and there is no such widget yet
progress bars (jupyterlab 1104)                    test_carriage_returns_arrive_unchanged
an awaited cell (ipykernel 881)                    test_an_awaited_cell_can_be_interrupted
output while disconnected (notebook 4105)          test_server.py
interrupt restarts in a container (dockernel 26)   test_interrupts_end_cells_and_never_the_kernel,
                                                   test_interrupts_on_docker
interrupt or delete crashes the server (EG 1136)   test_server.py
lost before a crash (papermill 127)                test_what_was_printed_before_a_crash_is_shown
a 12 MB figure (code-server 7139)                  test_large_outputs_arrive_whole
%matplotlib inline (metakernel 227)                test_inline_figures_come_before_the_idle,
                                                   test_magics_of_the_interpreter_work
updating a display (plotly 3053)                   test_updates_of_a_display_keep_its_id, and
                                                   test_notebooks.py for the saved notebook
================================================  ==================================================
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from sandbox_kernel import sync
from tests.support import docker
from tests.support.kernel_driver import KERNEL, Kernel, Request

ON_PLAIN = KERNEL == "python3"

INSIDE = """
def inside(needle):
    import os
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            argv = open(f'/proc/{pid}/cmdline').read().split('\\0')
            state = open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[0]
        except OSError:
            continue
        if needle in ' '.join(argv) and state != 'Z' and int(pid) != os.getpid():
            found.append(' '.join(argv).strip())
    return found
"""

CPU = """
def ticks():
    import os
    used = {}
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            stat = open(f'/proc/{pid}/stat').read()
        except OSError:
            continue
        if 'python' in stat.split('(')[1].split(')')[0]:
            fields = stat.rsplit(')', 1)[1].split()
            used[int(pid)] = int(fields[11]) + int(fields[12])
    return used
def busiest(seconds):
    import time, os
    before = ticks(); time.sleep(seconds); after = ticks()
    mine = {pid: after[pid] - before.get(pid, 0) for pid in after if os.getsid(pid) == os.getsid(0)}
    return max(mine.values())
"""


def until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"{timeout:g} s and still not: {what}"
        time.sleep(0.1)


def interrupted(kernel: Kernel, request: Request, after: float = 0.5) -> float:
    """Interrupt a cell that has run for a while; return how long its reply took."""
    request.wait_for("execute_input")
    with pytest.raises(AssertionError):
        kernel.wait_until(lambda: request.is_done, after, "nothing: the cell shall go on")
    asked = time.monotonic()
    kernel.interrupt()
    request.wait(20)
    assert request.reply is not None
    return float(request.reply["at"]) - asked


def test_an_interrupt_ends_what_the_cell_waits_for(kernel: Kernel) -> None:
    """A child in the cell's group ends with the interrupt; one in its own session is left alone."""
    kernel.cell(INSIDE + "import subprocess\nkept = 7")
    kernel.cell("own = subprocess.Popen(['sleep', '6003'], start_new_session=True)")

    cell = kernel.execute("subprocess.Popen(['sleep', '6001']).wait()")
    took = interrupted(kernel, cell)

    assert cell.content["ename"] == "KeyboardInterrupt"
    assert took < 2
    until(lambda: kernel.value("inside('sleep 6001')") == [], 3, "the child is gone")
    assert kernel.value("len(inside('sleep 6003'))") == 1
    assert kernel.value("kept") == 7
    kernel.cell("own.kill(); own.wait()")


def test_an_interrupt_ends_busy_pool_workers(kernel: Kernel) -> None:
    """Workers of a pool stop with the cell and the kernel goes on."""
    kernel.cell("kept = 8" + CPU)
    cell = kernel.execute(
        "import multiprocessing as m, time\n"
        "def burn(n):\n"
        "    end = time.monotonic() + n\n"
        "    while time.monotonic() < end: pass\n"
        "p = m.get_context('fork').Pool(2)\n"
        "p.map(burn, [600, 600])"
    )
    took = interrupted(kernel, cell, 1.0)

    assert cell.content["ename"] == "KeyboardInterrupt"
    assert took < 2
    until(lambda: kernel.value("busiest(0.5)") < 20, 5, "no worker burns the processor")
    assert kernel.value("kept") == 8
    assert kernel.cell("p.terminate()").status == "ok"


def test_input_can_be_interrupted_and_used_again(kernel: Kernel) -> None:
    """An interrupt ends a waiting input(); a late answer is ignored; the next input() works."""
    cell = kernel.execute("x = input('name? ')", allow_stdin=True)
    cell.wait_for_input()
    asked = time.monotonic()
    kernel.interrupt()
    cell.wait(5)

    assert time.monotonic() - asked < 2
    assert cell.content["ename"] == "KeyboardInterrupt"

    kernel.answer(cell, "ghost")
    again = kernel.execute("y = input('again? ')", allow_stdin=True)
    again.wait_for_input()
    kernel.answer(again, "real")
    again.wait(5)
    assert kernel.cell("print(y)").text == "real\n"
    refused = kernel.cell("input()", allow_stdin=False, timeout=5)
    assert refused.content["ename"] == "StdinNotImplementedError"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("!touch f.txt; rm -i f.txt", ""),
        ("!read x; echo got:$x", "got:"),
        ("!python3 -c 'input()'", "EOF"),
        ("!sudo -k true || true", ""),
        ("%%bash\nread x; echo got:$x", "got:"),
        (
            "import subprocess, sys; print(subprocess.run(['cat'], capture_output=True).stdout)",
            "b''",
        ),
    ],
    ids=["rm", "read", "python", "sudo", "bash", "subprocess"],
)
def test_a_command_that_asks_ends_by_itself(kernel: Kernel, code: str, expected: str) -> None:
    """A command that reads from its standard input finds it at its end, and the cell goes on."""
    cell = kernel.cell(code, timeout=5)

    assert expected in cell.text
    assert kernel.value("1 + 1") == 2


def test_a_forked_child_is_no_second_kernel(kernel: Kernel) -> None:
    """A child that returns from os.fork() prints its part and answers nothing after that."""
    kernel.cell(CPU + INSIDE)
    cell = kernel.cell(
        "import os\n"
        "if os.fork() == 0:\n"
        "    print('child', flush=True)\n"
        "else:\n"
        "    print('parent', flush=True)"
    )
    kernel.drain(0.5)
    # Two processes print: the line of one may come before the line end of the other.
    assert [cell.text.count(word) for word in ("child", "parent", "\n")] == [1, 1, 2], cell.text

    first = kernel.cell("1+1")
    second = kernel.cell("1+1")
    kernel.drain(0.5)
    for request in (first, second):
        assert request.kinds == ["busy", "execute_input", "execute_result", "idle"]
    assert second.content["execution_count"] == first.content["execution_count"] + 1
    assert kernel.value("busiest(1.0)") < 50


@pytest.mark.slow
def test_a_restart_ends_a_forked_child(kernel: Kernel) -> None:
    """A child that has not come back from its cell does not outlive the interpreter it left."""
    child = "import os, time\nif (child := os.fork()) == 0: time.sleep(600)"
    kernel.cell(child)
    pid = kernel.value("child")
    alive = f"__import__('os').path.exists('/proc/{pid}')"
    assert kernel.value(alive)

    kernel.restart()

    until(lambda: not kernel.value(alive), 5, "the child is gone")


@pytest.mark.parametrize("action", ["print('t', i, flush=True)", "os.system(f'echo t {i}')"])
def test_output_of_threads_is_complete_and_has_a_parent(kernel: Kernel, action: str) -> None:
    """Lines that a thread writes later all arrive once, each under a request of this client."""
    first = kernel.cell(
        "import threading, time, os\n"
        f"def f():\n    for i in range(6):\n        time.sleep(.3)\n        {action}\n"
        "thread = threading.Thread(target=f)\nthread.start()"
    )
    assert time.monotonic() - first.sent_at < 1
    second = kernel.cell("time.sleep(1); print('two')")
    third = kernel.cell("thread.join(); print('three')")
    kernel.drain(0.5)

    late = first.text + second.text + third.text
    lines = [line for line in late.splitlines() if line.startswith("t ")]
    assert sorted(lines) == [f"t {i}" for i in range(6)]
    assert not [m for m in kernel.strays if m["header"]["msg_type"] == "stream"]


@pytest.mark.parametrize(
    "code",
    [
        r"print('\udcc3 \ud800')",
        r"'\udcff'",
        r"raise ValueError('\udcff')",
        r"from IPython.display import display; display({'text/plain': '\udcff'}, raw=True)",
        r"get_ipython().set_next_input('\udcff')",
    ],
    ids=["print", "result", "error", "display", "payload"],
)
def test_a_lone_surrogate_is_only_a_character(kernel: Kernel, code: str) -> None:
    """Text that UTF-8 cannot carry is replaced or refused at once, and the kernel goes on."""
    cell = kernel.cell(code, timeout=5)

    assert cell.reply is not None
    assert cell.reply["at"] - cell.sent_at < 2
    said = ""
    for message in [cell.reply, *cell.iopub]:
        if message["header"]["msg_type"] != "execute_input":
            said += json.dumps(message["content"], ensure_ascii=False)
    said.encode()
    # The payload is not let through at all.
    shown = "set_next_input" not in code
    if shown and (cell.status == "ok" or cell.content["ename"] != "UnicodeEncodeError"):
        assert "\ufffd" in said or "udcff" in said
    assert kernel.cell("print('ok')").text == "ok\n"


SLEEPERS = (
    "import subprocess\n"
    "p = [subprocess.Popen(['sleep', '7001']) for _ in range(3)]\n"
    "q = subprocess.Popen('sleep 7002 & wait', shell=True)"
)


@pytest.mark.slow
def test_a_restart_ends_what_cells_started(start_kernel: Callable[..., Kernel]) -> None:
    """After a restart the old interpreter's children are gone and its names unknown.

    What belongs to others stays: a terminal of the sandbox, and what left for a session of its own.
    """
    kernel = start_kernel(SANDBOX_ID="restarted")
    with sync.get_sandbox("restarted") as sandbox:
        terminal = sandbox.create_terminal(["sleep", "7005"])
        kernel.cell(SLEEPERS + "\nsubprocess.Popen(['sleep', '7004'], start_new_session=True)")
        kernel.restart()
        kernel.cell(INSIDE)

        until(
            lambda: not kernel.value("inside('sleep 7001') + inside('sleep 7002')"),
            5,
            "the children are gone",
        )
        assert kernel.cell("p").content["ename"] == "NameError"
        assert kernel.value("inside('sleep 7004')") == ["sleep 7004"]
        assert terminal.refresh().status == "running"
        assert kernel.value("inside('sleep 7005')") == ["sleep 7005"]


def test_a_shutdown_ends_what_cells_started(start_kernel: Callable[..., Kernel]) -> None:
    """A kernel in a named sandbox leaves no child there when it is shut down."""
    first = start_kernel(SANDBOX_ID="shared")
    second = start_kernel(SANDBOX_ID="shared")
    second.cell(INSIDE)
    first.cell(SLEEPERS)
    assert second.value("len(inside('sleep 7001'))") == 3

    first.close()

    until(lambda: second.value("inside('sleep 700')") == [], 5, "the children are gone")


def test_sys_exit_is_an_error_and_no_end(shared_kernel: Kernel) -> None:
    """SystemExit is the error of its cell; the kernel and its variables stay."""
    shared_kernel.cell("x = 5")
    for code, value in (
        ("import sys; sys.exit(0)", "0"),
        ("sys.exit('bye')", "bye"),
        ("raise SystemExit(3)", "3"),
    ):
        cell = shared_kernel.cell(code)
        assert (cell.status, cell.content["ename"]) == ("error", "SystemExit")
        assert cell.content["evalue"] == value
    assert shared_kernel.cell("print(x)").text == "5\n"


def test_a_c_write_larger_than_the_pipe_ends(kernel: Kernel) -> None:
    """C code that writes much while it holds the interpreter's lock does not deadlock."""
    cell = kernel.cell(
        "import ctypes; l = ctypes.PyDLL(None)\n"
        "l.printf(b'1' * 100000); l.fflush(None); print('after')",
        timeout=5,
    )

    kernel.drain(0.3)
    assert cell.text.count("1") == 100_000
    assert "after" in cell.text


@pytest.mark.slow
def test_idle_is_the_last_message_of_a_request(shared_kernel: Kernel) -> None:
    """300 cells: busy, every output, the result, idle; nothing after it, nothing missing."""
    code = "print('a'*1000); import sys; print('b', file=sys.stderr); display(1); 2"
    for _ in range(300):
        cell = shared_kernel.cell(code)
        assert cell.kinds[:2] == ["busy", "execute_input"]
        assert cell.kinds[-2:] == ["execute_result", "idle"]
        # A stream may come in several pieces, between which others come.
        assert set(cell.kinds[2:-2]) == {"display_data", "stderr", "stdout"}
        assert (len(cell.stream("stdout")), cell.stream("stderr")) == (1001, "b\n")
    before = len(shared_kernel.log)
    shared_kernel.drain(0.3)
    assert len(shared_kernel.log) == before


def test_idle_is_the_last_message_of_a_comm_message(shared_kernel: Kernel) -> None:
    """What a comm's handler prints and displays comes under its message, before the idle."""
    shared_kernel.cell(
        "import ipywidgets as w\nb = w.Button()\n"
        "def handle(button, content, buffers):\n"
        "    print('handled'); display(3); button.description = str(content)\n"
        "b.on_msg(handle)"
    )
    comm_id = shared_kernel.value("b.comm.comm_id")

    for n in range(20):
        data = {"method": "custom", "content": {"n": n}}
        message = shared_kernel.request("comm_msg", {"comm_id": comm_id, "data": data})
        shared_kernel.wait_until(lambda m=message: m.is_idle, 10, "the handler")
        assert message.kinds[0] == "busy"
        assert message.kinds[-1] == "idle"
        assert sorted(message.kinds[1:-1]) == ["comm_msg", "display_data", "stdout"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "import time\nfor i in range(5): print(f'\\r{i*25}%', end='', flush=True); time.sleep(.2)",
            "\r0%\r25%\r50%\r75%\r100%",
        ),
        (
            "%%bash\nprintf '10%%\\r'; sleep .3; printf '20%%\\r'; sleep .3; printf 'done\\n'",
            "10%\r20%\rdone\n",
        ),
        (
            "import os; x = os.system(r\"printf '10%%\\r'; sleep .3; printf '20%%\\r'; printf 'done\\n'\")",
            "10%\r20%\rdone\n",
        ),
    ],
    ids=["print", "bash", "system"],
)
def test_carriage_returns_arrive_unchanged(shared_kernel: Kernel, code: str, expected: str) -> None:
    """A carriage return stays one, and no character is added to what a program wrote."""
    assert shared_kernel.cell(code).text == expected


def test_a_shell_command_draws_its_progress_on_one_line(shared_kernel: Kernel) -> None:
    """A ``!`` command's carriage returns arrive, and none is added at its line ends."""
    cell = shared_kernel.cell(
        r"!printf '10%%\r'; sleep .3; printf '20%%\r'; sleep .3; printf 'done\n'"
    )

    # A local kernel gives the command a terminal, which adds one.
    text = cell.text.replace("\r\n", "\n") if ON_PLAIN else cell.text
    assert text == "10%\r20%\rdone\n"


def test_an_awaited_cell_can_be_interrupted(kernel: Kernel) -> None:
    """An interrupt ends a top-level await; asyncio.run in a cell is the usual error."""
    cell = kernel.execute("import asyncio; y = 3; await asyncio.sleep(60)")
    took = interrupted(kernel, cell)

    assert cell.content["ename"] in ("KeyboardInterrupt", "CancelledError")
    assert took < 2
    assert kernel.value("y") == 3
    nested = kernel.cell("coro = asyncio.sleep(0)\ntry: asyncio.run(coro)\nfinally: coro.close()")
    assert nested.content["ename"] == "RuntimeError"
    assert kernel.value("y") == 3


@pytest.mark.parametrize("how", ["button", "signal", "message"])
def test_interrupts_end_cells_and_never_the_kernel(kernel: Kernel, how: str) -> None:
    """Signal, message and the front end's own way: each ends a loop, none the interpreter."""
    interrupt_busy_and_idle(kernel, how)


@pytest.mark.slow
def test_interrupts_on_docker(start_kernel: Callable[..., Kernel]) -> None:
    """They reach the cell there, too, and not the container's first process."""
    docker.need_docker()
    settings = {"DockerEngine": {"host": docker.HOST, "image": docker.IMAGE}}
    kernel = start_kernel(SANDBOX_ENGINE="docker", SANDBOX_CONFIG=json.dumps(settings))
    kernel.cell(INSIDE + "import subprocess")
    cell = kernel.execute("subprocess.Popen(['sleep', '6001']).wait()")
    took = interrupted(kernel, cell)

    assert cell.content["ename"] == "KeyboardInterrupt"
    assert took < 5, "much later than it takes to write a long traceback"
    until(lambda: kernel.value("inside('sleep 6001')") == [], 3, "the child is gone")
    for how in ("signal", "message"):
        interrupt_busy_and_idle(kernel, how)


def interrupt_busy_and_idle(kernel: Kernel, how: str) -> None:
    def interrupt() -> None:
        if how == "signal":
            kernel.connection.interrupt_by_signal()  # type: ignore[attr-defined]
        elif how == "message":
            assert kernel.ask_control("interrupt_request")["status"] == "ok"
        else:
            kernel.interrupt()

    kernel.cell("import os; x = 41")
    pid = kernel.value("os.getpid()")
    loop = kernel.execute("print('go', flush=True)\nwhile True: pass")
    loop.wait_for_text("go")
    interrupt()
    loop.wait(5)
    assert loop.content["ename"] == "KeyboardInterrupt"
    assert kernel.value("x + 1") == 42

    interrupt()
    assert kernel.value("x + 1") == 42
    for _ in range(20):
        interrupt()
    until(lambda: kernel.cell("x + 1").result == "42", 10, "the kernel is usable after the burst")
    assert kernel.value("os.getpid()") == pid


@pytest.mark.skipif(ON_PLAIN, reason="a plain kernel has nobody left to tell what happened")
def test_what_was_printed_before_a_crash_is_shown(kernel: Kernel) -> None:
    """A segfault takes nothing along that was written before, and its error names the signal."""
    cell = kernel.cell(
        "print('before'); import sys; sys.stdout.write('tail'); import ctypes; ctypes.string_at(0)"
    )

    assert "before" in cell.text
    assert "tail" in cell.text
    error = cell.of_type("error")[0]["content"]
    assert "SIGSEGV" in error["evalue"] + "\n".join(error["traceback"])
    assert cell.status == "error"


@pytest.mark.slow
def test_large_outputs_arrive_whole(kernel: Kernel) -> None:
    """12 MB of JSON, 12 MB of text and a 9 MB picture arrive whole; the kernel goes on."""
    big = kernel.cell(
        "from IPython.display import display\n"
        "display({'application/json': {'d': 'x' * 12_000_000}, 'text/plain': 'big'}, raw=True)"
    )
    assert len(big.displays[0]["application/json"]["d"]) == 12_000_000
    text = kernel.cell("print('y' * 12_000_000)")
    assert text.text == "y" * 12_000_000 + "\n"
    picture = kernel.cell(
        "import os; from IPython.display import Image\n"
        "Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(9_000_000))"
    )
    data = picture.of_type("execute_result")[0]["content"]["data"]
    assert len(data["image/png"]) >= 12_000_000
    assert kernel.value("1") == 1


@pytest.mark.slow
def test_a_message_longer_than_the_ring_arrives_whole(kernel: Kernel) -> None:
    """The ring of a kernel holds 64 MiB; one message may be longer, and the kernel goes on."""
    big = kernel.cell(
        "from IPython.display import display\ndisplay({'text/plain': 'x' * (70 << 20)}, raw=True)",
        60,
    )

    assert len(big.displays[0]["text/plain"]) == 70 << 20
    assert kernel.value("1") == 1


@pytest.mark.slow
def test_inline_figures_come_before_the_idle(kernel: Kernel) -> None:
    """Figures are PNG by default, SVG on request, and in order with printed text."""
    first = kernel.cell("%matplotlib inline\nimport matplotlib.pyplot as plt; plt.plot([1,2])", 60)
    second = kernel.cell("fig = plt.figure(); plt.plot([3]); plt.show(); print('x')")
    third = kernel.cell("%config InlineBackend.figure_formats=['svg']\nplt.plot([1])")

    for cell in (first, second):
        pictures = [data["image/png"] for data in cell.displays if "image/png" in data]
        assert len(pictures) == 1
        assert len(pictures[0]) > 1000
    assert second.kinds == ["busy", "execute_input", "display_data", "stdout", "idle"]
    assert "image/svg+xml" in third.displays[0]
    assert first.kinds[-1] == third.kinds[-1] == "idle"


def test_magics_of_the_interpreter_work(kernel: Kernel) -> None:
    """Magics run in the sandbox as they do in a local kernel."""
    assert kernel.cell("%matplotlib inline").status == "ok"
    assert "pip" in kernel.cell("%pip --version", 60).text
    assert "Wall time" in kernel.cell("%%time\n1").text
    assert "Writing" in kernel.cell("%%writefile made.txt\nhello").text
    assert kernel.cell("print(open('made.txt').read())").text == "hello\n\n"
    pages = kernel.cell("print?").content["payload"]
    assert [page["source"] for page in pages] == ["page"]


def test_updates_of_a_display_keep_its_id(shared_kernel: Kernel) -> None:
    """Every update names the display it is for, and the last one wins."""
    shown = shared_kernel.cell(
        "from IPython.display import display; h = display('v1', display_id=True)"
    )
    updated = shared_kernel.cell("h.update('v2')")
    many = shared_kernel.cell("for i in range(100): h.update(i)")

    display_id = shown.of_type("display_data")[0]["content"]["transient"]["display_id"]
    updates = [*updated.of_type("update_display_data"), *many.of_type("update_display_data")]
    assert {m["content"]["transient"]["display_id"] for m in updates} == {display_id}
    assert len(updates) <= 101
    assert updates[-1]["content"]["data"]["text/plain"] == "99"
