"""Processes that outlive their caller: output by cursor, input, signals, waiting, forgetting."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.errors import (
    InvalidProcessCursorError,
    ProcessNotFoundError,
    ProcessWaitTimeoutError,
    StaleProcessHandleError,
    StdinClosedError,
    ValidationFailedError,
)
from sandbox_kernel.wire.rpc import Failed, Item
from tests.runtime.conftest import Start
from tests.support.runtime_child import Client, RuntimeChild, join


def output(client: Client, process_id: str, **fields: Any) -> tuple[bytes, Any]:
    items, end = client.call("process.output", process_id=process_id, **fields)
    return join(items, "stdout") + join(items, "stderr"), end


def start(client: Client, script: str, **fields: Any) -> str:
    return str(client.call("process.start", argv=["sh", "-c", script], **fields).process_id)


def test_a_process_outlives_its_connection(runtime: RuntimeChild) -> None:
    """Another client finds it, with the same pid, and everything it has written."""
    with runtime.connect() as first:
        info = first.call(
            "process.start", argv=["sh", "-c", "echo one; read x; echo $x"], stdin=True
        )
    with runtime.connect() as second:
        found = second.call("process.get", process_id=info.process_id)
        second.call("process.write_stdin", process_id=info.process_id, data=b"two\n")
        second.call("process.wait", process_id=info.process_id)
        text, end = output(second, info.process_id)

    assert (found.pid, found.status, found.incarnation) == (info.pid, "running", info.incarnation)
    assert text == b"one\ntwo\n"
    assert (end.info.status, end.info.exit_code, end.info.output_bytes) == ("completed", 0, 8)


@pytest.mark.parametrize(
    ("script", "status", "code", "number"),
    [
        ("exit 0", "completed", 0, None),
        ("exit 3", "failed", 3, None),
        ("kill -15 $$", "killed", 143, 15),
    ],
)
def test_the_status_says_how_it_ended(
    client: Client, script: str, status: str, code: int, number: int | None
) -> None:
    """Code 0, another code and a signal are three different ends."""
    info = client.call("process.wait", process_id=start(client, script))

    assert (info.status, info.exit_code, info.signal) == (status, code, number)
    assert info.ended_at >= info.started_at


def test_following_sends_what_was_and_what_comes(client: Client) -> None:
    """A follower gets all output once, and the end after the last of it."""
    process = start(client, "echo early; read x; echo late; exit 5", stdin=True)
    call = client.begin("process.output", process_id=process, follow=True)
    assert client.event_of(call).body == b"early\n"

    client.call("process.write_stdin", process_id=process, data=b"\n")
    items, end = client.finish(call)

    assert join(items, "stdout") == b"late\n"
    assert end.info.exit_code == 5


def test_without_following_the_stream_ends_at_the_present(client: Client) -> None:
    """What was written is sent, and the stream ends though the process runs on."""
    process = start(client, "echo early; sleep 67.25")
    while not client.call("process.get", process_id=process).output_bytes:
        time.sleep(0.01)

    text, end = output(client, process)

    assert text == b"early\n"
    assert end.info.status == "running"
    client.call("process.signal", process_id=process, signal=9)


def test_reading_on_from_any_cursor_has_no_gap_and_no_repeat(client: Client) -> None:
    """Every event's cursor continues exactly after that event."""
    process = start(
        client, "for i in 1 2 3; do echo o$i; echo e$i >&2; done; head -c 700000 /dev/zero"
    )
    client.call("process.wait", process_id=process)
    items, end = client.call("process.output", process_id=process)
    whole = b"".join(each.data for each in items)
    assert len(whole) == 700018

    for number, item in enumerate(items):
        rest, last = client.call("process.output", process_id=process, since=item.cursor)
        assert b"".join(each.data for each in rest) == b"".join(
            each.data for each in items[number + 1 :]
        )
        assert last.cursor == end.cursor


def test_events_carry_stream_and_time(client: Client) -> None:
    """Who wrote and when can be told for each event, in the order of time."""
    before = time.time()
    process = start(client, "echo o; sleep 0.1; echo e >&2; sleep 0.1; echo o")
    client.call("process.wait", process_id=process)

    items, _ = client.call("process.output", process_id=process)

    assert [(each.stream, each.data) for each in items] == [
        ("stdout", b"o\n"),
        ("stderr", b"e\n"),
        ("stdout", b"o\n"),
    ]
    times = [each.timestamp for each in items]
    assert times == sorted(times)
    assert before <= times[0] <= times[2] - 0.15


