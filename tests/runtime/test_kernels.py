"""Kernels as resources: nothing of their output is lost, doubled or cut, whoever comes and goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_kernel.errors import (
    CommandNotFoundError,
    InvalidProcessCwdError,
    KernelNotFoundError,
    ValidationFailedError,
)
from sandbox_kernel.wire.kernel import MAX_RECORD, RecordReader
from sandbox_kernel.wire.rpc import FrameKind
from tests.runtime.conftest import Start
from tests.support.runtime_child import DEADLINE, Channel, Client, RuntimeChild

FAKE = [sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "support" / "fake_kernel.py")]
RING = 64 << 20


@pytest.fixture
def runtime(start_runtime: Start) -> RuntimeChild:
    return start_runtime(kernel_argv=FAKE)


@pytest.fixture
def kernel(client: Client) -> Any:
    return client.call("kernel.start", kernel_id="k")


@pytest.fixture
def channel(runtime: RuntimeChild, kernel: Any) -> Iterator[Channel]:
    opened = attach(runtime)
    opened.read_until(b"ready\n")
    yield opened
    opened.client.close()


def attach(runtime: RuntimeChild, kernel_id: str = "k") -> Channel:
    client = runtime.connect()
    client.welcome()
    try:
        return Channel(client, kernel_id)
    except BaseException:
        client.close()
        raise


def test_a_kernel_answers_over_its_channel(channel: Channel, kernel: Any) -> None:
    """Input goes in, output comes out from offset zero."""
    channel.input(b"echo hello\n")

    assert channel.read_until(b"hello\n") == b"ready\nhello\n"
    assert channel.offset == 0
    assert kernel.existing is False
    assert channel.info.pid == kernel.pid  # type: ignore[attr-defined]


def test_starting_again_finds_the_living_one(client: Client, kernel: Any, channel: Channel) -> None:
    """The id names the kernel; fresh replaces it."""
    again = client.call("kernel.start", kernel_id="k")
    assert (again.existing, again.pid, again.attached) == (True, kernel.pid, True)

    fresh = client.call("kernel.start", kernel_id="k", fresh=True)

    assert fresh.existing is False
    assert fresh.pid != kernel.pid
    assert channel.event()["reason"] == "ended"
    assert not psutil.pid_exists(kernel.pid)


def test_folder_and_environment_are_the_callers(
    client: Client, runtime: RuntimeChild, tmp_path: Path
) -> None:
    """cwd and overlay are as asked for, and the kernel leads a session of its own."""
    info = client.call(
        "kernel.start", kernel_id="k", cwd=str(tmp_path), env={"ASKED": "for", "BASE": None}
    )
    channel = attach(runtime)

    for command in (b"env ASKED\n", b"env BASE\n", b"env OF_THE_RUNTIME\n", b"where\n"):
        channel.input(command)

    channel.read_until(b" %d\n" % info.pid)
    assert channel.data == b"ready\nfor\n-\n-\n" + str(tmp_path).encode() + b" %d\n" % info.pid
    channel.client.close()


def test_a_start_that_fails_says_why(client: Client, start_runtime: Start) -> None:
    """The same errors as for any program, and no kernel is left behind."""
    with pytest.raises(InvalidProcessCwdError):
        client.call("kernel.start", kernel_id="k", cwd="/no/such")
    with start_runtime(kernel_argv=["no-such-kernel"]).connect() as other:
        with pytest.raises(CommandNotFoundError):
            other.call("kernel.start", kernel_id="k")
        assert other.call("kernel.list").kernels == []
    with pytest.raises(KernelNotFoundError):
        client.call("kernel.connect", kernel_id="k")
    with pytest.raises(ValidationFailedError, match="kernel_id"):
        client.call("kernel.start", kernel_id="")


def test_input_may_follow_the_connect_at_once(runtime: RuntimeChild, kernel: Any) -> None:
    """A relay need not wait for the answer before it sends the first records, however large."""
    client = runtime.connect()
    call = client.begin("kernel.connect", kernel_id="k")
    client.protocol.become_channel()

    size = 20_000_000
    client.send(client.protocol.channel_frame(FrameKind.INPUT, b"count %d\n" % size + b"z" * size))

    assert client.finish(call).kernel_id == "k"
    channel = Channel.__new__(Channel)
    channel.client, channel.offset, channel.data, channel.told = client, None, b"", []
    channel.read_until(b"%d\n" % size)
    client.close()


def test_output_goes_on_from_what_was_acknowledged(runtime: RuntimeChild, channel: Channel) -> None:
    """A new relay gets exactly what the old one had not acknowledged."""
    channel.input(b"echo one\n")
    channel.read_until(b"one\n")
    channel.ack(6)
    channel.input(b"echo two\n")
    channel.read_until(b"two\n")
    channel.client.close()

    second = attach(runtime)
    second.input(b"echo three\n")
    second.read_until(b"three\n")

    assert second.offset == 6
    assert second.data == b"one\ntwo\nthree\n"
    assert second.info.acked == 6  # type: ignore[attr-defined]
    second.client.close()


def test_output_without_a_relay_is_kept(runtime: RuntimeChild, channel: Channel) -> None:
    """What a kernel says while nobody is there is delivered later, once."""
    channel.input(b"pause 0.3\nflood 50000\necho end\n")
    channel.client.close()

    second = attach(runtime)
    second.read_until(b"end\n")

    assert second.data == b"ready\n" + b"".join(b"%09d\n" % n for n in range(50_000)) + b"end\n"
    second.client.close()


def test_a_newer_relay_supersedes(runtime: RuntimeChild, channel: Channel) -> None:
    """The older one is told and cut off; the kernel notices nothing."""
    second = attach(runtime)

    assert channel.event() == {"type": "superseded"}
    with pytest.raises(EOFError):
        channel.step()
    second.input(b"echo mine\n")
    second.read_until(b"mine\n")
    second.client.close()


def test_a_slow_relay_can_be_superseded(runtime: RuntimeChild, channel: Channel) -> None:
    """A relay that has much to read still learns that it must go, and gets no more than that."""
    channel.input(b"block 30000000\n")
    time.sleep(0.3)

    second = attach(runtime)

    assert channel.event() == {"type": "superseded"}
    with pytest.raises(EOFError):
        channel.step()
    second.read_until(b"end of block\n")
    assert len(channel.data) < 10_000_000
    second.client.close()


def test_a_full_ring_blocks_the_kernel_and_loses_nothing(
    runtime: RuntimeChild, channel: Channel, kernel: Any
) -> None:
    """With 64 MiB that nobody has taken the kernel waits; a relay lets it go on."""
    blocks = 84
    channel.input(b"block 999987\n" * blocks + b"echo all\n")
    channel.client.close()
    writer = psutil.Process(kernel.pid)
    deadline = time.monotonic() + DEADLINE
    while writer.io_counters().write_chars < RING - 1_000_000:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.3)
    # What the pipe holds comes on top.
    assert writer.io_counters().write_chars <= RING + (2 << 20)

    second = attach(runtime)
    assert drop_until(second, b"all\n") == 6 + blocks * 1_000_000 + 4
    second.ack(second.end)
    second.input(b"echo on\n")
    second.read_until(b"on\n")
    second.client.close()


def test_what_a_relay_takes_and_never_acknowledges_has_a_bound(channel: Channel) -> None:
    """The largest record and the ring's own size; acknowledging lets the kernel go on."""
    channel.input(b"block 80000000\n" * 5)
    received = 6
    while received < MAX_RECORD + RING:
        channel.step()
        received, channel.offset, channel.data = channel.end, channel.end, b""
    with pytest.raises(TimeoutError):
        channel.step(0.3)
    assert received == MAX_RECORD + RING

    channel.ack(received)
    channel.input(b"echo on\n")
    drop_until(channel, b"on\n")


