"""Values of the wrong kind, and of kinds that people expect to be right."""

from __future__ import annotations

import asyncio
import errno
import math
import socket
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from sandbox_kernel import sync
from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.engines.base import SandboxSpec
from sandbox_kernel.engines.docker import DockerEngine
from sandbox_kernel.errors import (
    CommandNotFoundError,
    GitRepositoryNotFoundError,
    InvalidCommandError,
    InvalidPortError,
    InvalidProcessCwdError,
    InvalidProcessEnvironmentError,
    ProcessAbortedError,
    ProcessWaitTimeoutError,
    SandboxConfigurationError,
    StorageError,
    TerminalWaitTimeoutError,
    ValidationFailedError,
)
from tests.support.managed import plain_manager


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    with plain_manager(tmp_path_factory.mktemp("data") / "sandbox") as made:
        yield made


@pytest.fixture
async def sandbox(manager):
    async with get_sandbox("demo", manager=manager) as made:
        yield made


async def test_paths_of_pathlib_are_paths(sandbox, tmp_path):
    """In every operation on files, as a folder to run in, and as a word of a command."""
    folder = PurePosixPath("of-pathlib")
    file = folder / "a.txt"
    await sandbox.mkdir(folder)
    await sandbox.write_file(file, b"1")

    assert await sandbox.read_file(file) == b"1"
    assert await sandbox.exists(file)
    assert (await sandbox.stat(file)).size == 1
    assert [each.name for each in await sandbox.list_files(folder)] == ["a.txt"]
    assert [part async for part in sandbox.read_file_stream(file)] == [b"1"]
    await sandbox.download_folder(folder, tmp_path / "out")
    assert (tmp_path / "out" / "a.txt").read_bytes() == b"1"
    await sandbox.upload_folder(tmp_path / "out", folder / "in")
    assert (await sandbox.exec(["cat", file])).stdout == b"1"
    assert (await sandbox.exec(["pwd"], cwd=Path("/usr"))).stdout == b"/usr\n"
    await sandbox.rename_file(file, folder / "b.txt")
    await sandbox.delete_file(folder, recursive=True)
    for wrong in (3, None, b"bytes"):
        with pytest.raises(ValidationFailedError, match="'path' must be a path"):
            await sandbox.read_file(wrong)


@pytest.mark.parametrize("limit", ["5", math.nan, True, -1])
async def test_a_time_limit_is_a_number(sandbox, limit):
    """The parameter is named, wherever there is one."""
    for call in (sandbox.exec, sandbox.start_process):
        with pytest.raises(ValidationFailedError, match="'timeout' must be"):
            await call(["true"], timeout=limit)
    with pytest.raises(ValidationFailedError, match="'command_timeout' must be"):
        await sandbox.create_session(command_timeout=limit)
    with pytest.raises(ValidationFailedError, match="'timeout' must be"):
        await sandbox.git_checkout("https://example.org/a", timeout=limit)


@pytest.mark.parametrize("command", [None, 3, b"ls", ["ls", 3], Path("/bin/ls"), {"ls": 1}])
async def test_a_command_is_text_or_words(sandbox, command):
    """Everything else is refused as a command."""
    for call in (sandbox.exec, sandbox.start_process):
        with pytest.raises(InvalidCommandError):
            await call(command)


async def test_hints_tell_a_text_from_a_list(sandbox):
    """An empty text asks for one; a list with one text that has blanks is not split."""
    with pytest.raises(InvalidCommandError, match="Pass a text for the shell") as caught:
        await sandbox.exec("")
    assert "list of strings" not in str(caught.value)
    with pytest.raises(CommandNotFoundError, match=r"not split: pass \['ls', '-la'\]"):
        await sandbox.exec(["ls -la"])


async def test_variables_are_a_mapping(sandbox):
    """A list of assignments is none; None unsets; a value that is no text is named."""
    for call in (sandbox.exec, sandbox.start_process):
        with pytest.raises(ValidationFailedError, match="'env' must be a mapping"):
            await call(["true"], env=["A=1"])
        with pytest.raises(InvalidProcessEnvironmentError, match="'A' must be text"):
            await call(["true"], env={"A": b"1"})
    with pytest.raises(ValidationFailedError, match="'env' must be a mapping"):
        await sandbox.set_env(["A=1"])
    assert (await sandbox.exec(["printenv", "N"], env={"N": 3})).stdout == b"3\n"