def test_output_after_the_end_is_complete(client: Client) -> None:
    """Whoever has waited for the end and then reads gets all of it, also what was in the pipe."""
    for _ in range(20):
        process = start(client, "head -c 900000 /dev/zero; echo end")
        waiting = client.begin("process.wait", process_id=process)
        client.finish(waiting)

        assert len(output(client, process)[0]) == 900_004


def test_replay_false_begins_at_the_present(client: Client) -> None:
    """Old output may be left out."""
    process = start(client, "echo old; read x; echo new", stdin=True)
    while not client.call("process.get", process_id=process).output_bytes:
        time.sleep(0.01)
    call = client.begin("process.output", process_id=process, replay=False, follow=True)

    client.call("process.write_stdin", process_id=process, data=b"\n")

    items, _ = client.finish(call)
    assert join(items, "stdout") == b"new\n"


def test_a_cursor_of_anything_else_is_refused(client: Client) -> None:
    """Cursors of other processes, altered ones and inventions are errors, not guesses."""
    one, other = start(client, "echo one"), start(client, "echo other")
    for each in (one, other):
        client.call("process.wait", process_id=each)
    cursor = output(client, one)[1].cursor
    altered = re.sub(r"-(\w+)$", r"-ffff", cursor)

    for wrong in ("", "x", "-", cursor + "0", cursor.upper() + " ", altered, "0" + cursor):
        with pytest.raises(InvalidProcessCursorError):
            output(client, one, since=wrong)
    with pytest.raises(InvalidProcessCursorError):
        output(client, other, since=cursor)
    assert output(client, one, since=cursor)[0] == b""


def test_a_handle_of_an_earlier_incarnation_is_stale(client: Client) -> None:
    """A call that names another incarnation is refused, so that no namesake is met."""
    process = start(client, "sleep 67.5")
    for operation in ("process.get", "process.wait", "process.signal", "process.output"):
        with pytest.raises(StaleProcessHandleError):
            client.finish(client.begin(operation, incarnation="0" * 16, process_id=process))

    mine = client.welcome_seen.incarnation
    info = client.finish(client.begin("process.get", incarnation=mine, process_id=process))

    assert info.status == "running"
    client.call("process.signal", process_id=process, signal=9)


def test_an_unknown_process_is_not_found(client: Client) -> None:
    """Every operation that names a process says so."""
    for operation in (
        "process.get",
        "process.wait",
        "process.signal",
        "process.output",
        "process.write_stdin",
    ):
        with pytest.raises(ProcessNotFoundError, match="p-none"):
            client.call(operation, process_id="p-none")


def test_waiting_ends_by_itself_and_the_process_goes_on(client: Client) -> None:
    """The timeout of a wait is the waiter's only."""
    process = start(client, "sleep 67.75")

    began = time.monotonic()
    with pytest.raises(ProcessWaitTimeoutError):
        client.call("process.wait", process_id=process, timeout=0.2)

    assert 0.2 <= time.monotonic() - began < 2
    assert client.call("process.get", process_id=process).status == "running"
    client.call("process.signal", process_id=process, signal=15)
    assert client.call("process.wait", process_id=process, timeout=5).signal == 15


def test_all_who_wait_are_told(client: Client) -> None:
    """Any number of waiters get the same end; a cancelled one gets its own."""
    process = start(client, "sleep 67.8")
    calls = [client.begin("process.wait", process_id=process) for _ in range(5)]

    client.send(client.protocol.cancel(calls[0]))
    assert isinstance(client.event_of(calls[0]), Failed)
    client.call("process.signal", process_id=process, signal=9)

    assert [client.finish(call).exit_code for call in calls[1:]] == [137] * 4


def test_the_time_limit_of_a_process_is_its_end(client: Client) -> None:
    """A started process may have a limit too, and says that it was the reason."""
    process = start(client, "sleep 68.25", timeout=0.2)

    info = client.call("process.wait", process_id=process, timeout=5)

    assert (info.status, info.reason) == ("killed", "timeout")