@pytest.mark.parametrize("ends", [False, True], ids=["living", "ended"])
@pytest.mark.parametrize("begins_alone", [False, True], ids=["attached", "detached"])
def test_a_record_longer_than_the_ring_arrives_whole(
    runtime: RuntimeChild, channel: Channel, kernel: Any, *, begins_alone: bool, ends: bool
) -> None:
    """A relay that acknowledges whole records only gets it, also one that comes later."""
    channel.ack(6)
    channel.input(b"record %d\n" % (RING + (6 << 20)) + (b"exit 0\n" if ends else b""))
    if begins_alone:
        channel.client.close()
        time.sleep(0.3)
        channel = attach(runtime)
        assert channel.info.acked == 6  # type: ignore[attr-defined]
    reader = RecordReader(6)
    records: list[Any] = []
    skipped = 0 if begins_alone else 6
    channel.data, channel.offset = channel.data[skipped:], 6
    end = 6 + 12 + RING + (6 << 20)
    while not records:
        channel.step()
        # What the kernel says after it may come along, and is no record.
        taken, rest = channel.data[: end - channel.offset], channel.data[end - channel.offset :]
        records = reader.feed(taken)
        channel.offset, channel.data = channel.offset + len(taken), rest
    [(_, _, [part])] = records
    assert reader.offset == end
    assert len(part) == RING + (6 << 20)

    channel.ack(reader.offset)
    if ends:
        channel.read_until(b"last words\n")
        assert channel.event()["exit_code"] == 0
    else:
        channel.input(b"echo on\n")
        channel.read_until(b"on\n")
    channel.client.close()


