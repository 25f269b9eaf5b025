"""Commands of every kind, as users of the SDK run them."""

from __future__ import annotations

import asyncio
import math
import re
import time

import pytest

from sandbox_kernel.client.process import ProcessExit
from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.errors import (
    CommandTimeoutError,
    InvalidCommandError,
    InvalidProcessCwdError,
    InvalidProcessEnvironmentError,
    ProcessExitedBeforeLogError,
    ProcessWaitTimeoutError,
    SessionAlreadyExistsError,
    SessionBusyError,
    SessionDestroyedError,
    SessionNotFoundError,
    SessionTerminatedError,
    ValidationFailedError,
)
from tests.support.managed import plain_manager


async def until(condition):
    """Wait until an answer is true."""
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110  it is not this program's doing
            await asyncio.sleep(0.01)


async def runs(session):
    return (await session.refresh()).status == "running"


async def has_command(sandbox, status):
    every = await sandbox.list_processes()
    return any(each.status == status and each.session == "default" for each in every)


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    with plain_manager(tmp_path_factory.mktemp("data") / "sandbox") as made:
        yield made


@pytest.fixture
async def sandbox(manager):
    """The sandbox of all tests, in which nothing runs and no session is."""
    async with get_sandbox("demo", manager=manager) as made:
        yield made
        for session in await made.list_sessions():
            await session.delete()
        await made.kill_all_processes(grace=0)


async def test_texts_share_a_shell_and_lists_do_not(sandbox):
    """What a text changes is there for the next; a list of words is looked at by no shell."""
    await sandbox.exec("cd /usr; export A='a b'")
    result = await sandbox.exec('pwd; echo "$A"')

    assert result.stdout_text == "/usr\na b\n"
    assert (result.command, result.argv, result.session) == ('pwd; echo "$A"', [], "default")
    words = await sandbox.exec(["echo", "$A", "a b"])
    assert words.stdout_text == "$A a b\n"
    assert (words.command, words.session) == ("echo '$A' 'a b'", None)


async def test_without_a_default_session_each_text_has_its_own_shell(manager):
    """Nothing is kept; the signal is known."""
    async with get_sandbox("demo", manager=manager, enable_default_session=False) as sandbox:
        await sandbox.exec("cd /usr; A=1")

        assert (await sandbox.exec("echo ${A-unset}")).stdout == b"unset\n"
        assert (await sandbox.exec("exit 3")).exit_code == 3
        killed = await sandbox.exec("kill -9 $$")
        assert (killed.exit_code, killed.signal) == (137, 9)
        assert await sandbox.list_sessions() == []


async def test_folder_and_environment_hold_for_one_command(sandbox):
    """With quotes and special characters; afterwards all is as before, whatever the command did."""
    odd = "q'\"$HOME `id` \\ \n é漢😀 *"
    await sandbox.exec('mkdir -p "/tmp/a \'b" && cd /usr && cd /etc && export KEEP=1 && LOCAL=2')
    result = await sandbox.exec(
        'printf "%s|%s|%s|%s" "$PWD" "$ODD" "${KEEP-unset}" "$LOCAL"; cd /; ODD=x; NEW=3',
        cwd="/tmp/a 'b",
        env={"ODD": odd, "KEEP": None, "LOCAL": "mine"},
    )

    assert result.stdout_text == f"/tmp/a 'b|{odd}|unset|mine"
    after = await sandbox.exec('echo "$PWD|$OLDPWD|${ODD-unset}|$KEEP|$LOCAL|$NEW"; env | grep LOC')
    assert after.stdout_text == "/etc|/usr|unset|1|2|3\n"


async def test_folder_and_environment_come_back_after_a_time_limit(sandbox):
    """As after any end."""
    await sandbox.exec("cd /usr; export A=1")
    with pytest.raises(CommandTimeoutError):
        await sandbox.exec("cd /; sleep 100", cwd="/etc", env={"A": "2"}, timeout=0.2)

    assert (await sandbox.exec("echo $PWD $A")).stdout == b"/usr 1\n"


async def test_a_folder_or_name_that_cannot_be_used_changes_nothing(sandbox):
    """Told by type before anything runs."""
    await sandbox.exec("readonly RO=1; A=1")
    with pytest.raises(InvalidProcessCwdError):
        await sandbox.exec("A=2", cwd="/no/such/folder")
    for name in ("", "1A", "A-B", "A=B", "é"):
        with pytest.raises(InvalidProcessEnvironmentError):
            await sandbox.exec("A=2", env={"B": "1", name: "1"})
    with pytest.raises(InvalidProcessEnvironmentError):
        await sandbox.exec("A=2", env={"A": "3", "RO": "2"})
    with pytest.raises(InvalidCommandError):
        await sandbox.exec("")

    assert (await sandbox.exec("echo $A$RO ${B-unset}")).stdout == b"11 unset\n"


