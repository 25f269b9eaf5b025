"""Ports of real sandboxes, which have no network: connections, forwards, waiting and tokens."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import os
import socket
import stat
import sys
import textwrap
import urllib.request

import pytest

from sandbox_kernel import sync
from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.errors import (
    InvalidPortError,
    InvalidPortTokenError,
    InvalidSandboxIdError,
    OperationInterruptedError,
    PreviewTokenError,
    ProcessExitedBeforeReadyError,
    ProcessReadyTimeoutError,
    ServiceNotRespondingError,
    StalePreviewUrlError,
    StaleProcessHandleError,
    ValidationFailedError,
)
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings

PORT = 8000

SERVER = textwrap.dedent(
    """
    import socket, struct, sys, threading, time

    def echo(c):
        while data := c.recv(65536):
            c.sendall(data)
        c.close()

    def flood(c):
        try:
            while True:
                c.sendall(bytes(1 << 20))
        except OSError:
            pass

    def count(c):
        total = 0
        while data := c.recv(1 << 20):
            total += len(data)
        c.sendall(b"%d" % total)
        c.close()

    def silent(c):
        time.sleep(3600)

    def ticks(c):
        try:
            for i in range(1000):
                c.sendall(b"data: %d\\n\\n" % i)
                time.sleep(0.1)
        except OSError:
            print("closed", flush=True)

    def reset(c):
        c.recv(1)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()

    time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
    server = socket.create_server(("127.0.0.1", 8000), backlog=300)
    while True:
        c = server.accept()[0]
        print("accepted", flush=True)
        threading.Thread(target=globals()[sys.argv[1]], args=(c,), daemon=True).start()
    """
)


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("data") / "sandbox"
    made = Manager(Settings(data_dir=data_dir, engine="bubblewrap"))
    yield made
    for info in made.list():
        made.destroy(info.sandbox_id)
    made.close()


@pytest.fixture(autouse=True)
def _tidy(manager):
    """Leave nothing behind that listens or is exposed in the sandbox of all tests."""
    yield
    with sync.get_sandbox("demo", manager=manager) as made:
        made.kill_all_processes(grace=0)
        made.unexpose_port(PORT)


@pytest.fixture
async def sandbox(manager):
    """The sandbox of all tests; whether it runs, nobody knows."""
    async with get_sandbox("demo", manager=manager) as made:
        yield made


@pytest.fixture
async def unborn(manager):
    """A sandbox that never ran."""
    async with get_sandbox("unborn", manager=manager) as made:
        yield made
        await made.destroy()


async def serve(sandbox, kind, *arguments):
    process = await sandbox.start_process(["python", "-c", SERVER, kind, *arguments])
    await process.wait_for_port(PORT, timeout=20)
    return process


async def until(condition):
    deadline = asyncio.get_running_loop().time() + 10
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


async def test_a_conversation_with_a_program_inside(sandbox):
    """Bytes both ways, in a sandbox that has no network; either side may end first."""
    await serve(sandbox, "echo")
    data = os.urandom(5_000_000)
    async with sandbox.connect_port(PORT) as (reader, writer):

        async def send():
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        back = await reader.read(-1)
        await sending
        assert reader.at_eof()
        assert writer.get_extra_info("peername") == ("127.0.0.1", PORT)

    assert back == data


@pytest.mark.filterwarnings("ignore:.*websocket.*:DeprecationWarning")
@pytest.mark.parametrize("transport", ["rpc", "http", "websocket"])
async def test_every_transport_carries_connections(manager, transport):
    """The same bytes, ends and errors, whatever carries the calls."""
    data = os.urandom(1_000_000)
    async with get_sandbox("demo", manager=manager, transport=transport) as sandbox:
        await serve(sandbox, "echo")
        with pytest.raises(ServiceNotRespondingError):
            async with sandbox.connect_port(PORT + 1):
                pass
        exposed = await sandbox.expose_port(PORT)
        async with sandbox.connect_exposed_port(PORT, exposed.token) as (reader, writer):
            writer.write(data)
            writer.write_eof()
            assert await reader.read() == data
        with pytest.raises(ProcessReadyTimeoutError):
            await sandbox.wait_for_port(PORT + 1, timeout=0)
        await sandbox.stop()
        await sandbox.start()
        with pytest.raises(StalePreviewUrlError):
            async with sandbox.connect_exposed_port(PORT, exposed.token):
                pass


async def test_lines_and_parts_as_of_any_stream(sandbox):
    """The reader is asyncio's own."""
    await serve(sandbox, "echo")
    async with sandbox.connect_port(PORT) as (reader, writer):
        writer.writelines([b"one\n", b"two\nthree"])

        assert await reader.readline() == b"one\n"
        assert await reader.readuntil(b"\n") == b"two\n"
        assert await reader.readexactly(5) == b"three"