async def test_input_is_bytes_or_text(sandbox):
    """A list of pieces is refused with what may be passed; so is what gives no bytes."""
    assert (await sandbox.exec(["cat"], stdin=bytearray(b"a"))).stdout == b"a"
    for call in (sandbox.exec, lambda command, **more: anext(sandbox.exec_stream(command, **more))):
        with pytest.raises(ValidationFailedError, match="'stdin' must be bytes"):
            await call(["cat"], stdin=[b"a"])

    async def texts():
        yield "text"

    with pytest.raises(ValidationFailedError, match="'stdin' gave str"):
        await sandbox.exec(["cat"], stdin=texts())
    with pytest.raises(ValidationFailedError, match="'content' gave str"):
        await sandbox.write_file("f", texts())
    with pytest.raises(ValidationFailedError, match="'content' must be bytes, text"):
        await sandbox.write_file("f", iter([b"a"]))


@pytest.mark.parametrize("most", [-1, "5", 1.5, True])
async def test_a_room_for_output_is_a_count(sandbox, most):
    """Below zero there is no room that could be meant."""
    with pytest.raises(ValidationFailedError, match="'max_output' must be a whole number"):
        await sandbox.exec(["true"], max_output=most)


async def test_modes_are_octal(sandbox):
    """Digits that lack their 0o are refused, and taken as text."""
    await sandbox.write_file("script", b"", mode="755")
    assert (await sandbox.stat("script")).mode == 0o755
    with pytest.raises(ValidationFailedError, match=r"Write 0o644"):
        await sandbox.chmod("script", 644)
    assert (await sandbox.stat("script")).mode == 0o755
    await sandbox.chmod("script", "0o640")
    assert (await sandbox.stat("script")).mode == 0o640


async def test_one_pattern_needs_no_list(sandbox):
    """A text is a pattern, not a list of letters."""
    await sandbox.mkdir("watched", parents=True)
    events = sandbox.watch("watched", include="*.py")
    async with asyncio.timeout(10):
        assert (await anext(events)).type == "watching"
        await sandbox.write_file("watched/p", b"")
        await sandbox.write_file("watched/a.py", b"")

        assert (await anext(events)).path.endswith("/a.py")
    await events.aclose()
    first = await sandbox.check_changes("watched", exclude="*.log")
    await sandbox.write_file("watched/a.log", b"")
    again = await sandbox.check_changes("watched", exclude="*.log", since=first.version)
    assert again.status == "unchanged"


async def test_places_in_a_file_are_counts(sandbox):
    """Below zero is refused by its name."""
    for options in ({"offset": -1}, {"length": -1}, {"offset": "1"}):
        with pytest.raises(ValidationFailedError, match=f"'{next(iter(options))}' must be a whole"):
            await sandbox.read_file("f", **options)


async def test_a_coroutine_function_is_awaited(sandbox, tmp_path):
    """Whoever is told of output or progress may be asynchronous."""
    told = []

    async def note(*what):
        await asyncio.sleep(0)
        told.append(what)

    await sandbox.exec(["echo", "a"], on_output=note)
    await sandbox.write_file("f", b"12", on_progress=note)
    (tmp_path / "big").write_bytes(bytes(300 << 10))
    await sandbox.upload_folder(tmp_path, "folder", on_progress=note)
    await sandbox.download_folder("folder", tmp_path / "back", on_progress=note)

    assert told[:2] == [("stdout", b"a\n"), (2,)]
    assert len(told) >= 4


async def test_what_is_told_may_end_the_command(sandbox):
    """What an asynchronous function raises comes out of the call."""

    async def refuse(_stream, _data):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        await sandbox.exec(["sh", "-c", "echo a; sleep 60"], on_output=refuse)


async def test_a_relative_folder_begins_where_files_do(sandbox):
    """That of words in the sandbox's folder, that of a session's text where its shell is."""
    await sandbox.mkdir("proj/sub", parents=True)
    base = (await sandbox.exec(["pwd"])).stdout_text.strip()

    assert (await sandbox.exec(["pwd"], cwd="proj")).stdout_text == f"{base}/proj\n"
    process = await sandbox.start_process(["pwd"], cwd=PurePosixPath("proj"))
    assert process.cwd == f"{base}/proj"
    session = await sandbox.create_session(cwd="proj")
    assert (await session.exec("pwd", cwd="sub")).stdout_text == f"{base}/proj/sub\n"
    assert (await session.exec("pwd")).stdout_text == f"{base}/proj\n"
    assert (await session.exec(["pwd"], cwd="sub")).stdout_text == f"{base}/proj/sub\n"
    terminal = await sandbox.create_terminal(["sleep", "9"], cwd="proj")
    assert terminal.cwd == f"{base}/proj"
    await terminal.terminate()
    with pytest.raises(InvalidProcessCwdError, match="does not exist"):
        await sandbox.exec(["pwd"], cwd="no-such")


