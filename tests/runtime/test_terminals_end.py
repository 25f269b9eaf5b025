"""The end of a terminal reaches everything that was started in it; and what keeps a sandbox awake."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.errors import ContainerUnavailableError, ValidationFailedError
from sandbox_kernel.wire import terminal as wire
from sandbox_kernel.wire.operations import TerminalInfo
from tests.support.runtime_child import Client, RuntimeChild
from tests.support.terminal_channel import TerminalChannel

# Each program is told apart by how long it sleeps.
TREE = """
set -m
sleep 11111 &
trap '' HUP TERM
sh -c 'trap "" HUP TERM; sleep 22222 & wait' &
setsid sleep 33333 &
setsid sh -c '(sleep 44444 &) ; exit'
(nohup sleep 55555 >/dev/null 2>&1 &)
set +m
sleep 66666 &
echo grown
wait
"""
SLEEPERS = ("11111", "22222", "33333", "44444", "55555", "66666")


def sleepers(terminal_id: str) -> set[str]:
    """Return which sleepers of a terminal live, from their command lines and environments."""
    found = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            mine = f"SANDBOX_TERMINAL={terminal_id}".encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        if mine and words[0] == b"sleep":
            found.add(words[1].decode())
    return found


def wait_until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


@pytest.fixture
def tree(runtime: RuntimeChild, client: Client) -> TerminalInfo:
    info = client.call("terminal.create", argv=["bash", "-c", TREE])
    with runtime.connect() as other:
        TerminalChannel(other, info.terminal_id, cursor=info.cursor).read_until(b"grown")
    wait_until(lambda: sleepers(info.terminal_id) == set(SLEEPERS))
    assert isinstance(info, TerminalInfo)
    return info


@pytest.mark.parametrize("grace", [0.0, 0.3])
def test_terminate_ends_the_whole_tree(client: Client, tree: TerminalInfo, grace: float) -> None:
    """Own groups, own sessions, orphans, and what ignores HUP and TERM; then it is answered."""
    info = client.call("terminal.terminate", terminal_id=tree.terminal_id, grace=grace)

    assert sleepers(tree.terminal_id) == set()
    assert (info.status, info.reason, info.signal) == ("exited", "terminated", 9)
    assert client.call("terminal.terminate", terminal_id=tree.terminal_id) == info


def test_terminate_is_kind_first(client: Client, runtime: RuntimeChild) -> None:
    """HUP comes first, TERM after half of the grace, and who obeys is not killed."""
    script = (
        "trap 'echo HUP' HUP; trap 'echo TERM; exit 4' TERM; echo up; while :; do sleep .02; done"
    )
    info = client.call("terminal.create", argv=["bash", "-c", script])
    with runtime.connect() as other:
        view = TerminalChannel(other, info.terminal_id, cursor=info.cursor)
        view.read_until(b"up")
        began = time.monotonic()
        view.order(wire.Terminate(grace=3.0))
        exited = view.wait_for(wire.Exited)
        took = time.monotonic() - began

    told = view.data.split()
    assert told.index(b"HUP") < told.index(b"TERM")
    assert exited.exit_code == 4
    assert 1.4 < took < 2.95


def test_an_interactive_shell_ends_at_once(client: Client) -> None:
    """It ignores TERM, but not HUP."""
    info = client.call("terminal.create", argv=["bash", "--norc"])
    wait_until(
        lambda: client.call("terminal.snapshot", terminal_id=info.terminal_id).lines[0] != ""
    )
    began = time.monotonic()
    ended = client.call("terminal.terminate", terminal_id=info.terminal_id, grace=5.0)

    assert time.monotonic() - began < 1
    assert ended.signal == 1


def test_a_stopped_job_ends_too(client: Client, runtime: RuntimeChild) -> None:
    """It goes on to act on what it is told."""
    info = client.call("terminal.create", argv=["sh", "-c", "kill -STOP $$; exec sleep 60"])
    wait_until(lambda: _state(info.pid) == "T")

    assert client.call("terminal.terminate", terminal_id=info.terminal_id).signal == 1


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_terminate_is_answered_when_nothing_is_left(client: Client, runtime: RuntimeChild) -> None:
    """Later than the shell's own end, where a child of it ignores HUP; or hurried."""
    script = "(trap '' HUP TERM; echo up; sleep 12121; :) & exec cat"
    for hurried in (False, True):
        info = client.call("terminal.create", argv=["sh", "-c", script])
        with runtime.connect() as other:
            TerminalChannel(other, info.terminal_id, cursor=info.cursor).read_until(b"up")
        wait_until(lambda: sleepers(info.terminal_id) == {"12121"})  # noqa: B023
        began = time.monotonic()
        call = client.begin(
            "terminal.terminate", terminal_id=info.terminal_id, grace=20.0 if hurried else 0.4
        )
        assert client.call("terminal.wait", terminal_id=info.terminal_id).signal == 1
        if hurried:
            client.call("terminal.terminate", terminal_id=info.terminal_id, grace=0.0)
        client.finish(call)

        assert sleepers(info.terminal_id) == set()
        assert time.monotonic() - began < 10


