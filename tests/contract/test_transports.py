"""One suite for every transport: the same results and the same errors, whatever carries them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel.errors import (
    CommandNotFoundError,
    ContainerUnavailableError,
    OperationInterruptedError,
    ProcessNotFoundError,
    SandboxConfigurationError,
    StaleProcessHandleError,
    TerminalNotFoundError,
    TransportError,
    UnauthorizedError,
    ValidationFailedError,
)
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.running import Running
from sandbox_kernel.transports.choice import TRANSPORTS, chosen_transport, make_transport
from sandbox_kernel.transports.endpoint import Endpoint
from sandbox_kernel.wire.operations import (
    ConfigureRequest,
    ConnectTerminalRequest,
    Empty,
    ExecRequest,
    ExecResult,
    Health,
    KernelRequest,
    OutputEvent,
    OutputRequest,
    ProcessInfo,
    ProcessRequest,
    StartProcessRequest,
    WaitRequest,
    WriteStdinRequest,
)
from tests.support.inprocess_engine import cut
from tests.support.managed import local_manager

pytestmark = [
    pytest.mark.filterwarnings("ignore:The WebSocket transport:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::sandbox_runtime.in_thread.NoIsolationWarning"),
]

ALL_BYTES = bytes(range(256)) * 40


@pytest.fixture(scope="module", params=TRANSPORTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def manager(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with local_manager(name, tmp_path_factory.mktemp("data") / "sandbox") as made:
        yield made


@pytest.fixture(scope="module")
def running(manager: Manager) -> Running:
    return manager.ensure("shared")


@pytest.fixture
async def transport(name: str, running: Running) -> AsyncIterator:
    async with make_transport(name, running.endpoint) as made:
        yield made


def wait_until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def gathered(events) -> bytes:
    return b"".join([event.data async for event in events])


async def test_a_call_answers_with_its_record(transport) -> None:
    answer = await transport.call("runtime.health", Empty())

    assert isinstance(answer, Health)
    assert answer.sandbox_id == "shared"


async def test_many_calls_at_once_get_their_own_answers(transport) -> None:
    """Two hundred calls and streams, each with its own word."""

    async def say(word: str) -> bytes:
        async with transport.stream("exec", ExecRequest(argv=["echo", word])) as events:
            return await gathered(events)

    words = [f"word-{n}" for n in range(100)]
    said, healths = await asyncio.gather(
        asyncio.gather(*map(say, words)),
        asyncio.gather(*(transport.call("runtime.health", Empty()) for _ in range(100))),
    )

    assert said == [f"{word}\n".encode() for word in words]
    assert {each.sandbox_id for each in healths} == {"shared"}


async def test_bytes_stay_bytes_both_ways(transport) -> None:
    """Every byte value, by the command's input and its output."""
    request = ExecRequest(argv=["cat"], stdin=ALL_BYTES)
    async with transport.stream("exec", request) as events:
        out = await gathered(events)

    assert out == ALL_BYTES
    assert isinstance(events.end, ExecResult)
    assert events.end.exit_code == 0


async def test_empty_and_absent_bytes_differ(transport) -> None:
    """Empty input is an end of file at once; `stdin` of None is the null device, likewise read."""
    for stdin in (b"", None):
        async with transport.stream("exec", ExecRequest(argv=["wc", "-c"], stdin=stdin)) as events:
            assert await gathered(events) == b"0\n"


async def test_text_of_every_kind_travels(transport) -> None:
    words = ["ä€😀", "a\nb", '"quoted"', "\x01", "udc: \udc80"]
    request = ExecRequest(argv=["printf", "%s|", *words])
    async with transport.stream("exec", request) as events:
        out = await gathered(events)

    assert out == "|".join([*words, ""]).encode("utf-8", "surrogateescape")


async def test_events_come_while_the_command_runs(transport) -> None:
    """The first is there before the command has got what it needs to end."""
    info = await transport.call(
        "process.start", StartProcessRequest(argv=["sh", "-c", "echo first; cat"], stdin=True)
    )
    assert isinstance(info, ProcessInfo)
    process = info.process_id
    request = OutputRequest(process_id=process, follow=True)
    async with transport.stream("process.output", request) as events:
        first = await anext(events)
        assert isinstance(first, OutputEvent)
        assert first.data == b"first\n"
        await transport.call(
            "process.write_stdin", WriteStdinRequest(process_id=process, data=b"last", close=True)
        )
        assert await gathered(events) == b"last"


async def test_a_slow_reader_gets_all_of_a_flood(transport) -> None:
    """30 MB to a consumer that stops in between; calls are answered meanwhile."""
    script = "import os\nfor n in range(480): os.write(1, bytes([n % 251]) * 65536)"
    digest = hashlib.sha256()
    size = 0
    async with transport.stream("exec", ExecRequest(argv=["python3", "-c", script])) as events:
        async for event in events:
            if size < 1 << 20 <= size + len(event.data):
                await asyncio.sleep(0.3)
                await asyncio.wait_for(transport.call("runtime.health", Empty()), 10)
            digest.update(event.data)
            size += len(event.data)

    expected = hashlib.sha256(b"".join(bytes([n % 251]) * 65536 for n in range(480)))
    assert size == 480 * 65536
    assert digest.hexdigest() == expected.hexdigest()


async def test_errors_keep_class_code_hint_and_context(transport) -> None:
    with pytest.raises(ProcessNotFoundError) as caught:
        await transport.call("process.get", ProcessRequest(process_id="p-none"))

    assert caught.value.code == "PROCESS_NOT_FOUND"
    assert caught.value.context == {"process_id": "p-none"}
    assert caught.value.message