@pytest.mark.parametrize("path", ["~", "~/note"])
async def test_a_tilde_is_refused(sandbox, path):
    """Only shells expand it: a folder of that name would be made, and the home folder not found."""
    for call in (
        sandbox.read_file(path),
        sandbox.write_file(path, b"1"),
        sandbox.exec(["pwd"], cwd=path),
        sandbox.create_session(cwd=path),
        sandbox.git_checkout("https://example.org/a", target_dir=path),
    ):
        with pytest.raises(ValidationFailedError, match=f"/home/user{path[1:]} for the home"):
            await call
    await sandbox.write_file("./~", b"2")
    assert (await sandbox.exec(["cat", "./~"])).stdout == b"2"
    await sandbox.delete_file("./~")


async def test_the_name_of_an_ended_process_is_free(sandbox):
    """The next one takes it over; one that runs keeps it, and the error says what to do."""
    first = await sandbox.start_process(["echo", "one"], process_id="server")
    await first.wait_for_exit()
    second = await sandbox.start_process(["sh", "-c", "echo two; sleep 60"], process_id="server")
    with pytest.raises(ValidationFailedError, match=r"has not ended.*kill\(\)"):
        await sandbox.start_process(["true"], process_id="server")
    with pytest.raises(CommandNotFoundError):
        await sandbox.start_process(["no-such-program"], process_id="server-2")

    assert (await second.wait_for_log("two", timeout=10)).line == "two"
    assert [each.pid for each in await sandbox.list_processes() if each.id == "server"] == [
        second.pid
    ]
    await second.kill()


async def test_a_start_that_fails_takes_no_name(sandbox):
    """The ended process is still there."""
    first = await sandbox.start_process(["echo", "one"], process_id="kept")
    await first.wait_for_exit()
    with pytest.raises(CommandNotFoundError):
        await sandbox.start_process(["no-such-program"], process_id="kept")

    assert (await first.logs()).stdout == b"one\n"


async def test_a_repository_inside_is_cloned_by_its_path(sandbox):
    """As git takes it; of one that is not there the error says where it was looked for."""
    made = await sandbox.exec(
        "git init -q origin && cd origin && git -c user.name=a -c user.email=a@b commit -q"
        " --allow-empty -m x && pwd && cd .."
    )
    place = made.stdout_text.strip()
    clone = await sandbox.git_checkout(place, target_dir=PurePosixPath("clone"))

    assert clone.path.endswith("/clone")
    with pytest.raises(GitRepositoryNotFoundError, match="seen from inside the sandbox") as caught:
        await sandbox.git_checkout("file:///no/such/repository")
    assert ".." not in str(caught.value)
    assert "does not appear to be a git repository" in caught.value.message


async def test_a_wait_for_a_text_says_which_was_missing(sandbox):
    """Not that the process had not ended; a stream that is none is refused."""
    process = await sandbox.start_process(["sh", "-c", "echo out; echo err >&2; sleep 60"])
    with pytest.raises(ProcessWaitTimeoutError, match=r"not written 'nope' .*logs\(\)") as caught:
        await process.wait_for_log("nope", timeout=0.05)
    assert caught.value.context["pattern"] == "nope"
    for stream in ("out", "", 1):
        with pytest.raises(ValidationFailedError, match="'stdout' or 'stderr'"):
            await process.wait_for_log("out", stream=stream)
    for pattern in (3, None, ["out"]):
        with pytest.raises(ValidationFailedError, match="'pattern' must be text"):
            await process.wait_for_log(pattern)
    for limit in ("1", math.nan):
        with pytest.raises(ValidationFailedError, match="'timeout' must be"):
            await process.wait_for_log("out", timeout=limit)
        with pytest.raises(ValidationFailedError, match="'timeout' must be"):
            await process.wait_for_exit(limit)
    with pytest.raises(ValidationFailedError, match="'max_output'"):
        await process.logs(max_output=-1)

    with pytest.raises(ProcessWaitTimeoutError, match="had not ended"):
        await process.wait_for_exit(0.05)
    await process.kill("TERM")
    assert (await process.wait_for_exit(10)).signal == 15


@pytest.mark.parametrize("name", ["SIGTERM", "sigterm", "TERM"])
async def test_signals_are_sent_by_name(sandbox, name):
    """As by number; another name is refused."""
    process = await sandbox.start_process(["sleep", "60"])
    for wrong in ("SIGNONE", None, 1.5):
        with pytest.raises(ValidationFailedError, match="'signal' must be a signal"):
            await process.send_signal(wrong)
    await process.send_signal(name)

    assert (await process.wait_for_exit(10)).signal == 15


