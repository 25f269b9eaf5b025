"""Kernels out of a pool, in real sandboxes: as good as started for them, and sooner there."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager

from jupyter_ext.provisioner import NAME, PoolProvisioner
from jupyter_ext.units import take_ownership
from sandbox_kernel.kernel.standby import Order
from sandbox_kernel.manager.manager import Manager
from tests.support.jupyter_home import JupyterHome, describe, processes_below
from tests.support.pool_host import PoolHost, pool_host, until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def home(warm_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JupyterHome]:
    """A user of whom nothing runs any more at the end."""
    # Unix sockets lie below it, and their paths are short.
    with tempfile.TemporaryDirectory(prefix="pool-", dir="/tmp") as folder:
        home = JupyterHome(Path(folder), warm_cache).create()
        for name, value in home.changes().items():
            monkeypatch.setenv(name, value)
        yield home
        home.destroy_named_sandboxes()
        deadline = time.monotonic() + 20
        while left := processes_below(home.root):
            assert time.monotonic() < deadline, [describe(each) for each in left]
            time.sleep(0.05)


@asynccontextmanager
async def client_of(kernel: AsyncKernelManager) -> AsyncIterator[AsyncKernelClient]:
    client = kernel.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        yield client
    finally:
        client.stop_channels()


async def run(
    client: AsyncKernelClient, code: str, on_text: Callable[[], object] = lambda: None
) -> str:
    """Run a cell; return what it printed, and what it raised."""
    said: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        said.append(content.get("text") or content.get("ename") or "")
        if "text" in content:
            on_text()

    await client.execute_interactive(code, timeout=60, output_hook=hear)
    return "".join(said)


IDENTITY = """
import os, subprocess
print(os.environ['SANDBOX_ID'], os.environ.get('JPY_SESSION_NAME'), os.getcwd())
print(subprocess.check_output('echo $SANDBOX_ID', shell=True, text=True).strip())
print('pool-' in open('/proc/self/environ').read() + os.uname().nodename)
"""


async def test_a_notebooks_kernel_out_of_the_pool_is_its_own(home: JupyterHome) -> None:
    """Id, folder and variables are those of the notebook, for cells and for what they start."""
    async with pool_host(home) as host:
        await host.until_waiting()
        [unit] = host.schedule.units
        kernel = await host.start(JPY_SESSION_NAME="sales.ipynb")
        async with client_of(kernel) as client:
            said = (await run(client, IDENTITY)).splitlines()
        [sandbox] = host.manager.list()

        assert isinstance(kernel.provisioner, PoolProvisioner)
        assert kernel.provisioner.process is unit.relay.process
        assert said[0] == f"{sandbox.sandbox_id} sales.ipynb {home.work}"
        assert said[1:] == [sandbox.sandbox_id, "False"]
        assert sandbox.sandbox_id.startswith("nb-sales-")
        assert sandbox.lifetime == unit.running.lifetime
        assert not sandbox.ephemeral
        await kernel.shutdown_kernel(now=False)


async def test_the_process_behaves_as_that_of_any_local_kernel(home: JupyterHome) -> None:
    """Interrupts, an end from outside, poll, a restart and a shutdown."""
    async with pool_host(home) as host:
        await host.until_waiting()
        kernel = await host.start(JPY_SESSION_NAME="a.ipynb")
        provisioner: Any = kernel.provisioner
        first = provisioner.process
        async with client_of(kernel) as client:
            begun = asyncio.Event()
            cell = run(client, "import time; print(1); time.sleep(60)", begun.set)
            running = asyncio.ensure_future(cell)
            await begun.wait()
            await kernel.interrupt_kernel()
            assert "KeyboardInterrupt" in await running
            assert await kernel.is_alive()
            await run(client, "x = 1; open('kept', 'w').close()")

            await kernel.restart_kernel(now=False)
            assert first.returncode == 0
            assert provisioner.process is not first
            await client.wait_for_ready(timeout=60)
            assert await run(client, "print('x' in globals(), open('kept').read() == '')") == (
                "False True\n"
            )

            await provisioner.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(provisioner.wait(), 20) == 0
            assert not await kernel.is_alive()
        await kernel.shutdown_kernel(now=True)


async def test_a_kernel_without_a_notebook_takes_its_sandbox_with_it(home: JupyterHome) -> None:
    """As one that is started anew: nobody could find its sandbox again."""
    async with pool_host(home) as host:
        await host.until_waiting()
        kernel = await host.start()
        async with client_of(kernel) as client:
            assert (await run(client, "import os; print(os.environ['SANDBOX_ID'])")).startswith(
                "k-"
            )
        assert [each.ephemeral for each in host.manager.list()] == [True]

        await kernel.shutdown_kernel(now=False)

        await until(lambda: not host.manager.list())


async def test_the_pool_is_filled_again_and_serves_the_folders_used_last(
    home: JupyterHome,
) -> None:
    """Never more than its size of each folder, and no folder that is used no more."""
    folders = []
    for name in "abc":
        folder = home.work / name
        folder.mkdir()
        folders.append(str(folder))
    async with pool_host(home, recent=1) as host:
        await host.until_waiting()
        seen = set()
        for folder in folders[:2]:
            kernel = await host.start(cwd=folder, JPY_SESSION_NAME="a.ipynb")
            await kernel.shutdown_kernel(now=True)
            await until(lambda folder=folder: _folders(host).count(folder) == 1)
            seen.add(tuple(sorted(_folders(host))))
            assert all(_folders(host).count(each) <= 1 for each in _folders(host))

        kernel = await host.start(cwd=folders[1], JPY_SESSION_NAME="b.ipynb")
        [mine] = [each for each in host.manager.list() if "nb-b" in each.sandbox_id]
        assert str(mine.spec.notebook_folder) == folders[1]
        await kernel.shutdown_kernel(now=True)


def _folders(host: PoolHost) -> list[str]:
    return [each.folder for each in host.schedule.units]


@pytest.mark.parametrize(
    "env",
    [
        {"SANDBOX_CONFIG": '{"SandboxManager": {"network": true}}'},
        {"SANDBOX_CONFIG": '{"BubblewrapEngine": {"tmp_bytes": 1000000}}'},
    ],
)
async def test_a_kernel_of_other_settings_is_started_for_itself(
    home: JupyterHome, env: dict[str, str]
) -> None:
    """What waits was started under the server's; nothing weaker is ever given."""
    async with pool_host(home) as host:
        await host.until_waiting()
        [unit] = host.schedule.units
        kernel = await host.start(JPY_SESSION_NAME="a.ipynb", **env)
        async with client_of(kernel) as client:
            assert await run(client, "print(1)") == "1\n"

        assert unit in host.schedule.units
        await kernel.shutdown_kernel(now=True)