async def test_input_of_a_text(sandbox):
    """Small, large, in pieces, unread; nothing is lost and nothing hangs."""

    async def pieces():
        for number in range(100):
            yield b"%d\n" % number * 1000

    async def endless():
        yield b"begin"
        await asyncio.Event().wait()

    big = bytes(range(256)) * 40_000

    assert (await sandbox.exec("cat", stdin=b"a\0\xff")).stdout == b"a\0\xff"
    assert (await sandbox.exec("read x; echo $x; cat", stdin="one\ntwo\n")).stdout == b"one\ntwo\n"
    assert (await sandbox.exec("cat", stdin=big)).stdout == big
    assert (await sandbox.exec("wc -l", stdin=pieces())).stdout.strip() == b"100000"
    assert (await sandbox.exec("head -c1", stdin=big)).stdout == big[:1]
    assert (await sandbox.exec("true", stdin=endless())).success
    assert (await sandbox.exec("exec 0<&-; echo done", stdin=endless())).stdout == b"done\n"
    assert (await sandbox.exec("cat; echo end")).stdout == b"end\n"


async def test_which_time_limit_holds(sandbox, manager):
    """The command's, else its session's, else the handle's or the setting's."""
    session = await sandbox.create_session(command_timeout=0.2)
    assert session.command_timeout == 0.2
    with pytest.raises(CommandTimeoutError):
        await session.exec("sleep 100")
    assert (await session.exec("sleep 0.3; echo own", timeout=10)).stdout == b"own\n"
    assert (await session.exec("sleep 0.3; echo none", timeout=math.inf)).stdout == b"none\n"
    async with get_sandbox("demo", manager=manager, command_timeout=0.2) as limited:
        with pytest.raises(CommandTimeoutError):
            await limited.exec("sleep 100")
        with pytest.raises(CommandTimeoutError):
            await limited.exec(["sleep", "100"])
        process = await limited.start_process(["sleep", "0.3"])

        assert (await process.wait_for_exit(timeout=10)).success


async def test_what_was_written_before_a_time_limit_is_kept(sandbox):
    """In the error, with both streams."""
    with pytest.raises(CommandTimeoutError) as caught:
        await sandbox.exec("echo out; echo err >&2; sleep 100", timeout=0.3)

    assert caught.value.context["stdout"] == "out\n"
    assert caught.value.context["stderr"] == "err\n"


async def test_the_end_of_the_shell_keeps_what_was_written(sandbox):
    """With the code; once."""
    with pytest.raises(SessionTerminatedError) as caught:
        await sandbox.exec("echo out; exit 5")

    assert caught.value.context["exit_code"] == 5
    assert caught.value.context["stdout"] == "out\n"
    assert (await sandbox.exec("echo new")).stdout == b"new\n"


async def test_one_stream_keeps_the_order(sandbox):
    """merge_stderr; and a redirection in the text does the same."""
    text = "for i in {0..99}; do echo o$i; echo e$i >&2; done"
    right = "".join(f"o{i}\ne{i}\n" for i in range(100))

    merged = await sandbox.exec(text, merge_stderr=True)
    apart = await sandbox.exec(text)
    again = await sandbox.exec(f"{{ {text}; }} 2>&1")

    assert (merged.stdout_text, merged.stderr) == (right, b"")
    assert apart.stdout_text == "".join(f"o{i}\n" for i in range(100))
    assert apart.stderr_text == "".join(f"e{i}\n" for i in range(100))
    assert (again.stdout_text, again.stderr) == (right, b"")


