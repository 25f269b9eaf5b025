"""The runtime's own life: start, idle sleep, end, and that nothing of it piles up or leaks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sandbox_kernel.errors import (
    ContainerUnavailableError,
    ProcessAbortedError,
    ValidationFailedError,
)
from sandbox_kernel.wire.rpc import ClientConnection, Failed, Welcome
from tests.runtime.conftest import Start
from tests.support.runtime_child import TOKEN, Channel, Client, RuntimeChild

FAKE = [sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "support" / "fake_kernel.py")]


def open_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def start(client: Client, script: str) -> str:
    return str(client.call("process.start", argv=["sh", "-c", script]).process_id)


def test_an_idle_runtime_goes_to_sleep(start_runtime: Start) -> None:
    """Without anything to do it ends by itself, cleanly, though a client is connected."""
    runtime = start_runtime(sleep_after=0.5)
    with runtime.connect() as client:
        client.welcome()
        began = time.monotonic()

        assert runtime.wait_exit(10) == 0

    assert 0.3 < time.monotonic() - began < 5
    assert "goes to sleep" in runtime.log()


def test_lookups_do_not_keep_it_awake(start_runtime: Start) -> None:
    """Asking how it is does not count as use."""
    runtime = start_runtime(sleep_after=0.5)
    client = runtime.connect()
    deadline = time.monotonic() + 10

    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while time.monotonic() < deadline:
            for lookup in ("runtime.health", "process.list", "kernel.list"):
                client.call(lookup)
            time.sleep(0.02)

    client.close()
    assert runtime.wait_exit(5) == 0


@pytest.mark.parametrize("how", ["exec", "process", "stream", "attached kernel", "leased kernel"])
def test_work_keeps_it_awake(start_runtime: Start, how: str) -> None:
    """Commands, processes, open streams, relays and leases hold it; then the idle time begins."""
    runtime = start_runtime(sleep_after=0.4, kernel_argv=FAKE)
    client = runtime.connect()
    client.welcome()
    began = time.monotonic()
    if how == "exec":
        client.begin("exec", argv=["sleep", "1.2"])
    elif how == "process":
        start(client, "sleep 1.2")
        client.close()
    elif how == "stream":
        process = start(client, "sleep 1.2 & exit 0")
        client.begin("process.output", process_id=process, follow=True)
        start(client, "sleep 1.2")
    else:
        client.call("kernel.start", kernel_id="k", lease=0.0 if how.startswith("attached") else 1.2)
        if how.startswith("attached"):
            channel = Channel(client, "k")
            channel.read_until(b"ready\n")
            assert_awake_for(runtime, 1.2)
            client.close()

    assert runtime.wait_exit(10) == 0

    client.close()
    assert time.monotonic() - began > 1.5


def assert_awake_for(runtime: RuntimeChild, seconds: float) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        runtime.wait_exit(seconds)


def test_keep_alive_holds_until_it_is_taken_back(start_runtime: Start) -> None:
    """keep_alive overrules sleep_after, and turning it off starts the idle time anew."""
    runtime = start_runtime(sleep_after=0.3, keep_alive=True)
    with runtime.connect() as client:
        client.welcome()
        assert_awake_for(runtime, 0.9)
        assert client.call("runtime.health").sleeps_in is None

        client.call("runtime.configure", keep_alive=False)
        assert 0 < client.call("runtime.health").sleeps_in <= 0.3

        assert runtime.wait_exit(5) == 0


def test_sleep_after_can_be_changed(start_runtime: Start) -> None:
    """A new idle time holds from now on."""
    runtime = start_runtime(sleep_after=600.0)
    with runtime.connect() as client:
        client.welcome()
        with pytest.raises(ValidationFailedError):
            client.call("runtime.configure", sleep_after=0.0)

        client.call("runtime.configure", sleep_after=0.3)

        assert runtime.wait_exit(5) == 0


def test_health_says_what_holds_it_awake(start_runtime: Start) -> None:
    """People can see why a sandbox does not sleep."""
    runtime = start_runtime(sleep_after=600.0, kernel_argv=FAKE)
    with runtime.connect() as client:
        client.call("kernel.start", kernel_id="k")
        process = start(client, "sleep 73.25")

        health = client.call("runtime.health")

        assert health.busy == [f"process {process}", "kernel k (lease)"]
        assert (health.processes, health.kernels, health.pid) == (1, 1, runtime.pid)
        assert health.sleeps_in is None
        client.call("process.signal", process_id=process, signal=9)
        client.call("process.wait", process_id=process)
        client.call("kernel.end", kernel_id="k")
        health = client.call("runtime.health")
        assert health.busy == []
        assert 590 < health.sleeps_in <= 600


def test_sigterm_ends_everything(start_runtime: Start) -> None:
    """TERM to the runtime: programs get TERM, callers the reason, and the exit is clean."""
    runtime = start_runtime(kernel_argv=FAKE)
    with runtime.connect() as client, runtime.connect() as relay:
        process = start(client, "trap 'touch asked; exit 0' TERM; while :; do sleep 0.05; done")
        waiting = client.begin("process.wait", process_id=process)
        running = client.begin("exec", argv=["sh", "-c", "echo begun; sleep 74.25"])
        client.event_of(running)
        pid = client.call("kernel.start", kernel_id="k").pid
        channel = Channel(relay, "k")
        channel.read_until(b"ready\n")
        began = time.monotonic()

        runtime.process.send_signal(signal.SIGTERM)

        for call in (waiting, running):
            event = client.event_of(call)
            assert isinstance(event, Failed)
            assert isinstance(event.error, ProcessAbortedError)
        assert channel.event()["reason"] == "ended"
        assert runtime.wait_exit(5) == 0
    assert time.monotonic() - began < 2
    assert (runtime.workspace / "asked").exists()
    assert not psutil.pid_exists(pid)


def test_sigterm_kills_what_does_not_end(start_runtime: Start) -> None:
    """What ignores TERM is killed after two seconds, and the runtime ends."""
    runtime = start_runtime()
    with runtime.connect() as client:
        process = client.call(
            "process.start", argv=["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]
        )
        client.run("sleep", "0.2")
        began = time.monotonic()

        runtime.process.send_signal(signal.SIGTERM)

        assert runtime.wait_exit(5) == 0
    assert 1.9 < time.monotonic() - began < 4
    assert not psutil.pid_exists(process.pid)


def test_what_was_left_in_the_background_ends_too(start_runtime: Start) -> None:
    """A daemon that a command has left gets TERM, and KILL after the grace."""
    runtime = start_runtime()
    polite = "trap 'touch bye; exit' TERM; touch polite; while :; do sleep 0.05; done"
    stubborn = "trap '' TERM; touch stubborn; while :; do sleep 0.05; done"
    with runtime.connect() as client:
        pids = [
            int(
                client.run("sh", "-c", 'setsid sh -c "$1" >/dev/null 2>&1 & echo $!', "sh", script)[
                    0
                ]
            )
            for script in (polite, stubborn)
        ]
        deadline = time.monotonic() + 10
        while not {"polite", "stubborn"} <= set(os.listdir(runtime.workspace)):
            assert time.monotonic() < deadline
            time.sleep(0.01)

        runtime.process.send_signal(signal.SIGTERM)

        assert runtime.wait_exit(5) == 0
    assert (runtime.workspace / "bye").exists()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_shutdown_answers_and_ends(runtime: RuntimeChild) -> None:
    """runtime.shutdown answers first and uses its own grace."""
    with runtime.connect() as client:
        start(client, "trap '' TERM; while :; do sleep 0.05; done")
        client.run("sleep", "0.2")
        with pytest.raises(ValidationFailedError, match="grace"):
            client.call("runtime.shutdown", grace=-1.0)

        client.call("runtime.shutdown", grace=0.2)

        assert runtime.wait_exit(3) == 0


def test_nothing_new_starts_while_it_ends(runtime: RuntimeChild) -> None:
    """Between the order and the end, starting is refused."""
    with runtime.connect() as client:
        start(client, "trap '' TERM; while :; do sleep 0.05; done")
        client.run("sleep", "0.2")
        client.call("runtime.shutdown", grace=1.0)
        client.call("runtime.health")

        for operation, fields in (
            ("exec", {"argv": ["true"]}),
            ("exec", {"command": "true", "session": "default"}),
            ("process.start", {"argv": ["true"]}),
            ("terminal.create", {"argv": ["true"]}),
            ("session.create", {}),
        ):
            with pytest.raises(ContainerUnavailableError, match=r"^Sandbox '\S+' is stopping\."):
                client.call(operation, **fields)

        assert runtime.wait_exit(5) == 0


def test_orphans_are_adopted_and_reaped(client: Client, runtime: RuntimeChild) -> None:
    """What loses its parent becomes the runtime's child, and leaves no zombie."""
    out, _, _ = client.run("sh", "-c", "(sh -c 'sleep 0.3' >/dev/null 2>&1 & echo $!)")
    orphan = psutil.Process(int(out))

    assert orphan.ppid() == runtime.pid
    deadline = time.monotonic() + 5
    while orphan.is_running():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nothing_piles_up(start_runtime: Start) -> None:
    """Hundreds of commands, processes, connections and kernels leave no descriptor or zombie."""
    runtime = start_runtime(kernel_argv=FAKE)
    with runtime.connect() as client:
        client.run("true", stdin=b"x", timeout=1000.0)
        before = open_descriptors(runtime.pid)
        for number in range(200):
            client.run("sh", "-c", "sleep 0.01 & echo x; exit 3", stdin=b"y", timeout=1000.0)
            if number % 10 == 0:
                process = start(client, "exit 0")
                client.call("process.wait", process_id=process)
                with runtime.connect() as other:
                    other.call("kernel.start", kernel_id="k")
                    Channel(other, "k").read_until(b"ready\n")
                client.call("kernel.end", kernel_id="k")

        deadline = time.monotonic() + 10
        while open_descriptors(runtime.pid) > before:
            assert time.monotonic() < deadline, os.listdir(f"/proc/{runtime.pid}/fd")
            client.run("true")
        assert psutil.Process(runtime.pid).children() == []