async def test_a_port_of_the_host_is_not_reached(sandbox):
    """The sandbox has a loopback interface of its own."""
    await sandbox.start()
    with socket.create_server(("127.0.0.1", 0)) as host:
        port = host.getsockname()[1]
        with pytest.raises(ServiceNotRespondingError, match="nothing listens"):
            async with sandbox.connect_port(port):
                pass
    assert await sandbox.list_ports() == []


async def test_connecting_starts_nothing(unborn):
    """A forgotten page must not bring a sleeping sandbox back."""
    for _ in range(2):
        with pytest.raises(ServiceNotRespondingError, match="does not run") as caught:
            async with unborn.connect_port(PORT):
                pass
        assert await unborn.list_ports() == []
        with contextlib.suppress(AttributeError):
            assert (await unborn.info()).state == "stopped"
        await unborn.exec(["true"])
        await unborn.stop()
    assert caught.value.http_status == 502


@pytest.mark.parametrize("port", [0, 80, 1023, 65536, "8000", "\u0668\u0660\u0660\u0660", True])
async def test_other_ports_are_refused_before_anything(unborn, port):
    """By each verb, and nothing is started for it."""
    with pytest.raises(InvalidPortError):
        async with unborn.connect_port(port):
            pass
    for work in (
        unborn.wait_for_port(port),
        unborn.expose_port(port),
        unborn.unexpose_port(port),
        unborn.is_port_exposed(port),
    ):
        with pytest.raises(InvalidPortError):
            await work
    with pytest.raises(InvalidPortError):
        unborn.forward_port(port)
    assert await unborn.info() is None


async def test_what_was_written_is_delivered_by_the_end_of_the_block(sandbox):
    """Also to a program that takes it slowly."""
    await serve(sandbox, "count")
    async with sandbox.connect_port(PORT) as (_, writer):
        writer.write(bytes(20 << 20))
    async with sandbox.connect_port(PORT) as (reader, writer):
        writer.write(bytes(20 << 20))
        writer.write_eof()
        assert await reader.read() == b"%d" % (20 << 20)


async def test_a_flood_waits_for_its_reader(sandbox):
    """A program that floods is stopped by who does not read; a cancelled reader ends it at once."""
    await serve(sandbox, "flood")
    async with sandbox.connect_port(PORT) as (reader, _):
        assert len(await reader.readexactly(50_000_000)) == 50_000_000
        await asyncio.sleep(0.3)
        assert len(reader._buffer) <= 3 << 20
        assert (await sandbox.exec(["true"], timeout=5)).success


async def test_a_program_that_reads_nothing_holds_its_writer(sandbox):
    """drain() waits; leaving by an error does not."""
    await serve(sandbox, "silent")

    async def write():
        async with sandbox.connect_port(PORT) as (_, writer):
            while True:
                writer.write(bytes(1 << 20))
                await writer.drain()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(write(), 1)
    assert (await sandbox.exec(["true"], timeout=5)).success