def drop_until(channel: Channel, wanted: bytes) -> int:
    """Read on without keeping what was read; return the offset after it."""
    while wanted not in channel.data:
        channel.step()
        kept = len(wanted) - 1
        if wanted not in channel.data and len(channel.data) > kept:
            channel.offset, channel.data = channel.end - kept, channel.data[-kept:]
    return channel.end


def test_an_earlier_connection_counts_for_what_is_acknowledged(
    runtime: RuntimeChild, channel: Channel
) -> None:
    """A relay need not read again first; what it has handed on is not sent again then."""
    channel.input(b"block 30000000\n")
    end = drop_until(channel, b"end of block\n")
    channel.client.close()
    second = attach(runtime)
    assert second.info.acked == 0  # type: ignore[attr-defined]
    second.ack(end)
    second.input(b"echo on\n")
    received = b""
    while not received.endswith(b"on\n"):
        second.step()
        received, last = received + second.data, second.offset
        second.offset, second.data = None, b""

    assert received.endswith(b"on\n")
    assert last == end
    assert len(received) < 20_000_000
    second.client.close()


def test_acknowledging_what_was_not_sent_is_a_violation(
    runtime: RuntimeChild, channel: Channel
) -> None:
    """An impossible offset ends the channel, not the kernel."""
    channel.ack(1 << 40)

    with pytest.raises(EOFError):
        channel.step()
    with runtime.connect() as other:
        assert len(other.call("kernel.list").kernels) == 1


def test_large_input_arrives_whole(channel: Channel) -> None:
    """Input larger than any pipe is neither cut nor interleaved, while output flows."""
    size = 20_000_000
    channel.input(b"count %d\n" % size)
    channel.input(b"z" * size)
    channel.input(b"echo after\n")

    assert channel.read_until(b"after\n") == b"ready\n%d\nafter\n" % size


def test_input_of_a_lost_relay_is_delivered_in_whole_frames(
    runtime: RuntimeChild, channel: Channel
) -> None:
    """Frames that arrived are written to the end; the torn one is not begun."""
    channel.input(b"pause 0.3\n")
    channel.input(b"echo whole" + b"x" * 500_000 + b"\n")
    torn = channel.client.protocol.channel_frame(FrameKind.INPUT, b"echo torn\n" * 1000)
    channel.client.send(torn[:5000])
    channel.client.close()

    second = attach(runtime)
    second.input(b"echo next\n")
    second.read_until(b"next\n")

    assert second.data == b"ready\nwhole" + b"x" * 500_000 + b"\nnext\n"
    second.client.close()


