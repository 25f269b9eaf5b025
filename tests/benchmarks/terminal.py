"""Terminals of a sandbox beside jupyter_server_terminals, in one interleaved run: a table of ratios.

    python tests/benchmarks/terminal.py [--rounds N] [--only WORD ...] [--json FILE]

Ours is the whole way: jupyter_server with jupyter_ext, the sandbox's runtime in bubblewrap, a PTY
in there, and the protocol that our addon speaks, acknowledgements included.  The peer is a stock
jupyter_server, whose terminals run on the host.  Every row alternates between the two.  Where ttyd
is on the path its values stand below the rows.  See README.md beside this file.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import heapq
import json
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.manager.settings import Settings
from tests.support.benchmark_table import Row, cpu_of, run_table
from tests.support.jupyter_home import JupyterHome, processes_below
from tests.support.lean_websocket import BINARY, TEXT, LeanWebSocket
from tests.support.ws_connection import JupyterServer

PEER, OURS, TTYD = "jupyter", "sandbox", "ttyd"
SANDBOX = "bench"
PROMPT = b"@@PROMPT@@ "
FILE_SIZE = 50_000_000
HISTORY = 4 << 20
DRAWN_PER_SECOND = 8e6
FLOOD_SECONDS = 3.0
TERMINALS, TERMINAL_SECONDS, STROKE_EVERY = 200, 8.0, 0.1
ACK_BYTES, ACK_SECONDS = 64 << 10, 0.1


class Term:
    """One viewer at one terminal; how it is spoken to is a subclass's."""

    def __init__(self, websocket: LeanWebSocket) -> None:
        self.websocket = websocket
        self.came = 0
        """Bytes of output so far."""

    def type(self, data: bytes) -> None:
        raise NotImplementedError

    def _output(self, kind: int, content: bytes) -> bytes:
        """Return what a message holds to draw; acknowledge nothing yet."""
        raise NotImplementedError

    def drew(self, size: int) -> None:
        """Say so, where the protocol has a word for it."""

    def read(self, timeout: float | None = None, *, draw: bool = True) -> bytes:
        """Return the output of the messages that come next; nothing after the timeout."""
        pieces = [self._output(*message) for message in self.websocket.read(timeout)]
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.came += len(data)
        if draw and data:
            self.drew(len(data))
        return data

    def wait_for(self, needle: bytes, timeout: float = 60.0) -> float:
        """Return when it came; only a sliding end of the output is looked at."""
        deadline, end = time.perf_counter() + timeout, b""
        while True:
            data = self.read(deadline - time.perf_counter())
            if needle in data or needle in end + data[: len(needle)]:
                return time.perf_counter()
            end = (end + data)[-len(needle) :] if len(data) < len(needle) else data[-len(needle) :]
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{needle!r} did not come; last was {end!r}")

    def run(self, command: bytes, needle: bytes = PROMPT) -> float:
        self.type(command)
        return self.wait_for(needle)

    def own_prompt(self) -> Term:
        self.run(
            b"unset PROMPT_COMMAND; bind 'set enable-bracketed-paste off'; PS1='@@PRO''MPT@@ '\r"
        )
        return self

    def echo(self) -> Term:
        """Let every byte come back through a program, and not from the PTY itself."""
        self.run(b"stty -icanon -echo min 1 time 0; printf GO''GO; exec cat -u\r", b"GOGO")
        return self

    def leave(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self.type(b"\x03")
            self.read(0.05)
            self.type(b"exit\r")
            deadline = time.perf_counter() + 2.0
            while time.perf_counter() < deadline:
                self.read(0.5)
        self.websocket.close()


class SandboxTerm(Term):
    def __init__(self, websocket: LeanWebSocket) -> None:
        super().__init__(websocket)
        self._drawn = self._acknowledged = 0
        self._acknowledged_at = 0.0
        self.is_live = False
        self.websocket.send(TEXT, b'{"type":"resize","cols":80,"rows":24}')
        self.websocket.send(TEXT, b'{"type":"view","visible":true,"focused":true}')

    def type(self, data: bytes) -> None:
        self.websocket.send(BINARY, data)

    def _output(self, kind: int, content: bytes) -> bytes:
        if kind == BINARY:
            return content
        if content.startswith(b'{"type":"live"'):
            self.is_live = True
        elif content.startswith((b'{"type":"error"', b'{"type":"exit"')):
            raise EOFError(content.decode())
        return b""

    def drew(self, size: int) -> None:
        self._drawn += size
        now = time.perf_counter()
        if (
            self._drawn - self._acknowledged >= ACK_BYTES
            or now - self._acknowledged_at >= ACK_SECONDS
        ):
            self._acknowledged, self._acknowledged_at = self._drawn, now
            self.websocket.send(TEXT, b'{"type":"ack","bytes":%d}' % self._drawn)


class JupyterTerm(Term):
    def type(self, data: bytes) -> None:
        self.websocket.send(TEXT, json.dumps(["stdin", data.decode()]).encode())

    def _output(self, kind: int, content: bytes) -> bytes:
        assert kind == TEXT
        name, *rest = json.loads(content)
        if name == "disconnect":
            raise EOFError("the shell has ended")
        return rest[0].encode() if name == "stdout" else b""


class TtydTerm(Term):
    def __init__(self, websocket: LeanWebSocket) -> None:
        super().__init__(websocket)
        websocket.send(BINARY, b'{"AuthToken":"","columns":80,"rows":24}')

    def type(self, data: bytes) -> None:
        self.websocket.send(BINARY, b"0" + data)

    def _output(self, kind: int, content: bytes) -> bytes:
        del kind
        return content[1:] if content[:1] == b"0" else b""


class Target:
    """A server with terminals."""

    def __init__(
        self, name: str, new: Callable[[], Term], pids: list[int], file: str, home: JupyterHome
    ) -> None:
        self.name = name
        self.new = new
        self.pids = pids
        self.file = file.encode()
        """Where the large file lies, for programs in a terminal."""
        self.home = home

    def cpu(self) -> float:
        return sum(map(cpu_of, self.pids))

    def memory(self, field: str) -> float:
        """Return MB of all its processes: VmRSS now, or VmHWM at most since `reset_peak`."""
        total = 0
        for pid in self.pids:
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(field):
                    total += int(line.split()[1])
        return total * 1024 / 1e6

    def reset_peak(self) -> None:
        for pid in self.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")


Targets = dict[str, Target]


def make_file(path: Path) -> None:
    """Write lines of plain text, of text in colours, and of other scripts."""
    chosen = random.Random(7)  # noqa: S311  the same file each time
    words = [
        "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz", k=n % 10 + 2)) for n in range(999)
    ]
    others = "沙箱终端输出测试ターミナル出力Песочница терминал─│┌┐🙂🚀é"
    lines = []
    for n in range(4000):
        text = " ".join(chosen.choices(words, k=12))[:100]
        if n % 10 >= 8:
            text = "".join(chosen.choices(others, k=34))
        elif n % 10 >= 6:
            text = f"\x1b[{31 + n % 6}m{text[:40]}\x1b[0m \x1b[1;38;5;{n % 256}m{text[40:]}\x1b[0m"
        lines.append(f"{n:08} {text}\n")
    block = "".join(lines).encode()
    path.write_bytes((block * (FILE_SIZE // len(block) + 1))[:FILE_SIZE])


def start_sandbox(stack: contextlib.ExitStack, home: JupyterHome, file: Path) -> Target:
    server = stack.enter_context(JupyterServer(home))
    manager = stack.enter_context(contextlib.closing(Manager(Settings(data_dir=home.sandboxes))))

    def new(session: str | None = None) -> Term:
        session = session or uuid.uuid4().hex
        path = f"/sandbox/api/sandboxes/{SANDBOX}/terminal?session={session}&cols=80&rows=24&ack=1"
        return SandboxTerm(LeanWebSocket(server, path))

    new().own_prompt().leave()
    stack.callback(home.destroy_named_sandboxes)
    info = manager.lookup(SANDBOX)
    assert info is not None
    os.link(file, info.layout.workspace / "big.txt")
    runtime = [
        process.pid
        for process in processes_below(home.root)
        if "/opt/sandbox/sandbox_runtime/__main__.py" in process.cmdline()
        and process.name() != "bwrap"
    ]
    assert runtime, "the sandbox has no runtime"
    return Target(OURS, new, [server.process.pid, runtime[-1]], "/workspace/big.txt", home)


def start_jupyter(stack: contextlib.ExitStack, home: JupyterHome, file: Path) -> Target:
    server = stack.enter_context(
        JupyterServer(
            home,
            "--ServerApp.jpserver_extensions={'jupyter_ext': False}",
            SHELL="/bin/bash",
            TERM="xterm-256color",
        )
    )

    def new(name: str | None = None) -> Term:
        if name is None:
            name = server.call("POST", "/api/terminals", {})[1]["name"]
        elif name not in {each["name"] for each in server.get("/api/terminals")}:
            server.call("POST", "/api/terminals", {"name": name})
        websocket = LeanWebSocket(server, f"/terminals/websocket/{name}")
        websocket.send(TEXT, b'["set_size", 24, 80, 480, 640]')
        return JupyterTerm(websocket)

    return Target(PEER, new, [server.process.pid], str(file), home)


def start_ttyd(stack: contextlib.ExitStack, home: JupyterHome, file: Path) -> Target | None:
    executable = shutil.which("ttyd")
    if executable is None:
        return None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [executable, "-W", "-i", "127.0.0.1", "-p", str(port), "bash"],
        env=home.env(TERM="xterm-256color"),
        stderr=subprocess.DEVNULL,
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.05)
    new = functools.partial(LeanWebSocket, port, "/ws", subprotocol="tty")
    return Target(TTYD, lambda: TtydTerm(new()), [process.pid], str(file), home)


def alternate(
    targets: Targets, times: int, measure: Callable[[Target], list[float]]
) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {name: [] for name in targets}
    for n in range(times):
        # Each goes first as often as the other.
        for name in list(targets)[:: 1 if n % 2 else -1]:
            values[name] += measure(targets[name])
    return values


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def strokes(term: Term, count: int, pause: float = 0.0) -> list[float]:
    """Return the milliseconds to each echo; the next key follows the last echo."""
    took = []
    for _ in range(count):
        started = time.perf_counter()
        term.type(b"x")
        while not term.read():
            pass
        took.append((time.perf_counter() - started) * 1e3)
        if pause:
            time.sleep(pause)
    return took


def echo_rows(targets: Targets, rounds: int) -> Iterator[Row]:
    terms = {name: each.new().own_prompt().echo() for name, each in targets.items()}
    for term in terms.values():
        strokes(term, 200)
    before = {name: each.cpu() for name, each in targets.items()}
    values = alternate(targets, 8 * rounds, lambda target: strokes(terms[target.name], 125))
    used = {
        name: [(each.cpu() - before[name]) * 1e6 / len(values[name])]
        for name, each in targets.items()
    }
    yield Row("echo through a program, p50", "ms", 1.0, values)
    # Of each eighth of a round by itself: one hiccup of the machine does not decide.
    blocks = {
        name: [percentile(found[at : at + 125], 0.99) for at in range(0, len(found), 125)]
        for name, found in values.items()
    }
    yield Row("echo through a program, p99 (median of blocks)", "ms", 1.0, blocks)
    yield Row("processor time per stroke, all servers", "us", None, used)
    slow = alternate(targets, 4 * rounds, lambda target: strokes(terms[target.name], 25, 0.02))
    yield Row("echo at 50 strokes a second, p50", "ms", None, slow)
    for term in terms.values():
        term.leave()


BURST = (
    b"exec python3 -I -S -c \"import os,time,tty; tty.setcbreak(0); print('GO' + 'GO', flush=True)\n"
    b"while os.read(0,1) != b'q': os.write(1,b'a'); time.sleep(.003); os.write(1,b'b'); "
    b"time.sleep(.003); os.write(1,b'c')\"\r"
)


def burst_row(targets: Targets, rounds: int) -> Iterator[Row]:
    terms = {name: each.new().own_prompt() for name, each in targets.items()}
    for term in terms.values():
        term.run(b"stty -echo\r")
        term.run(BURST, b"GOGO")

    def measure(target: Target) -> list[float]:
        took = []
        for _ in range(20):
            time.sleep(0.01)
            started = time.perf_counter()
            took.append((terms[target.name].run(b"x", b"c") - started) * 1e3)
        return took

    yield Row(
        "burst: three writes 3 ms apart, p50", "ms", 0.2, alternate(targets, 2 * rounds, measure)
    )
    for term in terms.values():
        term.type(b"q")
        term.leave()


def flood_of(target: Target) -> bytes:
    return b"cat " + b" ".join([target.file] * 40) + b"\r"


def neighbour_row(targets: Targets, rounds: int) -> Iterator[Row]:
    def measure(target: Target) -> list[float]:
        noisy, term = target.new().own_prompt(), target.new().own_prompt().echo()
        noisy.type(flood_of(target))
        poller = select.poll()
        poller.register(noisy.websocket, select.POLLIN)
        poller.register(term.websocket, select.POLLIN)
        mine, took = term.websocket.fileno(), []
        typed_at, due = None, time.perf_counter() + 0.5
        while len(took) < 100:
            now = time.perf_counter()
            if typed_at is None and now >= due:
                typed_at = now
                term.type(b"x")
            wait = 0.1 if typed_at is not None else max(0.0, due - now)
            for fd, _ in poller.poll(wait * 1000):
                if fd != mine:
                    noisy.read()
                elif term.read() and typed_at is not None:
                    took.append((time.perf_counter() - typed_at) * 1e3)
                    typed_at, due = None, time.perf_counter() + 0.01
        noisy.type(b"\x03")
        noisy.wait_for(PROMPT)
        noisy.leave()
        term.leave()
        return took

    values = alternate(targets, rounds, measure)
    yield Row("echo beside a flood, p50", "ms", 0.8, values)
    ends = {name: [percentile(found, 0.99)] for name, found in values.items()}
    yield Row("echo beside a flood, p99", "ms", None, ends)


def throughput_rows(targets: Targets, rounds: int) -> Iterator[Row]:
    used: dict[str, list[float]] = {name: [] for name in targets}

    def measure(target: Target) -> list[float]:
        term = target.new().own_prompt()
        before, start = target.cpu(), term.came
        started = time.perf_counter()
        took = term.run(b"cat %s; printf E''ND\r" % target.file, b"END") - started
        used[target.name].append((target.cpu() - before) * 1e9 / FILE_SIZE)
        assert term.came - start >= FILE_SIZE, f"{term.came - start} of {FILE_SIZE} bytes came"
        term.leave()
        return [FILE_SIZE / took / 1e6]

    values: dict[str, list[float]] = {name: [] for name in targets}
    floor: dict[str, list[float]] = {"dd": []}
    for _ in range(rounds):
        for name, found in alternate(targets, 1, measure).items():
            values[name] += found
        floor["dd"].append(dd_on_pty(next(iter(targets.values())).file))
    yield Row("cat of 50 MB", "MB/s", 1.4, values, at_least=True)
    against = {"dd": floor["dd"], OURS: values[OURS]}
    yield Row("cat of 50 MB; beside it: read by dd", "MB/s", 0.8, against, at_least=True)
    yield Row("processor time per MB, all servers", "ms", None, used)


def dd_on_pty(file: bytes) -> float:
    master, slave = os.openpty()
    started = time.perf_counter()
    with subprocess.Popen(["cat", file], stdout=slave):
        os.close(slave)
        subprocess.run(
            ["dd", "of=/dev/null", "bs=64k"], stdin=master, stderr=subprocess.DEVNULL, check=False
        )
    took = time.perf_counter() - started
    os.close(master)
    return FILE_SIZE / took / 1e6


def open_row(targets: Targets, rounds: int) -> Iterator[Row]:
    def measure(target: Target) -> list[float]:
        started, shown = time.perf_counter(), b""
        term = target.new()
        while b"$ " not in shown and b"# " not in shown:
            shown += term.read()
        took = (time.perf_counter() - started) * 1e3
        term.leave()
        return [took]

    yield Row("new terminal to its prompt", "ms", 0.4, alternate(targets, 5 * rounds, measure))


def drawing_rows(targets: Targets, rounds: int) -> Iterator[Row]:
    """A viewer that takes everything at once and draws it at 8 MB/s, as browsers do."""
    growth: dict[str, list[float]] = {name: [] for name in targets}

    def measure(target: Target) -> list[float]:
        term = target.new().own_prompt()
        target.reset_peak()
        before = target.memory("VmRSS")
        term.type(flood_of(target))
        waiting: collections.deque[tuple[float, bytes]] = collections.deque()
        begun, free_at, end = time.perf_counter(), 0.0, b""
        pressed_at = None
        while True:
            now = time.perf_counter()
            if pressed_at is None and now - begun >= FLOOD_SECONDS:
                pressed_at = now
                term.type(b"\x03")
            wait = 0.05 if not waiting else min(0.05, max(0.0, waiting[0][0] - now))
            data = term.read(wait, draw=False)
            now = time.perf_counter()
            if data:
                free_at = max(free_at, now) + len(data) / DRAWN_PER_SECOND
                waiting.append((free_at, data))
            while waiting and waiting[0][0] <= now:
                drawn = waiting.popleft()[1]
                term.drew(len(drawn))
                if pressed_at is not None and PROMPT in end + drawn:
                    growth[target.name].append(target.memory("VmHWM") - before)
                    term.leave()
                    return [(now - pressed_at) * 1e3]
                end = drawn[-len(PROMPT) :]
            assert now - begun < 120, "Ctrl-C did not end the flood"

    values = alternate(targets, max(1, rounds - 1), measure)
    yield Row("Ctrl-C with a viewer that draws 8 MB/s", "ms", 100, values, absolute=True)
    yield Row("memory growth in that flood, all servers", "MB", 2, growth, absolute=True)


def many_rows(targets: Targets, rounds: int) -> Iterator[Row]:
    """Each of many terminals gets a key ten times a second, as from as many people."""
    ends: dict[str, list[float]] = {name: [] for name in targets}
    middles: dict[str, list[float]] = {name: [] for name in targets}

    def measure(target: Target) -> list[float]:
        terms = [target.new().own_prompt().echo() for _ in range(TERMINALS)]
        poller = select.epoll()
        by_fd = {term.websocket.fileno(): n for n, term in enumerate(terms)}
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        typed: list[collections.deque[float]] = [collections.deque() for _ in terms]
        before, started = target.cpu(), time.perf_counter()
        end = started + TERMINAL_SECONDS
        due = [(started + STROKE_EVERY * n / TERMINALS, n) for n in range(TERMINALS)]
        by_second: dict[int, list[float]] = collections.defaultdict(list)
        while (now := time.perf_counter()) < end:
            while due[0][0] <= now:
                at, n = due[0]
                typed[n].append(time.perf_counter())
                terms[n].type(b"x")
                heapq.heapreplace(due, (at + STROKE_EVERY, n))
            for fd, _ in poller.poll(max(0.0, due[0][0] - time.perf_counter())):
                n = by_fd[fd]
                for _ in terms[n].read():
                    took = (time.perf_counter() - typed[n].popleft()) * 1e3
                    by_second[int(time.perf_counter() - started)].append(took)
        cpu = 100 * (target.cpu() - before) / (time.perf_counter() - started)
        ends[target.name] += [percentile(found, 0.99) for found in by_second.values()]
        middles[target.name] += [percentile(found, 0.5) for found in by_second.values()]
        answered = sum(map(len, by_second.values()))
        assert answered > 0.9 * TERMINALS * TERMINAL_SECONDS / STROKE_EVERY, f"{answered} echoes"
        for term in terms:
            term.type(b"\x03")
        for term in terms:
            term.websocket.close()
        return [cpu]

    values = alternate(targets, max(1, rounds // 3), measure)
    yield Row("200 terminals at 10 Hz: processor, all servers", "%", 0.8, values)
    yield Row("200 terminals at 10 Hz: p50 (median second)", "ms", None, middles)
    yield Row("200 terminals at 10 Hz: p99 (median second)", "ms", 1.0, ends)


def reattach_rows(targets: Targets, rounds: int) -> Iterator[Row]:
    """A viewer that has nothing comes to a terminal with 4 MiB of history."""
    sent: dict[str, list[float]] = {name: [] for name in targets}
    names: dict[str, str] = {}
    for name, target in targets.items():
        if name == TTYD:
            continue  # it keeps nothing
        names[name] = uuid.uuid4().hex if name == OURS else "history"
        term = target.new(names[name])  # type: ignore[call-arg]
        term.own_prompt()
        term.run(b"head -c %d %s; printf '\\033[0mlast''line\\n'\r" % (HISTORY, target.file))
        term.websocket.close()

    def measure(target: Target) -> list[float]:
        if target.name not in names:
            return []
        time.sleep(0.3)
        started, shown = time.perf_counter(), b""
        term = target.new(names[target.name])  # type: ignore[call-arg]
        # A screen ends with the prompt, but for blanks, and what sets cursor and modes.
        while PROMPT.rstrip() not in shown[shown.find(b"lastline") :] or b"lastline" not in shown:
            shown += term.read(30)
            assert time.perf_counter() - started < 60, shown[-400:]
        took = (time.perf_counter() - started) * 1e3
        sent[target.name].append(term.websocket.received / 1024)
        term.websocket.close()
        return [took]

    values = alternate(targets, 3 * rounds, measure)
    yield Row("reattach with 4 MiB of history, to its last line", "ms", 150, values, absolute=True)
    yield Row("bytes sent for that", "KiB", 256, sent, absolute=True)


ROWS = (
    open_row,
    echo_rows,
    burst_row,
    neighbour_row,
    throughput_rows,
    drawing_rows,
    reattach_rows,
    many_rows,
)


def measure_all(rounds: int, only: list[str]) -> Iterator[Row]:
    root = Path(tempfile.mkdtemp(prefix="bench-"))
    file = root / "big.txt"
    make_file(file)
    try:
        with contextlib.ExitStack() as stack:
            targets: Targets = {}
            for name, start in ((PEER, start_jupyter), (OURS, start_sandbox), (TTYD, start_ttyd)):
                target = start(stack, JupyterHome(root / name).create(), file)
                if target is not None:
                    targets[name] = target
            for part in ROWS:
                if only and not any(word in part.__name__ for word in only):
                    continue
                for row in part(targets, rounds):
                    ttyd = row.values.pop(TTYD, None)
                    if ttyd:
                        found = Row("", "", None, {TTYD: ttyd})
                        row.note = f"ttyd: {found.median(0):.2f} {row.unit}"
                    yield row
    finally:
        _, left = psutil.wait_procs(processes_below(root), timeout=10)
        for process in left:
            process.kill()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(run_table(__doc__ or "", (PEER, OURS), measure_all))
