"""Ends of the interpreter inside: asked for, by its pipe, by a crash."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.support.kernel_driver import Kernel


def wait_for_end(kernel: Kernel) -> int:
    kernel.wait_until(lambda: kernel.connection.is_ended, 30.0, "the end of the kernel")
    return int(kernel.connection.wait())


@pytest.mark.parametrize("restart", [True, False])
def test_shutdown(new_kernel: Callable[..., Kernel], *, restart: bool) -> None:
    """A shutdown is answered, children end, and the process leaves with 0."""
    kernel = new_kernel()
    kernel.cell("import subprocess; p = subprocess.Popen(['sleep', '7001'])")
    request = kernel.request("shutdown_request", {"restart": restart}, channel="control")
    assert wait_for_end(kernel) == 0
    assert request.content == {"status": "ok", "restart": restart}
    assert [m["content"] for m in request.of_type("shutdown_reply")] == [request.content]
    assert kernel.connection.said() == ""


def test_exit_in_a_cell(new_kernel: Callable[..., Kernel]) -> None:
    """exit() ends the kernel after its cell."""
    kernel = new_kernel()
    assert kernel.cell("print('last'); exit()").text == "last\n"
    assert wait_for_end(kernel) == 0


@pytest.mark.parametrize("code", ["1", "import time; time.sleep(60)", "while True: pass"])
def test_end_of_the_record_pipe(new_kernel: Callable[..., Kernel], code: str) -> None:
    """A kernel nobody can talk to any more ends, whatever it does."""
    kernel = new_kernel()
    kernel.execute("print('started')\n" + code).wait_for_text("started")
    os.close(kernel.connection.to_kernel)
    kernel.connection.to_kernel = os.open(os.devnull, os.O_WRONLY)
    assert wait_for_end(kernel) == 0


def test_nobody_reads_any_more(new_kernel: Callable[..., Kernel]) -> None:
    """A kernel whose output goes nowhere ends."""
    kernel = new_kernel()
    kernel.execute("import time\nwhile True: print('x'); time.sleep(0.01)").wait_for_text("x")
    os.close(kernel.connection.from_kernel)
    kernel.connection.from_kernel = os.open(os.devnull, os.O_RDONLY)
    assert kernel.connection.wait() == 1


@pytest.mark.parametrize(
    ("crash", "status"),
    [
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os._exit(3)", 3),
        (
            "import threading, ctypes; threading.Thread(target=ctypes.string_at, args=(0,)).start(); threading.Event().wait()",
            -signal.SIGSEGV,
        ),
        (
            "import faulthandler, ctypes; faulthandler.enable(); ctypes.string_at(0)",
            -signal.SIGSEGV,
        ),
    ],
)
def test_output_before_a_crash(new_kernel: Callable[..., Kernel], crash: str, status: int) -> None:
    """All that was printed before a crash arrives, whole lines or not."""
    kernel = new_kernel()
    request = kernel.execute(f"print('before'); import sys; sys.stdout.write('tail'); {crash}")
    assert wait_for_end(kernel) == status
    assert request.text == "before\ntail"
    if status == -signal.SIGSEGV:
        assert "Segmentation fault" in kernel.connection.said() or "faulthandler" in crash


def test_a_long_output_before_a_crash(new_kernel: Callable[..., Kernel]) -> None:
    """Also when the pipe is in the middle of writing."""
    kernel = new_kernel()
    request = kernel.execute(
        "for i in range(100_000): print(i)\nimport ctypes; ctypes.string_at(0)"
    )
    assert wait_for_end(kernel) == -signal.SIGSEGV
    assert request.text == "".join(f"{i}\n" for i in range(100_000))


def test_a_failing_start_says_why(new_kernel: Callable[..., Kernel]) -> None:
    """Broken framing ends the kernel with a reason on its error output."""
    kernel = new_kernel()
    kernel.connection.write(b"\xff" * 64)
    assert wait_for_end(kernel) == 1
    assert "record" in kernel.connection.said()


def test_an_idle_kernel_sleeps(new_kernel: Callable[..., Kernel]) -> None:
    """A kernel that has nothing to do uses no processor time."""
    kernel = new_kernel()
    kernel.cell("1")
    kernel.drain(2.5, limit=3.0)  # the history is written meanwhile
    pid = kernel.connection.pid

    def switches() -> int:
        total = 0
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/status") as status:
                total += sum(int(line.split()[1]) for line in status if "ctxt_switches" in line)
        return total

    before = switches()
    kernel.drain(1.0, limit=1.5)
    assert switches() - before < 20
