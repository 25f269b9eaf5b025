"""Kernels that are forked instead of started: nobody can tell the difference, but by the clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_client import ForkedConnection, ForkServer
from tests.support.kernel_driver import Kernel
from tests.support.record_kernel import RecordConnection, kernel_env, start


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with ForkServer(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def fork(server: ForkServer, tmp_path: Path) -> Iterator[Callable[..., Kernel]]:
    kernels: list[Kernel] = []

    def begin(**env: str) -> Kernel:
        kernels.append(start(ForkedConnection(server, tmp_path, env)))
        return kernels[-1]

    yield begin
    for kernel in kernels:
        kernel.close()


def wait_for_server(server: ForkServer, tmp_path: Path) -> None:
    start(ForkedConnection(server, tmp_path)).close()


LOOKS = [
    "__import__('sys').argv",
    "__import__('sys').path",
    "dict(__import__('os').environ)",
    "__import__('os').getcwd()",
    "__import__('os').getpid() == __import__('os').getpgid(0) == __import__('os').getsid(0)",
    "sorted(vars(__import__('sys').modules['__main__']))",
    "[t.name for t in __import__('threading').enumerate()]",
    "__import__('faulthandler').is_enabled()",
    "[str(__import__('signal').getsignal(n)) for n in (2, 15, 17)]",
    "sorted(set(__import__('os').listdir('/proc/self/fd')))",
    "[__import__('os').readlink(f'/proc/self/fd/{n}') for n in range(1)]",
    "__import__('sys').flags[:]",
    "__import__('multiprocessing').current_process().name",
    "__import__('sys').stdin.fileno()",
    "get_ipython().history_manager.hist_file",
]


def test_a_forked_kernel_looks_like_a_started_one(
    fork: Callable[..., Kernel], tmp_path: Path
) -> None:
    """Arguments, path, environment, descriptors, threads, signals and names are the same."""
    env = {
        "SOME": "thing",
        "PYTHONPATH": f"/somewhere{os.pathsep}{kernel_env(tmp_path)['PYTHONPATH']}",
    }
    forked = fork(**env)
    with start(RecordConnection(tmp_path, env=env)) as started:
        for expression in LOOKS:
            ours, theirs = (k.cell(f"{expression}").result for k in (forked, started))
            assert ours == theirs, expression


def test_it_works_like_one(fork: Callable[..., Kernel]) -> None:
    """Cells, pools, pickled functions, input and interrupts."""
    kernel = fork()
    assert kernel.cell("1 + 1").result == "2"
    request = kernel.cell(
        "import multiprocessing as m\ndef f(x): return x * x\n"
        "with m.get_context('fork').Pool(2) as p: r = p.map(f, range(4))\nr"
    )
    assert request.result == "[0, 1, 4, 9]"
    assert (
        "pickled"
        in kernel.cell("import pickle, __main__; print('pickled', len(pickle.dumps(f)))").text
    )
    request = kernel.execute("input('q ')", allow_stdin=True)
    request.wait_for_input()
    kernel.answer(request, "yes")
    assert request.wait().result == "'yes'"
    request = kernel.execute("print('started')\nwhile True: pass")
    request.wait_for_text("started")
    kernel.interrupt()
    assert request.wait(2.0).content["ename"] == "KeyboardInterrupt"


def test_the_debugger_attaches(fork: Callable[..., Kernel]) -> None:
    """The debugger starts in a forked kernel."""
    kernel = fork()

    def ask(number: int, command: str, **arguments: Any) -> dict[str, Any]:
        return kernel.ask_control(
            "debug_request", 60.0, type="request", seq=number, command=command, arguments=arguments
        )

    assert ask(1, "initialize", clientID="t", adapterID="", pathFormat="path")["success"]
    assert ask(2, "attach")["success"]
    code = "def f(a):\n    b = a + 1\n    return b\nf(2)"
    path = ask(3, "dumpCell", code=code)["body"]["sourcePath"]
    ask(4, "setBreakpoints", breakpoints=[{"line": 2}], source={"path": path})
    ask(5, "configurationDone")
    request = kernel.execute(code)
    stopped: list[Any] = []

    def hit() -> bool:
        stopped[:] = [m for m in kernel.log if m["content"].get("event") == "stopped"]
        return bool(stopped)

    kernel.wait_until(hit, 30.0, "the breakpoint")
    assert ask(6, "continue", threadId=stopped[0]["content"]["body"]["threadId"])["success"]
    assert request.wait().result == "3"


def test_kernels_share_no_randomness(fork: Callable[..., Kernel]) -> None:
    """Two forks draw different numbers."""
    one, two = fork(), fork()
    code = "import random, uuid; [random.random(), str(uuid.uuid4())]"
    assert one.cell(code).result != two.cell(code).result
    assert (
        one.cell("get_ipython().kernel.session.session").result
        != two.cell("get_ipython().kernel.session.session").result
    )


def test_the_server_has_one_thread_and_no_children(
    server: ForkServer, fork: Callable[..., Kernel]
) -> None:
    """What a fork copies is what one thread had; kernels belong to somebody else."""
    kernel = fork()
    pid = server.process.pid
    assert os.listdir(f"/proc/{pid}/task") == [str(pid)]
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        assert children.read() == ""
    with open(f"/proc/{kernel.connection.pid}/stat") as stat:
        assert int(stat.read().rpartition(")")[2].split()[1]) != pid


def test_everything_a_kernel_uses_is_there_already(fork: Callable[..., Kernel]) -> None:
    """First cells import nothing of ours or ipykernel's any more."""
    kernel = fork()
    kernel.cell("import sys; before = set(sys.modules)")
    kernel.cell("1/0")
    kernel.ask("complete_request", code="import o", cursor_pos=8)
    kernel.ask("inspect_request", code="print", cursor_pos=5, detail_level=0)
    new = kernel.value("sorted(m for m in set(sys.modules) - before)")
    assert [
        m for m in new if m.startswith(("ipykernel", "IPython", "jupyter", "traitlets", "zmq"))
    ] == []