async def test_events_come_one_by_one(sandbox):
    """Each as it is sent, not all at the end; the program sees the end of its client soon."""
    process = await serve(sandbox, "ticks")
    clock = asyncio.get_running_loop().time
    async with sandbox.connect_port(PORT) as (reader, _):
        begin, times = clock(), []
        for _ in range(8):
            await reader.readuntil(b"\n\n")
            times.append(clock() - begin)
    left = clock()

    assert times[0] < 1
    assert times[-1] - times[0] > 0.5
    async for event in process.output(follow=True):
        if b"closed" in event.data:
            break
    assert clock() - left < 2


async def test_a_reset_inside_is_one_outside(sandbox):
    """What broke is no end."""
    await serve(sandbox, "reset")
    async with sandbox.connect_port(PORT) as (reader, writer):
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_a_program_that_is_killed_ends_its_connections(sandbox):
    """kill -9 of the server is seen at once."""
    process = await serve(sandbox, "silent")
    async with sandbox.connect_port(PORT) as (reader, _):
        await process.kill()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
    await process.wait_for_exit(timeout=10)
    with pytest.raises(ServiceNotRespondingError):
        async with sandbox.connect_port(PORT):
            pass


async def test_a_sandbox_that_ends_interrupts_its_connections(sandbox, manager):
    """By kill -9 of all of it, and by a destroy: a typed error, soon, never a quiet end."""
    for end in (kill_all, destroy):
        await serve(sandbox, "silent")
        async with sandbox.connect_port(PORT) as (reader, _):
            await end(sandbox, manager)
            try:
                got = await asyncio.wait_for(reader.read(), 10)
            except OperationInterruptedError as error:
                got = error.code
            # The programs may end, and so their connections, before the runtime does.
            assert got in (b"", "OPERATION_INTERRUPTED")


async def kill_all(sandbox, manager):
    running = await asyncio.to_thread(manager.find_running, sandbox.id)
    os.kill(running.instance.data["pid"], 9)


async def destroy(sandbox, _manager):
    await sandbox.destroy()


