from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading

import pytest

import sandbox_kernel
from sandbox_kernel import sync
from sandbox_kernel.client import process as async_process
from sandbox_kernel.client import sandbox as async_sandbox
from sandbox_kernel.client import session as async_session
from sandbox_kernel.client import terminal as async_terminal
from sandbox_kernel.errors import CommandNotFoundError, OperationError
from tests.support.managed import plain_manager

# What has another name, since the language calls it so where nothing is awaited.
RENAMED = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}

# What passes messages on as they come cannot be done by a call that blocks.
WITHOUT_TWIN = {"connect", "terminal", "view"}


@pytest.fixture
def sandbox(tmp_path):
    with (
        plain_manager(tmp_path / "sandbox") as manager,
        sync.get_sandbox("demo", manager=manager) as made,
    ):
        yield made


def parameters(function) -> list[tuple[str, object, object]]:
    signature = inspect.signature(function)
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [
        (sync.Sandbox, async_sandbox.Sandbox),
        (sync.Process, async_process.Process),
        (sync.Session, async_session.Session),
        (sync.Terminal, async_terminal.Terminal),
    ],
)
def test_both_faces_have_the_same_names_and_parameters(blocking, asynchronous):
    """Every public method and property of one is in the other, with the same parameters."""
    names = {
        RENAMED.get(name, name)
        for name in set(dir(asynchronous)) - WITHOUT_TWIN
        if not name.startswith("_") or name in RENAMED
    }

    assert names == {
        name
        for name in dir(blocking)
        if not name.startswith("_") or name in ("__enter__", "__exit__")
    }
    for name in names:
        theirs = next((old for old, new in RENAMED.items() if new == name), name)
        mine, other = (
            inspect.getattr_static(blocking, name),
            inspect.getattr_static(asynchronous, theirs),
        )
        assert isinstance(mine, property) == isinstance(other, property), name
        if not isinstance(mine, property):
            assert parameters(mine) == parameters(other), name
            assert not inspect.iscoroutinefunction(mine), name


@pytest.mark.parametrize("name", ["get_sandbox", "list_sandboxes"])
def test_functions_have_the_same_parameters(name):
    """get_sandbox and list_sandboxes are called alike."""
    assert parameters(getattr(sync, name)) == parameters(getattr(sandbox_kernel, name))


def test_a_command_a_process_and_a_list(sandbox):
    """The blocking names do the work."""
    assert sandbox.exec(["echo", "hi"]).stdout == b"hi\n"
    with pytest.raises(CommandNotFoundError):
        sandbox.exec(["no-such-cmd"])
    process = sandbox.start_process(["cat"], stdin=True)
    process.write_stdin("one\n", close=True)
    events = list(process.output(follow=True))

    assert events[0].data == b"one\n"
    assert process.wait_for_exit(timeout=10).success
    assert [each.id for each in sandbox.list_processes()] == [process.id]
    assert sandbox.get_process(process.id).status == "completed"
    assert sandbox.get_process("no-such") is None
    assert sandbox.info().state == "running"


def test_texts_sessions_and_streams(sandbox):
    """A shell that remembers, beside others; events as they come; waits for what is written."""
    sandbox.exec("A=1")
    session = sandbox.create_session("work", cwd="/usr")
    assert sandbox.exec("echo $A").stdout == b"1\n"
    assert session.exec("pwd; echo ${A-unset}").stdout == b"/usr\nunset\n"
    assert [each.id for each in sandbox.list_sessions()] == ["default", "work"]
    events = list(session.exec_stream("echo a; exit_() { return 3; }; exit_"))
    assert [event.type for event in events] == ["stdout", "exit"]
    assert events[-1].exit_code == 3
    for event in sandbox.exec_stream("echo a; sleep 100"):
        assert event.data == b"a\n"
        break
    assert sandbox.exec("echo free").stdout == b"free\n"
    process = session.start_process("pwd; sleep 100")
    assert process.wait_for_log("usr", timeout=10).line == "/usr"
    assert process.logs().stdout == b"/usr\n"
    session.set_env({"B": "2"})
    assert session.exec("echo $B").stdout == b"2\n"
    sandbox.set_env({"C": "3"})
    assert sandbox.exec(["printenv", "C"]).stdout == b"3\n"
    assert sandbox.kill_all_processes() == 1
    session.delete()
    assert sandbox.get_session("work") is None


def test_reading_may_stop_early(sandbox):
    """Leaving the loop over a process's output ends the reading and nothing else."""
    process = sandbox.start_process(["sh", "-c", "echo one; sleep 60"])
    for event in process.output(follow=True):
        assert event.data == b"one\n"
        break

    assert process.refresh().status == "running"


def test_it_works_under_a_running_loop(sandbox):
    """In a notebook a loop is running already; the blocking names work there too."""

    async def cell():
        return sandbox.exec(["echo", "hi"]).stdout

    assert asyncio.run(cell()) == b"hi\n"