def test_the_lock_lives_and_dies_with_the_runtime(tmp_path: Path, start_runtime: Start) -> None:
    """No program inherits the lock, so that a free lock means a dead runtime."""
    path = tmp_path / "alive.lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    runtime = start_runtime(pass_fds=[lock], lock_fd=lock)
    os.close(lock)
    with runtime.connect() as client:
        client.run("sh", "-c", "setsid sleep 1.7 >/dev/null 2>&1 </dev/null &")

    with path.open() as probe, pytest.raises(BlockingIOError):
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    runtime.process.kill()
    runtime.process.wait()

    with path.open() as probe:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_limits_hold_for_programs(start_runtime: Start) -> None:
    """Resource limits of the configuration are those of every program."""
    runtime = start_runtime(rlimits={"nofile": 64, "fsize": 4096})
    with runtime.connect() as client:
        assert client.run("sh", "-c", "ulimit -n; ulimit -f")[0].split() == [b"64", b"8"]
        _, _, end = client.run("dd", "if=/dev/zero", "of=big", "bs=5000", "count=1")
        assert end.exit_code != 0


def test_an_out_of_memory_kill_is_named(start_runtime: Start, tmp_path: Path) -> None:
    """A KILL with a risen counter has the reason memory_limit; any other has none."""
    events = tmp_path / "memory.oom_control"
    events.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    runtime = start_runtime(memory_events=str(events))
    with runtime.connect() as client:
        assert client.run("sh", "-c", "kill -9 $$")[2].reason is None
        script = f"printf 'oom_kill 1\\n' > {events}; kill -9 $$"

        assert client.run("sh", "-c", script)[2].reason == "memory_limit"
        assert client.run("sh", "-c", "kill -9 $$")[2].reason is None


