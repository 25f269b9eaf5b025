"""A sandboxed kernel beside a plain ipykernel, in one interleaved run: a table of ratios.

    python tests/benchmarks/kernel.py [--rounds N] [--only WORD ...] [--json FILE]

Every row alternates between the two kernels, takes medians and judges by their ratio: that is what
stays when the machine is slower or busy.  See README.md beside this file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import json
import os
import shutil
import struct
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import zmq
from jupyter_client.manager import KernelManager

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.benchmark_table import Row, cpu_of, run_table
from tests.support.jupyter_home import JupyterHome, processes_below
from tests.support.lean_websocket import BINARY, LeanWebSocket
from tests.support.ws_connection import JupyterServer

DATE = "2026-01-01T00:00:00Z"

PLAIN, OURS = "python3", "sandbox-python"

STOCK_SERVER = (
    "--ServerApp.jpserver_extensions={'jupyter_ext': False}",
    (
        "--ServerApp.kernel_websocket_connection_class="
        "jupyter_server.services.kernels.connection.channels.ZMQChannelsWebsocketConnection"
    ),
)

CELLS = {
    "prints": "for i in range(100000): print(i)",
    "stdout": "import sys\nfor i in range(50): _ = sys.stdout.write('x' * (1 << 20))",
    "displays": "for i in range(1000): display({'text/plain': 'x' * 10240}, raw=True)",
    "many": "for i in range(8000): display({'text/plain': 'x' * 2000}, raw=True)",
    "tables": (
        "row = '<tr>' + '<td>0.123456</td>' * 8 + '</tr>'\n"
        "table = '<table border=\"1\" class=\"dataframe\">' + row * 65 + '</table>'\n"
        "for i in range(1000): display({'text/html': table, 'text/plain': 'x'}, raw=True)"
    ),
    "pictures": (
        "picture = 'iVBORw0KGgo' + 'A' * 10229\n"
        "for i in range(1000): display({'image/png': picture, 'text/plain': 'x'}, raw=True)"
    ),
    "comm": (
        # An image's bytes, because what is no widget of ipywidgets does not pass the output wall.
        "from comm import create_comm\n"
        "from ipywidgets import Image\n"
        "state = Image().get_state()\n"
        "state.pop('value')\n"
        "c = create_comm('jupyter.widget', data={'state': state}, metadata={'version': '2.1.0'})\n"
        "@c.on_msg\n"
        "def _(m): c.send(m['content']['data'], buffers=[bytes(m['buffers'][0])])\n"
        "print(c.comm_id)"
    ),
    "output": "print('a')\nimport time; time.sleep(.4)",
}


class WebSocketProbe:
    """A kernel behind a server and a client on one thread, which parses what it compares only."""

    def __init__(self, server: JupyterServer, kernel_name: str) -> None:
        status, body = server.call("POST", "/api/kernels", {"name": kernel_name})
        assert status == 201, (status, body)
        self.server, self.kernel_id = server, body["id"]
        session = uuid.uuid4().hex
        self.websocket = LeanWebSocket(
            server,
            f"/api/kernels/{self.kernel_id}/channels?session_id={session}",
            subprotocol="v1.kernel.websocket.jupyter.org",
        )
        self.header = {"username": "u", "session": session, "version": "5.4"}

    def execute(self, code: str) -> None:
        """Run a cell; return once its reply and its idle are here."""
        msg_id = uuid.uuid4().hex
        header = {**self.header, "msg_id": msg_id, "msg_type": "execute_request", "date": DATE}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}}
        parts = [b"shell", *(json.dumps(part).encode() for part in (header, {}, {}, content))]
        offsets = [8 * (len(parts) + 2)]
        for part in parts:
            offsets.append(offsets[-1] + len(part))
        numbers = struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets)
        self.websocket.send(BINARY, b"".join([numbers, *parts]))
        mine, missing = msg_id.encode(), {b"execute_reply", b'"idle"'}
        while missing:
            for _, message in self.websocket.read():
                if mine in message:
                    missing -= {each for each in missing if each in message}

    def close(self) -> None:
        self.websocket.close()
        self.server.call("DELETE", f"/api/kernels/{self.kernel_id}")


class Probe:
    """A kernel and the leanest client that can time it: no message is parsed for its own sake."""

    def __init__(self, kernel_name: str, home: JupyterHome, **extra: str) -> None:
        self.home = home
        self.manager = KernelManager(
            kernel_name=kernel_name,
            connection_file=str(home.runtime / f"kernel-{uuid.uuid4().hex[:8]}.json"),
        )
        self.started_at = time.perf_counter()
        with open(home.root / "stderr", "ab") as stderr:
            self.manager.start_kernel(env=home.env(**extra), cwd=str(home.work), stderr=stderr)
        self.connect_to(self.manager.connection_file)

    def connect_to(self, connection_file: str) -> None:
        info = json.loads(Path(connection_file).read_text())
        self.key = info["key"].encode()
        self.session = uuid.uuid4().hex
        self.context = zmq.Context()
        self.shell = self.connect(zmq.DEALER, info["shell_port"])
        self.control = self.connect(zmq.DEALER, info["control_port"])
        self.iopub_port = info["iopub_port"]
        self.iopub = self.connect(zmq.SUB, self.iopub_port)
        self.poller = zmq.Poller()
        self.poller.register(self.shell, zmq.POLLIN)
        self.poller.register(self.iopub, zmq.POLLIN)

    def connect(self, kind: int, port: int, *, unlimited: bool = True) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.linger = 0
        # The default of 100 ms would be what a start is measured in.
        socket.reconnect_ivl = 2
        if unlimited:
            socket.rcvhwm = 0
        if kind == zmq.SUB:
            socket.subscribe = b""
        socket.connect(f"tcp://127.0.0.1:{port}")
        return socket

    def send(
        self,
        socket: zmq.Socket[bytes],
        msg_type: str,
        content: Any,
        buffers: tuple[bytes, ...] = (),
    ) -> bytes:
        msg_id = uuid.uuid4().hex
        header = {
            "msg_id": msg_id,
            "msg_type": msg_type,
            "username": "bench",
            "session": self.session,
            "date": "2026-01-01T00:00:00Z",
            "version": "5.4",
        }
        parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
        digest = hmac.new(self.key, digestmod=hashlib.sha256)
        for part in parts:
            digest.update(part)
        frames = [b"<IDS|MSG>", digest.hexdigest().encode(), *parts, *buffers]
        socket.send_multipart(frames, copy=False)
        return msg_id.encode()

    def request(
        self,
        msg_type: str,
        content: Any,
        *,
        buffers: tuple[bytes, ...] = (),
        reply: bool = True,
        timeout: float = 120.0,
        seen: Callable[[bytes, list[bytes]], None] | None = None,
        tick: Callable[[], None] | None = None,
    ) -> Traffic:
        """Send on shell; return when the reply (if one is due) and the idle are in."""
        msg_id = self.send(self.shell, msg_type, content, buffers)
        traffic = Traffic()
        has_reply, is_idle = not reply, False
        deadline = time.perf_counter() + timeout
        while not (has_reply and is_idle):
            ready = self.poller.poll(5 if tick else 1000)
            if tick:
                tick()
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{msg_type}: reply {has_reply}, idle {is_idle}, {traffic}")
            for source, _ in ready:
                while True:
                    try:
                        frames = source.recv_multipart(zmq.NOBLOCK)
                    except zmq.Again:
                        break
                    at = frames.index(b"<IDS|MSG>") + 2
                    header, parent, content_bytes = frames[at], frames[at + 1], frames[at + 3]
                    if msg_id not in parent:
                        continue
                    if source is self.shell:
                        has_reply = True
                        traffic.replied_at = time.perf_counter()
                        traffic.reply = content_bytes
                        continue
                    if seen:
                        seen(header, frames[at:])
                    if b'"status"' in header:
                        is_idle = is_idle or b"idle" in content_bytes
                    else:
                        traffic.messages += 1
                        traffic.bytes += len(content_bytes) + sum(map(len, frames[at + 4 :]))
        return traffic

    def execute(self, code: str, **how: Any) -> Traffic:
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        return self.request("execute_request", content, **how)

    def wait_for_info(self) -> float:
        """Return the seconds from the start to the first kernel_info_reply."""
        self.send(self.shell, "kernel_info_request", {})
        if not self.shell.poll(60_000):
            raise TimeoutError("no kernel_info_reply")
        took = time.perf_counter() - self.started_at
        self.shell.recv_multipart()
        return took

    def wait_for_first_cell(self) -> float:
        """Return the seconds from the start to the reply of a first cell."""
        self.send(
            self.shell,
            "execute_request",
            {"code": "1", "silent": False, "store_history": True, "user_expressions": {}},
        )
        if not self.shell.poll(60_000):
            raise TimeoutError("no execute_reply")
        took = time.perf_counter() - self.started_at
        self.shell.recv_multipart()
        return took

    def settle(self) -> None:
        """Read until nothing has come for a while."""
        while self.poller.poll(300):
            for source, _ in self.poller.poll(0):
                source.recv_multipart()

    @property
    def relay(self) -> psutil.Process:
        """The kernelspec's own process."""
        provisioner: Any = self.manager.provisioner
        return psutil.Process(provisioner.pid)

    def cpu(self) -> float:
        """Return the processor seconds of every process of this kernel."""
        return sum(map(cpu_of, {self.relay.pid, *(p.pid for p in processes_below(self.home.root))}))

    def close(self) -> None:
        self.context.destroy(linger=0)
        self.manager.shutdown_kernel(now=False)