def test_a_kernel_ends_cleanly(fork: Callable[..., Kernel]) -> None:
    """Exit handlers run, and a shut down kernel is gone."""
    kernel = fork()
    kernel.cell("import atexit; atexit.register(lambda: print('bye'))")
    kernel.request("shutdown_request", {"restart": True}, channel="control")
    kernel.wait_until(lambda: kernel.connection.is_ended, 10.0, "the end")
    assert "bye" in str(kernel.log)
    assert kernel.connection.said() == ""


def test_a_fork_starts_faster(
    server: ForkServer, fork: Callable[..., Kernel], tmp_path: Path
) -> None:
    """The first cell of a forked kernel is there long before that of a started one."""
    wait_for_server(server, tmp_path)

    def measure(begin: Callable[[], Kernel]) -> float:
        best = 1e9
        for _ in range(3):
            before = time.perf_counter()
            kernel = begin()
            kernel.cell("1")
            best = min(best, time.perf_counter() - before)
            kernel.close()
        return best

    forked = measure(fork)
    started = measure(lambda: start(RecordConnection(tmp_path)))
    assert forked < 0.6 * started, (forked, started)


def test_bad_requests(server: ForkServer, tmp_path: Path) -> None:
    """A request that cannot be met is answered with the reason, and the server goes on."""
    null = os.open(os.devnull, os.O_RDWR)
    env = kernel_env(tmp_path)
    assert "error" in server.ask({"env": env, "cwd": "/no/such"}, [null, null, null])
    assert "error" in server.ask({"env": env, "cwd": "/"}, [null])
    assert "error" in server.ask({"cwd": "/"}, [null, null, null])
    assert "error" in server.ask([], [null, null, null])
    os.close(null)
    wait_for_server(server, tmp_path)


def test_the_server_ends_with_its_socket(tmp_path: Path) -> None:
    """No server outlives the runtime; its kernels do."""
    with ForkServer(tmp_path) as server:
        kernel = start(ForkedConnection(server, tmp_path))
    assert server.process.returncode == 0
    assert kernel.cell("1").result == "1"
    kernel.close()
