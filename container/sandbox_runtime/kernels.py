"""Kernels: interpreters whose output waits in a ring until a relay has taken it over.

A kernel speaks records on its standard input and output.  What it writes gets absolute offsets; a
relay that comes back reads on from what the last one acknowledged.

Overflow rules: the ring holds `RING` bytes, then the kernel's pipe is not read and the kernel
waits.  A relay acknowledges whole records only, so where one has taken everything and the ring is
full all the same, what it holds is the beginning of a long record: the ring goes on up to
`LONGEST_RING`, which any record fits in, but only as fast as the relay takes it.  Of input,
`MOST_INPUT` bytes may wait for the kernel, then its relay's connection is not read; so much only,
since the acknowledgements come over the same connection.
"""

from __future__ import annotations

import os
import sys
import time
from _socket import AF_UNIX, SHUT_WR, SO_SNDBUF, SOCK_CLOEXEC, SOCK_STREAM, SOL_SOCKET, socketpair

from sandbox_kernel.errors import (
    KernelNotFoundError,
    OperationInterruptedError,
    ProcessSpawnFailedError,
    ProtocolViolationError,
    ValidationFailedError,
)
from sandbox_kernel.wire.codec import dump_json, load_json
from sandbox_kernel.wire.kernel import MAX_RECORD, Channel, encode_record
from sandbox_kernel.wire.operations import (
    Empty,
    EndKernelRequest,
    KernelInfo,
    KernelRequest,
    StartKernelRequest,
)
from sandbox_kernel.wire.rpc import FrameKind, frame_header
from sandbox_runtime.children import signal_group
from sandbox_runtime.connection import STREAM_MARK
from sandbox_runtime.fork_client import ForkClient
from sandbox_runtime.loop import READ, WRITE
from sandbox_runtime.packages import fingerprint
from sandbox_runtime.quick import deque, signal
from sandbox_runtime.ring import Ring
from sandbox_runtime.spawn import check_folder, overlay, program_name, spawn
from sandbox_runtime.warm_kernel import NAMED_LATER, WarmKernel, told_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sandbox_kernel.wire.pool_operations import WarmRequest
    from sandbox_kernel.wire.record import Record
    from sandbox_runtime.activity import Activity
    from sandbox_runtime.children import Children
    from sandbox_runtime.config import Config
    from sandbox_runtime.connection import Connection, Exchange
    from sandbox_runtime.loop import Loop, Timer
    from sandbox_runtime.memory_events import MemoryEvents

__all__ = ["Kernel", "Kernels"]

RING = 64 << 20
LONGEST_RING = MAX_RECORD + RING
MOST_INPUT = 256 << 20
STDERR_KEPT = 4096
FINISHED_KEPT = 16
"""How many ended kernels wait for a relay to learn of it; the oldest is forgotten first."""

GROUP_GRACE = 1.0
"""Seconds between TERM and KILL for what an ended kernel has left behind."""

SERVER_DELAY = 2.0
"""Seconds after a kernel was started anew until a fork server for the next ones is started."""

MOST_SERVER_STARTS = 8
"""How often a fork server is started in the life of a runtime; after that kernels start anew."""

TELL_TAKEN = 256 << 10
"""Bytes of input after which a relay is told how much was taken, though there is no output."""

INPUT_BUFFER = 4 << 20
OUTPUT_BUFFER = 1 << 20
"""Bytes that may wait in either stream of a kernel, where the system allows as much.  Output comes
in floods, which are best read while the processor's caches hold them; input in large records."""

CHANNEL_BUFFER = 4 << 20
"""Bytes that may wait in a relay's socket: a large record then takes fewer turns."""

FLOOD = 32 << 10
"""Bytes in one read from which on the next goes straight into the ring."""

_WARMING = "an interpreter that gets ready"

_CHUNK = 1 << 20