def test_programs_are_killed_for_memory_before_the_runtime(
    runtime: RuntimeChild, client: Client
) -> None:
    """Programs carry a higher score than the runtime, which keeps its own."""
    before = int(Path(f"/proc/{runtime.pid}/oom_score_adj").read_text())

    seen = int(client.run("cat", "/proc/self/oom_score_adj")[0])

    assert seen == min(1000, before + 500)
    assert int(Path(f"/proc/{runtime.pid}/oom_score_adj").read_text()) == before


def test_the_first_answer_needs_few_modules(runtime: RuntimeChild) -> None:
    """No heavy module is loaded before the first client is answered."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import sandbox_runtime.server, sandbox_runtime.config;"
        "loaded = sorted(sys.modules); import json; print(json.dumps(loaded))"
    )
    command = [sys.executable, "-I", "-S", "-c", script, str(runtime.folder / "packages")]

    loaded = set(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))

    heavy = {
        "subprocess",
        "ctypes",
        "typing",
        "dataclasses",
        "asyncio",
        "socket",
        "logging",
        "threading",
    }
    assert not loaded & heavy
    outside = {name for name in loaded if name.startswith("sandbox_kernel.")}
    assert all(
        name.startswith(("sandbox_kernel.wire", "sandbox_kernel.errors")) for name in outside
    )


def test_it_may_bind_its_own_socket(start_runtime: Start, tmp_path: Path) -> None:
    """With a path the runtime listens there itself, for its own user only."""
    path = tmp_path / "own.sock"
    start_runtime(listen={"unix": str(path)})
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)

    with Client(str(path), TOKEN) as client:
        assert client.welcome().sandbox_id == "test"
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_serves_tcp_as_well(start_runtime: Start) -> None:
    """An inherited socket may be of any stream family."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        start_runtime(listen={"fd": listener.fileno()}, pass_fds=[listener.fileno()])
        with socket.create_connection(listener.getsockname(), timeout=10) as plain:
            protocol = ClientConnection()
            plain.sendall(protocol.hello(TOKEN, "tcp"))

            (event,) = protocol.receive(plain.recv(65536))

    assert isinstance(event, Welcome)