def test_it_works_in_a_forked_child(sandbox):
    """A child process made by fork has no thread of ours, and gets one of its own."""
    sandbox.exec(["true"])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            manager = sandbox._sandbox._manager
            with sync.get_sandbox("demo", manager=manager) as mine:
                code = 0 if mine.exec(["echo", "hi"]).stdout == b"hi\n" else 2
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sandbox.exec(["echo", "hi"]).stdout == b"hi\n"


def test_a_program_that_closes_nothing_ends_quietly(tmp_path):
    """A script that forgets its handles exits at once, without a word."""
    with plain_manager(tmp_path / "sandbox") as manager:
        manager.ensure("demo")
        code = (
            "import sys\n"
            "from pathlib import Path\n"
            "from sandbox_kernel import sync\n"
            "from sandbox_kernel.manager.manager import Manager\n"
            "from tests.support.managed import plain_settings\n"
            "manager = Manager(plain_settings(Path(sys.argv[1])))\n"
            "print(sync.get_sandbox('demo', manager=manager).exec(['echo', 'hi']).stdout_text)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "sandbox")],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    assert (done.returncode, done.stdout, done.stderr) == (0, "hi\n\n", "")


def test_a_callback_may_make_blocking_calls(sandbox, tmp_path):
    """It is called by the thread that waits, so it may wait for the same and other sandboxes."""
    seen = []

    def told(stream, data):
        seen.append((stream, data, threading.current_thread()))
        seen.append(sandbox.exec(["echo", "inner"], timeout=10).stdout)
        sandbox.write_file("f", iter([b"a", b"b"]), on_progress=seen.append)

    with plain_manager(tmp_path / "second") as manager:
        other = sync.get_sandbox("other", manager=manager)
        result = sandbox.exec(
            ["echo", "1"],
            on_output=lambda *what: (told(*what), seen.append(other.exec(["true"]).exit_code)),
            timeout=20,
        )
        other.close()

    assert result.stdout == b"1\n"
    assert seen == [("stdout", b"1\n", threading.current_thread()), b"inner\n", 2, 0]
    assert sandbox.read_file("f") == b"ab"


def test_what_a_callback_raises_ends_the_call(sandbox):
    """As if the blocking call had raised it; the command ends."""

    def told(_stream, _data):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        sandbox.exec(["sh", "-c", "echo a; sleep 60"], on_output=told)
    assert sandbox.exec(["echo", "on"]).stdout == b"on\n"


def test_input_and_content_may_be_any_iterable(sandbox):
    """Blocking code has lists and generators; these may make blocking calls as well."""

    def pieces():
        yield b"a"
        yield sandbox.exec(["printf", "b"]).stdout

    assert sandbox.exec(["cat"], stdin=pieces()).stdout == b"ab"
    assert sandbox.exec(["cat"], stdin=[b"x" * 10, b"y"]).stdout == b"x" * 10 + b"y"
    assert sandbox.write_file("g", pieces()).size == 2

    def broken():
        yield b"a"
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        sandbox.exec(["cat"], stdin=broken())


def test_the_thread_of_the_loop_refuses_to_wait_for_itself(sandbox):
    """What would hang for ever is an error at once, which says what to do."""

    async def pieces():
        yield sandbox.exec(["true"]).stdout

    with pytest.raises(OperationError, match="asynchronous names"):
        sandbox.exec(["cat"], stdin=pieces())
    assert sandbox.exec(["echo", "on"]).stdout == b"on\n"


@pytest.mark.parametrize(
    "call",
    [
        "sandbox.exec(['sleep', '60'])",
        "sandbox.exec(['sh', '-c', 'echo a; sleep 60'], on_output=print)",
        "sandbox.exec(['echo', 'a'], on_output=lambda *_: sandbox.exec(['sleep', '60']))",
        "list(sandbox.exec_stream(['sh', '-c', 'echo a; sleep 60']))",
        "sandbox.exec(['cat'], stdin=(time.sleep(60) for _ in 'a'))",
    ],
)
def test_one_interrupt_ends_a_program(tmp_path, call):
    """Ctrl-C ends the waiting, whatever waits, and the block closes its handle."""
    with plain_manager(tmp_path / "sandbox") as manager:
        manager.ensure("demo")
        code = (
            "import signal, sys, threading, time\n"
            "from pathlib import Path\n"
            "from sandbox_kernel import sync\n"
            "from sandbox_kernel.manager.manager import Manager\n"
            "from tests.support.managed import plain_settings\n"
            "manager = Manager(plain_settings(Path(sys.argv[1])))\n"
            "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
            "with sync.get_sandbox('demo', manager=manager) as sandbox:\n"
            "    sandbox.exec(['true'])\n"
            "    signal.setitimer(signal.ITIMER_REAL, 1)\n"
            f"    {call}\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "sandbox")],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt", done.stderr
    assert "RuntimeError" not in done.stderr