async def test_a_client_that_is_killed_leaves_nothing(sandbox, manager):
    """kill -9 of a process that forwards a port: its connections are gone inside."""
    await serve(sandbox, "silent")
    code = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from sandbox_kernel import sync
        from sandbox_kernel.manager.manager import Manager
        from sandbox_kernel.manager.settings import Settings
        manager = Manager(Settings(data_dir=Path(sys.argv[1]), engine="bubblewrap"))
        with sync.get_sandbox("demo", manager=manager).connect_port(8000) as sock:
            sock.sendall(b"x")
            print("connected", flush=True)
            sock.recv(1)
        """
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        str(manager.settings.data_dir),
        stdout=asyncio.subprocess.PIPE,
    )
    assert await child.stdout.readline() == b"connected\n"
    holder = f"connection to port {PORT}"
    assert holder in (await sandbox.health()).busy
    child.kill()
    await child.wait()

    async def is_gone():
        return holder not in (await sandbox.health()).busy

    await until(is_gone)


async def test_two_hundred_connections_at_once(sandbox):
    """Each with its own bytes."""
    await serve(sandbox, "echo")

    async def one(number):
        data = hashlib.sha256(b"%d" % number).digest() * 1000
        async with sandbox.connect_port(PORT) as (reader, writer):
            writer.write(data)
            ready.release()
            await everybody.wait()
            return await reader.readexactly(len(data)) == data

    ready, everybody = asyncio.Semaphore(0), asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number)) for number in range(200)]
        for _ in tasks:
            await ready.acquire()
        everybody.set()
    assert all(task.result() for task in tasks)


# --- waiting ---


async def test_waiting_for_a_program_that_binds_after_a_while(sandbox):
    """By its process, and by the sandbox."""
    process = await sandbox.start_process(["python", "-c", SERVER, "echo", "0.7"])
    with pytest.raises(ProcessReadyTimeoutError):
        await process.wait_for_port(PORT, timeout=0.1)
    first, second = await asyncio.gather(
        process.wait_for_port(PORT, timeout=20), sandbox.wait_for_port(PORT, timeout=20)
    )

    assert first.port == second.port == PORT
    assert [each.addresses for each in await sandbox.list_ports()] == [["127.0.0.1"]]


async def test_waiting_for_a_process_that_ends(sandbox):
    """Its code is told; a handle of an earlier container is stale."""
    process = await sandbox.start_process(["sh", "-c", "sleep 0.2; exit 7"])
    with pytest.raises(ProcessExitedBeforeReadyError) as caught:
        await process.wait_for_port(PORT)
    assert caught.value.context["exit_code"] == 7
    await sandbox.stop()
    with pytest.raises(StaleProcessHandleError):
        await process.wait_for_port(PORT)


async def test_waiting_for_an_answer(sandbox):
    """A server that answers 404 to this path is there, and not ready."""
    await sandbox.start_process(["python", "-m", "http.server", "8000", "--bind", "127.0.0.1"])
    ready = await sandbox.wait_for_port(PORT, mode="http", timeout=20)
    assert ready.status == 200
    with pytest.raises(ProcessReadyTimeoutError, match="answers with status 404"):
        await sandbox.wait_for_port(PORT, mode="http", path="/no-such", timeout=1)
    ready = await sandbox.wait_for_port(PORT, mode="http", path="/no-such", status=404)
    assert ready.status == 404
    with pytest.raises(ValidationFailedError):
        await sandbox.wait_for_port(PORT, mode="ftp")


# --- forwards ---


async def test_a_forward_serves_programs_that_know_addresses(sandbox):
    """HTTP by TCP at 127.0.0.1; half-closed connections and many at once pass, too."""
    await sandbox.exec(["sh", "-c", "echo hello > /workspace/index.html"])
    await sandbox.start_process(["python", "-m", "http.server", "8000", "--bind", "127.0.0.1"])
    await sandbox.wait_for_port(PORT, timeout=20)
    async with sandbox.forward_port(PORT) as forward:
        get = lambda: urllib.request.urlopen(forward.url).read()  # noqa: E731, S310
        assert await asyncio.to_thread(get) == b"hello\n"
        assert (
            await asyncio.gather(*(asyncio.to_thread(get) for _ in range(20))) == [b"hello\n"] * 20
        )
        assert forward.path is None
        local = forward.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", local))


async def test_a_private_forward_is_its_owners(sandbox):
    """A unix socket in a folder nobody else enters; both are gone afterwards."""
    await serve(sandbox, "count")
    async with sandbox.forward_port(PORT, private=True) as forward:
        assert stat.S_IMODE(forward.path.parent.stat().st_mode) == 0o700
        assert (forward.port, forward.url) == (None, None)
        reader, writer = await asyncio.open_unix_connection(forward.path)
        writer.write(b"x" * 1_000_000)
        writer.write_eof()
        assert await reader.read() == b"1000000"
        writer.close()
        await writer.wait_closed()
    assert not forward.path.parent.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
async def test_another_user_cannot_use_a_private_forward(sandbox):
    """Neither enter the folder nor connect to the socket."""
    async with sandbox.forward_port(PORT, private=True) as forward:
        code = (
            "import socket, sys\n"
            "try:\n    socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
            "except PermissionError:\n    print('refused')\n"
        )
        child = await asyncio.create_subprocess_exec(
            "/usr/bin/python3",
            "-I",
            "-c",
            code,
            str(forward.path),
            user=65534,
            stdout=asyncio.subprocess.PIPE,
        )
        assert (await child.communicate())[0] == b"refused\n"


@pytest.mark.parametrize("runtime_dir", ["x" * 90, "no-such-folder", ""])
async def test_a_private_forward_finds_room(sandbox, monkeypatch, tmp_path, runtime_dir):
    """Paths of sockets are short, and the folder named for them need not be there."""
    if runtime_dir.startswith("x"):
        (tmp_path / runtime_dir).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / runtime_dir) if runtime_dir else "")
    async with sandbox.forward_port(PORT, private=True) as forward:
        assert len(str(forward.path)) <= 107
        assert forward.path.is_socket()


async def test_a_forward_to_nobody_refuses(unborn):
    """Its callers see a connection that breaks; it goes on, and starts no sandbox."""
    async with unborn.forward_port(PORT, private=True) as forward:
        for _ in range(2):
            reader, writer = await asyncio.open_unix_connection(forward.path)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
        assert await unborn.info() is None
        await serve(unborn, "echo")
        reader, writer = await asyncio.open_unix_connection(forward.path)
        writer.write(b"now")
        assert await reader.readexactly(3) == b"now"
        # Left open: the end of the forward closes it.
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


async def test_a_local_port_in_use_is_told(sandbox):
    """As the system does."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        forward = sandbox.forward_port(PORT, other.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await forward.__aenter__()