@pytest.mark.parametrize(
    "config", [{"listen": {}}, {"rlimits": {"nosuch": 1}}, {"cwd": "relative"}, {"token": 7}]
)
def test_a_bad_configuration_ends_at_once_and_says_why(
    start_runtime: Start, config: dict[str, object]
) -> None:
    """The log names the mistake; nothing is served."""
    runtime = start_runtime(**config)

    assert runtime.wait_exit(5) == 1
    assert f"'{next(iter(config))}'" in runtime.log()


def test_memory_is_hidden_by_prctl() -> None:
    """hide_memory makes the process non-dumpable, which closes /proc/PID/mem to its own user."""
    script = (
        "from sandbox_runtime.prctl import hide_memory; import ctypes;"
        "hide_memory(); print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )

    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout

    assert out == b"0\n"


def test_who_ends_programs_by_name_does_not_end_the_sandbox(runtime: RuntimeChild) -> None:
    """The runtime is an interpreter, too; ``pkill python`` means those of the user."""
    with runtime.connect() as client:
        client.call("runtime.health")

        name = Path(f"/proc/{runtime.process.pid}/comm").read_text()
        assert name == "sandbox-runtime\n"
        assert (
            b"python"
            in client.run(sys.executable, "-c", "print(open('/proc/self/comm').read())")[0]
        )