def test_a_signal_reaches_the_kernel_and_its_children(channel: Channel) -> None:
    """An interrupt is for the whole group."""
    channel.input(b"child 71.25\n")
    channel.read_until(b"child started\n")

    channel.control(type="signal", signal=2)

    channel.read_until(b"interrupted\n")
    deadline = time.monotonic() + 5
    while alive("71.25"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_exit_is_told_after_the_last_output(channel: Channel) -> None:
    """Code, signal and the tail of stderr come once all data has."""
    channel.input(b"error something went wrong\nblock 5000000\nexit 3\n")

    event = channel.event()

    assert channel.data.endswith(b"end of block\nlast words\n")
    assert event == {
        "type": "exit",
        "exit_code": 3,
        "signal": None,
        "reason": None,
        "stderr": "something went wrong\n",
    }


def test_a_crash_names_its_signal(channel: Channel) -> None:
    """A kernel that dies of a signal says which."""
    channel.input(b"die 11\n")

    event = channel.event()

    assert (event["exit_code"], event["signal"], event["reason"]) == (139, 11, None)


def test_death_for_want_of_memory_is_named(start_runtime: Start, tmp_path: Path) -> None:
    """A KILL that the kernel's out-of-memory counter explains has the reason memory_limit."""
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 0\noom_kill 4\n")
    runtime = start_runtime(kernel_argv=FAKE, memory_events=str(events))
    with runtime.connect() as client:
        client.call("kernel.start", kernel_id="k")
        channel = attach(runtime)
        channel.read_until(b"ready\n")
        events.write_text("low 0\noom 1\noom_kill 5\n")

        channel.input(b"die 9\n")

        assert channel.event()["reason"] == "memory_limit"
        assert client.run("sh", "-c", "kill -9 $$")[2].reason is None
        channel.client.close()


def test_an_end_is_kept_for_the_next_relay(
    runtime: RuntimeChild, client: Client, channel: Channel
) -> None:
    """A kernel that ended unseen is found once, with its last output, and then forgotten."""
    channel.ack(6)
    channel.input(b"pause 0.2\nexit 7\n")
    channel.client.close()
    deadline = time.monotonic() + 10
    while client.call("kernel.list").kernels:
        assert time.monotonic() < deadline
        time.sleep(0.01)

    second = attach(runtime)
    assert second.event()["exit_code"] == 7
    assert second.data == b"last words\n"
    second.ack(second.end)
    second.client.close()

    with pytest.raises(KernelNotFoundError):
        attach_until_forgotten(runtime)


def test_ending_takes_the_group_along(client: Client, kernel: Any, channel: Channel) -> None:
    """kernel.end answers when the kernel is gone, and what its cells started is gone soon after."""
    channel.input(b"child 71.5\n")
    channel.read_until(b"child started\n")

    client.call("kernel.end", kernel_id="k")

    assert not psutil.pid_exists(kernel.pid)
    event = channel.event()
    assert (event["signal"], event["reason"]) == (15, "ended")
    deadline = time.monotonic() + 5
    while alive("71.5"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert client.call("kernel.list").kernels == []


def test_a_crash_takes_its_children_along(channel: Channel) -> None:
    """The next kernel does not meet what the last one left."""
    channel.input(b"child 71.75\n")
    channel.read_until(b"child started\n")

    channel.input(b"die 9\n")

    channel.event()
    deadline = time.monotonic() + 5
    while alive("71.75"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_relay_may_order_the_end(channel: Channel) -> None:
    """CONTROL end is the same as kernel.end."""
    channel.control(type="end", grace=0.5)

    assert channel.event()["reason"] == "ended"


@pytest.mark.parametrize(
    "order", [{"type": "signal", "signal": 0}, {"type": "signal"}, {"type": "end", "grace": "x"}]
)
def test_a_bad_order_ends_the_channel(channel: Channel, order: dict[str, Any]) -> None:
    """What makes no sense is a violation."""
    channel.control(**order)

    with pytest.raises(EOFError):
        channel.step()


def test_unknown_orders_are_left_alone(channel: Channel) -> None:
    """A newer relay may say more."""
    channel.control(type="of the future")
    channel.input(b"echo fine\n")

    channel.read_until(b"fine\n")


def test_a_channel_needs_its_connection_for_itself(client: Client, kernel: Any) -> None:
    """Other calls under way on the connection forbid it."""
    client.begin("exec", argv=["sleep", "72.25"])

    with pytest.raises(ValidationFailedError, match="without other calls"):
        client.call("kernel.connect", kernel_id="k")


def test_a_slow_relay_does_not_delay_commands(
    runtime: RuntimeChild, client: Client, channel: Channel
) -> None:
    """A relay that does not read leaves everybody else alone."""
    channel.input(b"block 100000000\n")
    time.sleep(0.3)

    began = time.monotonic()
    assert client.run("echo", "quick")[0] == b"quick\n"
    assert time.monotonic() - began < 10


def attach_until_forgotten(runtime: RuntimeChild) -> None:
    # The acknowledgement was sent, but no answer tells when it has arrived.
    for _ in range(1000):
        attach(runtime).client.close()


def alive(word: str) -> bool:
    return any(
        word in (each.info["cmdline"] or []) and each.info["status"] != psutil.STATUS_ZOMBIE
        for each in psutil.process_iter(["cmdline", "status"])
    )


def test_what_was_on_its_way_when_a_relay_is_replaced_is_taken(
    runtime: RuntimeChild, channel: Channel
) -> None:
    """However much arrives just before the next relay; the answer counts it, so nothing is doubled."""
    for number in range(200):
        channel.input(b"echo %d\n" % number)
    second = attach(runtime)

    second.read_until(b"199\n")
    assert second.info.taken == 200  # type: ignore[attr-defined]
    assert second.data.split()[-200:] == [b"%d" % number for number in range(200)]
    assert channel.event() == {"type": "superseded"}
    second.client.close()


def test_a_relay_is_told_what_was_taken(channel: Channel) -> None:
    """With the next output; and large input at once, so that the relay need not keep it."""
    channel.input(b"echo one\n")
    channel.read_until(b"one\n")
    assert channel.taken == 1
    channel.input(b"count 600000\n" + b"z" * 300_000)
    while channel.taken < 2:
        channel.step()

    assert b"600000" not in channel.data
    channel.input(b"z" * 300_000)
    channel.read_until(b"600000\n")