# --- tokens ---


async def test_a_token_leads_to_the_port(sandbox):
    """For as long as the container lasts; nobody needs to listen when it is made."""
    exposed = await sandbox.expose_port(PORT, "web")
    assert exposed.name == "web"
    assert await sandbox.is_port_exposed(PORT)
    assert not await sandbox.is_port_exposed(PORT + 1)
    with pytest.raises(ServiceNotRespondingError):
        async with sandbox.connect_exposed_port(PORT, exposed.token):
            pass
    await serve(sandbox, "echo")
    async with sandbox.connect_exposed_port(PORT, exposed.token) as (reader, writer):
        writer.write(b"hi")
        assert await reader.readexactly(2) == b"hi"
    assert await sandbox.validate_port_token(PORT, exposed.token)
    for wrong in ("", "x" * 16, exposed.token[:-1], exposed.token + "a", "\u0661" * 16):
        assert not await sandbox.validate_port_token(PORT, wrong)
        with pytest.raises(PreviewTokenError):
            async with sandbox.connect_exposed_port(PORT, wrong):
                pass


async def test_wrong_tokens_leave_nothing_behind(sandbox):
    """The program never sees those who are refused, and the sandbox is not kept awake by them."""
    process = await serve(sandbox, "echo")
    exposed = await sandbox.expose_port(PORT)
    for number in range(60):
        with pytest.raises(PreviewTokenError):
            async with sandbox.connect_exposed_port(PORT, f"wrong{number}"):
                pass
    async with sandbox.connect_exposed_port(PORT, exposed.token) as (reader, writer):
        writer.write(b"x")
        await reader.readexactly(1)
    output = b"".join([event.data async for event in process.output() if event.type == "stdout"])

    assert output == b"accepted\n"
    assert not any("connection" in each for each in (await sandbox.health()).busy)


async def test_a_token_of_another_sandbox_opens_nothing(sandbox, manager):
    """Even for the same port."""
    other = get_sandbox("other", manager=manager)
    theirs = await other.expose_port(PORT)
    mine = await sandbox.expose_port(PORT)
    async with other:
        assert not await sandbox.validate_port_token(PORT, theirs.token)
        assert not await other.validate_port_token(PORT, mine.token)


async def test_a_restart_makes_tokens_stale_until_exposed_again(sandbox):
    """410 and nothing started; then the same token opens the port of what runs now."""
    exposed = await sandbox.expose_port(PORT)
    await sandbox.stop()
    for state in ("stopped", "running"):
        with pytest.raises(StalePreviewUrlError):
            async with sandbox.connect_exposed_port(PORT, exposed.token):
                pass
        assert not await sandbox.validate_port_token(PORT, exposed.token)
        assert await sandbox.get_exposed_ports() == []
        assert (await sandbox.info()).state == state
        await serve(sandbox, "echo")
    again = await sandbox.expose_port(PORT)
    assert again.token == exposed.token
    assert again.incarnation != exposed.incarnation
    async with sandbox.connect_exposed_port(PORT, exposed.token):
        pass
    await sandbox.destroy()
    with pytest.raises(PreviewTokenError):
        async with sandbox.connect_exposed_port(PORT, exposed.token):
            pass


