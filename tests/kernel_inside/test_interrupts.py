"""Interrupts of the interpreter inside: signals to its process group."""

from __future__ import annotations

import contextlib

import psutil
import pytest

from tests.support.kernel_driver import Kernel


def started(kernel: Kernel, code: str) -> object:
    """Run a cell and return once its code runs."""
    request = kernel.execute("print('started', flush=True)\n" + code)
    request.wait_for_text("started")
    return request


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import asyncio; y = 3; await asyncio.sleep(60)",
        "!sleep 60",
        "import subprocess; subprocess.run(['sleep', '60'])",
        "%%bash\nsleep 60",
        "import time\nfor i in range(10**9): print(i)",
        "from IPython.display import display\nwhile True: display(1)",
        "import threading; threading.Event().wait()",
    ],
)
def test_interrupt(kernel: Kernel, code: str) -> None:
    """Whatever a cell waits for, it ends within two seconds, and names survive."""
    pid = kernel.connection.pid
    kernel.cell("x = 41")
    request = kernel.execute(code)
    request.wait_for("execute_input")
    kernel.wait_until(lambda: psutil.Process(pid).is_running(), 1.0, "the kernel")
    for _ in range(20):
        kernel.interrupt()
        with contextlib.suppress(AssertionError):
            request.wait(0.5)
            break
    assert request.is_done, request
    assert kernel.cell("x + 1").result == "42"
    assert kernel.value("import os; os.getpid()") == pid


def test_one_interrupt_is_enough(kernel: Kernel) -> None:
    """A single signal ends a loop and an awaited cell with an error that says so."""
    for code, names in [
        ("while True: pass", ["KeyboardInterrupt"]),
        ("import asyncio; await asyncio.sleep(60)", ["KeyboardInterrupt", "CancelledError"]),
        ("import time; time.sleep(60)", ["KeyboardInterrupt"]),
    ]:
        request = kernel.execute("print('started')\n" + code)
        request.wait_for_text("started")
        kernel.interrupt()
        assert request.wait(2.0).content["ename"] in names


def test_an_interrupt_right_after_the_input_is_shown(kernel: Kernel) -> None:
    """An interrupt that comes as soon as the cell shows itself is not lost."""
    for _ in range(5):
        request = kernel.execute("import time; time.sleep(60)")
        request.wait_for("execute_input")
        kernel.interrupt()
        assert request.wait(2.0).content["ename"] == "KeyboardInterrupt"


@pytest.mark.parametrize(
    "waiting",
    [
        "threading.Event().wait(20)",
        "time.sleep(20)",
        "select.select([], [], [], 20)",
        "subprocess.run(['sleep', '20'])",
        "await asyncio.sleep(20)",
    ],
)
def test_an_interrupt_that_does_not_end_the_waiting_is_noticed_soon(
    kernel: Kernel, waiting: str
) -> None:
    """One that comes the moment before the waiting, or to another thread, ends the cell as well."""
    request = kernel.execute(
        "import asyncio, select, signal, subprocess, threading, time\n"
        "def miss():\n"
        "    time.sleep(.3)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
        f"threading.Thread(target=miss).start(); print('started', flush=True)\n{waiting}"
    )
    request.wait_for_text("started")

    assert request.wait(5.0).content["ename"] in ("KeyboardInterrupt", "CancelledError")


def test_a_program_that_listens_to_signals_itself_goes_on_to(kernel: Kernel) -> None:
    """A handler on the event loop stays there over cells, and cells are interrupted all the same."""
    kernel.cell(
        "import asyncio, os, signal, time; heard = []\n"
        "asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, heard.append, 1)"
    )
    kernel.cell("os.kill(os.getpid(), signal.SIGUSR2); await asyncio.sleep(.01)")
    request = kernel.execute("print('started', flush=True); time.sleep(20)")
    request.wait_for_text("started")
    kernel.interrupt()

    assert request.wait(5.0).content["ename"] == "KeyboardInterrupt"
    assert kernel.value("heard") == [1]
    kernel.cell("asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR2)")


def test_interrupts_while_idle_do_nothing(kernel: Kernel) -> None:
    """Nothing runs, nothing happens."""
    for _ in range(20):
        kernel.interrupt()
    assert kernel.cell("1").result == "1"


def test_a_burst_leaves_a_usable_kernel(kernel: Kernel) -> None:
    """Twenty interrupts at once end the cell once."""
    for _ in range(5):
        request = kernel.execute("print('started')\nwhile True: pass")
        request.wait_for_text("started")
        for _ in range(20):
            kernel.interrupt()
        assert request.wait(5.0).status == "error"
        assert kernel.cell("5").result == "5"


