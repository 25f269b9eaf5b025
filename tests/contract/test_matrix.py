"""Every engine over every transport: the same operations, and how far each limit holds.

docs/capabilities.md is made from what this finds (``make capabilities``) and compared with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox_kernel.client.sandbox import Sandbox, get_sandbox
from sandbox_kernel.engines.base import Limits, Reached
from sandbox_kernel.engines.limits import weigh_limits
from sandbox_kernel.engines.settings import DockerSettings
from sandbox_kernel.errors import (
    CommandNotFoundError,
    CommandTimeoutError,
    LimitNotEnforceableError,
    PathNotFoundError,
    SandboxConfigurationError,
    SessionTerminatedError,
)
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from sandbox_kernel.transports.choice import TRANSPORTS
from tests.support.capability_page import PAGE, render, tables
from tests.support.docker import HOST, IMAGE, need_docker
from tests.support.managed import local_manager

pytestmark = [
    pytest.mark.filterwarnings("ignore:The WebSocket transport:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::sandbox_runtime.in_thread.NoIsolationWarning"),
]

ENGINES = ("bubblewrap", "docker", "local")
LIMITS = Limits(memory_bytes=256 << 20, cpus=0.5, processes=200, file_bytes=1 << 20)
FLOOD = 5_000_000

operations: dict[str, dict[str, str]] = {}
limits: dict[str, dict[str, str]] = {}


@contextmanager
def manager_of(engine: str, folder: Path) -> Iterator[Manager]:
    if engine == "local":
        with local_manager("inprocess", folder) as made:
            yield made
        return
    if engine == "docker":
        need_docker()
    docker = DockerSettings(host=HOST, image=IMAGE)
    manager = Manager(Settings(data_dir=folder, engine=engine, docker=docker))
    try:
        yield manager
    finally:
        for info in manager.list():
            manager.destroy(info.sandbox_id)
        manager.close()


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def manager(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with manager_of(engine, tmp_path_factory.mktemp(engine) / "sandbox") as made:
        yield made


# --- operations -------------------------------------------------------------------------------


async def commands(sandbox: Sandbox) -> None:
    done = await sandbox.exec(["sh", "-c", "cat; printf err >&2; exit 3"], stdin=b"a\xff\0")
    assert (done.stdout, done.stderr, done.exit_code) == (b"a\xff\0", b"err", 3)
    with pytest.raises(CommandNotFoundError):
        await sandbox.exec(["no-such-program"])
    with pytest.raises(CommandTimeoutError):
        await sandbox.exec(["sleep", "60"], timeout=0.2)
    assert len((await sandbox.exec(["head", "-c", str(FLOOD), "/dev/zero"])).stdout) == FLOOD


async def streams(sandbox: Sandbox) -> None:
    events = sandbox.exec_stream(["sh", "-c", "echo first; read x; echo $x"], stdin=b"last\n")
    said = [event.data async for event in events if event.type == "stdout"]
    assert b"".join(said) == b"first\nlast\n"


async def sessions(sandbox: Sandbox) -> None:
    session = await sandbox.create_session()
    await session.exec("mkdir -p d; cd d; A=1; f() { echo $A; }")
    assert (await session.exec("f; basename $PWD")).stdout == b"1\nd\n"
    with pytest.raises(SessionTerminatedError):
        await session.exec("exit 4")
    assert (await session.exec("echo again")).stdout == b"again\n"
    await session.delete()


async def processes(sandbox: Sandbox) -> None:
    process = await sandbox.start_process(["sh", "-c", "echo ready; read x; exit $x"], stdin=True)
    assert (await process.wait_for_log("ready", timeout=20)).line == "ready"
    found = await sandbox.get_process(process.id)
    assert found is not None
    await found.write_stdin("7\n", close=True)
    assert (await process.wait_for_exit(timeout=20)).exit_code == 7


async def files(sandbox: Sandbox) -> None:
    content = os.urandom(3_000_000)
    await sandbox.write_file("folder/file", content)
    assert await sandbox.read_file("folder/file") == content
    assert [each.relative_path for each in await sandbox.list_files("folder")] == ["file"]
    with pytest.raises(PathNotFoundError):
        await sandbox.stat("none")
    await sandbox.delete_file("folder", recursive=True)


async def watching(sandbox: Sandbox) -> None:
    await sandbox.mkdir("watched", parents=True)
    async with asyncio.timeout(20), contextlib.aclosing(sandbox.watch("watched")) as events:
        assert (await anext(events)).type == "watching"
        await sandbox.write_file("watched/f", b"1")
        assert (await anext(events)).event_type == "create"
    await sandbox.delete_file("watched", recursive=True)


async def terminals(sandbox: Sandbox) -> None:
    terminal = await sandbox.create_terminal(["sh", "-c", "stty size; read x; exit 5"], cols=70)
    await terminal.write(b"x\r")
    assert (await terminal.wait_for_exit(timeout=20)).exit_code == 5


async def ports(sandbox: Sandbox) -> None:
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); c, _ = s.accept(); c.sendall(c.recv(9)[::-1])"
    )
    process = await sandbox.start_process(["python3", "-c", code])
    async with asyncio.timeout(20):
        port = int((await process.wait_for_log("\n")).line)
        await sandbox.wait_for_port(port)
        async with sandbox.connect_port(port) as (reader, writer):
            writer.write(b"abc")
            assert await reader.read() == b"cba"


OPERATIONS: dict[str, Callable[[Sandbox], Awaitable[None]]] = {
    "commands: bytes, codes, time limits, 5 MB": commands,
    "output as it comes": streams,
    "sessions": sessions,
    "processes with handles": processes,
    "files of any size": files,
    "watching folders": watching,
    "terminals": terminals,
    "ports, also without a network": ports,
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_operation_is_the_same_over_every_transport(
    engine: str, manager: Manager, operation: str
) -> None:
    """Where a transport does not go with the engine it is refused, by name."""
    works = []
    for name in sorted(TRANSPORTS):
        async with get_sandbox("matrix", manager=manager, transport=name) as sandbox:
            if name == "inprocess" and engine != "local":
                with pytest.raises(SandboxConfigurationError, match="no part of this process"):
                    await OPERATIONS[operation](sandbox)
            else:
                await OPERATIONS[operation](sandbox)
                works.append(name)

    operations.setdefault(operation, {})[engine] = ", ".join(works)


async def test_programs_see_the_host_only_where_nothing_is_isolated(
    engine: str, manager: Manager, tmp_path: Path
) -> None:
    """And an engine that isolates nothing says so where people look."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    async with get_sandbox("matrix", manager=manager) as sandbox:
        seen = (await sandbox.exec(["cat", str(secret)])).success
        instance = manager.ensure("matrix").instance
    operations.setdefault("isolation", {})[engine] = "**none**" if seen else "yes"

    assert seen == (engine == "local")
    assert seen == any("isolated" in each for each in instance.notices)