def test_input_is_written_in_order_and_closed(client: Client) -> None:
    """Writes of any size arrive in order; close ends the input."""
    process = client.call("process.start", argv=["cat"], stdin=True).process_id
    data = [os.urandom(size) for size in (1, 70_000, 3_000_000, 0, 5)]
    calls = [client.begin("process.write_stdin", process_id=process, data=each) for each in data]
    calls.append(client.begin("process.write_stdin", process_id=process, close=True))

    for call in calls:
        client.finish(call)
    client.call("process.wait", process_id=process, timeout=10)

    assert output(client, process)[0] == b"".join(data)


def test_writing_answers_only_when_the_pipe_has_taken_all(client: Client) -> None:
    """A process that does not read holds its writer, and nobody else."""
    process = client.call("process.start", argv=["sleep", "68.5"], stdin=True).process_id

    call = client.begin("process.write_stdin", process_id=process, data=b"x" * 1_000_000)

    assert client.event_within(call, 0.3) is None
    assert client.run("echo", "free")[0] == b"free\n"
    client.call("process.signal", process_id=process, signal=9)
    with pytest.raises(StdinClosedError):
        client.finish(call)


def test_closed_input_is_an_error_of_its_own(client: Client) -> None:
    """No input was wanted, it was closed, the reader closed it, or the process has ended."""
    without = start(client, "sleep 68.75")
    with pytest.raises(StdinClosedError):
        client.call("process.write_stdin", process_id=without, data=b"x")
    closed = client.call("process.start", argv=["sleep", "68.8"], stdin=True).process_id
    client.call("process.write_stdin", process_id=closed, close=True)
    with pytest.raises(StdinClosedError):
        client.call("process.write_stdin", process_id=closed, data=b"x")
    for each in (without, closed):
        client.call("process.signal", process_id=each, signal=9)
        client.call("process.wait", process_id=each)
        with pytest.raises(StdinClosedError):
            client.call("process.write_stdin", process_id=each, data=b"x")


def test_signals_reach_the_group_or_the_process_alone(client: Client) -> None:
    """group says who is meant."""
    script = (
        "import os, signal\n"
        "def say(name): signal.signal(10, lambda *_: os.write(1, name))\n"
        "say(b'parent\\n')\n"
        "if os.fork() == 0: say(b'child\\n'); os.write(1, b'ready\\n')\n"
        "while True: signal.pause()\n"
    )
    process = client.call("process.start", argv=[sys.executable, "-c", script]).process_id
    call = client.begin("process.output", process_id=process, follow=True)
    assert client.event_of(call).body == b"ready\n"

    client.call("process.signal", process_id=process, signal=10, group=False)
    assert client.event_of(call).body == b"parent\n"
    client.call("process.signal", process_id=process, signal=10)
    both = client.event_of(call).body
    while both.count(b"\n") < 2:
        both += client.event_of(call).body

    assert sorted(both.split()) == [b"child", b"parent"]
    client.call("process.signal", process_id=process, signal=9)
    client.finish(call)


@pytest.mark.parametrize("number", [0, -1, 65, 1000])
def test_a_number_that_is_no_signal_is_refused(client: Client, number: int) -> None:
    """Signals are 1 to 64."""
    process = start(client, "exit 0")

    with pytest.raises(ValidationFailedError, match="signal"):
        client.call("process.signal", process_id=process, signal=number)


def test_signalling_a_process_that_has_ended_is_nothing(client: Client) -> None:
    """The race between an end and a signal is nobody's mistake."""
    process = start(client, "exit 0")
    client.call("process.wait", process_id=process)

    client.call("process.signal", process_id=process, signal=9)


def test_a_wait_may_be_for_ever(client: Client) -> None:
    """A time beyond all bounds is no trouble."""
    process = start(client, "read x", stdin=True)
    call = client.begin("process.wait", process_id=process, timeout=1e300)
    client.run("true")

    client.call("process.write_stdin", process_id=process, close=True)

    assert client.finish(call).status == "failed"


def test_long_commands_are_shown_short(client: Client) -> None:
    """Listing many long commands stays within a frame; the command itself runs whole."""
    info = client.call("process.start", argv=["sh", "-c", "exit 0", *["x" * 100_000] * 10])

    assert info.argv == ["sh", "-c", "exit 0", "x" * (4096 - 10) + "..."]
    assert client.call("process.wait", process_id=info.process_id).exit_code == 0