@dataclasses.dataclass
class Traffic:
    """What came back for a request."""

    messages: int = 0
    bytes: int = 0
    replied_at: float = 0.0
    reply: bytes = b""


Probes = dict[str, Probe]


def alternate(
    probes: Probes, times: int, measure: Callable[[Probe], float]
) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {name: [] for name in probes}
    for n in range(times):
        # Each goes first as often as the other.
        for name in list(probes)[:: 1 if n % 2 else -1]:
            values[name].append(measure(probes[name]))
    return values


def timed(probe: Probe, code: str, at_least: int = 0) -> float:
    started = time.perf_counter()
    traffic = probe.execute(code)
    took = time.perf_counter() - started
    if traffic.bytes < at_least:
        raise AssertionError(f"{traffic.bytes} of {at_least} bytes arrived")
    return took


def execute_row(probes: Probes, rounds: int) -> Iterator[Row]:
    for probe in probes.values():
        for _ in range(20):
            probe.execute("1")
    before = {name: probe.cpu() for name, probe in probes.items()}
    values = alternate(probes, 60 * rounds, lambda probe: timed(probe, "1") * 1e3)
    yield Row("execute `1`, raw ZMQ", "ms", 0.8, values)
    used = {
        name: [(probe.cpu() - before[name]) * 1e3 / len(values[name])]
        for name, probe in probes.items()
    }
    yield Row("processor time per execute, all processes", "ms", None, used)