class _Attachment:
    """The relay that a kernel's output goes to at present."""

    def __init__(self, kernel: Kernel, connection: Connection) -> None:
        self._kernel = kernel
        self._connection = connection
        self._sent = kernel.ring.start
        self._told_taken = kernel.taken
        self._untold_bytes = 0
        self._told_exit = False

    def channel_frame(self, kind: FrameKind, payload: memoryview) -> None:
        """Take a frame from the relay."""
        kernel = self._kernel
        if kind is FrameKind.INPUT:
            kernel.taken += 1
            kernel.write(payload)
            self._untold_bytes += len(payload)
            if self._untold_bytes > TELL_TAKEN:
                self._connection.send(self._word_of_taken())
        elif kind is FrameKind.ACK:
            if len(payload) != 8:
                raise ProtocolViolationError("an ACK that is no offset")
            offset = int.from_bytes(payload, "big")
            if offset > kernel.sent:
                raise ProtocolViolationError("an ACK of what was not sent")
            # It may have come over an earlier connection; then it need not come again.
            self._sent = max(self._sent, offset)
            kernel.acknowledge(offset)
            self._check_done()
        elif kind is FrameKind.CONTROL:
            kernel.taken += 1
            self._control(load_json(bytes(payload)))
        else:
            raise ProtocolViolationError(f"frame {kind.name} from a relay")

    def _control(self, order: Any) -> None:
        kind = order.get("type") if isinstance(order, dict) else None
        if kind == "signal":
            number = order.get("signal")
            if not isinstance(number, int) or not 1 <= number < signal.NSIG:
                raise ProtocolViolationError("CONTROL with a bad signal")
            self._kernel.signal(number)
        elif kind == "end":
            grace = order.get("grace", 1.0)
            if not isinstance(grace, int | float) or not 0 <= grace <= 60:
                raise ProtocolViolationError("CONTROL with a bad grace")
            self._kernel.end(grace)
        # Orders of a newer relay that we do not know are left alone.

    def channel_writable(self) -> None:
        """Go on sending; the kernel may have waited for it."""
        self.send()
        self._kernel.output_taken()

    @property
    def has_everything(self) -> bool:
        """Whether the relay has taken all that the ring holds."""
        return self._sent == self._kernel.ring.end and not self._connection.queued

    def send(self) -> None:
        """Send what the ring holds beyond what was sent, as far as the queue takes it."""
        ring, connection = self._kernel.ring, self._connection
        while self._sent < ring.end and connection.queued < STREAM_MARK:
            data = ring.read(self._sent, _CHUNK)
            head = frame_header(FrameKind.DATA, 0, 8 + len(data)) + self._sent.to_bytes(8, "big")
            connection.send(self._word_of_taken() + head, data)
            self._sent += len(data)
        self._kernel.sent = max(self._kernel.sent, self._sent)
        if self._kernel.finished and self._sent == ring.end and not self._told_exit:
            self._told_exit = True
            connection.send_channel(FrameKind.EVENT, dump_json(self._kernel.exit_event()))
            self._check_done()

    def _word_of_taken(self) -> bytes:
        """Return the frame that lets the relay forget what was taken, if that is news."""
        taken = self._kernel.taken
        if taken == self._told_taken:
            return b""
        self._told_taken, self._untold_bytes = taken, 0
        return frame_header(FrameKind.ACK, 0, 8) + taken.to_bytes(8, "big")

    def _check_done(self) -> None:
        if self._told_exit and not len(self._kernel.ring):
            self._kernel.read_to_its_end()

    def channel_lost(self) -> None:
        """Leave the kernel to the next relay."""
        self._kernel.detached(self)

    def channel_choked(self) -> bool:
        """Whether too much input waits for the kernel."""
        return self._kernel.input_waiting > MOST_INPUT

    def input_taken(self) -> None:
        """Read from the relay again, if it had to wait."""
        self._connection.recheck()

    def drain(self) -> None:
        """Take what the relay has sent already."""
        self._connection.drain()

    def supersede(self) -> None:
        """Tell the relay that another one has taken its place, and close its connection."""
        self._connection.send_channel(FrameKind.EVENT, dump_json({"type": "superseded"}))
        self._connection.close_when_sent()


