"""Any other Jupyter kernel behind the bridge: the same records, all of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import tiny_kernel
from tests.support.kernel_driver import Kernel
from tests.support.record_kernel import RecordConnection, start

BRIDGE = [sys.executable, "-m", "sandbox_runtime.bridge_any"]
PYTHON = [
    sys.executable,
    "-m",
    "ipykernel_launcher",
    "-f",
    "{connection_file}",
    "--log-level=ERROR",
]
TINY = [sys.executable, tiny_kernel.__file__, "{connection_file}"]


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Callable[..., Kernel]]:
    kernels: list[Kernel] = []

    def begin(*argv: str) -> Kernel:
        kernels.append(start(RecordConnection(tmp_path, [*BRIDGE, *argv])))
        return kernels[-1]

    yield begin
    for kernel in kernels:
        kernel.close()


@pytest.mark.parametrize("options", [["--"], ["--tcp", "--"]])
def test_a_stock_ipykernel(bridge: Callable[..., Kernel], options: list[str]) -> None:
    """Cells, input and interrupts of a kernel as installed."""
    kernel = bridge(*options, *PYTHON)
    assert kernel.connection.meta == [{"op": "ready"}]
    request = kernel.cell("print('x'); 1 + 1")
    assert (request.text, request.result) == ("x\n", "2")
    assert request.reply is not None
    assert request.reply["identities"] == [b"client"]
    asking = kernel.execute("input('q ')", allow_stdin=True)
    assert asking.wait_for_input()["identities"] == [b"client"]
    kernel.answer(asking, "yes")
    assert asking.wait().result == "'yes'"
    running = kernel.execute("import time; print('started', flush=True); time.sleep(60)")
    running.wait_for_text("started")
    kernel.interrupt()
    assert running.wait(3.0).content["ename"] == "KeyboardInterrupt"
    comm_id = str(
        kernel.cell(
            "from comm import create_comm\nc = create_comm(target_name='t')\n"
            "@c.on_msg\ndef _(m): c.send({}, buffers=m['buffers'])\nc.comm_id"
        ).result
    ).strip("'")
    message = kernel.request(
        "comm_msg", {"comm_id": comm_id, "data": {}}, buffers=[b"\0" * 100_000]
    )
    message.wait_for("comm_msg")
    assert message.of_type("comm_msg")[0]["buffers"] == [b"\0" * 100_000]
    types = {m["header"]["msg_type"] for m in kernel.log}
    assert "iopub_welcome" not in types
    assert not [m for m in kernel.log if "bridge" in str(m["parent_header"])]


def test_another_language(bridge: Callable[..., Kernel]) -> None:
    """A kernel of another language: echo, input, interrupt, a flood without loss."""
    kernel = bridge("--", *TINY)
    assert kernel.ask("kernel_info_request")["implementation"] == "tiny"
    assert kernel.cell("hello").text == "hello"
    asking = kernel.execute("ask", allow_stdin=True)
    asking.wait_for_input()
    kernel.answer(asking, "answered")
    assert asking.wait().text == "answered"
    waiting = kernel.execute("wait")
    waiting.wait_for_text("waiting")
    kernel.interrupt()
    assert waiting.wait(3.0).text == "waitinginterrupted"
    flood = kernel.cell("many 800")
    assert flood.text.startswith("".join(f"{i}\n" for i in range(800)))


def test_the_kernels_end_is_the_bridges(bridge: Callable[..., Kernel], tmp_path: Path) -> None:
    """The bridge leaves with the code or the signal of its kernel, and leaves nothing behind."""
    for code, status in (("die", 7), (None, -signal.SIGKILL)):
        kernel = bridge("--", *TINY)
        if code:
            kernel.execute(code)
        else:
            pid = kernel.connection.pid
            with open(f"/proc/{pid}/task/{pid}/children") as children:
                os.kill(int(children.read().split()[0]), signal.SIGKILL)
        kernel.wait_until(lambda kernel=kernel: kernel.connection.is_ended, 30.0, "the end")
        assert kernel.connection.wait() == status


def test_shutdown(bridge: Callable[..., Kernel]) -> None:
    """A shutdown is answered and ends both."""
    kernel = bridge("--", *TINY)
    request = kernel.request("shutdown_request", {"restart": False}, channel="control")
    kernel.wait_until(lambda: kernel.connection.is_ended, 30.0, "the end")
    assert request.content == {"status": "ok", "restart": False}
    assert kernel.connection.wait() == 0


def test_a_kernel_that_dies_at_start(tmp_path: Path) -> None:
    """A kernel that never comes up ends the bridge with its own code and words."""
    argv = [*BRIDGE, "--", sys.executable, "-c", "import sys; sys.exit('no such image')"]
    connection = RecordConnection(tmp_path, argv)
    assert connection.wait(20.0) == 1
    assert "no such image" in connection.said()
    connection.close()


def test_the_runtime_goes(bridge: Callable[..., Kernel]) -> None:
    """When the record pipe closes, the kernel ends too."""
    kernel = bridge("--", *TINY)
    pid = kernel.connection.pid
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        child = int(children.read().split()[0])
    os.close(kernel.connection.to_kernel)
    kernel.connection.to_kernel = os.open(os.devnull, os.O_WRONLY)
    kernel.connection.wait()
    assert not os.path.exists(f"/proc/{child}")
