from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import time

import pytest

from sandbox_kernel.client.options import parse_duration
from sandbox_kernel.client.process import ProcessExit, ProcessOutput
from sandbox_kernel.client.sandbox import get_sandbox, list_sandboxes
from sandbox_kernel.errors import (
    CommandNotFoundError,
    CommandPermissionDeniedError,
    CommandTimeoutError,
    ContainerUnavailableError,
    EngineStartError,
    InvalidCommandError,
    InvalidSandboxIdError,
    OperationInterruptedError,
    ProcessSpawnFailedError,
    ProcessWaitTimeoutError,
    SandboxConfigurationError,
    SessionNotFoundError,
    StaleProcessHandleError,
    StdinClosedError,
)
from tests.support.managed import plain_manager
from tests.support.plain_engine import PlainEngine, processes_of


@pytest.fixture
async def sandbox(manager):
    async with get_sandbox("demo", manager=manager) as made:
        yield made


async def test_getting_a_sandbox_starts_nothing(manager, data_dir):
    """A handle, its information, health, processes and a list cost nothing and make nothing."""
    sandbox = get_sandbox("demo", manager=manager)

    assert await sandbox.info() is None
    assert await sandbox.health() is None
    assert await sandbox.list_processes() == []
    assert await sandbox.get_process("p-1") is None
    assert await list_sandboxes(manager=manager) == []
    await sandbox.stop()
    await sandbox.destroy()
    assert not data_dir.exists()


async def test_the_first_operation_starts_it(sandbox, manager):
    """Output comes back as bytes, with code and duration."""
    result = await sandbox.exec(["sh", "-c", "printf 'a\\377'; printf e >&2; exit 3"])

    assert result.stdout == b"a\xff"
    assert result.stdout_text == "a\ufffd"
    assert result.stderr_text == "e"
    assert (result.exit_code, result.success, result.signal) == (3, False, None)
    assert 0 <= result.duration < 10
    assert [info.sandbox_id for info in await list_sandboxes(manager=manager)] == ["demo"]


async def test_two_handles_are_one_sandbox(sandbox, manager):
    """What one handle starts the other finds."""
    process = await sandbox.start_process(["sleep", "60"])
    async with get_sandbox("demo", manager=manager) as other:
        found = await other.get_process(process.id)

        assert found is not None
        assert found.pid == process.pid
        assert [each.id for each in await other.list_processes()] == [process.id]


async def test_input_is_given_whole_or_is_empty(sandbox):
    """Without stdin a program reads end of file; with it exactly those bytes."""
    assert (await sandbox.exec(["cat"])).stdout == b""
    assert (await sandbox.exec(["cat"], stdin=b"abc")).stdout == b"abc"
    assert (await sandbox.exec(["cat"], stdin="ä")).stdout == "ä".encode()
    many = await sandbox.exec(["wc", "-c"], stdin=b"z" * 10_000_000)
    assert many.stdout.strip() == b"10000000"
    assert (await sandbox.exec(["head", "-c1"], stdin=b"z" * 10_000_000)).stdout == b"z"


async def test_input_larger_than_a_frame(sandbox):
    """There is no largest input: what one message cannot hold is sent in pieces."""
    data = os.urandom(1 << 20) * 20

    result = await sandbox.exec(["sha256sum"], stdin=data)

    assert result.stdout_text.split()[0] == hashlib.sha256(data).hexdigest()
    assert (await sandbox.exec(["true"], stdin=data)).success


async def test_input_from_a_stream_that_never_ends_is_given_up(sandbox):
    """exec returns when the command ends, the stream is released, and no task stays."""
    released = asyncio.Event()

    async def endless():
        try:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0.001)
        finally:
            released.set()

    tasks = len(asyncio.all_tasks())
    assert (await sandbox.exec(["true"], stdin=endless())).success
    assert (await sandbox.exec(["head", "-c", "3000"], stdin=endless())).stdout == b"x" * 3000
    done = "exec 0<&-; echo done; sleep 0.2"
    assert (await sandbox.exec(["sh", "-c", done], stdin=endless())).stdout == b"done\n"
    await asyncio.wait_for(released.wait(), 5)
    await until(lambda: len(asyncio.all_tasks()) <= tasks + 1)