def test_names_may_be_chosen_once(client: Client) -> None:
    """A process may have a name of the caller's choice, which must be free."""
    assert start(client, "sleep 69.25", process_id="server") == "server"
    with pytest.raises(ValidationFailedError, match="has not ended"):
        start(client, "true", process_id="server")
    for bad in ("", "x" * 129, "a\nb"):
        with pytest.raises(ValidationFailedError, match="process_id"):
            start(client, "true", process_id=bad)
    client.call("process.signal", process_id="server", signal=9)


def test_the_list_has_running_ones_first(client: Client) -> None:
    """Running processes come first, then finished ones, each oldest first; exec is listed too."""
    done = start(client, "exit 0")
    client.call("process.wait", process_id=done)
    first, second = start(client, "sleep 69.5"), start(client, "sleep 69.75")
    call = client.begin("exec", argv=["cat"], stdin=None)
    client.finish(call)
    running = client.begin("exec", argv=["sh", "-c", "echo; sleep 69.8"])
    client.event_of(running)

    known = client.call("process.list").processes

    assert [each.process_id for each in known][:2] == [first, second]
    assert [each.status for each in known] == ["running"] * 3 + ["completed"]
    assert known[-1].process_id == done


def test_a_number_of_finished_processes_is_remembered(client: Client) -> None:
    """The last 64 finished ones stay readable; older ones are forgotten."""
    names = []
    for number in range(70):
        names.append(start(client, f"echo {number}"))
        client.call("process.wait", process_id=names[-1])

    for number in range(6):
        with pytest.raises(ProcessNotFoundError):
            output(client, names[number])
    assert output(client, names[6])[0] == b"6\n"
    assert output(client, names[69])[0] == b"69\n"


def test_fewer_are_remembered_when_they_hold_much(start_runtime: Start) -> None:
    """Finished output in all is bounded, but the last 25 always stay."""
    with start_runtime(spool_limit=100_000).connect() as client:
        names = []
        for _ in range(30):
            names.append(start(client, "head -c 50000 /dev/zero"))
            client.call("process.wait", process_id=names[-1])

        known = [each.process_id for each in client.call("process.list").processes]

    assert known == names[-25:]


def test_a_reader_that_leaves_counts_as_gone(start_runtime: Start) -> None:
    """A follower whose connection is lost holds neither the sandbox awake nor the output back."""
    runtime = start_runtime(sleep_after=600.0)
    with runtime.connect() as client:
        process = start(client, "while :; do echo x; sleep 0.01; done")
        for _ in range(20):
            other = runtime.connect()
            call = other.begin("process.output", process_id=process, follow=True)
            other.event_of(call)
            other.close()
        deadline = time.monotonic() + 10
        while client.call("runtime.health").busy != [f"process {process}"]:
            assert time.monotonic() < deadline
        client.call("process.signal", process_id=process, signal=9)
        client.call("process.wait", process_id=process)

        assert client.call("runtime.health").busy == []


def test_unread_output_does_not_stop_a_process_before_the_limit(client: Client) -> None:
    """Nobody reads, the process ends all the same, and all of it can be read later."""
    process = start(client, "head -c 50000000 /dev/zero; echo end")

    assert client.call("process.wait", process_id=process, timeout=20).exit_code == 0
    text, _ = output(client, process)

    assert len(text) == 50_000_004
    assert text.endswith(b"end\n")


def test_at_the_limit_the_writer_waits_and_a_reader_sets_it_free(start_runtime: Start) -> None:
    """Nothing is lost at the spool's limit: the writer blocks until somebody follows."""
    runtime = start_runtime(spool_limit=200_000)
    with runtime.connect() as client:
        script = "import sys\nfor i in range(200_000): sys.stdout.write(f'{i:9}\\n')"
        process = client.call("process.start", argv=[sys.executable, "-c", script]).process_id
        deadline = time.monotonic() + 30
        while client.call("process.get", process_id=process).output_bytes < 200_000:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.3)  # in which a writer that does not wait would write on
        assert client.call("process.get", process_id=process).output_bytes == 200_000
        assert client.call("process.get", process_id=process).status == "running"

        text, end = output(client, process, follow=True)

    assert text == b"".join(b"%9d\n" % i for i in range(200_000))
    assert end.info.exit_code == 0


