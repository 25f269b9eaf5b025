from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox_kernel import sync
from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.errors import EngineStartError
from sandbox_kernel.manager import locks
from sandbox_kernel.manager.manager import Manager
from tests.support.managed import plain_manager, plain_settings
from tests.support.plain_engine import REFERENCE, PlainEngine, processes_of

REPOSITORY = Path(__file__).resolve().parents[2]


class SlowEngine(PlainEngine):
    """Starts once so many callers stand before the lock, counts its starts, fails when told to."""

    def __init__(self, monkeypatch, callers: int):
        self.starts = 0
        self.broken = False
        self._waiting = threading.Semaphore(0)
        self._callers = callers
        hold = locks.hold

        def counted(*args, **options):
            self._waiting.release()
            return hold(*args, **options)

        monkeypatch.setattr(locks, "hold", counted)

    def start(self, launch):
        self.starts += 1
        callers, self._callers = self._callers, 0
        for _ in range(callers):
            assert self._waiting.acquire(timeout=20)
        if self.broken:
            raise EngineStartError(self.name, launch.sandbox_id, f"broken {self.starts}")
        return super().start(launch)


async def test_threads_and_tasks_at_once_get_one_sandbox(data_dir, monkeypatch):
    """20 threads and 20 tasks that use a cold id at the same moment share one start."""
    # Either kind shares few threads.
    engine = SlowEngine(monkeypatch, callers=10)
    command = ["sh", "-c", "echo $PLAIN_ENGINE_LIFETIME"]
    with plain_manager(data_dir, engine) as manager:
        managers = [
            Manager(plain_settings(data_dir), engines={REFERENCE: engine}) for _ in range(20)
        ]

        def in_thread(one: Manager) -> bytes:
            with sync.get_sandbox("same", manager=one) as sandbox:
                return sandbox.exec(command).stdout

        async def in_task() -> bytes:
            async with get_sandbox("same", manager=manager) as sandbox:
                return (await sandbox.exec(command)).stdout

        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(20) as pool:
            answers = await asyncio.gather(
                *(loop.run_in_executor(pool, in_thread, one) for one in managers),
                *(in_task() for _ in range(20)),
            )

        lifetime = manager.lookup("same").lifetime
        assert answers == [f"{lifetime}\n".encode()] * 40
        assert engine.starts == 1
        manager.stop("same")
        assert processes_of(lifetime) == []
        for one in managers:
            one.close()


async def test_a_failed_first_start_is_everybodys_error_and_the_next_call_tries_anew(
    data_dir, monkeypatch
):
    """All who waited get the one error; nobody tries again behind their back."""
    engine = SlowEngine(monkeypatch, callers=10)
    engine.broken = True
    with plain_manager(data_dir, engine) as manager:
        managers = [
            Manager(plain_settings(data_dir), engines={REFERENCE: engine}) for _ in range(10)
        ]
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(20) as pool:
            waiting = [loop.run_in_executor(pool, one.ensure, "same") for one in managers]
            results = await asyncio.gather(*waiting, return_exceptions=True)

        assert engine.starts == 1
        assert {type(each) for each in results} == {EngineStartError}
        assert all("broken 1" in str(each) for each in results)

        with pytest.raises(EngineStartError, match="broken 2"):
            await asyncio.to_thread(manager.ensure, "same")
        engine.broken = False
        assert (await asyncio.to_thread(manager.ensure, "same")).started
        for one in managers:
            one.close()


def test_processes_at_once_get_one_sandbox(data_dir):
    """Several processes that create one id together report the same incarnation."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from sandbox_kernel import sync\n"
        "from sandbox_kernel.manager.manager import Manager\n"
        "from tests.support.managed import plain_settings\n"
        "manager = Manager(plain_settings(Path(sys.argv[1])))\n"
        "sys.stdin.readline()\n"
        "with sync.get_sandbox('same', manager=manager) as sandbox:\n"
        "    sandbox.start()\n"
        "    print(sandbox.health().incarnation)\n"
        "manager.close()\n"
    )
    with plain_manager(data_dir) as manager:
        children = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(data_dir)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=REPOSITORY,
            )
            for _ in range(4)
        ]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        answers = [child.communicate()[0] for child in children]

        assert [child.returncode for child in children] == [0] * 4
        assert len(set(answers)) == 1
        assert len(answers[0].strip()) == 16
        assert [info.sandbox_id for info in manager.list()] == ["same"]