async def test_a_killed_sandbox_makes_tokens_stale(sandbox, manager):
    """Also where nobody has noticed its end yet."""
    exposed = await sandbox.expose_port(PORT)
    await kill_all(sandbox, manager)

    async def is_dead():
        return await asyncio.to_thread(manager.find_running, "demo") is None

    await until(is_dead)
    with pytest.raises(StalePreviewUrlError):
        async with sandbox.connect_exposed_port(PORT, exposed.token):
            pass


async def test_exposing_what_cannot_be_starts_nothing(unborn, manager):
    """Bad tokens and names are refused first; ids of mixed case have no handle at all."""
    with pytest.raises(InvalidPortTokenError):
        await unborn.expose_port(PORT, token="NO")
    with pytest.raises(ValidationFailedError):
        await unborn.expose_port(PORT, "\n")
    assert await unborn.info() is None
    with pytest.raises(InvalidSandboxIdError):
        get_sandbox("Demo", manager=manager)
    await unborn.unexpose_port(PORT)
    assert await unborn.info() is None


async def test_revoking_ends_a_token_at_once(sandbox):
    """A connection that is open stays, a new one is refused."""
    await serve(sandbox, "echo")
    exposed = await sandbox.expose_port(PORT)
    async with sandbox.connect_exposed_port(PORT, exposed.token) as (reader, writer):
        for _ in range(2):
            await sandbox.unexpose_port(PORT)
        writer.write(b"on")
        assert await reader.readexactly(2) == b"on"
        assert not await sandbox.validate_port_token(PORT, exposed.token)


# --- without await ---


@pytest.fixture
def blocking(manager):
    with sync.get_sandbox("demo", manager=manager) as made:
        yield made


def test_the_blocking_names_do_the_same(blocking):
    """A connection is a socket, so that http.client and its like can have it."""
    process = blocking.start_process(
        ["python", "-m", "http.server", "8000", "--bind", "127.0.0.1", "-d", "/etc"]
    )
    assert process.wait_for_port(PORT, mode="http", timeout=20).status == 200
    assert blocking.wait_for_port(PORT).port == PORT
    with blocking.connect_port(PORT) as sock:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = sock
        connection.request("GET", "/hostname")
        assert connection.getresponse().read().strip() == b"demo"
    with blocking.forward_port(PORT) as forward:
        assert urllib.request.urlopen(f"{forward.url}/hostname").read().strip() == b"demo"  # noqa: S310
    with (
        blocking.forward_port(PORT, private=True) as forward,
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(str(forward.path))
    exposed = blocking.expose_port(PORT, "web", "mine")
    assert [each.token for each in blocking.get_exposed_ports()] == ["mine"]
    assert blocking.is_port_exposed(PORT)
    assert blocking.validate_port_token(PORT, "mine")
    with blocking.connect_exposed_port(PORT, exposed.token) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert sock.recv(8) == b"HTTP/1.0"
    blocking.unexpose_port(PORT)
    assert not blocking.is_port_exposed(PORT)
    assert [each.port for each in blocking.list_ports()] == [PORT]


def test_a_blocking_connection_delivers_and_breaks_like_another(blocking):
    """What was sent before close arrives; nobody there is a typed error."""
    with pytest.raises(ServiceNotRespondingError), blocking.connect_port(PORT):
        pass
    process = blocking.start_process(["python", "-c", SERVER, "count"])
    process.wait_for_port(PORT, timeout=20)
    with blocking.connect_port(PORT) as sock:
        sock.sendall(bytes(10 << 20))
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(100) == b"%d" % (10 << 20)
