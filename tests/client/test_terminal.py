"""Terminals from Python, with the engine that does not isolate."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.client.terminal import TerminalEnd, TerminalOutput, TerminalTruncated
from sandbox_kernel.errors import (
    CommandNotFoundError,
    InvalidCommandError,
    InvalidTerminalCursorError,
    InvalidTerminalCwdError,
    OperationInterruptedError,
    ProcessAbortedError,
    StaleTerminalHandleError,
    TerminalControlError,
    TerminalWaitTimeoutError,
    ValidationFailedError,
)
from sandbox_kernel.wire.terminal import Exited, Live, Output, Replay, encode_cursor


@pytest.fixture
async def sandbox(manager):
    async with get_sandbox("demo", manager=manager) as made:
        yield made


async def read(terminal, text: bytes = b"", **options) -> list:
    """Return events until their bytes hold a text, or to the end."""
    events, data = [], b""
    async with asyncio.timeout(15), contextlib.aclosing(terminal.output(**options)) as output:
        async for event in output:
            events.append(event)
            data += event.data if isinstance(event, TerminalOutput) else b""
            if text and text in data:
                break
    return events


def data_of(events) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, TerminalOutput))


async def test_looking_for_terminals_starts_nothing(manager, data_dir):
    """None and an empty list while the sandbox does not run."""
    sandbox = get_sandbox("demo", manager=manager)

    assert await sandbox.get_terminal("t-1") is None
    assert await sandbox.list_terminals() == []
    assert not data_dir.exists()


async def test_a_terminal_has_its_size_before_its_program_starts(sandbox):
    """Argv without a shell in between, environment and folder as given."""
    terminal = await sandbox.create_terminal(
        ["sh", "-c", 'stty size; echo "$TERM $A"; pwd'],
        cols=133,
        rows=41,
        cwd="/tmp",
        env={"A": "b c"},
    )
    events = await read(terminal, follow=True)

    assert data_of(events) == b"41 133\r\nxterm-256color b c\r\n/tmp\r\n"
    assert isinstance(events[-1], TerminalEnd)
    assert (events[-1].state, events[-1].exit.exit_code) == ("exited", 0)
    assert [each.type for each in events[:1]] == ["data"]
    assert all(event.terminal_id == terminal.id for event in events)
    assert (terminal.status, terminal.exit.success) == ("exited", True)


async def test_what_is_typed_is_read_and_shown(sandbox):
    """A snapshot shows the screen; the handle's facts are those of the last answer."""
    terminal = await sandbox.create_terminal(["bash", "--norc"], env={"PS1": "> "}, cols=40, rows=5)
    await read(terminal, b"> ", follow=True)
    await terminal.write("printf '\\033]2;title\\007'; echo a$((1 + 1))\r")
    await read(terminal, b"a2\r\n", follow=True)
    shown = await terminal.get_snapshot()

    assert "a2" in shown.lines
    assert (shown.cols, shown.rows, len(shown.lines)) == (40, 5, 5)
    assert (shown.id, shown.status, shown.exit, shown.error) == (
        terminal.id,
        "running",
        None,
        None,
    )
    assert (shown.title, terminal.title) == ("title", "title")
    assert not shown.is_alternate
    await terminal.resize(50, 7)
    await terminal.write("stty size\r")
    await read(terminal, b"7 50", follow=True)
    await terminal.refresh()
    assert (terminal.cols, terminal.rows) == (50, 7)