def test_interrupt_by_message(kernel: Kernel) -> None:
    """interrupt_request on the control channel does the same, to children too."""
    request = kernel.execute("print('started')\nimport subprocess; subprocess.run(['sleep', '60'])")
    request.wait_for_text("started")
    assert kernel.ask_control("interrupt_request")["status"] == "ok"
    assert request.wait(2.0).content["ename"] == "KeyboardInterrupt"


def test_interrupt_reaches_what_the_cell_started(kernel: Kernel) -> None:
    """Children in the kernel's group end; one with a session of its own is left alone."""
    request = kernel.execute(
        "import subprocess\n"
        "own = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(child.pid, own.pid)\nchild.wait()"
    )
    request.wait_for_text("\n")
    child, own = map(int, request.text.split())
    kernel.interrupt()
    assert request.wait(2.0).content["ename"] == "KeyboardInterrupt"
    kernel.wait_until(lambda: not alive([child]), 3.0, "the end of the child")
    assert alive([own]) == [own]
    kernel.cell("own.kill(); own.wait()")


def test_interrupted_pool(kernel: Kernel) -> None:
    """No worker of an interrupted pool goes on with its work."""
    request = kernel.execute(
        "import multiprocessing as m, time\n"
        "def busy(n):\n    while True: pass\n"
        "p = m.get_context('fork').Pool(2); print('started'); p.map(busy, [1, 2])"
    )
    request.wait_for_text("started")
    kernel.drain(0.3)
    kernel.interrupt()
    assert request.wait(3.0).status == "error"
    kernel.cell("p.terminate()")

    def busy() -> bool:
        children = psutil.Process(kernel.connection.pid).children(recursive=True)
        return any(child.cpu_percent(0.2) > 50 for child in children)

    kernel.wait_until(lambda: not busy(), 3.0, "quiet workers")


def test_no_interrupt_ends_what_answers_other_requests(kernel: Kernel) -> None:
    """Whenever it comes, the interpreter lives, and each request has its reply."""
    pid = kernel.value("import os; os.getpid()")
    for _ in range(10):
        asked = [
            kernel.request("complete_request", {"code": "os.pa", "cursor_pos": 5}),
            kernel.request("inspect_request", {"code": "os", "cursor_pos": 2, "detail_level": 0}),
            kernel.request("comm_info_request"),
            kernel.request("is_complete_request", {"code": "1"}),
        ]
        while not all(request.is_done for request in asked):
            kernel.interrupt()
            kernel.pump(0.001)
    assert kernel.value("os.getpid()") == pid


def test_an_interrupt_ends_a_completion_that_waits(kernel: Kernel) -> None:
    """It is the request that ends, with an error as reply; the next one is answered."""
    pid = kernel.value("import os; os.getpid()")
    kernel.cell(
        "import asyncio\n"
        "kernel = get_ipython().kernel\n"
        "async def waiting(code, pos):\n"
        "    print('waiting', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "kernel.do_complete = waiting"
    )
    for _ in range(3):
        request = kernel.request("complete_request", {"code": "os.pa", "cursor_pos": 5})
        request.wait_for_text("waiting")
        kernel.interrupt()
        assert request.wait(2.0).content["ename"] == "KeyboardInterrupt"
    kernel.cell("del kernel.do_complete")

    assert kernel.ask("complete_request", code="os.pa", cursor_pos=5)["status"] == "ok"
    assert kernel.value("os.getpid()") == pid


def test_an_interrupt_ends_a_callback_of_a_comm(kernel: Kernel) -> None:
    """A loop in it ends; the interpreter and the comm are there afterwards."""
    pid = kernel.value("import os; os.getpid()")
    kernel.cell(
        "from comm import create_comm\n"
        "comm = create_comm('t')\n"
        "def spin(message):\n"
        "    print('spinning', flush=True)\n"
        "    while True: pass\n"
        "comm.on_msg(spin)"
    )
    comm_id = kernel.value("comm.comm_id")
    for _ in range(2):
        request = kernel.request("comm_msg", {"comm_id": comm_id, "data": {}})
        request.wait_for_text("spinning")
        for _ in range(20):
            kernel.interrupt()
        kernel.wait_until(lambda request=request: request.is_idle, 2.0, "its end")
    assert kernel.value("os.getpid()") == pid