async def test_another_locale_gets_an_interpreter_of_its_own(home: JupyterHome) -> None:
    """A variable that acts at an interpreter's start cannot be told to one that runs."""
    async with pool_host(home) as host:
        await host.until_waiting()
        kernel = await host.start(JPY_SESSION_NAME="a.ipynb", TZ="Asia/Tokyo")
        async with client_of(kernel) as client:
            said = await run(client, "import os, time; print(os.environ['TZ'], time.tzname[0])")

        assert said == "Asia/Tokyo JST\n"
        await kernel.shutdown_kernel(now=True)


async def test_a_notebook_that_has_a_sandbox_gets_it_back(home: JupyterHome) -> None:
    """Its files are there; what waits stays for a new one."""
    async with pool_host(home) as host:
        await host.until_waiting()
        kernel = await host.start(JPY_SESSION_NAME="a.ipynb")
        async with client_of(kernel) as client:
            await run(client, "open('/workspace/kept', 'w').close()")
        await kernel.shutdown_kernel(now=False)
        [sandbox] = host.manager.list()
        host.manager.stop(sandbox.sandbox_id)
        await host.until_waiting()
        [unit] = host.schedule.units

        kernel = await host.start(JPY_SESSION_NAME="a.ipynb")
        async with client_of(kernel) as client:
            assert await run(client, "import os; print(os.listdir('/workspace'))") == "['kept']\n"

        assert host.schedule.units == (unit,)
        await kernel.shutdown_kernel(now=False)


async def test_a_kernel_starts_all_the_same_where_the_waiting_relay_has_died(
    home: JupyterHome,
) -> None:
    """It is started as without a pool, in the sandbox that was claimed for it."""
    async with pool_host(home) as host:
        await host.until_waiting()
        [unit] = host.schedule.units
        os.kill(unit.relay.process.pid, signal.SIGKILL)
        unit.relay.process.wait()

        kernel = await host.start(JPY_SESSION_NAME="a.ipynb")
        async with client_of(kernel) as client:
            assert await run(client, "print(1)") == "1\n"

        assert len(host.manager.list()) == 1
        await kernel.shutdown_kernel(now=True)


