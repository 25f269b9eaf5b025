"""Rounds of killing at random: clients, starters, runtimes and, on Docker, containers.

Run as ``python -m tests.support.chaos ENGINE SEED KILLS FOLDER``; prints a report as JSON.  Docker
is the engine of `tests.support.docker`, with ``CHAOS_IMAGE`` and ``CHAOS_DOOR`` if these are set;
``CHAOS_DAEMON`` names the file with the process id of one that somebody starts anew whenever it
ends, so that it may be killed as well.

It is a program of its own, with one thread, so that it may fork its victims cheaply.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sandbox_kernel.engines.settings import DockerSettings
from sandbox_kernel.errors import (
    ContainerUnavailableError,
    EngineError,
    OperationInterruptedError,
    SandboxError,
    StalePreviewUrlError,
)
from sandbox_kernel.manager import locks
from sandbox_kernel.manager.doorbell import call_once
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.running import Running
from sandbox_kernel.manager.settings import Settings
from sandbox_kernel.transports.choice import TRANSPORTS
from sandbox_kernel.wire.file_operations import FileRequest
from sandbox_kernel.wire.operations import Empty
from tests.support.chaos.client import COMMON, EXEC_MARK, LARGE, Plan, run_client
from tests.support.chaos.judge import Ledger, half_files, leftover_drafts
from tests.support.chaos.pieces import content
from tests.support.chaos.record import DEADLINE
from tests.support.chaos.starter import PASSING, run_starter

IDS = ("one", "two")
_OF_CLIENTS = tuple(each for each in TRANSPORTS if each != "inprocess")
_PATIENCE = 30.0
_FEW = 100
"""Kills below which a run saves time where that costs little."""

_REST_AFTER = 50
_UPLOAD_PATIENCE = 45.0
"""Seconds after which a runtime keeps nothing of an upload whose client has gone; see `Uploads`."""


@dataclass
class Child:
    """A process that may be killed."""

    pid: int
    kind: str
    plan: Plan
    ledger: Ledger


class Chaos:
    """A run: what lives, what has been killed, and what was found wrong."""

    def __init__(self, engine: str, seed: int, kills: int, folder: Path) -> None:
        self.engine = engine
        self.count = kills
        self.daemon = os.environ.get("CHAOS_DAEMON") if engine == "docker" else None
        self.random = random.Random(seed)  # noqa: S311  repeatable, not secret
        self.seed = seed
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        if engine == "docker":
            from tests.support.docker import HOST, IMAGE

            image = os.environ.get("CHAOS_IMAGE", IMAGE)
            door = os.environ.get("CHAOS_DOOR", "auto")
            docker = DockerSettings(host=HOST, image=image, door=door)
        else:
            docker = DockerSettings()
        self.settings = Settings(data_dir=folder / "data", engine=engine, docker=docker)
        self.manager = Manager(self.settings)
        self.children: list[Child] = []
        self.gone: list[Ledger] = []
        self.numbers = 0
        self.kills: dict[str, int] = {}
        self.problems: list[str] = []
        self.lifetimes: dict[str, str] = {}
        self.workspaces: dict[str, Path] = {}
        self.whole: dict[str, dict[str, tuple[int, ...]]] = {each: {} for each in IDS}
        self.slowest_start = 0.0
        self.outcomes: dict[str, dict[str, int]] = {}
        self.slowest = (0.0, "")

    # --- the run ---

    def run(self) -> None:
        """Kill, look, and now and then let all finish and look closer."""
        for sandbox_id in IDS:
            running = self.start(sandbox_id)
            self.lifetimes[sandbox_id] = running.lifetime
            self.workspaces[sandbox_id] = running.layout.workspace
            self.write_common(running.layout.workspace)
        self.populate()
        for number in range(self.count):
            self.step(number)
            if number % _REST_AFTER == _REST_AFTER - 1 and number < self.count - 1:
                self.guarded("rest", self.rest)
                self.populate()
        self.guarded("rest", self.rest)
        self.guarded("end", self.end)

    def step(self, number: int) -> None:
        kinds = ["client"] * 4 + ["starter"] * 2 + ["runtime"] * 4
        if self.engine == "docker":
            kinds += ["container"] * 3 + ["removed"]
        if self.daemon is not None:
            kinds += ["daemon"] * 3
        kind = self.random.choice(kinds)
        # Some come right after the one before, when everything is still on its way.
        time.sleep(self.random.choice((0.0, self.random.uniform(0, 0.6))))
        self.kills[kind] = self.kills.get(kind, 0) + 1
        self.guarded(f"kill {number}, {kind}", lambda: self.kill(kind))
        self.guarded(f"after kill {number}, {kind}", self.look)

    def guarded(self, what: str, work: Callable[[], None]) -> None:
        before = len(self.problems)
        try:
            work()
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            self.problems.append("".join(traceback.format_exception(error))[-3000:])
        for index in range(before, len(self.problems)):
            self.problems[index] = f"{what}: {self.problems[index]}"

    # --- who lives ---

    def populate(self) -> None:
        """Have one client for each transport, and a starter."""
        for transport in _OF_CLIENTS:
            if not any(each.plan.transport == transport for each in self.children):
                self.fork("client", transport)
        if not any(each.kind == "starter" for each in self.children):
            self.fork("starter", "")

    def fork(self, kind: str, transport: str) -> None:
        self.numbers += 1
        plan = Plan(
            number=self.numbers,
            settings=self.settings,
            ids=IDS,
            transport=transport,
            workers=2 if self.engine == "bubblewrap" else 1,
            folder=self.folder,
            seed=self.seed,
        )
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                (run_client if kind == "client" else run_starter)(plan)
                code = 0
            except BaseException:  # noqa: BLE001  nothing may leave this process's copy of us
                traceback.print_exc()
            finally:
                os._exit(code)
        self.children.append(Child(pid, kind, plan, Ledger(plan.record)))

    def bury(self, child: Child) -> None:
        """Take the word of a client that has ended for what it has done."""
        self.children.remove(child)
        child.ledger.read()
        self.problems += child.ledger.problems
        self.problems += child.ledger.check(self.workspaces)
        self.slowest = max(self.slowest, child.ledger.slowest)
        for what, counts in child.ledger.outcomes.items():
            ours = self.outcomes.setdefault(what, {})
            for outcome, count in counts.items():
                ours[outcome] = ours.get(outcome, 0) + count
        self.gone.append(child.ledger)
        if child.plan.downloads.exists():
            for each in child.plan.downloads.iterdir():
                # The folder is COMMON's copy, under whatever name.
                wrong = half_files_as(each, COMMON)
                self.problems += [f"downloaded by {child.plan.number}: {one}" for one in wrong]
                self.problems += [f"left on this side: {one}" for one in leftover_drafts(each)]

    # --- the kills ---

    def kill(self, kind: str) -> None:
        match kind:
            case "client" | "starter":
                child = self.random.choice([each for each in self.children if each.kind == kind])
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                self.bury(child)
                self.populate()
            case "runtime":
                pid = self.instance().get("pid")
                if pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            case "container" | "removed":
                self.end_container(kind)
            case "daemon":
                how = self.random.choice((signal.SIGKILL, signal.SIGTERM))
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(Path(self.daemon or "").read_text()), how)

    def instance(self) -> dict[str, object]:
        info = self.manager.lookup(self.random.choice(IDS))
        if info is None:
            self.problems.append("an id is lost")
        return {} if info is None or info.instance is None else dict(info.instance.data)

    def end_container(self, kind: str) -> None:
        from docker.errors import APIError

        from sandbox_kernel.engines import docker_daemon

        container = self.instance().get("container")
        if container is not None:
            # Another may have ended it.
            with (
                closing(docker_daemon.connect(self.settings.docker.host)) as connected,
                contextlib.suppress(APIError),
            ):
                if kind == "container":
                    connected.kill(container)
                else:
                    connected.remove_container(container, force=True)

    # --- what must hold ---

    def start(self, sandbox_id: str) -> Running:
        """Start a sandbox if need be, and have its runtime answer."""
        begin = time.monotonic()
        while True:
            try:
                running = self.manager.ensure(sandbox_id)
                health = call_once(running.endpoint, "runtime.health", Empty(), timeout=20.0)
            except (ContainerUnavailableError, OperationInterruptedError, EngineError) as error:
                # It was killed, or a starter has stopped it, in this very moment; or the daemon is
                # not back yet.
                if isinstance(error, EngineError) and self.daemon is None:
                    raise
                if time.monotonic() > begin + _PATIENCE:
                    raise
                time.sleep(0.005)
            else:
                break
        self.slowest_start = max(self.slowest_start, time.monotonic() - begin)
        if health.sandbox_id != sandbox_id:
            self.problems.append(f"{sandbox_id} answers as {health.sandbox_id}")
        return running

    def look(self) -> None:
        """After each kill: the next start works, no id is lost, and files are whole."""
        for sandbox_id in IDS:
            running = self.start(sandbox_id)
            if running.lifetime != self.lifetimes.get(sandbox_id, running.lifetime):
                self.problems.append(f"{sandbox_id} is another one")
        known = {each.sandbox_id: each for each in self.manager.list()}
        for sandbox_id in IDS:
            info = known.get(sandbox_id)
            if info is None or info.lifetime != self.lifetimes[sandbox_id]:
                self.problems.append(f"{sandbox_id} is lost: {info}")
            wrong = half_files(self.workspaces[sandbox_id], self.whole[sandbox_id])
            self.problems += [f"{sandbox_id}: {each}" for each in wrong]
        for child in self.children:
            child.ledger.read()
            self.problems += child.ledger.problems
            child.ledger.problems.clear()
            if os.waitpid(child.pid, os.WNOHANG)[0]:
                self.problems.append(f"{child.kind} {child.plan.number} ended by itself")
                self.bury(child)
                self.populate()
                break

    def rest(self) -> None:
        """Let all finish; then every call has ended, and nothing of the killed ones is left."""
        for child in self.children:
            os.kill(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + DEADLINE + 15
        for child in list(self.children):
            if not self.has_ended(child, deadline):
                os.kill(child.pid, signal.SIGUSR1)
                time.sleep(0.5)
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                stack = child.plan.record.with_suffix(".stack")
                text = stack.read_text() if stack.exists() else ""
                self.problems.append(f"{child.kind} {child.plan.number} hangs: {text}")
            self.bury(child)
            if child.ledger.begun or not child.ledger.is_finished:
                left = list(child.ledger.begun.values())
                self.problems.append(f"{child.kind} {child.plan.number} has not finished {left}")
        self.look()
        for ledger in self.gone:
            self.problems += ledger.check(self.workspaces)
        self.gone.clear()
        for workspace in self.workspaces.values():
            # Judged for the last time, they need not be looked at after each further kill.
            for each in workspace.glob("c[0-9]*"):
                shutil.rmtree(each)
        for sandbox_id in (*IDS, PASSING):
            with locks.hold(self.settings.data_dir / "locks", sandbox_id, timeout=5.0):
                pass
        self.until_none(self.commands_left, "commands of clients that have gone")
        self.until_none(self.doubles, "more than one sandbox of a lifetime")
        self.check_tokens()

    def has_ended(self, child: Child, deadline: float) -> bool:
        while not os.waitpid(child.pid, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def until_none(self, found: Callable[[], list[str]], what: str, patience: float = 10.0) -> None:
        """Wait until nothing is found any more; else it is a problem."""
        deadline = time.monotonic() + patience
        while seen := found():
            if time.monotonic() > deadline:
                self.problems.append(f"{what}: {seen}")
                return
            time.sleep(0.05)

    def commands_left(self) -> list[str]:
        mark = f"{EXEC_MARK}=".encode()
        return [
            named(pid)
            for pid in processes()
            if any(each.startswith(mark) for each in read(pid, "environ").split(b"\0"))
        ]

    def doubles(self) -> list[str]:
        """Return the lifetimes that more than one namespace of processes runs."""
        spaces: dict[str, set[str]] = {}
        ours = os.readlink("/proc/self/ns/mnt")
        for pid in processes():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/mnt") == ours:
                    continue
                mounts = read(pid, "mountinfo").decode(errors="replace")
                for lifetime in self.lifetimes.values():
                    if f"/{lifetime}/" in mounts:
                        space = os.readlink(f"/proc/{pid}/ns/pid")
                        spaces.setdefault(lifetime, set()).add(space)
        return [each for each, seen in spaces.items() if len(seen) > 1]

    def check_tokens(self) -> None:
        """Each token that can be seen opens its port, and no two are one."""
        for sandbox_id in IDS:
            exposed = self.manager.ports.exposed(sandbox_id)
            if len({each.token for each in exposed}) != len(exposed):
                self.problems.append(f"{sandbox_id}: a token twice")
            for each in exposed:
                with contextlib.suppress(StalePreviewUrlError):
                    self.manager.ports.check(sandbox_id, each.port, each.token)

    def end(self) -> None:
        """After everything is stopped nothing lives, is mounted, or lies about."""
        for sandbox_id in IDS:
            if self.count < _FEW:
                # A runtime gives the uploads of lost clients up after a while; the next at once.
                self.manager.stop(sandbox_id, grace=0.0)
            running = self.start(sandbox_id)
            # The first operation on files removes what killed runtimes have left, at the latest.
            request = FileRequest(path=".")
            call_once(running.endpoint, "file.exists", request, timeout=20)
        self.until_none(
            lambda: [each for one in self.workspaces.values() for each in leftover_drafts(one)],
            "drafts stay",
            _UPLOAD_PATIENCE,
        )
        for sandbox_id in IDS:
            self.manager.stop(sandbox_id, grace=0.0)
        self.manager.stop(PASSING, grace=0.0)
        self.manager.gc()
        self.until_none(self.alive, "processes stay")
        if str(self.folder) in Path("/proc/self/mountinfo").read_text():
            self.problems.append("a mount stays")
        known = {each.sandbox_id: each for each in self.manager.list()}
        if not set(IDS) <= set(known) <= {*IDS, PASSING}:
            self.problems.append(f"ids: {sorted(known)}")
        folders = {each.name for each in (self.settings.data_dir / "sandboxes").iterdir()}
        if folders != {each.lifetime for each in known.values()}:
            self.problems.append(f"folders {folders}, lifetimes {known}")
        self.problems += [f"left: {each}" for each in leftover_drafts(self.settings.data_dir)]
        for each in known.values():
            # The log alone outlives what it is about.
            for folder, stay in (
                (each.layout.run, {each.layout.log.name}),
                (each.layout.spool, set()),
            ):
                left = {one.name for one in folder.iterdir()} - stay if folder.exists() else set()
                if left:
                    self.problems.append(f"left in {folder}: {left}")
        for sandbox_id in known:
            self.manager.destroy(sandbox_id)
        self.manager.gc()
        for name in ("sandboxes", "locks"):
            left = {each.name for each in (self.settings.data_dir / name).iterdir()}
            if left:
                self.problems.append(f"left in {name}: {left}")
        if self.engine == "docker":
            self.check_daemon()
        self.manager.close()

    def check_daemon(self) -> None:
        from sandbox_kernel.engines import docker_daemon
        from sandbox_kernel.engines.base import StateLayout
        from sandbox_kernel.engines.docker_labels import data_label_of

        label = data_label_of(StateLayout(self.settings.data_dir / "sandboxes" / "any"))
        wanted = {"label": f"jupyter-sandbox.data={label}"}
        with closing(docker_daemon.connect(self.settings.docker.host)) as connected:
            left = connected.containers(all=True, filters=wanted)
            left += connected.volumes(filters=wanted)["Volumes"] or []
        if left:
            self.problems.append(f"the daemon keeps {left}")

    def alive(self) -> list[str]:
        """Name the processes that see our folder in a mount."""
        needle = os.fsencode(self.settings.data_dir)
        ours = os.readlink("/proc/self/ns/mnt")
        found = []
        for pid in processes():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/mnt") == ours:
                    continue
                if needle in read(pid, "mountinfo"):
                    found.append(named(pid))
        return found

    def write_common(self, workspace: Path) -> None:
        """Make the folder that clients read, as whoever runs in the sandbox would."""
        folder = workspace / COMMON
        folder.mkdir(mode=0o755)
        for number in range(9):
            size = LARGE if number == 8 else 1000 * number
            (folder / str(number)).write_bytes(content(f"{COMMON}/{number}", "0", size))
        owner = workspace.stat()
        for each in (folder, *folder.iterdir()):
            os.chown(each, owner.st_uid, owner.st_gid)


def half_files_as(folder: Path, name: str) -> list[str]:
    """Return the files of a copy of a folder that are not whole."""
    from tests.support.chaos.pieces import generation_of

    return [
        f"{each} is not whole"
        for each in folder.iterdir()
        if "draft" not in each.name
        and generation_of(f"{name}/{each.name}", each.read_bytes()) is None
    ]


def processes() -> Iterator[int]:
    """Yield every process that is not ours, nor a zombie."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            state = read(int(name), "stat").rpartition(b")")[2].split()[:1]
            if state and state[0] not in (b"Z", b"X"):
                yield int(name)


def read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def named(pid: int) -> str:
    return f"{pid} {read(pid, 'cmdline').replace(bytes(1), b' ').decode(errors='replace')[:200]}"


def main() -> None:
    engine, seed, kills, folder = sys.argv[1:]
    chaos = Chaos(engine, int(seed), int(kills), Path(folder))
    begin = time.monotonic()
    try:
        chaos.run()
    finally:
        for child in chaos.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        # A failed run leaves nothing either.
        with closing(Manager(chaos.settings)) as manager, contextlib.suppress(SandboxError):
            for info in manager.list():
                manager.destroy(info.sandbox_id)
    report = {
        "seed": chaos.seed,
        "problems": chaos.problems,
        "kills": chaos.kills,
        "outcomes": chaos.outcomes,
        "slowest call": chaos.slowest,
        "slowest start": round(chaos.slowest_start, 2),
        "seconds": round(time.monotonic() - begin, 1),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