def first_output_row(probes: Probes, rounds: int) -> Iterator[Row]:
    def measure(probe: Probe) -> float:
        arrived: list[float] = []

        def seen(header: bytes, _: list[bytes]) -> None:
            if b'"stream"' in header:
                arrived.append(time.perf_counter())

        started = time.perf_counter()
        probe.execute(CELLS["output"], seen=seen)
        return (arrived[0] - started) * 1e3

    yield Row("first output of a running cell", "ms", 0.25, alternate(probes, 4 * rounds, measure))


def flood_rows(probes: Probes, rounds: int) -> Iterator[Row]:
    for title, cell, at_least, goal in (
        ("100 000 prints", "prints", 588_890, 0.9),
        ("50 MB of stdout, nothing lost", "stdout", 50 << 20, 1.0),
        ("1000 displays of 10 KB", "displays", 10_240_000, 0.6),
    ):

        def measure(probe: Probe, cell: str = cell, at_least: int = at_least) -> float:
            return timed(probe, CELLS[cell], at_least)

        yield Row(title, "s", goal, alternate(probes, 2 * rounds, measure))


def comm_row(probes: Probes, rounds: int) -> Iterator[Row]:
    ids: dict[int, str] = {}
    for probe in probes.values():
        texts: list[str] = []

        def seen(header: bytes, frames: list[bytes], texts: list[str] = texts) -> None:
            if b'"stream"' in header:
                texts.append(json.loads(frames[3])["text"])

        probe.execute(CELLS["comm"], seen=seen)
        ids[id(probe)] = "".join(texts).strip()
    buffer = os.urandom(10 << 20)

    def measure(probe: Probe) -> float:
        started = time.perf_counter()
        data = {"method": "update", "state": {}, "buffer_paths": [["value"]]}
        content = {"comm_id": ids[id(probe)], "data": data}
        traffic = probe.request("comm_msg", content, buffers=(buffer,), reply=False)
        assert traffic.bytes >= len(buffer), traffic
        return (time.perf_counter() - started) * 1e3

    yield Row("10 MB comm echo", "ms", 1.5, alternate(probes, 4 * rounds, measure))


