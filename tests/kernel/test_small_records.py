"""A flood of records too small to mean anything holds nobody up, and one that kills is left out."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.kernel import relay as relay_module
from sandbox_kernel.kernel.arrivals import Arrivals
from sandbox_kernel.kernel.link import Link, Record
from sandbox_kernel.kernel.relay import mark_of
from sandbox_kernel.kernel.seams import Seams
from sandbox_kernel.wire.kernel import Channel, encode_record
from sandbox_kernel.wire.operations import StartKernelRequest
from tests.support.fake_runtime import FakeRuntime
from tests.support.relay_thread import relay_on_a_thread

EMPTY = struct.pack(">IBBH", 0, Channel.IOPUB, 0, 0)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    runtime = FakeRuntime(tmp_path)
    yield runtime
    runtime.close()


@pytest.mark.parametrize(("records", "seconds"), [(50, 60.0), (100_000, 0.02)])
def test_clients_are_answered_within_a_turn_of_reading(
    tmp_path: Path,
    runtime: FakeRuntime,
    monkeypatch: pytest.MonkeyPatch,
    records: int,
    seconds: float,
) -> None:
    """Between slices by number and by time; and everything is taken, in order, in the end."""
    monkeypatch.setattr(relay_module, "_SLICE_RECORDS", records)
    monkeypatch.setattr(relay_module, "_SLICE_TIME", seconds)
    taken: list[int] = []
    take = Arrivals.take

    def slow_take(self: Arrivals, record: Record) -> None:
        time.sleep(0.001)  # what a record may cost
        take(self, record)
        taken.append(record.end)

    monkeypatch.setattr(Arrivals, "take", slow_take)
    with relay_on_a_thread(tmp_path, runtime) as client:
        text = encode_record(Channel.STREAM, [], [b"stdout", b"{}", b"last"])
        # In one frame, so that one read finds it all.
        runtime.data(0, EMPTY * 5000 + text)
        while not taken:
            time.sleep(0.001)
        client.reply("interrupt_reply", client.send("interrupt_request", {}))
        answered_after = len(taken)

        assert client.hear("stream", None)["text"] == "last"
        assert answered_after < 5000
        assert taken == sorted(taken)
        assert len(taken) == 5001


def test_small_records_are_read_in_small_portions(tmp_path: Path, runtime: FakeRuntime) -> None:
    """To cut a megabyte of them apart would itself take long."""
    link = Link(runtime.endpoint, StartKernelRequest(kernel_id="k"))
    link.open()
    thread = runtime.in_background(runtime.accept)
    link.attach(link.wait_until_started(timeout=10))
    thread.join()
    thread = runtime.in_background(lambda: runtime.data(0, EMPTY * 100_000))
    reads: list[int] = []
    while sum(reads) < 100_000:
        assert select.select([link.fileno()], [], [], 20)[0], sum(reads)
        reads.append(sum(isinstance(event, Record) for event in link.receive()))
    thread.join()
    link.close()

    # The first large one is what shows how small they are.
    assert sum(count > 10_000 for count in reads) <= 1


def test_a_relay_leaves_out_what_two_before_it_have_ended_on(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    texts = [encode_record(Channel.STREAM, [], [b"stdout", b"{}", each]) for each in (b"x", b"y")]
    for _ in range(2):
        killed = Seams(str(tmp_path / "k.seams"))
        killed.follow(mark_of(runtime.info()))
        killed.enter(len(texts[0]))
    with relay_on_a_thread(tmp_path, runtime) as client:
        runtime.data(0, b"".join(texts))

        assert client.hear("stream", None)["text"] == "y"


def test_a_relay_notes_the_record_that_it_takes(
    tmp_path: Path, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it takes it, and no longer: only a relay that ended within it counts."""
    seen: list[int | None] = []
    text = encode_record(Channel.STREAM, [], [b"stdout", b"{}", b"x"])
    take = Arrivals.take

    def looking_take(self: Arrivals, record: Record) -> None:
        seen.append(taken())
        take(self, record)

    def taken() -> int:
        data = (tmp_path / "k.seams").read_bytes()
        return int(struct.unpack_from("@Q", data, 16)[0])

    monkeypatch.setattr(Arrivals, "take", looking_take)
    with relay_on_a_thread(tmp_path, runtime) as client:
        runtime.data(0, text)
        client.hear("stream", None)
        client.reply("interrupt_reply", client.send("interrupt_request", {}))

        assert seen == [len(text)]
        assert taken() == 0