async def test_an_input_stream_that_breaks_breaks_exec(sandbox):
    """What the caller's stream raises reaches the caller, and the command is gone."""
    lifetime = (await sandbox.start()).lifetime
    before = set(processes_of(lifetime))

    async def broken():
        yield b"half"
        raise ValueError("of the stream")

    with pytest.raises(ValueError, match="of the stream"):
        await sandbox.exec(["cat"], stdin=broken())
    await until(lambda: set(processes_of(lifetime)) == before)


async def test_much_output_comes_whole(sandbox):
    """30 MB on one stream and 5 MB on the other, in order, nothing lost."""
    code = (
        "import sys; sys.stderr.buffer.write(b'e' * 5_000_000);"
        "sys.stdout.buffer.write(b''.join(b'%09d\\n' % i for i in range(3_000_000)))"
    )

    result = await sandbox.exec(["python3", "-c", code])

    assert result.stdout == b"".join(b"%09d\n" % i for i in range(3_000_000))
    assert result.stderr == b"e" * 5_000_000


async def test_output_beyond_the_limit_is_dropped_and_said(sandbox):
    """A program that never stops writing cannot fill our memory."""
    result = await sandbox.exec(["head", "-c", "5000000", "/dev/zero"], max_output=1000)

    assert len(result.stdout) == 1000
    assert result.truncated
    assert result.success


async def test_output_is_handed_on_as_it_comes(sandbox):
    """on_output sees pieces before the command has ended."""
    seen: list[tuple[str, bytes]] = []
    code = "echo one; read x; echo two"
    await sandbox.exec(["sh", "-c", code], stdin=b"\n", on_output=lambda *e: seen.append(e))

    assert b"".join(data for _, data in seen) == b"one\ntwo\n"
    assert {stream for stream, _ in seen} == {"stdout"}


async def test_streams_can_be_merged_in_order(sandbox):
    """With merge_stderr the order of writing is kept."""
    code = "for i in 1 2 3; do echo o$i; echo e$i >&2; done"

    result = await sandbox.exec(["sh", "-c", code], merge_stderr=True)

    assert result.stdout == b"o1\ne1\no2\ne2\no3\ne3\n"
    assert result.stderr == b""


async def test_commands_that_cannot_run_have_classes(sandbox):
    """Not found, not executable and not a command are told apart."""
    with pytest.raises(CommandNotFoundError, match="no-such-cmd"):
        await sandbox.exec(["no-such-cmd"])
    with pytest.raises(CommandPermissionDeniedError):
        await sandbox.exec(["/etc/hostname"])
    for argv in ([], [""], ["a\0b"], ""):
        with pytest.raises(InvalidCommandError):
            await sandbox.exec(argv)
    with pytest.raises(CommandNotFoundError):
        await sandbox.start_process(["no-such-cmd"])
    assert (await sandbox.exec(["sh", "-c", "no-such-cmd"])).exit_code == 127


async def test_a_time_limit_kills_the_group_and_keeps_what_was_written(sandbox, manager):
    """After the limit nothing of the command lives; the error holds its output."""
    lifetime = (await sandbox.start()).lifetime
    before = set(processes_of(lifetime))
    with pytest.raises(CommandTimeoutError) as caught:
        await sandbox.exec(["sh", "-c", "echo so far; sleep 100 & sleep 101"], timeout=0.3)

    assert caught.value.context["stdout"] == "so far\n"
    await until(lambda: set(processes_of(lifetime)) == before)


