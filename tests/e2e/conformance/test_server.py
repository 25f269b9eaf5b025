"""A kernel behind a real jupyter_server: REST, the kernel WebSocket, and clients that come back."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.support.jupyter_home import JupyterHome, describe, processes_below
from tests.support.kernel_driver import KERNEL, Kernel
from tests.support.ws_connection import JupyterServer, WsConnection


@pytest.fixture
def served(server: JupyterServer) -> Iterator[Kernel]:
    """A fresh kernel behind the server."""
    with Kernel(WsConnection(server, KERNEL)) as kernel:
        kernel.become_ready()
        yield kernel


@pytest.fixture(scope="module")
def served_together(server: JupyterServer) -> Iterator[Kernel]:
    """One kernel behind the server for the tests that leave it usable."""
    with Kernel(WsConnection(server, KERNEL)) as kernel:
        kernel.become_ready()
        yield kernel


def execution_state(server: JupyterServer, kernel_id: str) -> str:
    return str(server.get(f"/api/kernels/{kernel_id}")["execution_state"])


def test_cells_run_over_the_websocket(served_together: Kernel) -> None:
    """Order and completeness are those of the kernel's own sockets."""
    cell = served_together.cell("print(1); import sys; print(2, file=sys.stderr); display(3); 4")

    assert cell.kinds[:2] == ["busy", "execute_input"]
    assert cell.kinds[-2:] == ["execute_result", "idle"]
    assert (cell.stream("stdout"), cell.stream("stderr"), cell.result) == ("1\n", "2\n", "4")


def test_idle_is_last_over_the_websocket(served_together: Kernel) -> None:
    """100 cells that also write from a child: nothing is missing and nothing comes after idle."""
    for n in range(100):
        cell = served_together.cell(f"import os; print('a'); x = os.system('echo child'); {n}")
        assert cell.kinds[-1] == "idle"
        assert sorted(cell.text.split()) == ["a", "child"]
        assert cell.result == str(n)
    assert all(
        m["header"]["msg_type"] != "stream" or m["parent_header"] for m in served_together.strays
    )


def test_input_over_the_websocket(served_together: Kernel) -> None:
    """An input request reaches the asking client and its answer the cell."""
    cell = served_together.execute("input('q? ') + '!'", allow_stdin=True)
    asked = cell.wait_for_input()
    served_together.answer(cell, "yes")
    cell.wait()

    assert asked["content"]["prompt"].endswith("q? ")
    assert cell.result == "'yes!'"


def test_buffers_over_the_websocket(served_together: Kernel) -> None:
    """Binary buffers of widgets pass both ways unchanged."""
    served_together.cell("import ipywidgets as w; image = w.Image()")
    comm_id = served_together.value("image.comm.comm_id")
    data = {"method": "update", "state": {}, "buffer_paths": [["value"]]}
    for sent in ([bytes(range(256)) * 4096], [b""]):
        content = {"comm_id": comm_id, "data": data}
        message = served_together.request("comm_msg", content, buffers=sent)
        served_together.wait_until(lambda m=message: m.is_idle, 10, "the echo")

        assert message.of_type("comm_msg")[0]["buffers"] == sent


def test_completion_and_inspection_over_the_websocket(served_together: Kernel) -> None:
    """Requests other than cells are answered as well."""
    told = served_together.ask("complete_request", code="impor", cursor_pos=5)
    assert "import" in told["matches"]
    assert served_together.ask("inspect_request", code="print", cursor_pos=3, detail_level=0)[
        "found"
    ]
    assert served_together.ask("is_complete_request", code="for i in x:")["status"] == "incomplete"


def test_much_output_over_the_websocket_is_complete(served_together: Kernel) -> None:
    """100 000 lines arrive whole through a server with its default rate limits."""
    cell = served_together.cell("for i in range(100_000): print(i)", 60)

    assert cell.text == "".join(f"{i}\n" for i in range(100_000))
    assert served_together.cell("1").result == "1"


def test_interrupt_by_rest(served: Kernel) -> None:
    """The server's interrupt ends a loop and keeps the interpreter."""
    served.cell("x = 41")
    loop = served.execute("print('go', flush=True)\nwhile True: pass")
    loop.wait_for_text("go")
    served.interrupt()
    loop.wait(10)

    assert loop.content["ename"] == "KeyboardInterrupt"
    assert served.value("x + 1") == 42