async def test_a_stream_that_cannot_begin_fails_with_its_error(transport) -> None:
    with pytest.raises(CommandNotFoundError):
        async with transport.stream("exec", ExecRequest(argv=["no-such-program"])) as events:
            await gathered(events)


async def test_a_request_that_is_refused_leaves_the_transport_usable(transport) -> None:
    with pytest.raises(ValidationFailedError):
        await transport.call("runtime.configure", ConfigureRequest(sleep_after=-1.0))

    assert await transport.call("runtime.health", Empty())


async def test_an_operation_of_another_kind_is_refused_before_it_is_sent(transport) -> None:
    with pytest.raises(TransportError, match="exec is a stream"):
        await transport.call("exec", ExecRequest(argv=["true"]))


async def test_a_handle_of_another_incarnation_is_stale(transport) -> None:
    with pytest.raises(StaleProcessHandleError):
        await transport.call(
            "process.get", ProcessRequest(process_id="p"), incarnation="0123456789abcdef"
        )


async def test_leaving_a_stream_ends_its_command(transport) -> None:
    async with transport.stream(
        "exec", ExecRequest(argv=["sh", "-c", "echo $$; exec sleep 60"])
    ) as events:
        pid = int((await anext(events)).data)

    # The plain engine shares our processes.
    await asyncio.to_thread(wait_until, lambda: not os.path.exists(f"/proc/{pid}"))


async def test_cancelling_a_call_leaves_the_others_alone(transport) -> None:
    info = await transport.call("process.start", StartProcessRequest(argv=["sleep", "60"]))
    waiting = asyncio.create_task(
        transport.call("process.wait", WaitRequest(process_id=info.process_id))
    )
    await asyncio.sleep(0)
    await transport.call("runtime.health", Empty())

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    found = await transport.call("process.get", ProcessRequest(process_id=info.process_id))
    assert found.status == "running"
    os.kill(found.pid, signal.SIGKILL)


async def test_a_channel_has_a_connection_of_its_own(transport) -> None:
    """What opens none tells why by the same error on each transport."""
    with pytest.raises(TransportError, match=r"kernel\.connect is a channel"):
        await transport.call("kernel.connect", KernelRequest(kernel_id="k"))

    with pytest.raises(TerminalNotFoundError):
        await transport.connect("terminal.connect", ConnectTerminalRequest(terminal_id="t-none"))


async def test_a_wrong_token_is_refused_and_told(name: str, running: Running) -> None:
    wrong = replace(running.endpoint, token="wrong")
    async with make_transport(name, wrong) as transport:
        with pytest.raises(UnauthorizedError):
            await transport.open()


async def test_nobody_listening_is_told(name: str, tmp_path: Path) -> None:
    address = "inprocess:none" if name == "inprocess" else str(tmp_path / "none")
    nowhere = Endpoint(sandbox_id="a", socket=address, token="x")
    async with make_transport(name, nowhere) as transport:
        with pytest.raises(ContainerUnavailableError):
            await transport.call("runtime.health", Empty())


async def test_a_runtime_that_dies_interrupts_calls_and_is_found_again(
    name: str, manager: Manager
) -> None:
    """In-flight calls end with the typed error, are not repeated, and a new one connects anew."""
    running = await asyncio.to_thread(manager.ensure, f"dies-{name}")
    async with make_transport(name, running.endpoint) as transport:
        health = await transport.call("runtime.health", Empty())
        begun = [asyncio.Event(), asyncio.Event()]
        calls = [asyncio.create_task(_held(transport, each)) for each in begun]
        async with asyncio.timeout(10):
            await asyncio.gather(*(each.wait() for each in begun))

        if name == "inprocess":
            await asyncio.to_thread(cut, running.lifetime)
        else:
            os.kill(health.pid, signal.SIGKILL)

        for each in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(each, OperationInterruptedError)
        with pytest.raises((ContainerUnavailableError, OperationInterruptedError)):
            await transport.call("runtime.health", Empty())


async def _held(transport, begun: asyncio.Event) -> None:
    request = ExecRequest(argv=["sh", "-c", "echo begun; exec sleep 60"])
    async with transport.stream("exec", request) as events:
        await anext(events)
        begun.set()
        await gathered(events)


async def test_a_closed_transport_takes_no_calls(transport) -> None:
    await transport.call("runtime.health", Empty())
    await transport.aclose()
    await transport.aclose()

    with pytest.raises(ContainerUnavailableError, match="closed"):
        await transport.call("runtime.health", Empty())


async def test_no_descriptor_stays(name: str, running: Running) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with make_transport(name, running.endpoint) as transport:
        await asyncio.gather(*(transport.call("runtime.health", Empty()) for _ in range(20)))
        async with transport.stream("exec", ExecRequest(argv=["yes"])) as events:
            await anext(events)
    await asyncio.to_thread(wait_until, lambda: len(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize("name", ["rpc"], indirect=True)
def test_the_websocket_transport_warns(running: Running) -> None:
    """Whoever chooses it is told, at their own line, which Python shows without being asked."""
    with pytest.warns(DeprecationWarning, match="deprecated") as told:
        chosen_transport("websocket")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen_transport("http")
        make_transport("http", running.endpoint)

    assert [each.filename for each in told] == [__file__]


@pytest.mark.parametrize("name", ["rpc"], indirect=True)
def test_the_inprocess_transport_refuses_a_runtime_elsewhere(running: Running) -> None:
    """It is never a way around an isolated one, nor one silently replaced by another way."""
    with pytest.raises(SandboxConfigurationError, match="no part of this process"):
        make_transport("inprocess", running.endpoint)
