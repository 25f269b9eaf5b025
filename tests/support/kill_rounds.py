"""Rounds of killing at random: starters, stoppers, destroyers and runtimes, seeded and bounded.

Run as ``python -m tests.support.kill_rounds ENGINE SEED ROUNDS DATA_DIR``; prints a report as JSON.
It is a program of its own, with one thread, so that it may fork a victim cheaply.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from sandbox_kernel.errors import (
    ContainerUnavailableError,
    OperationInterruptedError,
    SandboxError,
)
from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.running import Running
from sandbox_kernel.manager.settings import Settings
from sandbox_kernel.wire.operations import Empty, StartProcessRequest

IDS = ("one", "two", "three")


class Rounds:
    """The state of a run: what each sandbox must still hold."""

    def __init__(self, engine: str, seed: int, data_dir: Path) -> None:
        self.random = random.Random(seed)  # noqa: S311  repeatable, not secret
        self.settings = Settings(data_dir=data_dir, engine=engine, start_timeout=30.0)
        self.manager = Manager(self.settings)
        self.marks: dict[str, str] = {}
        self.lifetimes: set[str] = set()
        self.problems: list[str] = []
        self.kills: dict[str, int] = {}
        self.start_time = 0.1
        self.slowest = 0.0

    def run(self, count: int) -> None:
        for sandbox_id in IDS:
            self.check(sandbox_id)
        for number in range(count):
            sandbox_id = self.random.choice(IDS)
            kind = self.random.choice(("starter", "starter", "stopper", "destroyer", "runtime"))
            getattr(self, kind)(sandbox_id)
            self.kills[kind] = self.kills.get(kind, 0) + 1
            try:
                self.check(sandbox_id)
            except SandboxError as error:
                self.problems.append(f"round {number}, {kind}: {error.code}: {error}")
        self.end()

    # --- the kills ---

    def starter(self, sandbox_id: str) -> None:
        self.manager.stop(sandbox_id, grace=0.0)
        self.victim("ensure", sandbox_id, self.start_time * 1.3)

    def stopper(self, sandbox_id: str) -> None:
        self.victim("stop", sandbox_id, 0.05)

    def destroyer(self, sandbox_id: str) -> None:
        self.victim("destroy", sandbox_id, 0.05)

    def runtime(self, sandbox_id: str) -> None:
        info = self.manager.lookup(sandbox_id)
        assert info is not None
        if info.instance is not None:
            time.sleep(self.random.uniform(0, 0.02))
            os.kill(info.instance.data["pid"], signal.SIGKILL)

    def victim(self, verb: str, sandbox_id: str, longest: float) -> None:
        """Do a verb in a process that is killed somewhere on the way."""
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                getattr(Manager(self.settings), verb)(sandbox_id)
            os._exit(0)
        time.sleep(self.random.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    # --- what must hold ---

    def check(self, sandbox_id: str) -> None:
        """The next start works, is one sandbox, and has the files of its lifetime."""
        before = time.monotonic()
        while True:
            running = self.manager.ensure(sandbox_id)
            try:
                health = call_once(running.endpoint, "runtime.health", Empty(), timeout=20.0)
            except (ContainerUnavailableError, OperationInterruptedError) as error:
                # A runtime that was killed a moment ago holds its lock until it is torn down.
                if running.started or time.monotonic() > before + 5:
                    raise self.manager.failed_start(running) from error
                time.sleep(0.002)
            else:
                break
        took = time.monotonic() - before
        self.slowest = max(self.slowest, took)
        if running.started:
            self.start_time = 0.7 * self.start_time + 0.3 * min(took, 1.0)
        if health.sandbox_id != sandbox_id:
            self.problems.append(f"{sandbox_id}: answered as {health.sandbox_id}")
        self.lifetimes.add(running.lifetime)
        self.check_files(running)
        request = StartProcessRequest(argv=["sleep", "1000"])
        call_once(running.endpoint, "process.start", request, timeout=20.0)

    def check_files(self, running: Running) -> None:
        mark = running.layout.workspace / "mark"
        known = self.marks.get(running.lifetime)
        if known is None:
            if mark.exists():
                self.problems.append(f"{running.sandbox_id}: files of another lifetime")
            self.marks[running.lifetime] = known = running.lifetime
            mark.write_text(known)
        elif not mark.exists() or mark.read_text() != known:
            self.problems.append(f"{running.sandbox_id}: lost its files")

    def end(self) -> None:
        """After everything is stopped nothing of any lifetime lives or is mounted."""
        for sandbox_id in IDS:
            self.manager.stop(sandbox_id, grace=0.0)
        self.manager.gc()
        present = {info.lifetime for info in self.manager.list()}
        if {info.sandbox_id for info in self.manager.list()} != set(IDS):
            self.problems.append("an id was lost")
        folders = {each.name for each in (self.settings.data_dir / "sandboxes").iterdir()}
        if folders != present:
            self.problems.append(f"folders {folders - present} stay of destroyed lifetimes")
        deadline = time.monotonic() + 5
        while (alive := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if alive:
            self.problems.append(f"orphans: {alive}")
        for sandbox_id in IDS:
            self.manager.destroy(sandbox_id)
        self.manager.close()

    def alive(self) -> list[str]:
        """Name the processes that see our data folder in a mount, or carry a lifetime's mark."""
        folder = str(self.settings.data_dir)
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                marked = f"{folder}/sandboxes/" in Path(f"/proc/{name}/mountinfo").read_text()
                environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
                marked = marked or any(
                    f"PLAIN_ENGINE_LIFETIME={each}".encode() in environ for each in self.lifetimes
                )
                if marked and stat not in "ZX":
                    command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(f"{name} {command.decode(errors='replace')[:200]}")
        return found


def main() -> None:
    engine, seed, count, data_dir = sys.argv[1:]
    rounds = Rounds(engine, int(seed), Path(data_dir))
    mounts = Path("/proc/self/mountinfo").read_text()
    rounds.run(int(count))
    if Path("/proc/self/mountinfo").read_text().count(data_dir) != mounts.count(data_dir):
        rounds.problems.append("a mount stays")
    print(
        json.dumps(
            {
                "problems": rounds.problems,
                "kills": rounds.kills,
                "slowest": round(rounds.slowest, 3),
                "start": round(rounds.start_time, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