def test_terminate_spares_the_others(client: Client, tree: TerminalInfo) -> None:
    """Another terminal and another command live on."""
    other = client.call("terminal.create", argv=["sleep", "77777"])
    process = client.call("process.start", argv=["sleep", "88888"])
    client.call("terminal.terminate", terminal_id=tree.terminal_id, grace=0.0)

    assert sleepers(other.terminal_id) == {"77777"}
    assert client.call("process.get", process_id=process.process_id).status == "running"


@pytest.mark.parametrize("grace", [-1.0, 61.0])
def test_a_bad_grace_is_refused(client: Client, grace: float) -> None:
    """Before anything happens."""
    info = client.call("terminal.create", argv=["cat"])
    with pytest.raises(ValidationFailedError):
        client.call("terminal.terminate", terminal_id=info.terminal_id, grace=grace)

    assert client.call("terminal.get", terminal_id=info.terminal_id).status == "running"


@pytest.mark.parametrize(
    "daemon",
    [
        "setsid sleep 99999 &",
        # All that a daemon does: another session and parent, no descriptors, deaf to signals.
        "(trap '' HUP TERM; cd /; setsid sleep 99999 <&- >&- 2>&- &) & wait;",
    ],
)
def test_terminate_takes_what_an_ended_terminal_has_left(client: Client, daemon: str) -> None:
    """Its daemons are found by what they carry."""
    info = client.call("terminal.create", argv=["sh", "-c", f"{daemon} sleep 0.3"])
    client.call("terminal.wait", terminal_id=info.terminal_id)
    wait_until(lambda: sleepers(info.terminal_id) == {"99999"})

    client.call("terminal.terminate", terminal_id=info.terminal_id)

    assert sleepers(info.terminal_id) == set()


def test_the_runtime_ends_its_terminals(runtime: RuntimeChild, tree: TerminalInfo) -> None:
    """With all that they have started; whoever waits is told."""
    with runtime.connect() as client, runtime.connect() as other:
        waiting = client.begin("terminal.wait", terminal_id=tree.terminal_id)
        view = TerminalChannel(other, tree.terminal_id)
        view.wait_for(wire.Live)
        client.call("runtime.shutdown", grace=0.3)
        info = client.finish(waiting)
        assert (info.status, info.error_code, info.reason) == (
            "error",
            "PROCESS_ABORTED",
            "stopped",
        )
        view.wait_for(wire.Exited)
        with pytest.raises(ContainerUnavailableError):
            client.call("terminal.create", argv=["true"])

    assert runtime.wait_exit() == 0
    wait_until(lambda: sleepers(tree.terminal_id) == set())


# --- sleep ----------------------------------------------------------------------------------------


def test_an_idle_shell_and_its_viewers_let_the_sandbox_sleep(start_runtime: Any) -> None:
    """Nor does a viewer that comes again and again keep it awake, nor a background job."""
    runtime = start_runtime(sleep_after=1.0)
    with runtime.connect() as client:
        info = client.call("terminal.create", argv=["bash", "--norc"])
        client.call("terminal.write", terminal_id=info.terminal_id, data=b"sleep 60 &\r")
        began = time.monotonic()
        while runtime.process.poll() is None:
            assert time.monotonic() - began < 10
            other = None
            try:
                other = runtime.connect()
                TerminalChannel(other, info.terminal_id).wait_for(wire.Live)
            except (OSError, EOFError):
                break
            finally:
                if other is not None:
                    other.close()
            time.sleep(0.05)

    assert runtime.wait_exit() == 0
    assert time.monotonic() - began < 4


def test_a_foreground_command_keeps_the_sandbox_awake(start_runtime: Any) -> None:
    """Until it ends; from then on the sandbox is idle."""
    runtime = start_runtime(sleep_after=1.0)
    with runtime.connect() as client, runtime.connect() as other:
        info = client.call("terminal.create", argv=["bash", "--norc"])
        view = TerminalChannel(other, info.terminal_id)
        view.type(b"sleep 2.5\r")
        began = time.monotonic()
        wait_until(lambda: client.call("runtime.health").busy == [f"terminal {info.terminal_id}"])
        runtime.wait_exit()
        took = time.monotonic() - began

    assert 3.3 < took < 6


def test_a_program_that_is_no_shell_keeps_the_sandbox_awake(start_runtime: Any) -> None:
    """It is a command, though nobody has typed it."""
    runtime = start_runtime(sleep_after=0.5)
    with runtime.connect() as client:
        began = time.monotonic()
        client.call("terminal.create", argv=["sh", "-c", "sleep 1.5"])
        runtime.wait_exit()

    assert 1.9 < time.monotonic() - began < 5


def test_typing_is_use(start_runtime: Any) -> None:
    """Whoever types at a prompt is not put to sleep."""
    runtime = start_runtime(sleep_after=1.0)
    with runtime.connect() as client, runtime.connect() as other:
        info = client.call("terminal.create", argv=["bash", "--norc"])
        view = TerminalChannel(other, info.terminal_id)
        for _ in range(10):
            view.type(b"x")
            view.quiet(0.25)
        assert runtime.process.poll() is None