def test_the_limit_holds_for_exec_as_well(start_runtime: Start) -> None:
    """A slow reader of exec makes the writer wait, and gets everything in the end."""
    runtime = start_runtime(spool_limit=100_000)
    with runtime.connect() as client:
        client.granting = False
        call = client.begin("exec", argv=["seq", "300000"], credit=1000)
        time.sleep(0.3)

        client.send(client.protocol.grant(call, 1 << 30))
        items, end = client.finish(call)

    assert join(items, "stdout") == b"".join(b"%d\n" % i for i in range(1, 300_001))
    assert end.exit_code == 0


def test_the_limit_for_files_holds_for_the_spool(start_runtime: Start) -> None:
    """Where programs may not write large files, output is still delivered whole."""
    with start_runtime(rlimits={"fsize": 4096}).connect() as client:
        process = start(client, "seq 200000")

        items, end = client.call("process.output", process_id=process, follow=True)

    assert join(items, "stdout") == b"".join(b"%d\n" % i for i in range(1, 200_001))
    assert end.info.exit_code == 0


def test_output_waits_for_a_disk_that_refuses(start_runtime: Start, tmp_path: Path) -> None:
    """When the spool cannot be written the writer waits, and goes on once it can."""
    folder = tmp_path / "spool"
    folder.mkdir()
    runtime = start_runtime(spool_dir=str(folder))
    with runtime.connect() as client:
        client.welcome()
        folder.rmdir()
        process = start(client, "seq 500000")
        deadline = time.monotonic() + 10
        while "output waits" not in runtime.log():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert client.run("echo", "others go on")[0] == b"others go on\n"
        assert client.call("process.get", process_id=process).status == "running"

        folder.mkdir()

        assert client.call("process.wait", process_id=process, timeout=10).exit_code == 0
        text, _ = output(client, process)
    assert text == b"".join(b"%d\n" % i for i in range(1, 500_001))


def test_a_full_disk_under_the_log_ends_nothing(start_runtime: Start, tmp_path: Path) -> None:
    """What cannot be told stays untold; output waits, other commands run, and all comes later."""
    disk = tmp_path / "disk"
    disk.mkdir()
    full = os.open("/dev/full", os.O_WRONLY)
    runtime = start_runtime(spool_dir=str(disk), stderr=full)
    os.close(full)
    with runtime.connect() as client:
        client.welcome()
        disk.rmdir()
        process = start(client, "head -c 3000000 /dev/zero")
        deadline = time.monotonic() + 20
        held = 0
        while not held and time.monotonic() < deadline:
            held = len(output(client, process, follow=False)[0])
        assert 0 < held < 3_000_000
        time.sleep(0.3)
        assert client.run("echo", "still here")[0] == b"still here\n"

        disk.mkdir()

        assert len(output(client, process, follow=True)[0]) == 3_000_000


def test_spool_files_have_no_name(client: Client, runtime: RuntimeChild) -> None:
    """Output on disk is found by nobody and vanishes with the runtime."""
    before = set(Path(runtime.folder).iterdir())
    process = start(client, "head -c 5000000 /dev/zero")
    client.call("process.wait", process_id=process)

    assert set(Path(runtime.folder).iterdir()) == before
    assert len(output(client, process)[0]) == 5_000_000


def test_output_of_exec_is_its_callers_only(client: Client) -> None:
    """It is not kept, so nobody else can be served from it."""
    call = client.begin("exec", argv=["sh", "-c", "echo; sleep 70.25"])
    event = client.event_of(call)
    assert isinstance(event, Item)
    (info,) = client.call("process.list").processes

    with pytest.raises(ValidationFailedError, match="exec"):
        output(client, info.process_id)


def test_many_followers_of_one_process_get_the_same(runtime: RuntimeChild) -> None:
    """Each reader has its own position."""
    with runtime.connect() as client:
        process = start(client, "read x; seq 20000", stdin=True)
        others = [runtime.connect() for _ in range(4)]
        calls = [
            (each, each.begin("process.output", process_id=process, follow=True, credit=20_000))
            for each in others
        ]
        client.call("process.write_stdin", process_id=process, data=b"\n")

        for each, call in calls:
            items, _ = each.finish(call)
            assert join(items, "stdout") == b"".join(b"%d\n" % i for i in range(1, 20_001))
            each.close()