# --- limits -----------------------------------------------------------------------------------


async def memory(sandbox: Sandbox) -> Reached:
    hold = "import time; b = b'x' * (160 << 20); time.sleep(1.5)"
    if (await sandbox.exec(["python3", "-c", "b = b'x' * (400 << 20)"])).success:
        return Reached.ABSENT
    both = await asyncio.gather(*(sandbox.exec(["python3", "-c", hold]) for _ in range(2)))
    return Reached.PER_PROCESS if all(each.success for each in both) else Reached.HARD


async def process_count(sandbox: Sandbox) -> Reached:
    code = (
        "import os, signal, sys\n"
        "pids = []\n"
        "try:\n"
        "    for _ in range(260):\n"
        "        pids.append(os.posix_spawn('/bin/sleep', ['sleep', '60'], {}))\n"
        "except OSError:\n"
        "    pass\n"
        "for pid in pids: os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)\n"
        "print(len(pids))\n"
    )
    started = int((await sandbox.exec(["python3", "-c", code])).stdout)
    return Reached.ABSENT if started == 260 else Reached.HARD


async def file_size(sandbox: Sandbox) -> Reached:
    done = await sandbox.exec(["sh", "-c", "head -c 2097152 /dev/zero > large"])
    await sandbox.delete_file("large")
    return Reached.ABSENT if done.success else Reached.HARD


TRIED = {"memory_bytes": memory, "processes": process_count, "file_bytes": file_size}


def described(limit: str, engine: str, found: Reached) -> str:
    """Return the page's words, which hold for every machine."""
    if engine != "bubblewrap":
        return found.value
    kernel = "5.14"
    best, _ = weigh_limits(LIMITS, {"memory", "cpu", "pids"}, is_root=True, kernel=kernel)
    user, _ = weigh_limits(LIMITS, set(), is_root=False, kernel=kernel)
    root, _ = weigh_limits(LIMITS, set(), is_root=True, kernel=kernel)
    here = root if os.geteuid() == 0 else user
    assert found in (best[limit], here[limit]), limit
    text = best[limit].value
    if user[limit] is not best[limit]:
        return f"{text} with control groups, else {user[limit].value}"
    if root[limit] is not best[limit]:
        return f"{text} with control groups or as an ordinary user, else {root[limit].value}"
    return text


async def test_each_limit_is_reached_as_far_as_the_engine_says(
    engine: str, manager: Manager
) -> None:
    """By trying; what is absent is refused to who does not accept that."""
    options = {"limits": LIMITS, "manager": manager}
    async with get_sandbox("limited", accept_weaker_limits=True, **options) as sandbox:
        await sandbox.exec(["true"])
        said = {
            name: Reached(how) for name, how in manager.ensure("limited").instance.limits.items()
        }
        found = {name: await trial(sandbox) for name, trial in TRIED.items()}
        await sandbox.destroy()
    for name, how in said.items():
        assert found.get(name, how) is how, name
        limits.setdefault(f"`{name}`", {})[engine] = described(name, engine, how)

    if any(how is not Reached.HARD for how in said.values()):
        with pytest.raises(LimitNotEnforceableError):
            await get_sandbox("refused", **options).exec(["true"])


# --- the page ---------------------------------------------------------------------------------


def test_the_page_says_what_was_found() -> None:
    """With WRITE_CAPABILITIES in the environment it is written instead."""
    if set(operations.get("isolation", ())) != set(ENGINES):
        pytest.skip("some engine was not tried")
    page = render(ENGINES, operations, limits)
    if os.environ.get("WRITE_CAPABILITIES"):
        PAGE.write_text(page)

    assert tables(PAGE.read_text()) == tables(page)
    assert PAGE.read_text() == page