async def test_a_terminal_has_a_size_in_numbers(sandbox):
    """Text is no number of columns."""
    terminal = await sandbox.create_terminal(["sleep", "60"])
    for size in (("80", 24), (80, "24"), (80.5, 24)):
        with pytest.raises(ValidationFailedError, match="must be a whole number"):
            await terminal.resize(*size)
    with pytest.raises(ValidationFailedError, match="'grace' must be"):
        await terminal.terminate(grace="1")
    with pytest.raises(TerminalWaitTimeoutError):
        await terminal.wait_for_exit(0.05)
    await terminal.terminate()


async def test_ports_and_answers_are_numbers(sandbox):
    """What was meant is told; a local port beyond all ports is no OverflowError."""
    with pytest.raises(InvalidPortError, match="Pass the number 8000"):
        await sandbox.wait_for_port("8000")
    for status in ("200", None, (200,), ("200", 299)):
        with pytest.raises(ValidationFailedError, match="'status' must be a number"):
            await sandbox.wait_for_port(8000, mode="http", status=status)
    with pytest.raises(ValidationFailedError, match="'mode' must be 'tcp' or 'http'"):
        await sandbox.wait_for_port(8000, mode="https")
    for local in (80000, "8000", -1):
        with pytest.raises(ValidationFailedError, match="'local_port' must be"):
            sandbox.forward_port(8000, local)
    with socket.create_server(("127.0.0.1", 0)) as used:
        taken = sandbox.forward_port(8000, used.getsockname()[1])
        with pytest.raises(OSError, match=str(errno.EADDRINUSE)):
            await taken.__aenter__()


async def test_a_folder_that_is_not_there_is_told_as_such(sandbox, tmp_path):
    """It is this machine's, and no question of owners."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"it does not exist\. Name a folder of this"):
        await sandbox.upload_folder(tmp_path / "nope", "x")
    with pytest.raises(StorageError, match="it is no folder"):
        await sandbox.upload_folder(tmp_path / "file", "x")


async def test_results_show_how_their_output_begins(sandbox):
    """In a notebook one sees what happened; a sandbox's facts fit into a line or two."""
    result = await sandbox.exec(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert "exit_code=3" in repr(result)
    assert r"stdout=b'out\n', stderr=b'err\n'" in repr(result)
    assert "(100001 bytes)" in repr(await sandbox.exec(["printf", "%100001s"]))
    assert len(repr(await sandbox.info())) < 250


async def _runs_something(sandbox):
    return any(each.status == "running" for each in await sandbox.list_processes())


@pytest.mark.parametrize("how", ["words", "text", "stream"])
async def test_who_stops_the_sandbox_ends_a_command_in_a_known_way(manager, how):
    """Another handle's stop is no broken connection: nothing is unknown."""
    async with get_sandbox("stopped", manager=manager) as sandbox:
        await sandbox.exec(["true"])

        async def run():
            if how == "stream":
                async for _ in sandbox.exec_stream(["sleep", "60"]):
                    pass
            else:
                await sandbox.exec("sleep 60" if how == "text" else ["sleep", "60"])

        running = asyncio.create_task(run())
        async with asyncio.timeout(10):
            while not await _runs_something(sandbox):  # noqa: ASYNC110  not this program's doing
                await asyncio.sleep(0.01)
        await get_sandbox("stopped", manager=manager).stop()
        with pytest.raises(ProcessAbortedError):
            await running


async def test_an_image_needs_an_engine_that_has_images(manager):
    """Another engine says so, before anything is made."""
    with pytest.raises(SandboxConfigurationError, match="has no images"):
        await get_sandbox("pictured", manager=manager, image="python:3.12").start()
    assert await get_sandbox("pictured", manager=manager).info() is None


def test_docker_takes_the_image_of_a_sandbox():
    """It goes before the setting's."""
    engine = DockerEngine(image="usual")

    def launch(**options):
        return SimpleNamespace(spec=SandboxSpec(**options))

    assert engine._settings_of(launch()).image == "usual"
    assert engine._settings_of(launch(image="own")).image == "own"


def test_the_websocket_transport_warns_where_it_was_chosen(manager):
    """At the line of the caller, so that Python shows it in programs and notebooks."""
    for get in (get_sandbox, sync.get_sandbox):
        with pytest.warns(DeprecationWarning, match="WebSocket transport is deprecated") as told:
            get("demo", manager=manager, transport="websocket")
        assert [each.filename for each in told] == [__file__]