class Kernel:
    """One interpreter and its three pipes."""

    def __init__(self, table: Kernels, kernel_id: str, lease: float) -> None:
        self.table = table
        self.kernel_id = kernel_id
        self.lease = lease
        self.pid = 0
        self.started_at = time.time()
        self.ring = Ring(LONGEST_RING)
        self.finished = False
        self.taken = 0
        """How many frames relays have sent it: another one must not send them again."""
        self.sent = 0
        """Offset up to which its output was sent, over whatever connection."""
        self.input_waiting = 0
        self.attachment: _Attachment | None = None
        self.on_output: list[Callable[[], None]] = []
        """Called once it has written something."""
        self.on_start: list[Callable[[], None]] = []
        """Called once the pid is known; until then the kernel is being forked."""
        self.on_exit: list[Callable[[], None]] = []
        self._input: deque[memoryview] = deque()
        self._status: int | None = None
        self._reason: str | None = None
        self._stderr = bytearray()
        self._stdin_fd = self._stdout_fd = self._stderr_fd = -1
        self._reading = False
        self._floods = False
        self._writing = False
        self._drain_is_due = False

    def __repr__(self) -> str:
        return f"<Kernel {self.kernel_id} pid={self.pid} status={self._status}>"

    @property
    def running(self) -> bool:
        """Whether the interpreter has not been reaped."""
        return self._status is None

    def info(self, *, existing: bool) -> KernelInfo:
        """Return what is known."""
        return KernelInfo(
            kernel_id=self.kernel_id,
            pid=self.pid,
            existing=existing,
            acked=self.ring.start,
            started_at=self.started_at,
            attached=self.attachment is not None,
            incarnation=self.table.incarnation,
            taken=self.taken,
        )

    def open(self, stdin: int, stdout: int, stderr: int) -> None:
        """Take over our ends of the pipes; they must not block."""
        loop = self.table.loop
        self._stdin_fd, self._stdout_fd, self._stderr_fd = stdin, stdout, stderr
        self._reading = True
        loop.add(stdout, READ, self._readable)
        loop.add(stderr, READ, self._stderr_readable)

    def started(self, pid: int) -> None:
        """Learn the pid of an interpreter that was started anew."""
        self.table.children.watch(pid, self.exited)
        self._has_pid(pid)

    def forked(self, pid: int) -> None:
        """Learn the pid of an interpreter that the fork server made."""
        self.table.children.expected(pid, self.exited)
        self._has_pid(pid)

    def _has_pid(self, pid: int) -> None:
        self.pid = pid
        waiting, self.on_start = self.on_start, []
        for each in waiting:
            each()

    # --- output -------------------------------------------------------------------------------

    @property
    def _room(self) -> int:
        """How many bytes of output may be read now."""
        room = RING - len(self.ring)
        if room <= 0 and self.attachment is not None and self.attachment.has_everything:
            return self.ring.room
        return room

    def _readable(self, _events: int) -> None:
        if self._read() is None:
            self._close_stdout()

    def _read(self) -> int | None:
        """Read once into the ring; None at the end, 0 if nothing can be read now."""
        size = min(_CHUNK, self._room)
        if size <= 0:
            self._watch_output()
            return 0
        space = self.ring.space(size) if self._floods else None
        try:
            if space is None:
                data = os.read(self._stdout_fd, size)
                count = len(data)
            else:
                count = os.readv(self._stdout_fd, [space])
        except BlockingIOError:
            return 0
        if not count:
            return None
        if space is None:
            self.ring.append(data)
        else:
            self.ring.filled(count)
        self._floods = count >= FLOOD
        if self.on_output:
            self._has_output()
        if self.attachment is not None:
            self.attachment.send()
        self._watch_output()
        return count

    def _has_output(self) -> None:
        waiting, self.on_output = self.on_output, []
        for each in waiting:
            each()

    def _watch_output(self) -> None:
        wanted = self._stdout_fd >= 0 and self.running and self._room > 0
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self.table.loop.add(self._stdout_fd, READ, self._readable)
            else:
                self.table.loop.remove(self._stdout_fd)

    def acknowledge(self, offset: int) -> None:
        """Forget output that a relay has taken over."""
        self.ring.release(offset)
        self.output_taken()

    def output_taken(self) -> None:
        """Read on, if the ring was full and is not any more."""
        if self.running:
            self._watch_output()
        else:
            self._drain_soon()

    def _drain_soon(self) -> None:
        if self._stdout_fd >= 0 and not self._drain_is_due:
            self._drain_is_due = True
            self.table.loop.call_soon(self._drain)

    def _drain(self) -> None:
        """After the end: read once per turn what the interpreter had left in its pipe."""
        self._drain_is_due = False
        if self._stdout_fd < 0 or self._room <= 0:
            return
        if self._read():
            self._drain_soon()
        else:
            self._close_stdout()

    def _close_stdout(self) -> None:
        if self._stdout_fd < 0:
            return
        if self._reading:
            self._reading = False
            self.table.loop.remove(self._stdout_fd)
        os.close(self._stdout_fd)
        self._stdout_fd = -1
        self._finish_if_done()

    def _stderr_readable(self, _events: int) -> None:
        if not self._read_stderr():
            self._close_stderr()

    def _read_stderr(self) -> bool:
        """Read once and keep the tail; False at the end."""
        try:
            data = os.read(self._stderr_fd, _CHUNK)
        except BlockingIOError:
            return True
        self._stderr += data
        del self._stderr[:-STDERR_KEPT]
        return bool(data)

    def _close_stderr(self) -> None:
        if self._stderr_fd >= 0:
            self.table.loop.remove(self._stderr_fd)
            os.close(self._stderr_fd)
            self._stderr_fd = -1

    # --- input --------------------------------------------------------------------------------

    def write(self, data: memoryview) -> None:
        """Write whole records, in order; what comes after the end is dropped."""
        if self._stdin_fd < 0:
            return
        self._input.append(data)
        self.input_waiting += len(data)
        if not self._writing:
            self._pump_input()

    def _writable(self, _events: int) -> None:
        self._pump_input()
        if self.attachment is not None:
            self.attachment.input_taken()

    def _pump_input(self) -> None:
        while self._input:
            data = self._input[0]
            try:
                done = os.write(self._stdin_fd, data)
            except BlockingIOError:
                break
            except OSError:
                self._close_stdin()
                return
            self.input_waiting -= done
            if done < len(data):
                self._input[0] = data[done:]
                break
            self._input.popleft()
        if bool(self._input) != self._writing:
            self._writing = not self._writing
            if self._writing:
                self.table.loop.add(self._stdin_fd, WRITE, self._writable)
            else:
                self.table.loop.remove(self._stdin_fd)

    def _close_stdin(self) -> None:
        if self._stdin_fd < 0:
            return
        if self._writing:
            self._writing = False
            self.table.loop.remove(self._stdin_fd)
        os.close(self._stdin_fd)
        self._stdin_fd = -1
        self._input.clear()
        self.input_waiting = 0

    # --- relays -------------------------------------------------------------------------------

    def attach(self, connection: Connection) -> _Attachment:
        """Give the output to a new relay; the present one is superseded."""
        if self.attachment is not None:
            # A killed relay cannot send again what was on its way.
            self.attachment.drain()
        previous, self.attachment = self.attachment, _Attachment(self, connection)
        if previous is not None:
            previous.supersede()
        else:
            self.table.activity.hold(f"kernel {self.kernel_id}")
        self.table.activity.end_lease(f"kernel {self.kernel_id}", time.monotonic())
        return self.attachment

    def detached(self, attachment: _Attachment) -> None:
        """Note that a relay has left; only the present one counts."""
        if attachment is not self.attachment:
            return
        self.attachment = None
        now = time.monotonic()
        self.table.activity.let_go(f"kernel {self.kernel_id}", now)
        if self.running:
            self.begin_lease()

    def begin_lease(self) -> None:
        """Hold the sandbox awake for a while without a relay."""
        self.table.activity.lease(f"kernel {self.kernel_id}", time.monotonic() + self.lease)

    # --- the end ------------------------------------------------------------------------------

    def signal(self, number: int) -> None:
        """Signal the interpreter and what it has started."""
        if not self.running:
            return
        if not self.pid:
            self.on_start.append(lambda: self.signal(number))
        elif not signal_group(self.pid, number):
            # A kernel that was just forked may not lead its own group yet.
            os.kill(self.pid, number)

    def end(self, grace: float, reason: str = "ended") -> None:
        """End the interpreter and its group."""
        if not self.running:
            return
        if not self.pid:
            self.on_start.append(lambda: self.end(grace, reason))
        else:
            self._reason = self._reason or reason
            self.table.children.end_group(self.pid, grace)

    def exited(self, status: int) -> None:
        """Take the wait status of the interpreter."""
        self._status = status
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL and self.table.memory_events.explains_kill():
            self._reason = "memory_limit"
        children = self.table.children
        children.check_group(self.pid)
        # What cells have started ends with the interpreter, as the next one must not meet it.
        children.end_group(self.pid, GROUP_GRACE)
        self._close_stdin()
        self.table.activity.end_lease(f"kernel {self.kernel_id}", time.monotonic())
        if self._stderr_fd >= 0:
            self._read_stderr()
            self._close_stderr()
        if self._reading:
            self._reading = False
            self.table.loop.remove(self._stdout_fd)
        waiting, self.on_exit = self.on_exit, []
        for each in waiting:
            each()
        self._drain()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self.finished or self.running or self._stdout_fd >= 0:
            return
        self.finished = True
        if self.attachment is not None:
            self.attachment.send()
        self.table.ended(self)

    def exit_event(self) -> dict[str, Any]:
        """Return how the interpreter ended, for its relay."""
        code = os.waitstatus_to_exitcode(self._status or 0)
        return {
            "type": "exit",
            "exit_code": 128 - code if code < 0 else code,
            "signal": -code if code < 0 else None,
            "reason": self._reason,
            "stderr": self._stderr.decode("utf-8", "replace"),
        }

    def read_to_its_end(self) -> None:
        """Be forgotten: a relay has got everything, the exit included."""
        self.table.forget(self)

    def dispose(self) -> None:
        """Close what is open and let the relay go; the interpreter has ended."""
        self._close_stdin()
        self._close_stdout()
        self._close_stderr()