async def test_one_that_has_ended_is_replaced(home: JupyterHome) -> None:
    """The next look finds it, and nothing of it stays."""
    async with pool_host(home) as host:
        await host.until_waiting()
        [unit] = host.schedule.units
        host.manager.stop(unit.name)

        host.schedule.look()
        await until(lambda: host.schedule.units and host.schedule.units[0] is not unit)

        assert not unit.running.layout.root.exists()
        assert not unit.relay.is_alive()


async def test_the_end_of_the_pool_leaves_nothing(home: JupyterHome) -> None:
    """No sandbox, no process, no lock."""
    async with pool_host(home) as host:
        await host.until_waiting()

    with closing(Manager(host.manager.settings)) as manager:
        assert manager.waiting() == ()
    assert not processes_below(home.root)
    assert not list((home.sandboxes / "sandboxes").iterdir())
    assert not list((home.sandboxes / "locks").iterdir())


async def test_what_another_living_server_has_ready_is_left_to_it(home: JupyterHome) -> None:
    """Each server's pool is its own."""
    async with pool_host(home) as one:
        await one.until_waiting()
        async with pool_host(home) as other:
            await other.until_waiting()

            names = {each.schedule.units[0].name for each in (one, other)}
            assert len(names) == 2
            assert take_ownership(one.schedule.units[0].running.layout) is None
        assert one.schedule.units[0].relay.is_alive()
        assert one.manager.stays(one.schedule.units[0].running)


async def test_a_folder_that_no_sandbox_is_shown_has_its_pool_too(home: JupyterHome) -> None:
    """A home folder, where many servers are started: the kernel begins in the sandbox's own."""
    folder = str(home.root / "home")
    async with pool_host(home, folders=[folder]) as host:
        await host.until_waiting()
        [unit] = host.schedule.units
        kernel = await host.start(cwd=folder, JPY_SESSION_NAME="a.ipynb")
        async with client_of(kernel) as client:
            assert await run(client, "import os; print(os.getcwd())") == "/workspace\n"

        provisioner: Any = kernel.provisioner
        assert provisioner.process is unit.relay.process
        await kernel.shutdown_kernel(now=True)


async def test_a_start_that_is_given_up_leaves_no_relay(
    home: JupyterHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay that was to serve the kernel ends, also when it has just taken the order."""
    async with pool_host(home) as host:
        await host.until_waiting()
        [unit] = host.schedule.units
        given, goes_on = asyncio.Event(), threading.Event()
        loop, give = asyncio.get_running_loop(), unit.relay.order

        def held(order: Order) -> str | None:
            loop.call_soon_threadsafe(given.set)
            assert goes_on.wait(60)
            return give(order)

        monkeypatch.setattr(unit.relay, "order", held)
        starting = asyncio.ensure_future(host.start(JPY_SESSION_NAME="a.ipynb"))
        await given.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        goes_on.set()

        await until(lambda: not unit.relay.is_alive())


async def test_a_pool_of_no_memory_stays_empty(home: JupyterHome) -> None:
    """The budget holds from the first one on."""
    async with pool_host(home, memory_bytes=1 << 20) as host:
        kernel = await host.start(JPY_SESSION_NAME="a.ipynb")
        await kernel.shutdown_kernel(now=True)

        assert host.schedule.units == ()
        assert host.manager.waiting() == ()


async def test_other_kernels_start_as_ever(home: JupyterHome) -> None:
    """The provisioner leaves what is none of its business to its base class."""
    async with pool_host(home, size=0) as host:
        kernel = await host.start("python3")
        async with client_of(kernel) as client:
            assert await run(client, "print(1)") == "1\n"
        assert type(kernel.provisioner) is PoolProvisioner
        await kernel.shutdown_kernel(now=True)


def test_the_provisioner_is_registered() -> None:
    """Under the name that the server makes the default."""
    from importlib.metadata import entry_points

    [found] = entry_points(group="jupyter_client.kernel_provisioners", name=NAME)

    assert found.load() is PoolProvisioner