@pytest.mark.slow
def test_restart_by_rest(served: Kernel) -> None:
    """The server's restart gives a fresh interpreter, also while a cell runs."""
    served.cell("x = 41; open('kept.txt', 'w').write('file')")
    served.execute("import time; time.sleep(60)").wait_for("execute_input")
    served.restart()

    assert served.cell("x").content["ename"] == "NameError"
    assert served.value("open('kept.txt').read()") == "file"


@pytest.mark.slow
def test_a_client_that_comes_back_gets_what_it_missed(server: JupyterServer) -> None:
    """Under the same session id every line arrives in order and once, then the idle."""
    kernel = Kernel(WsConnection(server, KERNEL))
    connection = kernel.connection
    assert isinstance(connection, WsConnection)
    with kernel:
        kernel.become_ready()
        cell = kernel.execute(
            "import time\nfor i in range(8): print(i, flush=True); time.sleep(.5)"
        )
        cell.wait_for_text("1\n")
        connection.disconnect()
        deadline = time.monotonic() + 20
        while execution_state(server, connection.kernel_id) != "idle":
            assert time.monotonic() < deadline, "the cell goes on without a client"
            time.sleep(0.1)
        connection.open()
        cell.wait(10)

        assert cell.text == "".join(f"{i}\n" for i in range(8))
        assert cell.kinds[-1] == "idle"
        assert kernel.value("i") == 7


@pytest.mark.slow
def test_another_client_sees_the_kernels_state_at_once(server: JupyterServer) -> None:
    """A new session learns that the kernel is busy and later that it is idle."""
    with Kernel(WsConnection(server, KERNEL)) as kernel:
        connection = kernel.connection
        assert isinstance(connection, WsConnection)
        kernel.become_ready()
        cell = kernel.execute("import time; time.sleep(2); print('done')")
        cell.wait_for("execute_input")
        assert execution_state(server, connection.kernel_id) == "busy"
        connection.disconnect()

        with Kernel(WsConnection(server, kernel_id=connection.kernel_id)) as other:
            other.wait_until(
                lambda: any("done" in m["content"].get("text", "") for m in other.strays),
                10,
                "the output that came after the other client",
            )
            other.become_ready()
            assert other.value("1 + 1") == 2
        assert execution_state(server, connection.kernel_id) == "idle"


def open_notebook(server: JupyterServer, path: str) -> Kernel:
    """Open a notebook as a front end does: the server starts its kernel, and says whose it is."""
    status, body = server.call(
        "POST",
        "/api/sessions",
        {
            "path": path,
            "name": path.rpartition("/")[2],
            "type": "notebook",
            "kernel": {"name": KERNEL},
        },
    )
    assert status == 201, body
    kernel = Kernel(WsConnection(server, kernel_id=body["kernel"]["id"]))
    kernel.become_ready()
    return kernel


def leave(kernel: Kernel) -> None:
    assert isinstance(kernel.connection, WsConnection)
    kernel.connection.disconnect()


@pytest.mark.slow
@pytest.mark.skipif(KERNEL == "python3", reason="a plain kernel ends with its server")
def test_a_notebook_finds_its_interpreter_after_its_server_was_killed(
    new_home: Callable[[], JupyterHome],
) -> None:
    """The notebook's path, as the server tells it, decides which sandbox and interpreter it gets.

    Another notebook has another one; one of the same path on another server has the same.
    """
    home = new_home()
    (home.work / "sub").mkdir()
    for path in ("sub/study.ipynb", "other.ipynb"):
        (home.work / path).write_text('{"cells": [], "metadata": {}, "nbformat": 4}')
    with JupyterServer(home) as server:
        study = open_notebook(server, "sub/study.ipynb")
        other = open_notebook(server, "other.ipynb")
        names = [k.value("__import__('os').environ['SANDBOX_ID']") for k in (study, other)]
        study.cell("import os; kept = 41")
        pid = study.value("os.getpid()")
        assert study.value("os.getcwd()") == str(home.work / "sub")
        assert other.cell("kept").content["ename"] == "NameError"
        study.execute("import time; time.sleep(3); kept += 1").wait_for("execute_input")
        server.process.kill()
        server.process.wait()
        leave(study)
        leave(other)

    with JupyterServer(home) as server:
        again = open_notebook(server, "sub/study.ipynb")
        assert again.value("os.getpid()") == pid
        assert again.value("kept") == 42
        leave(again)

    assert names[0].startswith("nb-study-")
    assert names[1].startswith("nb-other-")


def ids_of(server: JupyterServer) -> set[str]:
    return {kernel["id"] for kernel in server.get("/api/kernels")}