def _open_stream(buffer: int) -> tuple[int, int]:
    """Return the two ends of a stream for records, as of a pipe that holds `buffer` bytes.

    A pipe moves its bytes page by page; a socket takes a third of the time for a large record.
    """
    reading, writing = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)
    # As far as the system allows; it is memory only while the reader is behind.
    writing.setsockopt(SOL_SOCKET, SO_SNDBUF, buffer)
    reading.shutdown(SHUT_WR)
    return reading.detach(), writing.detach()


class _Launch:
    """How an interpreter is started, and the ends of its pipes that will be its own."""

    __slots__ = ("argv", "cwd", "env", "stdio")

    def __init__(
        self, argv: list[str], cwd: str, env: dict[str, str], stdio: tuple[int, int, int]
    ) -> None:
        self.argv = argv
        self.cwd = cwd
        self.env = env
        self.stdio = stdio

    def close(self) -> None:
        """Close the interpreter's ends here; it has its own, or there is none."""
        for fd in self.stdio:
            os.close(fd)


class Kernels:
    """Every living kernel, and ended ones whose relay does not know it yet."""

    def __init__(
        self,
        loop: Loop,
        config: Config,
        incarnation: str,
        *,
        package_folder: str,
        children: Children,
        activity: Activity,
        memory_events: MemoryEvents,
        log: Callable[[str], None],
    ) -> None:
        self.loop = loop
        self.config = config
        self.incarnation = incarnation
        self.children = children
        self.activity = activity
        self.memory_events = memory_events
        self.log = log
        self.stopping = False
        self._package_folder = package_folder
        self._python = config.python or sys.executable
        self._table: dict[str, Kernel] = {}
        self._warm: WarmKernel | None = None
        self._server: ForkClient | None = None
        self._server_packages: tuple[tuple[str, int], ...] = ()
        self._server_variables: dict[str, str] = {}
        self._server_timer: Timer | None = None
        self._server_starts = 0

    def __len__(self) -> int:
        warm = self._warm is not None and self._warm.kernel.running
        return sum(each.running for each in self._table.values()) + warm

    def living(self) -> list[KernelInfo]:
        """Return every living kernel."""
        return [each.info(existing=True) for each in self._table.values() if each.running]

    # --- starting -----------------------------------------------------------------------------

    def start(self, request: StartKernelRequest, exchange: Exchange) -> Record | None:
        """Find the living kernel of this id, or start one."""
        kernel_id = request.kernel_id
        if not 0 < len(kernel_id) <= 256 or not kernel_id.isprintable():
            raise ValidationFailedError("kernel_id", "must be 1 to 256 printable characters")
        if not 0 <= request.lease < 1e9:
            raise ValidationFailedError("lease", "must be a number of seconds, zero or more")
        if self.stopping:
            raise ProcessSpawnFailedError(kernel_id, "the sandbox is stopping")
        kernel = self._table.get(kernel_id)
        if kernel is None or not kernel.running:
            return self._start(request, exchange)
        if request.fresh:
            kernel.on_exit.append(lambda: self._start_after(request, exchange))
            kernel.end(GROUP_GRACE)
            return None
        kernel.lease = request.lease
        if kernel.pid:
            return kernel.info(existing=True)
        kernel.on_start.append(lambda: exchange.result(kernel.info(existing=True)))
        return None

    def _start_after(self, request: StartKernelRequest, exchange: Exchange) -> None:
        """Start once the kernel that had the id is gone."""
        from sandbox_runtime.dispatch import answer_with  # noqa: PLC0415  it imports our callers

        answer_with(exchange, lambda: self._start(request, exchange), self.log)

    def _start(self, request: StartKernelRequest, exchange: Exchange) -> Record | None:
        argv = self._argv(request)
        env = overlay(self.config.env, request.env)
        cwd = request.cwd or self.config.cwd
        check_folder(cwd)
        warm = self._take_warm(argv, cwd, env)
        if warm is not None:
            return self._give_away(warm, request, env)
        kernel = Kernel(self, request.kernel_id, request.lease)
        launch = _Launch(argv, cwd, env, _open_pipes(kernel))
        try:
            if self._may_fork(request) and self._fork(kernel, launch, exchange):
                return None
            self._spawn(kernel, launch)
        except BaseException:
            kernel.dispose()
            raise
        return kernel.info(existing=False)

    def _spawn(self, kernel: Kernel, launch: _Launch) -> None:
        """Start a kernel's interpreter anew."""
        path = _joined(self._package_folder, launch.env.get("PYTHONPATH"))
        try:
            if self.stopping:
                raise ProcessSpawnFailedError(kernel.kernel_id, "the sandbox is stopping")
            env = {**launch.env, "PYTHONPATH": path}
            pid = spawn(launch.argv, cwd=launch.cwd, env=env, stdio=launch.stdio)
        finally:
            launch.close()
        if kernel.kernel_id:
            self._enter(kernel)
        kernel.started(pid)

    def _enter(self, kernel: Kernel) -> None:
        previous = self._table.get(kernel.kernel_id)
        if previous is kernel:
            return
        if previous is not None:
            previous.dispose()
        self._table[kernel.kernel_id] = kernel
        kernel.begin_lease()

    def _argv(self, request: StartKernelRequest) -> list[str]:
        if request.argv is not None:
            program_name(request.argv)
            return [self._python, "-m", "sandbox_runtime.bridge_any", "--", *request.argv]
        if self.config.kernel_argv is not None:
            return self.config.kernel_argv
        return [self._python, "-Xfrozen_modules=off", "-m", "sandbox_runtime.kernel_main"]

    # --- an interpreter for nobody yet --------------------------------------------------------

    def warm(self, request: WarmRequest, exchange: Exchange) -> Record | None:
        """Start an interpreter that waits for who wants it; one that waits already is kept."""
        if self.stopping:
            raise ProcessSpawnFailedError("a kernel", "the sandbox is stopping")
        argv = self._argv(StartKernelRequest(kernel_id=""))
        env = overlay(self.config.env, request.env)
        cwd = request.cwd or self.config.cwd
        check_folder(cwd)
        previous, self._warm = self._warm, None
        if previous is not None:
            if previous.fits(argv, cwd, env):
                self._warm = previous
                return previous.kernel.info(existing=True)
            previous.kernel.end(GROUP_GRACE)
        kernel = Kernel(self, "", 0.0)
        launch = _Launch(argv, cwd, env, _open_pipes(kernel))
        try:
            self._spawn(kernel, launch)
        except BaseException:
            kernel.dispose()
            raise
        self._warm = WarmKernel(kernel, argv, cwd, env)
        self._answer_when_ready(kernel, exchange)
        return None

    def _answer_when_ready(self, kernel: Kernel, exchange: Exchange) -> None:
        self.activity.hold(_WARMING)

        def ready() -> None:
            self.activity.let_go(_WARMING, time.monotonic())
            kernel.on_exit.remove(ended)
            exchange.result(kernel.info(existing=False))

        def ended() -> None:
            self.activity.let_go(_WARMING, time.monotonic())
            kernel.on_output.clear()
            exchange.fail(ProcessSpawnFailedError("a kernel", "it ended before it was ready"))

        kernel.on_output.append(ready)
        kernel.on_exit.append(ended)

    def _take_warm(self, argv: list[str], cwd: str, env: dict[str, str]) -> Kernel | None:
        """Return the interpreter that waits, if it is what is wanted; then none waits any more."""
        warm, self._warm = self._warm, None
        if warm is None:
            return None
        if not warm.fits(argv, cwd, env):
            # Somebody is here now and wants another; nobody would come for this one.
            warm.kernel.end(GROUP_GRACE)
            return None
        return warm.kernel

    def _give_away(
        self, kernel: Kernel, request: StartKernelRequest, env: dict[str, str]
    ) -> KernelInfo:
        """Make a kernel of the interpreter that has waited."""
        kernel.kernel_id, kernel.lease, kernel.started_at = (
            request.kernel_id,
            request.lease,
            time.time(),
        )
        named = {name: env.get(name) for name in NAMED_LATER}
        # Ahead of every request, so the first cell sees it.
        kernel.write(memoryview(encode_record(Channel.META, (), (told_environment(named),))))
        self._enter(kernel)
        if self._may_fork(request):
            # As after a kernel that was started anew: it prepares for the next one.
            self._current_server(_starting_variables(env))
        return kernel.info(existing=False)

    # --- the fork server ----------------------------------------------------------------------

    def _fork(
        self,
        kernel: Kernel,
        launch: _Launch,
        exchange: Exchange,
    ) -> bool:
        """Let the fork server make the kernel; False where it must be started anew."""
        server = self._current_server(_starting_variables(launch.env))
        if server is None or not server.ready:
            return False

        def answered(pid: int | None) -> None:
            if pid is not None:
                launch.close()
                kernel.forked(pid)
                exchange.result(kernel.info(existing=False))
            else:
                self.children.expected(None, kernel.exited)
                answer_with(exchange, start_anew, self.log)

        def start_anew() -> Record:
            try:
                self._spawn(kernel, launch)
            except BaseException:
                self.forget(kernel)
                self.activity.end_lease(f"kernel {kernel.kernel_id}", time.monotonic())
                kernel.dispose()
                raise
            return kernel.info(existing=False)

        from sandbox_runtime.dispatch import answer_with  # noqa: PLC0415  it imports our callers

        request = {"env": launch.env, "cwd": launch.cwd, "kernel_id": kernel.kernel_id}
        asked = server.ask(request, launch.stdio, answered)
        if asked:
            self.children.expect()
            self._enter(kernel)
        return asked

    def _may_fork(self, request: StartKernelRequest) -> bool:
        """Whether a fork of the default kernel would be what was asked for."""
        if not self.children.adopts_orphans:
            # A forked kernel is one, and nobody else could wait for it.
            return False
        return request.argv is None and self.config.kernel_argv is None

    def _current_server(self, variables: dict[str, str]) -> ForkClient | None:
        """Return the living server that started with these variables and what is installed now."""
        now = fingerprint(self._python, self.config.env.get("HOME"))
        server = self._server
        if server is not None and server.is_alive:
            if now != self._server_packages:
                self.log("packages have changed, the fork server is replaced")
                server.close()
            elif variables != self._server_variables:
                # Another locale, say: the last one asked for is the likeliest to come again.
                self.log("the environment has changed, the fork server is replaced")
                server.close()
        self._server_variables = variables
        if server is not None and server.is_alive:
            return server
        if self._server_timer is None and self._server_starts < MOST_SERVER_STARTS:
            # Not at once: the first kernel, started anew, shall have the processors to itself.
            self._server_timer = self.loop.call_later(SERVER_DELAY, self._start_server)
        return None

    def _start_server(self) -> None:
        self._server_timer = None
        if self.stopping:
            return
        self._server_starts += 1
        self._server_packages = fingerprint(self._python, self.config.env.get("HOME"))
        self._server = ForkClient(self.loop, self.children, self.log)
        path = _joined(self._package_folder, self._server_variables.get("PYTHONPATH"))
        self._server.start(
            [self._python, "-Xfrozen_modules=off", "-m", "sandbox_runtime.forkserver", "--fd", "3"],
            cwd="/",
            env={**self.config.env, **self._server_variables, "PYTHONPATH": path},
        )

    # --- using and ending ---------------------------------------------------------------------

    def _get(self, kernel_id: str) -> Kernel:
        kernel = self._table.get(kernel_id)
        if kernel is None:
            raise KernelNotFoundError(kernel_id)
        return kernel

    def connect(self, request: KernelRequest, exchange: Exchange) -> None:
        """Turn the connection into the kernel's channel, from what was acknowledged on."""
        kernel = self._get(request.kernel_id)
        connection = exchange.connection
        if not connection.can_become_channel:
            raise ValidationFailedError("op", "needs a connection without other calls")
        attachment = kernel.attach(connection)
        exchange.result(kernel.info(existing=True))
        connection.become_channel(attachment, send_buffer=CHANNEL_BUFFER)
        attachment.channel_writable()

    def end(self, request: EndKernelRequest, exchange: Exchange) -> Record | None:
        """End a kernel; answered when it has ended."""
        if not 0 <= request.grace <= 60:
            raise ValidationFailedError("grace", "must be 0 to 60 seconds")
        kernel = self._get(request.kernel_id)
        if not kernel.running:
            return Empty()
        kernel.on_exit.append(lambda: exchange.result(Empty()))
        exchange.on_cancel = lambda: exchange.fail(
            OperationInterruptedError("kernel.end", "the call was cancelled")
        )
        kernel.end(request.grace)
        return None

    def ended(self, kernel: Kernel) -> None:
        """Keep an ended kernel until a relay has learned of it, but not any number of them."""
        if self._table.get(kernel.kernel_id) is not kernel:
            return
        ended = [each for each in self._table.values() if each.finished and not each.attachment]
        for each in ended[:-FINISHED_KEPT]:
            self.forget(each)

    def forget(self, kernel: Kernel) -> None:
        """Drop an ended kernel."""
        if self._table.get(kernel.kernel_id) is kernel:
            del self._table[kernel.kernel_id]

    def stop(self, grace: float) -> None:
        """End every kernel; new ones are refused from now on."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
        if self._warm is not None:
            self._warm.kernel.end(grace)
        for each in list(self._table.values()):
            each.end(grace, "ended")


def _open_pipes(kernel: Kernel) -> tuple[int, int, int]:
    """Give a kernel our ends of three new pipes; return its own 0, 1 and 2."""
    fds: list[int] = []
    try:
        for buffer in (INPUT_BUFFER, OUTPUT_BUFFER):
            fds.extend(_open_stream(buffer))
        fds.extend(os.pipe2(os.O_CLOEXEC))
    except OSError as error:
        for fd in fds:
            os.close(fd)
        raise ProcessSpawnFailedError(kernel.kernel_id, error.strerror or str(error)) from error
    stdin, stdin_write, stdout, stdout_write, stderr, stderr_write = fds
    for fd in (stdin_write, stdout, stderr):
        os.set_blocking(fd, False)
    kernel.open(stdin_write, stdout, stderr)
    return stdin, stdout_write, stderr_write


def _starting_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that act at the start of an interpreter: a fork keeps its parent's."""
    prefixes = ("PYTHON", "LD_", "LC_", "MALLOC_")
    return {
        name: value
        for name, value in env.items()
        if name.startswith(prefixes) or name in ("LANG", "HOME")
    }


def _joined(folder: str, path: str | None) -> str:
    """Put a folder before a search path, which may be empty."""
    return f"{folder}:{path}" if path else folder
