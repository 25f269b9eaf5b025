"""The wall clock is corrected under a running runtime: no deadline and no lease notices."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.runtime.conftest import Start
from tests.support.runtime_child import RuntimeChild, join

DAY = 86_400
FAKE = [sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "support" / "fake_kernel.py")]


class Jumping:
    """A runtime whose clock can be set."""

    def __init__(self, start_runtime: Start, tmp_path: Path, **config: object) -> None:
        self.clock = tmp_path / "clock"
        self.set(0)
        program = Path(__file__).parents[1] / "support" / "jumping_clock.py"
        self.runtime: RuntimeChild = start_runtime(under=[str(program), str(self.clock)], **config)

    def set(self, seconds: int) -> None:
        """Put the clock forward or back, in one step as far as its readers can see."""
        written = self.clock.with_suffix(".new")
        written.write_text(str(seconds))
        os.rename(written, self.clock)


@pytest.mark.parametrize("jump", [2 * DAY, -2 * DAY, 3600], ids=["forward", "back", "summer"])
def test_a_jump_of_the_clock_ends_nothing_and_keeps_nothing(
    start_runtime: Start, tmp_path: Path, jump: int
) -> None:
    """Time limits, durations, cursors, leases and the idle time are those of before.

    Timestamps of what comes later are by the new clock.
    """
    jumping = Jumping(start_runtime, tmp_path, sleep_after=3.0, kernel_argv=FAKE)
    with jumping.runtime.connect() as client:
        client.call("kernel.start", kernel_id="k", lease=DAY / 24)
        process = client.call(
            "process.start", argv=["sh", "-c", "echo early; read x; echo late"], stdin=True
        ).process_id
        follow = client.begin("process.output", process_id=process, follow=True)
        assert client.event_of(follow).body == b"early\n"
        (early,), _ = client.call("process.output", process_id=process)
        running = client.begin("exec", argv=["sleep", "1"], timeout=30.0)
        client.call("runtime.health")

        jumping.set(jump)
        _, ended = client.finish(running)
        began = time.monotonic()
        _, _, limited = client.run("sleep", "60", timeout=0.5)
        took = time.monotonic() - began

        assert (ended.exit_code, ended.timed_out) == (0, False)
        assert 1 <= ended.duration < 15
        assert limited.timed_out
        assert 0.5 <= took < 15
        assert 0.5 <= limited.duration < 15
        client.call("process.write_stdin", process_id=process, data=b"\n")
        items, _ = client.finish(follow)
        assert join(items, "stdout") == b"late\n"
        assert 0 <= items[0].timestamp - early.timestamp - jump < 60
        rest, _ = client.call("process.output", process_id=process, since=early.cursor)
        assert join(rest, "stdout") == b"late\n"
        assert client.call("runtime.health").busy == ["kernel k (lease)"]

        client.call("kernel.end", kernel_id="k")
        idle_since = time.monotonic()
        assert 2 < client.call("runtime.health").sleeps_in <= 3
        assert jumping.runtime.wait_exit(15) == 0
        assert time.monotonic() - idle_since > 2.5