def interrupt_row(probes: Probes, rounds: int) -> Iterator[Row]:
    def measure(probe: Probe) -> float:
        asked: list[float] = []
        due = [float("inf")]

        def seen(header: bytes, _: list[bytes]) -> None:
            if b'"stream"' in header:
                due[0] = time.perf_counter() + 0.15

        def tick() -> None:
            if not asked and time.perf_counter() >= due[0]:
                asked.append(time.perf_counter())
                probe.manager.interrupt_kernel()

        traffic = probe.execute("print('go', flush=True)\nwhile True: pass", seen=seen, tick=tick)
        assert b"KeyboardInterrupt" in traffic.reply
        return (traffic.replied_at - asked[0]) * 1e3

    yield Row("interrupt to error reply", "ms", 1.2, alternate(probes, 6 * rounds, measure))


def slow_subscriber_row(probes: Probes, rounds: int) -> Iterator[Row]:
    values: dict[str, list[float]] = {}
    idles = []
    for name, probe in probes.items():
        slow = probe.connect(zmq.SUB, probe.iopub_port, unlimited=False)
        # The welcome says that the subscription is in place.
        slow.poll(5000)
        try:
            probe.execute(CELLS["many"])
        except TimeoutError:
            idles.append(f"{name}: the fast reader timed out")
        displays, idle = 0, False
        while slow.poll(2000):
            frames = slow.recv_multipart()
            at = frames.index(b"<IDS|MSG>") + 2
            displays += b'"display_data"' in frames[at]
            idle = b'"status"' in frames[at] and b"idle" in frames[at + 3]
        slow.close()
        probe.settle()
        values[name] = [100 * displays / 8000]
        idles.append(f"{name}: final idle {'seen' if idle else 'LOST'}")
    del rounds
    yield Row(
        "slow subscriber, displays received of 8000",
        "%",
        100.0,
        values,
        absolute=True,
        at_least=True,
        note="; ".join(idles),
    )


def memory_row(probes: Probes, rounds: int) -> Iterator[Row]:
    for probe in probes.values():
        for n in range(50 * rounds):
            probe.execute(f"print({n}); {n}")
    yield memory_of(probes, "uss", "USS of the host process, after ordinary cells", 15.0)
    yield memory_of(probes, "rss", "RSS of the host process, after ordinary cells", None)


def memory_after_floods_row(probes: Probes, rounds: int) -> Iterator[Row]:
    del rounds
    yield memory_of(probes, "uss", "USS of the host process, after all of the above", None)


def memory_of(probes: Probes, field: str, title: str, goal: float | None) -> Row:
    values = {
        name: [getattr(probe.relay.memory_full_info(), field) / 1e6]
        for name, probe in probes.items()
    }
    return Row(title, "MB", goal, values, absolute=True)