async def test_cancelling_ends_the_command_and_frees_the_session(sandbox):
    """Also one that waits for its turn."""
    await sandbox.exec("A=kept")
    running = asyncio.create_task(sandbox.exec("sleep 100; A=lost"))
    waiting = asyncio.create_task(sandbox.exec("A=lost"))
    last = asyncio.create_task(sandbox.exec("echo $A"))
    await until(lambda: has_command(sandbox, "starting"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    running.cancel()

    assert (await asyncio.wait_for(last, 5)).stdout == b"kept\n"


async def test_a_turn_that_does_not_come_is_told(sandbox):
    """By another error than that of a command that ran."""
    running = asyncio.create_task(sandbox.exec("echo begun; sleep 100"))
    await until(lambda: has_command(sandbox, "running"))
    with pytest.raises(SessionBusyError):
        await sandbox.exec("echo never", timeout=0.2)
    running.cancel()

    assert (await sandbox.exec("echo free")).stdout == b"free\n"


async def test_events_come_live_with_whole_characters(sandbox):
    """From the first byte, without waiting for a line; text is whole, the exit comes last."""
    begin = time.monotonic()
    events = []
    async for event in sandbox.exec_stream(
        r"printf 'a\xe6'; sleep 0.3; printf '\xbc\xa2'; printf e >&2; sleep 0.3; printf '\xff\xe6'; exit_() { return 3; }; exit_"
    ):
        events.append((event, time.monotonic() - begin))  # noqa: PERF401  the times count

    assert events[0][0].data == b"a\xe6"
    assert events[0][1] < events[-1][1] - 0.5
    assert [each.type for each, _ in events].count("exit") == 1
    last = events[-1][0]
    assert isinstance(last, ProcessExit)
    assert last.exit_code == 3
    out = [each for each, _ in events[:-1] if each.stream == "stdout"]
    assert b"".join(each.data for each in out) == b"a\xe6\xbc\xa2\xff\xe6"
    assert "".join(each.text for each in out) == "a漢\ufffd\ufffd"
    assert all(each.cursor and each.timestamp > 0 for each in out)


async def test_leaving_a_stream_ends_its_command(sandbox):
    """And the session is free."""
    events = sandbox.exec_stream("while :; do echo x; sleep 0.01; done")
    async for event in events:
        assert event.data.startswith(b"x\n")
        break
    await events.aclose()

    assert (await asyncio.wait_for(sandbox.exec("echo free"), 5)).stdout == b"free\n"
    timed = [event async for event in sandbox.exec_stream("echo a; sleep 100", timeout=0.2)]
    assert timed[-1].timed_out


async def test_a_session_from_beginning_to_end(sandbox):
    """Made, found, listed, used beside others, and deleted."""
    session = await sandbox.create_session("work", cwd="/usr", env={"A": "1"}, command_timeout=30)
    with pytest.raises(SessionAlreadyExistsError):
        await sandbox.create_session("work")

    assert (await session.exec("pwd; echo $A; echo $SANDBOX_SESSION")).stdout == b"/usr\n1\nwork\n"
    found = await sandbox.get_session("work")
    assert (found.id, found.status, found.cwd) == ("work", "idle", "/usr")
    assert await sandbox.get_session("no-such") is None
    await sandbox.exec("true")
    assert [each.id for each in await sandbox.list_sessions()] == ["work", "default"]
    stuck = asyncio.create_task(session.exec("sleep 100"))
    waiting = asyncio.create_task(session.exec("echo never"))
    await until(lambda: runs(session))
    assert (await sandbox.exec("echo beside")).stdout == b"beside\n"
    await session.delete()
    for each in (stuck, waiting):
        with pytest.raises(SessionDestroyedError):
            await each
    with pytest.raises(SessionNotFoundError):
        await session.exec("true")
    with pytest.raises(SessionNotFoundError):
        await sandbox.delete_session("work")


async def test_the_default_session_can_be_reset(sandbox):
    """Deleted, it is made anew on use."""
    await sandbox.exec("A=1; cd /usr; sleep 1234 &")
    await sandbox.delete_session("default")

    assert (await sandbox.exec("echo ${A-unset}; pgrep -f 'sleep 123[4]'")).stdout == b"unset\n"


async def test_variables_are_set_together_or_not_at_all(sandbox):
    """In one session, or for everything that is started from now on."""
    session = await sandbox.create_session("work")
    await sandbox.exec("readonly RO=1")
    await session.set_env({"A": "a b", "B": None})
    await sandbox.set_env({"C": "everywhere"})
    with pytest.raises(InvalidProcessEnvironmentError):
        await sandbox.set_env({"D": "1", "RO": "2"})

    assert (await session.exec("echo $A")).stdout == b"a b\n"
    assert (
        await sandbox.exec("echo ${A-unset} $C ${D-unset}")
    ).stdout == b"unset everywhere unset\n"
    assert (await sandbox.exec(["printenv", "C"])).stdout == b"everywhere\n"
    await session.set_env({"A": None})
    assert (await session.exec("echo ${A-unset}")).stdout == b"unset\n"
    # They end with the container only.
    await sandbox.stop(grace=0)


async def test_terminals_and_processes_take_folder_and_environment_of_a_session(sandbox):
    """As they are after its last command, without waiting for one that runs."""
    session = await sandbox.create_session("work")
    await session.exec("cd /usr; export A='x y'; f() { :; }")
    running = asyncio.create_task(session.exec("sleep 100"))
    await until(lambda: runs(session))
    show = ["sh", "-c", 'echo "$PWD|$A|${SANDBOX_SESSION-none}"']
    begin = time.monotonic()
    terminal = await session.create_terminal(show)
    await terminal.wait_for_exit(timeout=10)
    process = await session.start_process('echo "$PWD|$A"')
    await process.wait_for_exit(timeout=10)
    words = await session.exec(["sh", "-c", 'echo "$PWD|$A"'])

    assert time.monotonic() - begin < 5
    assert (await terminal.get_snapshot()).lines[0] == "/usr|x y|none"
    assert (await process.logs()).stdout == b"/usr|x y\n"
    assert words.stdout == b"/usr|x y\n"
    running.cancel()


async def test_limits_of_waiting_that_are_none(sandbox):
    """Infinity is no limit; what is no number is refused, for the command and for all that waits."""
    process = await sandbox.start_process(["sh", "-c", "echo ready; sleep 0.3"])
    with pytest.raises(ValidationFailedError, match="timeout"):
        await process.wait_for_log("ready", timeout=math.nan)
    with pytest.raises(ValidationFailedError, match="timeout"):
        await process.wait_for_exit(timeout=math.nan)
    with pytest.raises(ValidationFailedError, match="timeout"):
        await sandbox.wait_for_port(1024, timeout=math.nan)
    with pytest.raises(ValidationFailedError, match="timeout"):
        await sandbox.exec(["true"], timeout=math.nan)
    with pytest.raises(ValidationFailedError, match="grace"):
        await sandbox.kill_all_processes(grace=math.inf)
    terminal = await sandbox.create_terminal(["true"])
    with pytest.raises(ValidationFailedError, match="timeout"):
        await terminal.wait_for_exit(timeout=math.nan)

    assert (await process.wait_for_log("ready", timeout=math.inf)).line == "ready"
    assert (await process.wait_for_exit(timeout=math.inf)).exit_code == 0


async def test_waiting_for_something_written(sandbox):
    """Text, bytes or an expression; on either stream; written before, or cut anywhere."""
    process = await sandbox.start_process(
        "printf 'ready on po'; sleep 0.2; printf 'rt 80\\xe6'; sleep 0.2; printf '\\xbc\\xa2!\\n';"
        " echo late >&2; sleep 100"
    )
    found = await process.wait_for_log("port 80漢", timeout=10)

    assert (found.stream, found.match.group(), found.line[:18]) == (
        "stdout",
        "port 80漢",
        "ready on port 80漢!"[:18],
    )
    number = await process.wait_for_log(re.compile(r"port (\d+)"), timeout=10)
    assert number.match[1] == "80"
    assert (await process.wait_for_log(b"\xbc\xa2", timeout=10)).match.group() == b"\xbc\xa2"
    late = await process.wait_for_log(re.compile(rb"^late$", re.MULTILINE), timeout=10)
    assert late.stream == "stderr"
    with pytest.raises(ProcessWaitTimeoutError):
        await process.wait_for_log("never", timeout=0.2)
    with pytest.raises(ProcessWaitTimeoutError):
        await process.wait_for_log("late", stream="stdout", timeout=0.2)
    with pytest.raises(ProcessWaitTimeoutError):
        await process.wait_for_log("port", since=late.cursor, timeout=0.2)
    await process.kill()
    with pytest.raises(ProcessExitedBeforeLogError) as caught:
        await process.wait_for_log("never", timeout=10)
    assert caught.value.context["exit_code"] == 137


async def test_logs_and_signals_of_a_process(sandbox):
    """What it has written so far; any signal from 1 to 64; all of them at once."""
    process = await sandbox.start_process(
        "trap 'echo usr; exit 7' USR1; echo out; echo err >&2; while :; do sleep 0.05; done"
    )
    await process.wait_for_log("err", timeout=10)
    logs = await process.logs()
    assert (logs.stdout, logs.stderr, logs.truncated) == (b"out\n", b"err\n", False)
    assert (await process.logs(max_output=4)).truncated
    await process.kill(10)
    assert (await process.wait_for_exit(timeout=10)).exit_code == 7
    later = [e.data async for e in process.output(since=logs.cursor) if e.type != "exit"]
    assert later[-1].endswith(b"usr\n")
    assert b"out" not in b"".join(later)
    for _ in range(5):
        await sandbox.start_process("trap '' TERM; sleep 1000 & wait; wait")
    begin = time.monotonic()

    assert await sandbox.kill_all_processes(grace=0.3) == 5
    assert time.monotonic() - begin < 5
    assert [each.status for each in await sandbox.list_processes()].count("running") == 0
    assert await sandbox.kill_all_processes() == 0


async def test_a_text_can_be_ended_as_a_process(sandbox):
    """By whoever finds it in the list; its caller gets the result, the session goes on."""
    await sandbox.exec("A=kept")
    waiting = asyncio.create_task(sandbox.exec("echo begun; sleep 1000; echo no"))
    await until(lambda: has_command(sandbox, "running"))
    (process,) = [each for each in await sandbox.list_processes() if each.session == "default"]
    assert process.command == "echo begun; sleep 1000; echo no"
    await process.kill()
    result = await asyncio.wait_for(waiting, 10)

    assert result.exit_code > 128
    assert result.reason == "killed"
    assert (await sandbox.exec("echo $A")).stdout == b"kept\n"
