"""What has gone wrong elsewhere when commands are run, held to on a real sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.errors import (
    CommandNotFoundError,
    CommandPermissionDeniedError,
    CommandTimeoutError,
    InvalidCommandError,
    ProcessSpawnFailedError,
    ProcessWaitTimeoutError,
)
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings

ODD_WORDS = ["a b", "", "*", "$HOME", "`id`", "'\"", "-n", "--", "x\ny", "é漢😀", "\\", "~"]
ODD_VALUES = [
    *("a b", " lead", "trail ", "x\ny", "$HOME", "`id`", "'q'", '"d"', "\\n"),
    *("é漢😀", "", "a=b", "#c", "%PATH%", "-n", "*"),
]
SHOW_V = 'printf %s "$V"'


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("data") / "sandbox"
    made = Manager(Settings(data_dir=data_dir, engine="bubblewrap"))
    yield made
    for info in made.list():
        made.destroy(info.sandbox_id)
    made.close()


@pytest.fixture
async def sandbox(manager):
    """The sandbox of all tests, in which nothing runs and no session is."""
    async with get_sandbox("demo", manager=manager) as made:
        yield made
        for session in await made.list_sessions():
            await session.delete()
        await made.kill_all_processes(grace=0)


async def running(sandbox, word):
    """Return how many processes inside have this as a word of their command line."""
    # Spelled so that those who look do not find themselves.
    look = ["sh", "-c", 'grep -lzx "$0" /proc/[0-9]*/cmdline | wc -l', f"[{word[0]}]{word[1:]}"]
    return int((await sandbox.exec(look)).stdout)


async def gone(sandbox, word, within=3.0):
    async with asyncio.timeout(within):
        while await running(sandbox, word):  # noqa: ASYNC110  it is not this program's doing
            await asyncio.sleep(0.02)


async def test_a_foreground_command_does_not_wait_for_background_ones(sandbox):
    """Nor does anything wait for a process; the stop ends both (B99)."""
    begin = time.monotonic()
    result = await sandbox.exec("sleep 6001 & echo hi")
    await sandbox.start_process(["sleep", "6002"])
    after = await sandbox.exec("echo a")

    assert time.monotonic() - begin < 5
    assert (result.stdout, result.exit_code, after.stdout) == (b"hi\n", 0, b"a\n")
    assert await running(sandbox, "6001") == 1
    await sandbox.stop(grace=0.5)
    assert await running(sandbox, "6001") + await running(sandbox, "6002") == 0


async def test_a_time_limit_holds_while_a_grandchild_has_the_pipe(sandbox):
    """One that is done is done; of one that is not nothing is left (B100)."""
    for command in (["sh", "-c", "(sleep 6003 &) ; exit 0"], "(sleep 6003 &) ; true"):
        begin = time.monotonic()
        assert (await sandbox.exec(command, timeout=3)).exit_code == 0
        assert time.monotonic() - begin < 3
    for command in (
        ["sh", "-c", "echo so far; sleep 6004 & sleep 6005"],
        "echo so far; sleep 6004 & sleep 6005",
    ):
        begin = time.monotonic()
        with pytest.raises(CommandTimeoutError) as caught:
            await sandbox.exec(command, timeout=0.4)
        assert 0.4 <= time.monotonic() - begin < 3.4
        assert caught.value.context["stdout"] == "so far\n"
        await gone(sandbox, "6004")
        await gone(sandbox, "6005")
    for command in (
        ["sh", "-c", "setsid sleep 6009 & sleep 6010"],
        "setsid sleep 6009 & sleep 6010",
    ):
        with pytest.raises(CommandTimeoutError):
            await sandbox.exec(command, timeout=0.3)
        await gone(sandbox, "6009")


async def test_a_commands_limit_ends_it_and_a_waits_limit_does_not(sandbox):
    """Told apart by class (B102)."""
    with pytest.raises(CommandTimeoutError):
        await sandbox.exec(["sleep", "6006"], timeout=0.2)
    await gone(sandbox, "6006")
    process = await sandbox.start_process(["sleep", "6007"])
    with pytest.raises(ProcessWaitTimeoutError):
        await process.wait_for_exit(timeout=0.2)

    assert await running(sandbox, "6007") == 1
    assert process.id in [each.id for each in await sandbox.list_processes()]


async def test_one_stuck_command_blocks_nothing_else(sandbox):
    """Other commands, processes, sessions and terminals go on (B104)."""

    async def endless():
        yield b"x"
        await asyncio.Event().wait()

    stuck = asyncio.create_task(sandbox.exec(["cat"], stdin=endless()))
    in_shell = asyncio.create_task(sandbox.exec("cat", stdin=endless()))
    for _ in range(30):
        await sandbox.start_process(["sleep", "6008"])
    begin = time.monotonic()
    beside = await sandbox.create_session()
    assert (await beside.exec("echo free")).stdout == b"free\n"
    assert (await sandbox.exec(["echo", "free"])).stdout == b"free\n"
    terminal = await sandbox.create_terminal(["echo", "shown"], session_id="default")
    assert (await terminal.wait_for_exit(timeout=10)).exit_code == 0
    assert time.monotonic() - begin < 5
    stuck.cancel()
    in_shell.cancel()

    assert (await asyncio.wait_for(sandbox.exec("echo again"), 5)).stdout == b"again\n"
    assert await sandbox.kill_all_processes(grace=1) == 30


async def test_standard_input_ends(sandbox):
    """Empty unless given; whole when given; unread input is no error (B106)."""
    big = b"z" * 10_000_000
    for prefix in ([], ["bash", "-c", 'exec "$@"', "-"]):
        cat, count = [*prefix, "cat"], "import sys; print(len(sys.stdin.read()))"
        assert (await sandbox.exec(cat)).stdout == b""
        assert (await sandbox.exec([*prefix, "python3", "-c", count])).stdout == b"0\n"
        assert (await sandbox.exec(cat, stdin=b"abc")).stdout == b"abc"
        assert (await sandbox.exec([*prefix, "wc", "-c"], stdin=big)).stdout == b"10000000\n"
        head = await sandbox.exec([*prefix, "head", "-c1"], stdin=big)
        assert (head.stdout, head.exit_code) == (b"z", 0)
    assert (await sandbox.exec("read x || echo eof")).stdout == b"eof\n"
    assert (await sandbox.exec("wc -c", stdin=big)).stdout == b"10000000\n"


async def test_what_cannot_be_run_is_told_by_class(sandbox):
    """The same for command, process and terminal; a shell tells by its codes (B109)."""
    await sandbox.exec(
        "echo x > data.txt; printf '#!/no/such/interpreter\\n' > script; chmod +x script"
    )
    for run in (sandbox.exec, sandbox.start_process, sandbox.create_terminal):
        with pytest.raises(CommandNotFoundError, match="no-such-cmd"):
            await run(["no-such-cmd"])
        with pytest.raises(CommandPermissionDeniedError):
            await run(["./data.txt"])
        with pytest.raises(CommandNotFoundError, match="/no/such/interpreter"):
            await run(["./script"])
        for empty in ([], [""]):
            with pytest.raises(InvalidCommandError) as caught:
                await run(empty)
            assert caught.value.http_status == 400
    missing = await sandbox.exec("no-such-cmd")
    assert missing.exit_code == 127
    assert b"no-such-cmd" in missing.stderr
    assert (await sandbox.exec("./data.txt")).exit_code == 126


async def test_a_process_is_found_again_by_another_client(sandbox, manager):
    """The same pid; every line once, those of before and those that come (B111)."""
    script = "for i in $(seq 40); do echo $i; sleep 0.03; done"
    process = await sandbox.start_process(["bash", "-c", script], process_id="counter")
    await process.wait_for_log("5\n", timeout=10)
    await sandbox.aclose()
    async with get_sandbox("demo", manager=manager) as other:
        found = await other.get_process("counter")
        assert found.pid == process.pid
        assert "counter" in [each.id for each in await other.list_processes()]
        data = b"".join([e.data async for e in found.output(follow=True) if e.type != "exit"])

        assert data.split() == [b"%d" % number for number in range(1, 41)]
        assert (await found.wait_for_exit()).exit_code == 0
        assert (await found.logs()).stdout == data


async def test_short_output_is_never_missing(sandbox):
    """2500 commands, eight at once, each exact (B115)."""
    sessions = [await sandbox.create_session() for _ in range(8)]

    async def many(number):
        for turn in range(250):
            run = sessions[number].exec if turn % 2 else sandbox.exec
            result = await run(
                "echo running in sandbox" if turn % 2 else ["echo", "running in sandbox"]
            )
            assert (result.stdout, result.stderr, result.exit_code) == (
                b"running in sandbox\n",
                b"",
                0,
            )
        for _ in range(62):
            failed = await sandbox.exec(["sh", "-c", "echo e >&2; exit 6"])
            assert (failed.stdout, failed.stderr, failed.exit_code) == (b"", b"e\n", 6)

    await asyncio.gather(*(many(number) for number in range(8)))


async def test_an_open_input_of_the_caller_holds_nothing_up(sandbox):
    """The end of the command is the end of the call, and no task is left (B116)."""
    closed = 0

    async def endless():
        nonlocal closed
        try:
            yield b"x"
            await asyncio.Event().wait()
        finally:
            closed += 1

    await sandbox.exec(["true"])
    before = len(asyncio.all_tasks())
    for number in range(150):
        command = (["true"], "true", ["sh", "-c", "exec 0<&-; echo done"])[number % 3]
        assert (await asyncio.wait_for(sandbox.exec(command, stdin=endless()), 10)).success

    assert len(asyncio.all_tasks()) <= before
    assert closed == 150


async def test_bytes_that_are_no_text(sandbox):
    """Exact as bytes, U+FFFD as text, a cut character whole; the code is kept (B117)."""
    result = await sandbox.exec(["printf", "A\\377B"])
    assert (result.stdout, result.stdout_text) == (b"A\xffB", "A\ufffdB")
    noise = os.urandom(100_000)
    await sandbox.exec("cat > noise.bin", stdin=noise)
    for command in (["cat", "noise.bin"], "cat noise.bin"):
        got = (await sandbox.exec(command)).stdout
        assert hashlib.sha256(got).digest() == hashlib.sha256(noise).digest()
        streamed = [e async for e in sandbox.exec_stream(command) if e.type != "exit"]
        assert b"".join(e.data for e in streamed) == noise
        assert "".join(e.text for e in streamed) == noise.decode(errors="replace")
    process = await sandbox.start_process(["cat", "noise.bin"])
    await process.wait_for_exit()
    assert (await process.logs()).stdout == noise
    failed = await sandbox.exec("printf '\\xff' >&2; (exit 2)")
    assert (failed.stderr, failed.exit_code) == (b"\xff", 2)


async def test_a_line_of_any_length(sandbox):
    """And a last line without its end comes before the exit (B119)."""
    argv = ["python3", "-c", "print('x'*3_000_000)"]
    assert len((await sandbox.exec(argv)).stdout) == 3_000_001
    assert len((await sandbox.exec("python3 -c \"print('x'*3_000_000)\"")).stdout) == 3_000_001
    process = await sandbox.start_process(argv)
    sizes = [len(e.data) async for e in process.output(follow=True) if e.type != "exit"]
    assert sum(sizes) == 3_000_001
    events = [event async for event in sandbox.exec_stream("printf 'no newline at end'")]
    assert [event.type for event in events] == ["stdout", "exit"]
    assert events[0].data == b"no newline at end"


async def test_values_of_the_environment_come_unchanged(sandbox, manager):
    """For list, text, process, terminal, session and the whole sandbox; and leak nowhere (B120)."""
    argv, text = ["sh", "-c", SHOW_V], SHOW_V
    for number, value in enumerate(ODD_VALUES):
        env = {"V": value}
        got = [
            (await sandbox.exec(argv, env=env)).stdout,
            (await sandbox.exec(text, env=env)).stdout,
        ]
        process = await sandbox.start_process(argv, env=env)
        await process.wait_for_exit()
        got.append((await process.logs()).stdout)
        session = await sandbox.create_session(f"s{number}", env=env)
        got.append((await session.exec(text)).stdout)
        got.append((await session.exec(argv)).stdout)
        await session.delete()
        assert got == [value.encode()] * 5, value
        terminal = await sandbox.create_terminal(
            ["python3", "-c", "import os; print(ascii(os.environ['V']))"], env=env
        )
        await terminal.wait_for_exit(timeout=10)
        assert (await terminal.get_snapshot()).lines[0] == ascii(value)
    assert (await sandbox.exec("echo ${V-unset}")).stdout == b"unset\n"
    assert (await sandbox.exec(["sh", "-c", "echo ${V-unset}"])).stdout == b"unset\n"
    assert (await sandbox.exec("echo ${HOME-unset}", env={"HOME": None})).stdout == b"unset\n"
    async with get_sandbox("wide", manager=manager, env={"V": ODD_VALUES[3]}) as wide:
        assert (await wide.exec(argv)).stdout_text == ODD_VALUES[3]
        assert (await wide.exec(text)).stdout_text == ODD_VALUES[3]


async def test_what_was_started_in_the_background_lives_on(sandbox, manager):
    """By a text with nohup, while its session lives; by start_process, whoever leaves (B124)."""
    serve = "python3 -m http.server"
    await sandbox.exec(f"nohup {serve} 8123 >/dev/null 2>&1 &")
    await sandbox.start_process([*serve.split(), "8124"])
    await sandbox.aclose()
    ask = "import sys,urllib.request as u; print(u.urlopen('http://127.0.0.1:'+sys.argv[1]).status)"
    async with get_sandbox("demo", manager=manager, command_timeout=1) as other:
        await asyncio.sleep(1.2)
        for port in ("8123", "8124"):
            answer = await other.exec(["python3", "-c", ask, port], timeout=10)
            assert answer.stdout == b"200\n", answer.stderr
        await other.delete_session("default")
        await gone(other, "8123")

        assert await running(other, "8124") == 1


async def test_a_stream_that_nobody_reads_blocks_no_command(sandbox):
    """Both pipes are read, whatever the caller takes (B125)."""
    code = "import sys\nsys.stderr.write('e'*5_000_000); print('done')"
    result = await sandbox.exec(["python3", "-c", code])
    assert (result.stdout, len(result.stderr)) == (b"done\n", 5_000_000)
    only = [
        event.data
        async for event in sandbox.exec_stream(["python3", "-c", code])
        if event.type == "stdout"
    ]
    assert b"".join(only) == b"done\n"
    process = await sandbox.start_process(["head", "-c", "50000000", "/dev/zero"])
    assert (await process.wait_for_exit(timeout=30)).success
    assert len((await process.logs()).stdout) == 50_000_000


async def test_streams_are_apart_and_their_order_can_be_had(sandbox):
    """Each whole; exact order in one stream; events carry stream and time (B126)."""
    code = "import sys\nfor i in range(100): print('o',i); print('e',i,file=sys.stderr)"
    both = "".join(f"o {i}\ne {i}\n" for i in range(100))
    argv = ["python3", "-u", "-c", code]
    apart = await sandbox.exec(argv)
    assert apart.stdout_text == "".join(f"o {i}\n" for i in range(100))
    assert apart.stderr_text == "".join(f"e {i}\n" for i in range(100))
    assert (await sandbox.exec(argv, merge_stderr=True)).stdout_text == both
    assert (await sandbox.exec(f'python3 -u -c "{code}" 2>&1')).stdout_text == both
    events = [e async for e in sandbox.exec_stream(argv) if e.type != "exit"]
    assert {event.stream for event in events} == {"stdout", "stderr"}
    assert all(event.timestamp > 1e9 for event in events)


async def test_long_and_odd_arguments_come_unchanged(sandbox):
    """In command, process and terminal; what the system cannot take is told by class (B128)."""
    argv = ["python3", "-c", "import sys,json; print(json.dumps(sys.argv[1:]))", *ODD_WORDS]
    assert json.loads((await sandbox.exec(argv)).stdout) == ODD_WORDS
    process = await sandbox.start_process(argv)
    await process.wait_for_exit()
    assert json.loads((await process.logs()).stdout) == ODD_WORDS
    terminal = await sandbox.create_terminal(argv, cols=200)
    await terminal.wait_for_exit(timeout=10)
    assert json.loads((await terminal.get_snapshot()).lines[0]) == ODD_WORDS
    assert (await sandbox.exec(["python3", "-c", "print(1)#" + "x" * 130_000])).stdout == b"1\n"
    with pytest.raises(ProcessSpawnFailedError, match="argument list is too long"):
        await sandbox.exec(["echo", "y" * 200_000])
    stdin = b"print(2)\n" + b"#" * 5_000_000
    assert (await sandbox.exec(["python3", "-"], stdin=stdin)).stdout == b"2\n"
    assert (await sandbox.exec(": " + "y" * 3_000_000 + "; echo long")).stdout == b"long\n"
    for command in (["a\0b"], "a\0b"):
        with pytest.raises(InvalidCommandError):
            await sandbox.exec(command)


async def test_emptied_folders_keep_no_text_from_running(sandbox):
    """Whatever a command removes, the next one runs."""
    await sandbox.exec("rm -rf /tmp/* /var/spool/sandbox/* ~/* 2>/dev/null; true")

    assert (await sandbox.exec("echo alive; id -u")).stdout == b"alive\n1000\n"
