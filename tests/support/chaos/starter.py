"""A process that starts, stops, lists and cleans sandboxes until it is killed or asked to finish."""

from __future__ import annotations

import contextlib
import random
import signal
import time

from sandbox_kernel.errors import ContainerUnavailableError, OperationInterruptedError
from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.wire.operations import Empty
from tests.support.chaos.client import Plan
from tests.support.chaos.record import Record

__all__ = ["PASSING", "run_starter"]

PASSING = "passing"
"""The id of a sandbox that is destroyed again and again."""


def run_starter(plan: Plan) -> None:
    """Use the verbs of a manager; returns once it was asked to finish, by SIGTERM."""
    is_finishing = False

    def finish(_number: int, _frame: object) -> None:
        nonlocal is_finishing
        is_finishing = True

    signal.signal(signal.SIGTERM, finish)
    record = Record(plan.record)
    chance = random.Random(f"{plan.seed} starter")  # noqa: S311  repeatable, not secret
    manager = Manager(plan.settings)

    def ensure(sandbox_id: str) -> None:
        running = manager.ensure(sandbox_id)
        try:
            health = call_once(running.endpoint, "runtime.health", Empty(), timeout=20)
        except (ContainerUnavailableError, OperationInterruptedError):
            return  # it has been ended meanwhile
        if health.sandbox_id != sandbox_id:
            record.problem(f"{sandbox_id} answers as {health.sandbox_id}")

    def look() -> None:
        known = {each.sandbox_id for each in manager.list()}
        if not known >= set(plan.ids):
            record.problem(f"lost ids: {set(plan.ids) - known}")

    def restart(sandbox_id: str, grace: float) -> None:
        manager.stop(sandbox_id, grace=grace)
        manager.ensure(sandbox_id)

    while not is_finishing:
        sandbox_id = chance.choice(plan.ids)
        verb = chance.choice(
            ["ensure"] * 3 + ["restart", "passing", "destroy", "destroy", "gc", "list"]
        )
        grace = chance.choice((0.0, 0.0, 0.3))
        # What fails is in the record, which has judged it.
        with contextlib.suppress(Exception):
            match verb:
                case "ensure":
                    record.do("ensure", lambda: ensure(sandbox_id))  # noqa: B023  used at once
                case "restart":
                    record.do("restart", lambda: restart(sandbox_id, grace))  # noqa: B023
                case "passing":
                    record.do("ensure", lambda: ensure(PASSING), sandbox=PASSING)
                case "destroy":
                    record.do("destroy", lambda: manager.destroy(PASSING), sandbox=PASSING)
                case "gc":
                    record.do("gc", manager.gc)
                case "list":
                    record.do("list", look)
        time.sleep(chance.uniform(0, 0.15))
    manager.close()
    record.note(finished=True)
