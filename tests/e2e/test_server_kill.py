"""A server that is killed in the middle of work, and the next one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sandbox_kernel.errors import PreviewTokenError, StalePreviewUrlError
from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import load_settings
from sandbox_kernel.wire.operations import Empty
from tests.support.jupyter_home import JupyterHome
from tests.support.kernel_driver import Kernel
from tests.support.ws_connection import JupyterServer, WsConnection

pytestmark = [pytest.mark.timeout(240)]

POOL = ("--SandboxPool.size=1", "--SandboxPool.pace=0.2")


@pytest.fixture
def manager(home: JupyterHome) -> Iterator[Manager]:
    with closing(Manager(load_settings(home.env()))) as manager:
        yield manager


def wait_until(condition: Callable[[], object], what: str, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@contextmanager
def notebook(server: JupyterServer, name: str) -> Iterator[Kernel]:
    """Open a notebook as a page does: the same name finds the same session again."""
    status, session = server.call(
        "POST",
        "/api/sessions",
        {"path": name, "name": name, "type": "notebook", "kernel": {"name": "sandbox-python"}},
    )
    assert status == 201, (status, session)
    with closing(WsConnection(server, kernel_id=session["kernel"]["id"])) as connection:
        kernel = Kernel(connection)
        kernel.become_ready()
        yield kernel


def kill(server: JupyterServer) -> None:
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(10)


def relays(home: JupyterHome) -> list[int]:
    """Return the relays of a user, whether they wait or serve."""
    found = []
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            environ = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if b"sandbox_kernel.kernel.launch" in words and os.fsencode(home.data) in environ:
            found.append(int(name))
    return found


def test_the_next_server_goes_on_where_a_killed_one_was(
    home: JupyterHome, manager: Manager
) -> None:
    """The pool is taken over, notebooks find their interpreters, and nothing else is left."""
    with JupyterServer(home, *POOL) as first:
        wait_until(lambda: first.log.count(" waits, for ") == 1, "no pool")
        [unit] = manager.waiting()
        with notebook(first, "work.ipynb") as kernel:
            kernel.cell("x = 41; import threading, time")
            [sandbox] = manager.list()
            assert sandbox.lifetime == unit.lifetime
            incarnation = _incarnation(manager, sandbox.sandbox_id)
            port = manager.ports.expose(
                sandbox.sandbox_id,
                8000,
                secret=manager.ensure(sandbox.sandbox_id).endpoint.token,
                incarnation=incarnation,
            )
            assert port is not None
            wait_until(lambda: first.log.count(" waits, for ") == 2, "not filled again")
            [waiting] = manager.waiting()
            # Under load: output flows and the count goes on while the server dies.
            kernel.execute("for i in range(400): x += 1; print('y' * 1000); time.sleep(0.01)")
            kernel.pump(1.0)
            kill(first)
        wait_until(lambda: not relays(home), "relays of a killed server are left")

        with JupyterServer(home, *POOL) as second, notebook(second, "work.ipynb") as again:
            wait_until(lambda: again.value("x") == 441, "the cell was lost")
            assert [each.sandbox_id for each in manager.list()] == [sandbox.sandbox_id]
            assert _incarnation(manager, sandbox.sandbox_id) == incarnation
            assert manager.ports.check(sandbox.sandbox_id, 8000, port.token) == port
            # Its relay is the new server's; two serve and wait.
            wait_until(lambda: " taken over, for " in second.log, "the pool was not taken over")
            assert len(relays(home)) == 2
            [adopted] = manager.waiting()
            assert (adopted.sandbox_id, adopted.endpoint) == (waiting.sandbox_id, waiting.endpoint)

            with notebook(second, "new.ipynb") as other:
                assert other.value("__import__('os').environ['SANDBOX_ID']").startswith("nb-new-")
            [new] = [each for each in manager.list() if each.sandbox_id.startswith("nb-new-")]
            assert new.lifetime == waiting.lifetime

            manager.stop(sandbox.sandbox_id)
            with pytest.raises(StalePreviewUrlError):
                manager.ports.check(sandbox.sandbox_id, 8000, port.token)
            manager.destroy(sandbox.sandbox_id)
            with pytest.raises(PreviewTokenError):
                manager.ports.check(sandbox.sandbox_id, 8000, port.token)
    # The orderly end of a server ends its pool.
    assert manager.waiting() == ()
    assert relays(home) == []


def test_the_end_of_a_server_leaves_sandboxes_and_ends_them_where_it_is_told_to(
    home: JupyterHome, manager: Manager
) -> None:
    """By default the next server finds them as they are."""
    for options, state in (((), "running"), (("--JupyterSandbox.stop_sandboxes=True",), "stopped")):
        with JupyterServer(home, *options) as server:
            with notebook(server, "work.ipynb") as kernel:
                kernel.cell("1")
            [sandbox] = manager.list()
            assert sandbox.state == "running"
        [sandbox] = manager.list()
        assert sandbox.state == state


def _incarnation(manager: Manager, sandbox_id: str) -> str:
    running = manager.find_running(sandbox_id)
    assert running is not None
    incarnation: str = call_once(running.endpoint, "runtime.health", Empty(), timeout=5).incarnation
    return incarnation


@pytest.mark.parametrize(
    ("app", "options"),
    [("jupyterlab", ()), ("jupyter_server", ("--JupyterSandbox.locked=True",))],
)
def test_every_server_may_have_a_pool(
    home: JupyterHome, manager: Manager, app: str, options: tuple[str, ...]
) -> None:
    """JupyterLab by its command line, and a locked server, whose kernels come out of it too."""
    with JupyterServer(home, *POOL, *options, app=app) as server:
        wait_until(lambda: server.log.count(" waits, for ") == 1, "no pool")
        [unit] = manager.waiting()
        with notebook(server, "work.ipynb") as kernel:
            assert kernel.value("1 + 1") == 2
        [sandbox] = manager.list()
        assert sandbox.lifetime == unit.lifetime
