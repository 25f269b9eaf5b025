"""What the SDK notes in the activity log: commands, processes and terminals, and how they ended."""

from __future__ import annotations

import asyncio

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.errors import CommandNotFoundError, CommandTimeoutError
from sandbox_kernel.manager.activity import acting_as


@pytest.fixture(params=["rpc", "http"])
async def sandbox(manager, request):
    async with get_sandbox("a", manager=manager, transport=request.param) as made:
        yield made


@pytest.fixture
def noted(manager):
    def read():
        items = manager.activity.read("a", manager.lookup("a").lifetime).items
        return [each for each in items if each.kind != "started"]

    return read


async def test_commands_are_noted_with_their_end_and_without_what_they_wrote(
    sandbox, noted, data_dir
):
    await sandbox.exec(["echo", "to the program"])
    await sandbox.exec("cd /; echo sec''ret; exit_code() { return 3; }; exit_code")

    argv, text = noted()
    assert (argv.kind, argv.what) == ("command", ["echo", "to the program"])
    assert argv.details["exit_code"] == 0
    assert (text.what[:5], text.details["exit_code"], text.details["session"]) == (
        "cd /;",
        3,
        "default",
    )
    assert text.details["duration"] >= 0
    (file,) = (data_dir / "activity").iterdir()
    assert b"secret" not in file.read_bytes()


async def test_commands_that_fail_are_noted_with_the_reason(sandbox, noted):
    with pytest.raises(CommandTimeoutError):
        await sandbox.exec(["sleep", "60"], timeout=0.2)
    with pytest.raises(CommandNotFoundError):
        await sandbox.exec(["no-such-program"])
    task = asyncio.create_task(sandbox.exec(["sleep", "60"]))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    late, unknown, cancelled = noted()
    assert late.details["reason"] == "timeout"
    assert unknown.details["error"] == "COMMAND_NOT_FOUND"
    assert cancelled.details["error"] == "CANCELLED"


async def test_a_stream_that_its_reader_leaves_is_noted_as_given_up(sandbox, noted):
    events = sandbox.exec_stream(["sh", "-c", "echo a; sleep 60"])
    await anext(events)
    await events.aclose()

    (given_up,) = noted()
    assert given_up.details["error"] == "CANCELLED"


async def test_processes_and_signals_are_noted_and_each_end_once(sandbox, noted):
    process = await sandbox.start_process(["sleep", "60"])
    await process.kill(15)
    await process.wait_for_exit()
    await process.refresh()
    await sandbox.get_process(process.id)

    started, signalled, ended = noted()
    assert (started.kind, started.what) == ("process", ["sleep", "60"])
    assert started.details["process_id"] == process.id
    assert (signalled.kind, signalled.details["signal"]) == ("signal", 15)
    assert (ended.kind, ended.details["signal"]) == ("process_ended", 15)


async def test_terminals_are_noted_and_what_only_looks_is_not(sandbox, noted):
    terminal = await sandbox.create_terminal(["cat"])
    await sandbox.list_terminals()
    await sandbox.list_processes()
    await sandbox.write_file("file", b"x")
    await terminal.terminate()

    opened, ended = noted()
    assert (opened.kind, opened.what) == ("terminal", ["cat"])
    assert (ended.kind, ended.details["reason"]) == ("terminal_ended", "terminated")


async def test_a_task_acts_for_whom_its_block_says(sandbox, noted):
    """Requests of several users run side by side in one server."""

    async def run(who):
        with acting_as(who):
            await asyncio.sleep(0)
            await sandbox.exec(["echo", who])

    await asyncio.gather(run("alice (rest)"), run("bob (rest)"))

    assert sorted((each.who, each.what[1]) for each in noted()) == [
        ("alice (rest)", "alice (rest)"),
        ("bob (rest)", "bob (rest)"),
    ]
