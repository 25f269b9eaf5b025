"""Commands that arrive in the very moment in which their sandbox falls asleep."""

from __future__ import annotations

import asyncio
import random

import pytest

from sandbox_kernel.client.sandbox import get_sandbox
from tests.support.managed import plain_manager

SLEEP_AFTER = 0.15
ROUNDS = 25


@pytest.mark.parametrize("transport", ["rpc", "http", "websocket"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_what_comes_while_it_falls_asleep_is_done_by_the_next(transport, data_dir):
    """No call is refused, interrupted or lost because nothing had been asked for a while."""
    chance = random.Random(7)  # noqa: S311  moments of a test
    incarnations = set()
    with plain_manager(data_dir) as manager:
        async with get_sandbox(
            "x", manager=manager, transport=transport, sleep_after=SLEEP_AFTER
        ) as sandbox:
            for number in range(ROUNDS):
                results = await asyncio.gather(
                    sandbox.exec(["sh", "-c", f"echo {number} >> log"]),
                    sandbox.exec(f"echo {number} >> log"),
                    sandbox.write_file(f"f{number}", "x"),
                    sandbox.start_process(["true"]),
                )
                assert [each.exit_code for each in results[:2]] == [0, 0]
                incarnations.add(results[3]._info.incarnation)
                await asyncio.sleep(SLEEP_AFTER + chance.uniform(-0.01, 0.015))
            log = (await sandbox.exec(["cat", "log"])).stdout.split()

    assert log == [b"%d" % number for number in range(ROUNDS) for _ in "12"]
    assert len(incarnations) > 3