def start_rows(new_home: Callable[[], JupyterHome], rounds: int) -> Iterator[Row]:
    live = new_home()
    keeper = Probe(OURS, live, SANDBOX_ID="live")
    keeper.wait_for_info()
    # The runtime's copy is a user's, made by the first sandbox after an installation.
    cache = str(live.root / "cache")
    starts: dict[str, list[float]] = {PLAIN: [], OURS: []}
    cells: dict[str, list[float]] = {PLAIN: [], OURS: []}
    for n in range(4 * rounds + 1):
        for name in (PLAIN, OURS):
            probe = (
                Probe(name, live, SANDBOX_ID="live") if name == OURS else Probe(name, new_home())
            )
            took = probe.wait_for_info() * 1e3
            probe.close()
            cold = Probe(name, new_home(), XDG_CACHE_HOME=cache)
            first = cold.wait_for_first_cell() * 1e3
            cold.close()
            if n:  # the first round fills the page cache
                starts[name].append(took)
                cells[name].append(first)
    keeper.close()
    live.destroy_named_sandboxes()
    yield Row("new kernel in a live sandbox, to kernel_info_reply", "ms", 0.7, starts)
    yield Row("cold sandbox, to the first cell's reply", "ms", 1.8, cells)


def server_row(new_home: Callable[[], JupyterHome], rounds: int) -> Iterator[Row]:
    values: dict[str, list[float]] = {PLAIN: [], OURS: []}
    with contextlib.ExitStack() as stack:
        kernels = {}
        for name, options in ((PLAIN, STOCK_SERVER), (OURS, ())):
            server = stack.enter_context(JupyterServer(new_home(), *options))
            kernels[name] = WebSocketProbe(server, name)
            stack.callback(kernels[name].close)
            for _ in range(10):
                kernels[name].execute("1")
        for _ in range(30 * rounds):
            for name, kernel in kernels.items():
                started = time.perf_counter()
                kernel.execute("1")
                values[name].append((time.perf_counter() - started) * 1e3)
    yield Row(
        "execute `1`, jupyter_server WebSocket",
        "ms",
        0.08,
        values,
        note="plain: stock server; ours: with jupyter_ext's kernel WebSocket",
    )


def wall_rows(new_home: Callable[[], JupyterHome], rounds: int) -> Iterator[Row]:
    """Compare our kernel whose outputs are trusted with the same one, whose outputs are judged."""
    with contextlib.ExitStack() as stack:
        probes: Probes = {}
        for policy in ("trusted", "default"):
            settings = json.dumps({"SandboxManager": {"output_policy": policy}})
            probes[policy] = Probe(OURS, new_home(), SANDBOX_CONFIG=settings)
            stack.callback(probes[policy].close)
        for probe in probes.values():
            probe.wait_for_info()
            probe.settle()
            for _ in range(20):
                probe.execute("1")
        values = alternate(probes, 60 * rounds, lambda probe: timed(probe, "1") * 1e3)
        yield Row("outputs trusted, judged: execute `1`", "ms", 1.1, values)
        for title, cell in (("text", "displays"), ("tables", "tables"), ("pictures", "pictures")):

            def measure(probe: Probe, cell: str = cell) -> float:
                return timed(probe, CELLS[cell], 9_000_000)

            for probe in probes.values():
                measure(probe)
            values = alternate(probes, 4 * rounds, measure)
            yield Row(f"trusted, judged: 1000 displays of 10 KB, {title}", "s", 1.3, values)


def measure_all(rounds: int, only: list[str]) -> Iterator[Row]:
    root = Path(tempfile.mkdtemp(prefix="bench-"))
    numbers = iter(range(1_000_000))

    def new_home() -> JupyterHome:
        return JupyterHome(root / str(next(numbers))).create()

    def wanted(name: str) -> bool:
        return not only or any(word in name for word in only)

    try:
        pair = (execute_row, memory_row, first_output_row, flood_rows, comm_row, interrupt_row)
        pair += (slow_subscriber_row, memory_after_floods_row)
        if any(wanted(part.__name__) for part in pair):
            probes = {name: Probe(name, new_home()) for name in (PLAIN, OURS)}
            try:
                for probe in probes.values():
                    probe.wait_for_info()
                    probe.settle()
                for part in pair:
                    if wanted(part.__name__):
                        yield from part(probes, rounds)
            finally:
                for probe in probes.values():
                    probe.close()
        for other in (start_rows, server_row, wall_rows):
            if wanted(other.__name__):
                yield from other(new_home, rounds)
    finally:
        _, left = psutil.wait_procs(processes_below(root), timeout=10)
        for process in left:
            process.kill()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(run_table(__doc__ or "", ("plain", "sandbox"), measure_all))
