"""A client of sandboxes that does everything at once until it is killed, or asked to finish.

Each thing it does is one it can judge by itself: what comes back is right, or a typed error.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import random
import signal
import sys
import traceback
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sandbox_kernel.client.files import FileContent
from sandbox_kernel.client.process import ProcessExit, ProcessOutput
from sandbox_kernel.client.sandbox import Sandbox, get_sandbox
from sandbox_kernel.errors import PreviewTokenError, SandboxError
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.chaos.pieces import content, generation_of
from tests.support.chaos.record import Record, WrongError

__all__ = ["COMMON", "EXEC_MARK", "LARGE", "Plan", "run_client"]

T = TypeVar("T")

EXEC_MARK = "CHAOS_EXEC"
"""In the environment of every command that must end with its client."""

COMMON = "common"
"""A folder that every client reads and none changes."""

LARGE = 1_300_000
"""Bytes of a file that travels in parts."""

_PORTS = 20_000
_LINES = 20_000
_ECHO = """
import socket, sys, threading
def echo(c):
    while data := c.recv(65536):
        c.sendall(data)
    c.close()
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()
"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a client is to do.

    Parameters
    ----------
    number : int
        Names it; no two clients of a run have the same.
    settings : Settings
        Of its manager.
    ids : sequence of str
        The sandboxes that it uses.
    transport : str
        What carries its calls.
    workers : int
        How many things it does at a time.
    folder : Path
        Where its record is, and its files of this side.
    seed : int
        Of its choices.
    """

    number: int
    settings: Settings
    ids: Sequence[str]
    transport: str
    workers: int
    folder: Path
    seed: int

    @property
    def record(self) -> Path:
        return self.folder / f"client-{self.number}.log"

    @property
    def downloads(self) -> Path:
        return self.folder / f"down-{self.number}"


def run_client(plan: Plan) -> None:
    """Be a client; returns once it was asked to finish, by SIGTERM, and has."""
    record = Record(plan.record)
    stacks = open(plan.record.with_suffix(".stack"), "w")  # noqa: SIM115  until the end
    faulthandler.register(signal.SIGUSR1, stacks)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "The WebSocket transport", DeprecationWarning)
    sys.unraisablehook = lambda args: record.problem(
        f"unraisable: {args.err_msg} {args.object!r}: {traceback.format_exception(args.exc_value)}"
    )
    try:
        asyncio.run(_live(plan, record))
    except BaseException as error:
        record.problem("client ended: " + "".join(traceback.format_exception(error))[-3500:])
        raise
    record.note(finished=True)


async def _live(plan: Plan, record: Record) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        lambda _, context: record.problem(
            f"{context.get('message')}: {context.get('exception')!r} {context.get('future')!r}"
        )
    )
    finishing = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, finishing.set)
    manager = Manager(plan.settings)
    async with contextlib.AsyncExitStack() as stack:
        for sandbox_id in plan.ids:
            # One handle for each id: its workers share a connection, as tasks of a program do.
            sandbox = get_sandbox(
                sandbox_id, manager=manager, transport=plan.transport, enable_default_session=True
            )
            await stack.enter_async_context(sandbox)
            for place in range(plan.workers):
                worker = _Worker(plan, record, sandbox, f"{plan.number}-{sandbox_id}-{place}")
                stack.push_async_callback(worker.ended, asyncio.create_task(worker.run(finishing)))
        await finishing.wait()


class _Worker:
    """Does one thing after the other."""

    def __init__(self, plan: Plan, record: Record, sandbox: Sandbox, name: str) -> None:
        self.plan = plan
        self.record = record
        self.sandbox = sandbox
        self.name = name
        self.random = random.Random(f"{plan.seed} {name}")  # noqa: S311  repeatable, not secret
        self.count = 0
        # Nobody else writes there, and nobody any more once a write has no known outcome.
        self.slot = f"c{name}/f0"
        self.acts: list[Callable[[], Awaitable[None]]] = [
            self.argv,
            self.text,
            self.lines,
            self.bulk,
            self.process,
            self.session,
            self.small_file,
            self.small_file,
            self.large_file,
            self.folder_up,
            self.folder_down,
            self.port,
            self.watch,
            self.look,
        ]

    async def run(self, finishing: asyncio.Event) -> None:
        while not finishing.is_set():
            self.count += 1
            act = self.random.choice(self.acts)
            try:
                await act()
            except WrongError as error:
                self.record.problem(f"{act.__name__} of {self.name}: {error}")
            except Exception:  # noqa: BLE001, S110  the record has it, and judged it
                pass
            await asyncio.sleep(self.random.uniform(0, 0.04))

    @staticmethod
    async def ended(task: asyncio.Task[None]) -> None:
        await task

    def call(self, what: str, work: Awaitable[T], **facts: object) -> Awaitable[T]:
        return self.record.call(what, work, sandbox=self.sandbox.id, **facts)  # type: ignore[arg-type]

    def want(self, is_right: object, *facts: object) -> None:
        if not is_right:
            raise WrongError(f"{self.sandbox.id}: " + " ".join(map(repr, facts))[:2000])

    # --- commands ---

    async def argv(self) -> None:
        given = self.random.randbytes(self.random.choice((0, 10, 100_000)))
        argv = ["sh", "-c", "printf %s $0; cat; exit 3", self.name]
        done = await self.call(
            "exec", self.sandbox.exec(argv, stdin=given, env={EXEC_MARK: self.name})
        )
        self.want(done.exit_code == 3, done)
        self.want(done.stdout == self.name.encode() + given, len(done.stdout), len(given))

    async def text(self) -> None:
        number = self.random.randrange(1000)
        done = await self.call(
            "exec in the shell", self.sandbox.exec(f"n={number}; echo $((n + 1)); (exit 4)")
        )
        self.want((done.stdout, done.exit_code) == (b"%d\n" % (number + 1), 4), done)

    async def lines(self) -> None:
        """A stream of output as it comes: what has come before an error is the beginning of it."""
        wanted = "".join(f"line {n}\n" for n in range(200)).encode()
        script = "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done"
        pause = self.random.choice(("", "; sleep 0.2"))
        await self._stream(["sh", "-c", script + pause], wanted)

    async def bulk(self) -> None:
        wanted = "".join(f"{n}\n" for n in range(1, _LINES + 1)).encode()
        await self._stream(["seq", "1", str(_LINES)], wanted)

    async def _stream(self, argv: list[str], wanted: bytes) -> None:
        came: list[bytes] = []

        async def take() -> ProcessExit | None:
            end = None
            events = self.sandbox.exec_stream(argv, env={EXEC_MARK: self.name})
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, ProcessOutput):
                        came.append(event.data)
                    else:
                        end = event
            return end

        try:
            end = await self.call("exec_stream", take())
        except SandboxError:
            self.want(wanted.startswith(b"".join(came)), "not the beginning", came[-3:])
            raise
        if end is not None and end.exit_code == 0:
            self.want(b"".join(came) == wanted, "lost or doubled", len(b"".join(came)))
        # Somebody has ended it with the sandbox, in an orderly way.
        self.want(end is not None and end.exit_code in (0, 143, 137, -15, -9), end)

    async def process(self) -> None:
        wanted = b"".join(b"%d\n" % n for n in range(300))
        script = "i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); done"
        process = await self.call("start_process", self.sandbox.start_process(["sh", "-c", script]))
        end = await self.call("wait_for_exit", process.wait_for_exit(timeout=30))
        if end.exit_code == 0:
            logs = await self.call("logs", process.logs())
            self.want(logs.stdout == wanted, "lost output", len(logs.stdout))

    async def session(self) -> None:
        session = await self.call("create_session", self.sandbox.create_session())
        await self.call("exec in a session", session.exec(f"cd /tmp; word={self.name}"))
        done = await self.call("exec in a session", session.exec('echo "$PWD $word"; sleep 0.02'))
        if done.exit_code == 0:
            self.want(done.stdout == f"/tmp {self.name}\n".encode(), done, done.stdout)
        await self.call("delete_session", session.delete())

    # --- files ---

    async def small_file(self) -> None:
        data = content(self.slot, str(self.count), self.random.randrange(30_000))
        await self._write(data, data, fsync=self.random.random() < 0.1)
        found = await self.call("read_file", self.sandbox.read_file(self.slot))
        self.want(found == data, self.slot, generation_of(self.slot, found), self.count)

    async def large_file(self) -> None:
        """By parts, from bytes or from a source that takes its time."""
        data = content(self.slot, str(self.count), self.random.randrange(LARGE, 2 * LARGE))

        async def pieces() -> AsyncIterator[bytes]:
            for begin in range(0, len(data), 200_000):
                yield data[begin : begin + 200_000]
                await asyncio.sleep(0.005)

        await self._write(data, data if self.random.random() < 0.5 else pieces(), fsync=False)

        async def read() -> bytes:
            return b"".join([each async for each in self.sandbox.read_file_stream(self.slot)])

        found = await self.call("read_file_stream", read())
        self.want(found == data, self.slot, generation_of(self.slot, found), self.count)

    async def _write(self, data: bytes, given: FileContent, *, fsync: bool) -> None:
        facts = {"writes": [self.slot], "generation": str(self.count)}
        try:
            await self.call(
                "write_file", self.sandbox.write_file(self.slot, given, fsync=fsync), **facts
            )
        except SandboxError:
            self.slot = f"c{self.name}/f{self.count}"
            raise

    async def folder_up(self) -> None:
        """Files that travel together, and one that travels in parts."""
        folder = f"c{self.name}/d{self.count}"
        source = self.plan.folder / f"up-{self.name}"
        source.mkdir(exist_ok=True)
        names = [f"{n}" for n in range(12)] + ["big"]
        for name in names:
            size = 600_000 if name == "big" else self.random.randrange(9000)
            (source / name).write_bytes(content(f"{folder}/{name}", str(self.count), size))
        await self.call(
            "upload_folder",
            self.sandbox.upload_folder(source, folder),
            writes=[f"{folder}/{name}" for name in names],
            generation=str(self.count),
        )
        if self.random.random() < 0.7:
            work = self.sandbox.delete_file(folder, recursive=True)
            await self.call("delete_file", work, deletes=folder)

    async def folder_down(self) -> None:
        target = self.plan.downloads / self.name
        self.plan.downloads.mkdir(exist_ok=True)
        await self.call(
            "download_folder", self.sandbox.download_folder(COMMON, target, overwrite=True)
        )
        for path in target.iterdir():
            name = f"{COMMON}/{path.name}"
            self.want(generation_of(name, path.read_bytes()) == "0", name)

    async def watch(self) -> None:
        name = f"c{self.name}/watched"
        await self.call("mkdir", self.sandbox.mkdir(name, parents=True))

        async def see() -> list[str]:
            seen = []
            async with aclosing(self.sandbox.watch(name)) as events:
                async for event in events:
                    seen.append(event.type)
                    if event.type == "watching":
                        await self.sandbox.write_file(f"{name}/x", b"")
                    else:
                        break
            return seen

        seen = await self.call("watch", see())
        self.want(seen[:1] == ["watching"], seen)

    async def look(self) -> None:
        names = await self.call("list_files", self.sandbox.list_files(COMMON))
        self.want(len(names) == 9, names)
        self.want(await self.call("exists", self.sandbox.exists(f"{COMMON}/0")), "it is gone")
        health = await self.call("health", self.sandbox.health())
        self.want(health is None or health.sandbox_id == self.sandbox.id, health)
        await self.call("list_processes", self.sandbox.list_processes())
        await self.call("list_sessions", self.sandbox.list_sessions())
        info = await self.call("info", self.sandbox.info())
        self.want(info is not None, "the id is lost")

    # --- ports ---

    async def port(self) -> None:
        """A server inside, a conversation with it, and a token that opens its port."""
        number = _PORTS + self.random.randrange(20_000)
        # With its client, it would go on for ever: nobody knows it any more.
        argv = ["timeout", "20", "python3", "-c", _ECHO, str(number)]
        process = await self.call("start_process", self.sandbox.start_process(argv))
        try:
            await self.call("wait_for_port", process.wait_for_port(number, timeout=20))
            await self._talk("connect_port", lambda: self.sandbox.connect_port(number))
            exposed = await self.call(
                "expose_port", self.sandbox.expose_port(number), port=number, is_exposed=True
            )
            self.record.note(token=exposed.token, port=number, incarnation=exposed.incarnation)
            try:
                await self._talk(
                    "connect_exposed_port",
                    lambda: self.sandbox.connect_exposed_port(number, exposed.token),
                )
            except PreviewTokenError as error:
                raise WrongError(f"{self.sandbox.id}: the token of {number} is lost") from error
            if self.random.random() < 0.5:
                work = self.sandbox.unexpose_port(number)
                await self.call("unexpose_port", work, port=number, is_exposed=False)
                is_open = self.sandbox.validate_port_token(number, exposed.token)
                self.want(not await self.call("validate_port_token", is_open), "it still opens")
        finally:
            await self.call("kill", process.kill())

    async def _talk(
        self,
        what: str,
        connect: Callable[
            [],
            contextlib.AbstractAsyncContextManager[
                tuple[asyncio.StreamReader, asyncio.StreamWriter]
            ],
        ],
    ) -> None:
        sent = self.random.randbytes(50_000)

        async def talk() -> bytes:
            async with connect() as (reader, writer):
                writer.write(sent)
                await writer.drain()
                return await reader.readexactly(len(sent))

        # A program that is ended with the sandbox, in an orderly way, ends its connections.
        ends = ConnectionError, asyncio.IncompleteReadError
        came = await self.record.call(what, talk(), also=ends, sandbox=self.sandbox.id)
        self.want(came == sent, "an echo of something else")