async def test_reading_goes_on_at_a_cursor_exactly(sandbox):
    """Any event's cursor, with and without following; no gap and no double."""
    terminal = await sandbox.create_terminal(["sh", "-c", "seq 1 3000; sleep 0.2; seq 3001 4000"])
    events = await read(terminal, follow=True)
    whole = data_of(events)

    assert whole == b"".join(b"%d\r\n" % number for number in range(1, 4001))
    for index in (0, len(events) // 2, len(events) - 2):
        rest = await read(terminal, since=events[index].cursor)
        assert data_of(events[: index + 1]) + data_of(rest) == whole
        assert isinstance(rest[-1], TerminalEnd)
    assert await read(terminal, since=events[-1].cursor) == [events[-1]]
    assert data_of(await read(terminal, replay=False)) == b""


async def test_what_is_no_longer_held_is_told(sandbox):
    """A truncated event, whose cursor is good, comes in the place of what is missing."""
    terminal = await sandbox.create_terminal(
        ["sh", "-c", "echo first; read x; seq 1 5000"], buffer_size=4096
    )
    first = await read(terminal, b"first", follow=True)
    await terminal.write(b"\r")
    await terminal.wait_for_exit(timeout=10)
    events = await read(terminal, since=first[-1].cursor)

    assert isinstance(events[0], TerminalTruncated)
    assert data_of(events).endswith(b"5000\r\n")
    assert data_of(await read(terminal, since=events[0].cursor)) == data_of(events)


@pytest.mark.parametrize("cursor", ["", "x", "a" * 2000, "AAAA", "äöü"])
async def test_a_cursor_that_is_none_is_refused(sandbox, cursor):
    """Malformed ones; also of another terminal, and from the future."""
    terminal = await sandbox.create_terminal(["sleep", "100"])
    incarnation = (await sandbox.health()).incarnation
    others = [encode_cursor(incarnation, "t-other", 0), encode_cursor(incarnation, terminal.id, 99)]

    for wrong in (cursor, *others):
        with pytest.raises(InvalidTerminalCursorError):
            await read(terminal, since=wrong)
        with pytest.raises(InvalidTerminalCursorError):
            async with terminal.view(cursor=wrong):
                pass


async def test_waiting_ends_by_itself_only(sandbox):
    """A timeout and a cancelled wait or reading leave the terminal running."""
    terminal = await sandbox.create_terminal(["sleep", "100"])
    with pytest.raises(TerminalWaitTimeoutError) as caught:
        await terminal.wait_for_exit(timeout=0.05)
    waiting = asyncio.create_task(terminal.wait_for_exit())
    reading = asyncio.create_task(read(terminal, follow=True))
    await asyncio.sleep(0.05)
    for task in (waiting, reading):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert (caught.value.code, caught.value.http_status) == ("TERMINAL_WAIT_TIMEOUT", 408)
    assert (await terminal.refresh()).status == "running"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await terminal.wait_for_exit(timeout=60)


async def test_interrupt_reaches_what_runs_in_the_foreground(sandbox):
    """Under job control, too, where the command has a group of its own."""
    terminal = await sandbox.create_terminal(["bash", "--norc", "-i"], env={"PS1": "> "})
    await read(terminal, b"> ", follow=True)
    await terminal.write("sh -c 'echo u\"\"p; exec sleep 100'; echo not-this\r")
    await read(terminal, b"up\r\n", follow=True)
    await terminal.interrupt()
    await terminal.write("echo c=$?\r")

    shown = data_of(await read(terminal, b"c=130", follow=True))
    assert b"\r\nnot-this" not in shown


async def test_terminate_ends_all_of_it(sandbox):
    """Twice is fine; then it can be read, and not be controlled any more."""
    terminal = await sandbox.create_terminal(["bash", "--norc", "-i"])
    ended = await terminal.terminate(grace=0.2)

    assert ended.signal is not None
    assert ended.reason == "terminated"
    assert (await terminal.terminate()).exit_code == ended.exit_code
    assert [each.id for each in await sandbox.list_terminals()] == [terminal.id]
    for refused in (
        terminal.write(b"x"),
        terminal.resize(80, 24),
        terminal.interrupt(),
    ):
        with pytest.raises(TerminalControlError) as caught:
            await refused
        assert (caught.value.code, caught.value.http_status) == ("TERMINAL_CONTROL_ERROR", 500)
        assert "create_terminal" in caught.value.hint
    with pytest.raises(ValidationFailedError, match="must be bytes or text"):
        await terminal.write(5)


async def test_what_cannot_be_started_leaves_nothing(sandbox, tmp_path):
    """Typed errors before anything is spawned, and no entry in the list."""
    (tmp_path / "file").touch()
    for error, options in (
        (InvalidTerminalCwdError, {"cwd": "/no/such"}),
        (InvalidTerminalCwdError, {"cwd": str(tmp_path / "file")}),
        (CommandNotFoundError, {"argv": ["no-such-command"]}),
        (InvalidCommandError, {"argv": []}),
        (InvalidCommandError, {"argv": "bash"}),
        (ValidationFailedError, {"cols": 0}),
        (ValidationFailedError, {"rows": 65536}),
        (ValidationFailedError, {"buffer_size": 1}),
    ):
        with pytest.raises(error):
            await sandbox.create_terminal(**options)

    assert await sandbox.list_terminals() == []


async def test_a_handle_of_an_earlier_container_is_stale(sandbox):
    """Whatever it is asked for, whether the sandbox sleeps or has started anew."""
    terminal = await sandbox.create_terminal(["sleep", "100"])
    waiting = asyncio.create_task(terminal.wait_for_exit())
    await asyncio.sleep(0.05)
    await sandbox.stop()
    with contextlib.suppress(ProcessAbortedError, OperationInterruptedError):
        # Or the stop came before the answer.
        assert (await waiting).reason == "stopped"
    for is_running in (False, True):
        if is_running:
            await sandbox.start()
        for use in (
            terminal.refresh,
            terminal.get_snapshot,
            terminal.wait_for_exit,
            terminal.interrupt,
            terminal.terminate,
            lambda: terminal.write(b"x"),
            lambda: terminal.resize(80, 24),
            lambda: read(terminal),
            lambda: terminal.view().__aenter__(),
        ):
            with pytest.raises(StaleTerminalHandleError) as caught:
                await use()
            assert (caught.value.code, caught.value.http_status) == ("STALE_TERMINAL_HANDLE", 409)
        assert await sandbox.get_terminal(terminal.id) is None


async def test_two_handles_are_one_terminal(sandbox, manager):
    """What one handle makes the other finds, ended ones too, running ones first."""
    first = await sandbox.create_terminal(["true"])
    await first.wait_for_exit(timeout=10)
    second = await sandbox.create_terminal(["sleep", "100"], terminal_id="mine")
    async with get_sandbox("demo", manager=manager) as other:
        found = await other.get_terminal("mine")

        assert found is not None
        assert found.pid == second.pid
        assert [each.id for each in await other.list_terminals()] == ["mine", first.id]


async def test_a_view_shows_what_there_is_and_what_comes(sandbox):
    """The screen, then output as it happens, then how it ended; its input is typed."""
    terminal = await sandbox.create_terminal(["bash", "--norc"], env={"PS1": "> "})
    await read(terminal, b"> ", follow=True)
    async with asyncio.timeout(15), terminal.view(cols=70, rows=20, acknowledges=True) as view:
        events = []
        async for event in view:
            events.append(event)
            if isinstance(event, Live):
                break
        await view.write(b"stty size; exit 3\r")
        async for event in view:
            events.append(event)
            if isinstance(event, Output):
                await view.acknowledge(event.offset)

    assert isinstance(events[0], Replay)
    assert b"> " in events[1].data
    data = b"".join(event.data for event in events if isinstance(event, Output))
    assert b"20 70\r\n" in data
    assert events[-1] == Exited(exit_code=3, offset=events[-1].offset)
    rest = await read(terminal, since=view.cursor(events[1].offset))
    assert data_of(rest) in data