async def test_cancelling_exec_kills_the_command(sandbox):
    """Who no longer waits for a command does not leave it behind."""
    lifetime = (await sandbox.start()).lifetime
    before = set(processes_of(lifetime))
    task = asyncio.create_task(sandbox.exec(["sh", "-c", "sleep 100 & sleep 101"]))
    await until(lambda: len(processes_of(lifetime)) >= len(before) + 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await until(lambda: set(processes_of(lifetime)) == before)
    assert (await sandbox.exec(["true"])).success


async def test_many_commands_at_once_do_not_mix(sandbox):
    """100 commands on one connection each get their own output."""
    results = await asyncio.gather(*(sandbox.exec(["echo", str(number)]) for number in range(100)))

    assert [result.stdout for result in results] == [b"%d\n" % number for number in range(100)]


async def test_short_output_is_never_lost(sandbox):
    """Commands that end at once, eight at a time: every result is exact."""
    gate = asyncio.Semaphore(8)

    async def one(number: int) -> tuple[int, bytes, bytes]:
        async with gate:
            code = f"echo {number}; echo e >&2; exit {number % 5}"
            result = await sandbox.exec(["sh", "-c", code])
            return result.exit_code, result.stdout, result.stderr

    results = await asyncio.gather(*(one(number) for number in range(400)))

    assert results == [(number % 5, b"%d\n" % number, b"e\n") for number in range(400)]


async def test_arguments_arrive_as_they_are(sandbox):
    """No shell splits, expands or drops anything; what the system cannot take is a typed error."""
    odd = ["a b", "", "*", "$HOME", "`id`", "'\"", "-n", "--", "x\ny", "é漢😀", "\\", "~"]
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"

    result = await sandbox.exec(["python3", "-c", code, *odd])

    assert json.loads(result.stdout) == odd
    long = await sandbox.exec(["python3", "-c", "print(1)#" + "x" * 130000])
    assert long.stdout == b"1\n"
    with pytest.raises(ProcessSpawnFailedError, match="too long"):
        await sandbox.exec(["echo", "y" * 200000])


async def test_a_process_is_followed_to_its_end(sandbox):
    """Output comes with cursors, then the exit; a cursor goes on exactly there."""
    process = await sandbox.start_process(["cat"], stdin=True)
    await process.write_stdin("one\n")
    first = await anext(process.output(follow=True))
    assert isinstance(first, ProcessOutput)
    assert first.data == b"one\n"
    assert process.status == "running"
    assert process.exit is None
    await process.write_stdin(b"two\n", close=True)

    rest = [event async for event in process.output(since=first.cursor, follow=True)]

    assert b"".join(event.data for event in rest[:-1]) == b"two\n"
    assert isinstance(rest[-1], ProcessExit)
    assert rest[-1].success
    assert process.status == "completed"
    again = [event async for event in process.output()]
    assert b"".join(event.data for event in again[:-1]) == b"one\ntwo\n"
    with pytest.raises(StdinClosedError):
        await process.write_stdin(b"three\n")


async def test_a_wait_that_ends_leaves_the_process(sandbox):
    """The timeout of a wait ends the waiting only; a kill is another verb."""
    process = await sandbox.start_process(["sleep", "101"])
    with pytest.raises(ProcessWaitTimeoutError):
        await process.wait_for_exit(timeout=0.05)
    assert (await process.refresh()).status == "running"

    await process.kill()
    ended = await process.wait_for_exit(timeout=10)

    assert (ended.exit_code, ended.signal) == (137, signal.SIGKILL)
    assert (await process.refresh()).status == "killed"


@pytest.mark.filterwarnings("ignore:The WebSocket transport:DeprecationWarning")
@pytest.mark.parametrize("transport", ["rpc", "http", "websocket"])
async def test_a_restart_by_others_is_not_noticed(manager, transport):
    """The next operation finds the new container, also those that start nothing."""
    async with (
        get_sandbox("demo", manager=manager, transport=transport) as sandbox,
        get_sandbox("demo", manager=manager) as other,
    ):
        for _ in range(2):
            await sandbox.exec(["true"])
            await other.stop(grace=0)
            await other.start_process(["sleep", "60"])

            assert [each.argv for each in await sandbox.list_processes()] == [["sleep", "60"]]
            await other.stop(grace=0)
            await other.start()
            assert (await sandbox.exec(["echo", "x"])).stdout == b"x\n"


async def test_a_session_of_an_earlier_container_is_never_another_one(sandbox):
    """A name that was made for one is not made again for another."""
    mine = await sandbox.create_session()
    await mine.exec("word=mine")
    await sandbox.stop(grace=0)
    theirs = await sandbox.create_session()

    with pytest.raises(SessionNotFoundError):
        await mine.exec("word=mine")
    assert (await theirs.exec("echo $word")).stdout == b"\n"


async def test_a_stop_makes_handles_stale_and_the_next_operation_starts_again(sandbox):
    """Using an old handle starts nothing and is told apart; a new operation starts."""
    process = await sandbox.start_process(["sleep", "60"])
    await sandbox.exec(["sh", "-c", "echo kept > file"])
    await sandbox.stop()
    with pytest.raises(StaleProcessHandleError):
        await process.refresh()
    assert (await sandbox.info()).state == "stopped"

    assert (await sandbox.exec(["cat", "file"])).stdout == b"kept\n"
    for use in (process.refresh, process.kill, process.wait_for_exit):
        with pytest.raises(StaleProcessHandleError):
            await use()
    with pytest.raises(StaleProcessHandleError):
        await anext(process.output())


async def test_destroyed_and_made_anew_many_times(manager):
    """The same id works at once, and the handles of before are stale, never of the new one."""
    for _ in range(10):
        async with get_sandbox("x", manager=manager) as sandbox:
            process = await sandbox.start_process(["sleep", "60"])
            await sandbox.exec(["touch", "file"])
            await sandbox.destroy()
            assert (await sandbox.exec(["ls"])).stdout == b""
            with pytest.raises(StaleProcessHandleError):
                await process.refresh()


async def test_after_idle_sleep_the_next_operation_starts_it_again(manager):
    """Nobody has to know that it slept, and nothing is reported as interrupted."""
    async with get_sandbox("demo", manager=manager, sleep_after=0.1) as sandbox:
        await sandbox.exec(["touch", "file"])
        await until(lambda: manager.lookup("demo").state == "stopped")

        assert (await sandbox.exec(["ls"])).stdout == b"file\n"


async def test_a_sandbox_that_is_killed_interrupts_what_ran_and_comes_back(sandbox, manager):
    """A command under way is reported as interrupted; the next one starts a new incarnation."""
    await sandbox.start()
    before = (await sandbox.health()).incarnation
    task = asyncio.create_task(sandbox.exec(["sleep", "100"]))
    instance = manager.lookup("demo").instance
    await until(lambda: len(processes_of(manager.lookup("demo").lifetime)) >= 2)
    os.kill(instance.data["pid"], signal.SIGKILL)

    with pytest.raises(OperationInterruptedError):
        await task
    assert (await sandbox.exec(["echo", "back"])).stdout == b"back\n"
    assert (await sandbox.health()).incarnation != before


async def test_a_command_sent_to_a_dying_sandbox_goes_to_the_next(sandbox, manager):
    """Frozen, sent to, killed: the command was never begun, and runs once, in the next one."""
    await sandbox.exec(["true"])
    pid = manager.lookup("demo").instance.data["pid"]
    os.kill(pid, signal.SIGSTOP)
    task = asyncio.create_task(sandbox.exec(["sh", "-c", "echo x >> file; cat file"]))
    await asyncio.sleep(0.05)
    os.kill(pid, signal.SIGKILL)

    assert (await task).stdout == b"x\n"


async def test_what_may_have_begun_is_not_repeated(sandbox, manager):
    """Of several operations under way only the last is known to be untaken."""
    await sandbox.exec(["true"])
    pid = manager.lookup("demo").instance.data["pid"]
    os.kill(pid, signal.SIGSTOP)
    task = asyncio.create_task(sandbox.exec(["touch", "file"]))
    await asyncio.sleep(0.05)
    listing = asyncio.create_task(sandbox.list_processes())
    await asyncio.sleep(0.05)
    os.kill(pid, signal.SIGKILL)

    with pytest.raises(OperationInterruptedError):
        await task
    assert await listing == []


async def test_options_reach_the_sandbox_and_are_reported(manager, tmp_path):
    """env and the folder hold from the first start; what cannot change at once is a notice."""
    async with get_sandbox("demo", manager=manager, env={"A": "x y"}) as sandbox:
        assert (await sandbox.exec(["printenv", "A"])).stdout == b"x y\n"
        assert sandbox.notices == []
        await sandbox.configure(network=True, sleep_after="1h")

        assert any("network" in each for each in sandbox.notices)
        assert 3000 < (await sandbox.health()).sleeps_in <= 3600


@pytest.mark.parametrize(
    "options",
    [
        {"netwrok": True},
        {"sleep_after": "soon"},
        {"sleep_after": -1},
        {"folder_mode": "rw"},
        {"output_policy": "off"},
    ],
)
def test_options_that_cannot_be_used_are_refused_at_once(manager, options):
    """A mistake is found where it is made, not at the first operation."""
    with pytest.raises(SandboxConfigurationError):
        get_sandbox("demo", manager=manager, **options)
    with pytest.raises(InvalidSandboxIdError):
        get_sandbox("Demo", manager=manager)


def test_durations():
    """Seconds, or text with a unit."""
    assert [parse_duration(each) for each in (5, 1.5, "30s", "10m", "1h", None)] == [
        5.0,
        1.5,
        30.0,
        600.0,
        3600.0,
        None,
    ]


async def test_environment_values_do_not_change_on_the_way(sandbox):
    """Each value comes back byte for byte, and an overlay does not stay."""
    values = [
        "a b",
        " lead",
        "trail ",
        "x\ny",
        "$HOME",
        "`id`",
        "'q'",
        '"d"',
        "\\n",
        "é漢😀",
        "",
        "a=b",
    ]
    code = "import os, sys; sys.stdout.write(os.environ['V'])"
    for value in values:
        result = await sandbox.exec(["python3", "-c", code], env={"V": value})
        assert result.stdout == value.encode()
    assert (await sandbox.exec(["printenv", "V"])).exit_code == 1
    assert (await sandbox.exec(["sh", "-c", "echo $LANG"], env={"LANG": None})).stdout == b"\n"


async def test_a_foreground_command_does_not_wait_for_background_ones(sandbox):
    """exec returns when the command itself has ended."""
    begin = time.monotonic()
    result = await sandbox.exec(["sh", "-c", "sleep 60 & echo hi"])

    assert result.stdout == b"hi\n"
    assert time.monotonic() - begin < 5


class MuteEngine(PlainEngine):
    """Its runtime ends at once, with words in the log."""

    def _config(self, launch, lock, listener):
        return {**super()._config(launch, lock, listener), "cwd": "not absolute"}


async def test_a_runtime_that_never_answers_is_a_failed_start(data_dir):
    """The error is typed and holds the log; nothing is left, and a stop is no error."""
    with plain_manager(data_dir, MuteEngine()) as manager:
        async with get_sandbox("t", manager=manager) as sandbox:
            with pytest.raises(EngineStartError, match="must be absolute"):
                await sandbox.exec(["true"])
            await sandbox.stop()
            await sandbox.destroy()
        assert manager.list() == []


async def test_a_sandbox_destroyed_while_it_starts_is_started_anew(manager, monkeypatch):
    """It did not fail; and one that is destroyed each time is said to be, not to have failed."""
    ensure, left = manager.ensure, 2

    def ensure_and_lose(*args, **kwargs):
        nonlocal left
        running = ensure(*args, **kwargs)
        if left:
            left -= 1
            manager.destroy("demo")
        return running

    monkeypatch.setattr(manager, "ensure", ensure_and_lose)
    async with get_sandbox("demo", manager=manager) as sandbox:
        await sandbox.start()
        assert (await sandbox.exec(["echo", "here"])).stdout == b"here\n"
        assert left == 0
        await sandbox.destroy()
        left = 1000
        with pytest.raises(ContainerUnavailableError, match="destroyed while it started"):
            await sandbox.start()


def test_one_handle_serves_one_loop_after_another(manager):
    """A handle that outlives its event loop opens a connection of its own in the next."""
    sandbox = get_sandbox("demo", manager=manager)

    for _ in range(2):
        assert asyncio.run(sandbox.exec(["echo", "hi"])).stdout == b"hi\n"


async def test_dropped_handles_close_their_connection(manager):
    """Asking for a handle at each call does not pile up descriptors."""
    await get_sandbox("demo", manager=manager).exec(["true"])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        await get_sandbox("demo", manager=manager).exec(["true"])

    await until(lambda: len(os.listdir("/proc/self/fd")) <= before + 3)


async def until(condition, *, timeout: float = 10.0) -> None:  # noqa: ASYNC109
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.01)