@pytest.mark.slow
@pytest.mark.parametrize("connected", ["stays", "goes"])
def test_culling_is_jupyters_own_setting(
    new_home: Callable[[], JupyterHome], connected: str
) -> None:
    """Idle kernels go as the server is told; with a page open only where that counts as idle, too.

    A busy one stays in any case.  The server's log says why a kernel went, its sandbox goes with
    it, and the page can have another one.
    """
    home = new_home()
    options = {"idle_timeout": 8, "interval": 1, "connected": connected == "goes"}
    with JupyterServer(
        home, *(f"--MappingKernelManager.cull_{name}={value}" for name, value in options.items())
    ) as server:
        kernels = []
        for _ in range(3):
            kernels.append(Kernel(WsConnection(server, KERNEL)))
            kernels[-1].become_ready()
            if len(kernels) == 1:
                asking = kernels[0].execute("input()", allow_stdin=True)
                asking.wait_for_input()
        busy, idle, left = kernels
        ids = [kernel.connection.kernel_id for kernel in kernels]  # type: ignore[attr-defined]
        leave(left)
        expected = set(ids[:1] if connected == "goes" else ids[:2])

        deadline = time.monotonic() + 45
        while {kernel["id"] for kernel in server.get("/api/kernels")} != expected:
            assert time.monotonic() < deadline, server.log
            time.sleep(0.3)
        if connected == "stays":
            assert idle.value("1 + 1") == 2
        busy.answer(asking, "answered")
        assert asking.wait().result == "'answered'"
        assert "Culling 'idle' kernel" in server.log
        while len(list(home.sandboxes.glob("sandboxes/*"))) != len(expected):
            assert time.monotonic() < deadline, "a culled kernel's sandbox stays"
            time.sleep(0.1)
        leave(idle)
        with Kernel(WsConnection(server, KERNEL)) as another:
            another.become_ready()
            assert another.value("1 + 1") == 2
        leave(busy)


def assert_nothing_left(server: JupyterServer, home: JupyterHome) -> None:
    deadline = time.monotonic() + 15
    while True:
        mine = psutil.Process(server.process.pid)
        left = [p for p in processes_below(home.root) if p != mine]
        if not left:
            return
        assert time.monotonic() < deadline, [describe(p) for p in left]
        time.sleep(0.2)


@pytest.mark.slow
def test_delete_and_interrupt_never_hurt_the_server(
    new_home: Callable[[], JupyterHome],
) -> None:
    """Kernels deleted while they start, run or restart go away whole; the server answers on."""
    home = new_home()
    with JupyterServer(home) as server:

        def create() -> str:
            status, body = server.call("POST", "/api/kernels", {"name": KERNEL})
            assert status == 201, body
            return str(body["id"])

        for _ in range(10):
            assert server.call("DELETE", f"/api/kernels/{create()}")[0] == 204
        server.get("/api/kernels")

        busy = Kernel(WsConnection(server, KERNEL))
        assert isinstance(busy.connection, WsConnection)
        busy.become_ready()
        busy.execute("while True: pass").wait_for("execute_input")
        path = f"/api/kernels/{busy.connection.kernel_id}"
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            statuses = sorted(s for s, _ in pool.map(lambda _: server.call("DELETE", path), "ab"))
        assert statuses[0] == 204
        assert statuses[1] in (204, 404)
        busy.connection.disconnect()

        early = create()
        assert server.call("POST", f"/api/kernels/{early}/interrupt")[0] in (204, 409)
        assert server.call("DELETE", f"/api/kernels/{early}")[0] == 204

        restarted = create()
        path = f"/api/kernels/{restarted}"
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            restart = pool.submit(server.call, "POST", f"{path}/restart")
            delete = pool.submit(server.call, "DELETE", path)
            assert delete.result()[0] in (204, 404, 409, 500)
            restart.result()
        server.call("DELETE", path)

        assert server.get("/api/kernels") == []
        assert_nothing_left(server, home)


@pytest.mark.slow
def test_a_server_that_ends_leaves_no_kernel_behind(new_home: Callable[[], JupyterHome]) -> None:
    """SIGTERM of the server shuts its kernels down with it."""
    home = new_home()
    server = JupyterServer(home)
    kernel = Kernel(WsConnection(server, KERNEL))
    assert isinstance(kernel.connection, WsConnection)
    kernel.become_ready()
    kernel.connection.disconnect()
    server.close()

    _, left = psutil.wait_procs(processes_below(home.root), timeout=15)
    assert not left, [describe(p) for p in left]
