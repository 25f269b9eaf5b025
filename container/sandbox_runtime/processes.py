"""Processes: started on request, their output spooled, their end told to whoever waits.

A process is *exited* when its direct child is reaped, and *finished* when in addition all that the
child had written is in the spool.  What a grandchild writes to an inherited pipe later belongs to
no call any more: it is read and thrown away, so that a program left in the background does not die
of a closed pipe.
"""

from __future__ import annotations

import os
import time

from sandbox_kernel.errors import (
    CommandNotFoundError,
    ContainerUnavailableError,
    InvalidCommandError,
    OperationInterruptedError,
    ProcessAbortedError,
    ProcessNotFoundError,
    ProcessSpawnFailedError,
    ProcessWaitTimeoutError,
    StdinClosedError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import (
    Empty,
    ExecRequest,
    ExecResult,
    KillAllRequest,
    KillAllResult,
    OutputEnd,
    OutputEvent,
    OutputRequest,
    ProcessInfo,
    SignalRequest,
    StartProcessRequest,
    WaitRequest,
    WriteStdinRequest,
)
from sandbox_runtime.children import signal_group
from sandbox_runtime.cursors import make_cursor, read_cursor
from sandbox_runtime.input_queue import InputQueue
from sandbox_runtime.loop import READ, WRITE
from sandbox_runtime.quick import signal
from sandbox_runtime.spawn import MOST_ARGV_SHOWN, folder_from, overlay, program_name, shown, spawn
from sandbox_runtime.spool import DATA_IN_MEMORY, STDERR, STDOUT, Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sandbox_kernel.errors import SandboxError
    from sandbox_kernel.wire.record import Record
    from sandbox_runtime.activity import Activity
    from sandbox_runtime.children import Children
    from sandbox_runtime.config import Config
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.leftovers import Leftovers
    from sandbox_runtime.loop import Loop, Timer
    from sandbox_runtime.memory_events import MemoryEvents

__all__ = [
    "FINISHED_KEPT",
    "KILL_GRACE",
    "Input",
    "Output",
    "Process",
    "Processes",
    "check_text",
    "check_timeout",
    "feed",
    "stopping_error",
]

FINISHED_KEPT = 64
"""How many finished processes are remembered with their output; the oldest is forgotten first."""

FINISHED_KEPT_AT_LEAST = 25
"""How many of them are remembered although together they hold more output than one may."""

KILL_GRACE = 1.0
"""Seconds between TERM and KILL where a time limit or a cancelled call ends a process."""

MOST_STDIN = 64 << 20
"""Bytes that may wait for one process's stdin; more is refused."""

_CHUNK = 256 << 10
_SMALLEST_CHUNK = 1024
_LARGE_PIPE = 1 << 20
_DEFAULT_PIPE = 64 << 10
_DISK_RETRY = 1.0

_PATIENCE = 0.02
"""Seconds that a command's pipe is left alone for its reader to make room in memory: a disk costs
more than the wait.  A reader who needs longer is slow, and holds the command up no more."""

_STREAMS = ("stdout", "stderr")


class Output:
    """The reading end of a process's stdout or stderr."""

    def __init__(self, process: Process, stream: int, fd: int) -> None:
        self._process = process
        self._loop = process.table.loop
        self._stream = stream
        self._fd = fd
        self._watched = False
        self._large = False
        self._left: int | None = None
        self._unwritten = b""
        self.is_left = False
        """Whether somebody may still write to it."""
        self.watch()

    @property
    def is_open(self) -> bool:
        """Whether it is still read."""
        return self._fd >= 0

    def watch(self) -> None:
        """Read on, unless the spool has no room."""
        if self._fd < 0 or self._unwritten:
            return
        wanted = self._process.spool.room > 0
        if self._left is not None:
            if wanted:
                self._loop.call_soon(self._drain)
        elif wanted != self._watched:
            self._watched = wanted
            if wanted:
                self._loop.add(self._fd, READ, self._ready)
            else:
                self._loop.remove(self._fd)

    def _ready(self, _events: int) -> None:
        if self._process.waits_for_reader():
            self._unwatch()
            return
        self._read(_CHUNK)
        self.watch()

    def _read(self, most: int) -> int:
        """Read once; return how many bytes came, 0 if none are there now."""
        size = min(most, self._process.spool.room)
        if size <= 0:
            return 0
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return 0
        if not data:
            self._close()
            return 0
        if len(data) >= _DEFAULT_PIPE and not self._large:
            self._enlarge()
        self._store(data)
        return len(data)

    def _store(self, data: bytes) -> None:
        try:
            self._process.spool.append(self._stream, data, time.time())
        except OSError as error:
            # The disk is full: the bytes wait here and the writer in its pipe until it has room.
            if not self._unwritten:
                self._process.table.log(f"{self._process.process_id}: output waits: {error}")
                self._unwatch()
            self._unwritten = data
            self._loop.call_later(_DISK_RETRY, self._retry)
            return
        self._process.has_written()

    def _retry(self) -> None:
        data, self._unwritten = self._unwritten, b""
        if self._fd < 0 or not data:
            return
        self._store(data)
        if not self._unwritten:
            self.watch()

    def _enlarge(self) -> None:
        """Give a writer who fills its pipe a larger one: fewer wake-ups for the same bytes."""
        self._large = True
        from fcntl import F_SETPIPE_SZ, fcntl  # noqa: PLC0415  most commands never come here

        try:  # noqa: SIM105  contextlib costs two milliseconds of every start
            fcntl(self._fd, F_SETPIPE_SZ, _LARGE_PIPE)
        except OSError:
            pass  # The user's share of pipe memory is used up; the small pipe does as well.

    def child_gone(self) -> None:
        """Read what the child had left in the pipe, and no more than that."""
        if self._fd < 0:
            return
        self._unwatch()
        self._left = _LARGE_PIPE if self._large else _DEFAULT_PIPE
        self._drain()

    def _drain(self) -> None:
        """Read until the pipe is empty or as much has come as it could hold; little per turn."""
        read = 0
        while True:
            if self._fd < 0 or self._left is None or self._unwritten:
                return
            if self._process.spool.room <= 0:
                return
            count = self._read(min(_CHUNK, self._left))
            self._left -= count
            if self._fd < 0 or self._unwritten:
                return
            if not count or self._left <= 0:
                break
            read += count
            if read >= _DEFAULT_PIPE:
                self._loop.call_soon(self._drain)
                return
        fd, self._fd = self._fd, -1
        self.is_left = True
        self._process.table.leftovers.discard(fd)
        self._process.output_closed()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove(self._fd)

    def _close(self) -> None:
        self._unwatch()
        os.close(self._fd)
        self._fd = -1
        self._process.output_closed()


class Input:
    """The writing end of a process's stdin, and what waits to be written."""

    def __init__(self, process: Process, fd: int) -> None:
        self._process = process
        self._loop = process.table.loop
        self._fd = fd
        self._queue = InputQueue(fd, self._watch, self.close)
        self._closer: object = None

    def write(self, data: bytes, exchange: Exchange | None, *, close: bool) -> None:
        """Write in order; the exchange is answered when its last byte is in the pipe.

        Raises
        ------
        StdinClosedError
            The pipe is closed, or will be after what waits already.
        ValidationFailedError
            Too much waits already; nothing was taken.
        """
        if self._fd < 0 or self._closer is not None:
            raise StdinClosedError(self._process.process_id)
        waiting = self._queue.waiting
        if waiting and waiting + len(data) > MOST_STDIN:
            raise ValidationFailedError("data", f"exceeds {MOST_STDIN} bytes with what waits")
        writer: object = exchange or self
        if close:
            self._closer = writer
        if exchange is not None:
            exchange.on_cancel = lambda: self._cancel(exchange)

        def done(written: bool) -> None:  # noqa: FBT001
            if exchange is not None and written:
                exchange.result(Empty())
            elif exchange is not None:
                exchange.fail(StdinClosedError(self._process.process_id))
            if written and close:
                self.close()

        self._queue.put(data, writer, done)

    def _cancel(self, exchange: Exchange) -> None:
        self._queue.cancel(exchange)
        if self._closer is exchange:
            self._closer = None
        exchange.fail(OperationInterruptedError("process.write_stdin", "the call was cancelled"))

    def _watch(self, blocked: bool) -> None:  # noqa: FBT001
        if blocked:
            self._loop.add(self._fd, WRITE, lambda _events: self._queue.pump())
        else:
            self._loop.remove(self._fd)

    def close(self) -> None:
        """Close the pipe; what waits fails.  Twice is fine."""
        if self._fd < 0:
            return
        self._queue.clear()
        os.close(self._fd)
        self._fd = -1


class _Follower:
    """Sends a process's output on one stream, as fast as its client grants credit."""

    def __init__(
        self,
        process: Process,
        exchange: Exchange,
        offset: int,
        *,
        until: int | None,
        make_end: Callable[[], Record | SandboxError],
    ) -> None:
        self.offset = offset
        self._process = process
        self._exchange = exchange
        self._until = until
        self._make_end = make_end
        self._scheduled = False
        self._done = False
        exchange.on_writable = self.pump
        process.followers.append(self)

    def pump(self) -> None:
        """Send one piece, and the next one in the next turn."""
        if self._scheduled or self._done:
            return
        process, exchange = self._process, self._exchange
        if exchange.cancelled:
            # Nobody listens; what still comes counts as read, so that the process can end.
            self.offset = process.spool.end
            process.has_sent()
        elif self.offset < self._end():
            if not exchange.writable:
                return
            # One event may overdraw the credit.  Where it lacks little this one does: else what is
            # around the bytes of each event would cut every fourth in two.
            credit = max(_SMALLEST_CHUNK, exchange.credit + exchange.credit // 64)
            size = min(_CHUNK, credit, self._end() - self.offset)
            piece = process.spool.read(self.offset, size)
            if piece is not None:
                self.offset = piece.offset
                exchange.item(
                    OutputEvent(
                        stream=_STREAMS[piece.stream],
                        cursor=process.cursor(piece.offset),
                        timestamp=piece.timestamp,
                        data=piece.data,
                    )
                )
                process.has_sent()
            if self.offset < self._end():
                self._scheduled = True
                process.table.loop.call_soon(self._again)
                return
        if process.finished or self._until is not None:
            self.finish()

    def _end(self) -> int:
        return self._process.spool.end if self._until is None else self._until

    def _again(self) -> None:
        self._scheduled = False
        self.pump()

    def finish(self) -> None:
        """Say the last word, whatever is still unsent.  Twice is fine."""
        if self._done:
            return
        self._done = True
        self._process.followers.remove(self)
        self._process.has_sent()
        end = self._make_end()
        if isinstance(end, Exception):
            self._exchange.fail(end)
        else:
            self._exchange.end(end)


class Process:
    """A program started on request."""

    def __init__(
        self, table: Processes, process_id: str, serial: int, argv: list[str], cwd: str
    ) -> None:
        self.table = table
        self.process_id = process_id
        self.serial = serial
        self.argv = shown(argv)
        self.command: str | None = None
        self.session: str | None = None
        self.cwd = cwd
        self.pid = 0
        self.spool = Spool(table.config.spool_dir, table.spool_limit)
        self.followers: list[_Follower] = []
        self.waiters: list[Exchange] = []
        self.on_exit: list[Callable[[Process], None]] = []
        self.keeps_output = True
        self.started_at = time.time()
        self.ended_at: float | None = None
        self.began = time.monotonic()
        self.duration = 0.0
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.reason: str | None = None
        self.failure: SandboxError | None = None
        """What its caller is told in the place of how it ended."""
        self.finished = False
        self.stdin: Input | None = None
        self.outputs: list[Output] = []
        self.timer: Timer | None = None
        self._patience: Timer | None = None
        self._is_reader_slow = False

    def __repr__(self) -> str:
        return f"<Process {self.process_id} pid={self.pid} exit_code={self.exit_code}>"

    @property
    def running(self) -> bool:
        """Whether the direct child has not been reaped."""
        return self.exit_code is None

    def cursor(self, offset: int) -> str:
        """Return the cursor of an offset in the output."""
        return make_cursor(self.table.incarnation, self.serial, offset)

    def info(self) -> ProcessInfo:
        """Return what is known."""
        return ProcessInfo(
            process_id=self.process_id,
            pid=self.pid,
            argv=self.argv,
            cwd=self.cwd,
            status=self._status(),
            exit_code=self.exit_code,
            signal=self.signal,
            reason=self.reason if not self.running else None,
            started_at=self.started_at,
            ended_at=self.ended_at,
            output_bytes=self.spool.end,
            command=self.command,
            session=self.session,
            incarnation=self.table.incarnation,
        )

    def _status(self) -> str:
        if self.running:
            return "running" if self.pid else "starting"
        if self.signal is not None:
            return "killed"
        return "failed" if self.exit_code else "completed"

    # --- output -------------------------------------------------------------------------------

    def has_written(self) -> None:
        """Pass new output on, and stop reading where the spool is full."""
        for each in list(self.followers):
            each.pump()
        self._make_room()
        if self.spool.room <= 0:
            for output in self.outputs:
                output.watch()

    def has_sent(self) -> None:
        """Let go of what nobody needs any more, and read on where the spool was full."""
        was_full = self.spool.room <= 0 or self._patience is not None
        self._make_room()
        if was_full and self.spool.room > 0:
            self._read_on()

    def waits_for_reader(self) -> bool:
        """Whether more output had to go to the disk, and its one reader may soon have made room."""
        if self.keeps_output or not self.followers or not self.spool.would_spill(_CHUNK):
            return False
        if self._patience is None and not self._is_reader_slow:
            self._patience = self.table.loop.call_later(_PATIENCE, self._lose_patience)
        return self._patience is not None

    def _lose_patience(self) -> None:
        self._is_reader_slow = True
        self._read_on()

    def _read_on(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        for each in self.outputs:
            each.watch()

    def _make_room(self) -> None:
        # The output of exec has one reader, ever.  Other output is kept for later readers until the
        # limit; then what every present reader has got makes room; without one the writer waits.
        if self.followers and (not self.keeps_output or self.spool.room <= 0):
            self.spool.release(min(each.offset for each in self.followers))
            if self.spool.start == self.spool.end:
                self._is_reader_slow = False

    def output_closed(self) -> None:
        """Learn that one of the two pipes has ended."""
        self._finish_if_done()

    # --- the end ------------------------------------------------------------------------------

    def time_is_up(self) -> None:
        """End the process because its time limit has passed."""
        self.end("timeout")

    def end(self, reason: str, grace: float = KILL_GRACE) -> None:
        """End the whole process group, and what has left it but not its parents."""
        if self.running:
            from sandbox_runtime.command_members import Strays  # noqa: PLC0415  few are ended

            self.reason = self.reason or reason
            strays = Strays(self.pid)
            self.table.children.end_group(self.pid, grace)
            strays.end(self.table.loop, grace)

    def send_signal(self, number: int, *, group: bool) -> None:
        """Signal the direct child, which has not been reaped, or its whole group."""
        if group:
            signal_group(self.pid, number)
        else:
            # Not reaped yet, so the pid cannot be anybody else's.
            os.kill(self.pid, number)

    def exited(self, status: int) -> None:
        """Take the wait status of the direct child."""
        code = os.waitstatus_to_exitcode(status)
        self.table.children.check_group(self.pid)
        self.conclude(128 - code if code < 0 else code, -code if code < 0 else None)

    def conclude(self, code: int, number: int | None) -> None:
        """Take how it ended: the code, and the signal that it died of."""
        self.duration = time.monotonic() - self.began
        self.ended_at = time.time()
        self.exit_code = code
        self.signal = number
        if code == 128 + signal.SIGKILL and self.table.memory_events.explains_kill():
            self.reason = "memory_limit"
        if self.timer is not None:
            self.timer.cancel()
        if self.stdin is not None:
            self.stdin.close()
        waiters, self.waiters = self.waiters, []
        for exchange in waiters:
            self.table.answer_wait(self, exchange)
        told, self.on_exit = self.on_exit, []
        for tell in told:
            tell(self)
        self.table.activity.let_go(f"process {self.process_id}", time.monotonic())
        for each in list(self.outputs):
            each.child_gone()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self.finished or self.running or any(each.is_open for each in self.outputs):
            return
        self.finished = True
        for each in list(self.followers):
            each.pump()
        self.table.finished(self)


class Processes:
    """Every process started through the runtime, running ones and the last finished ones."""

    def __init__(
        self,
        loop: Loop,
        config: Config,
        incarnation: str,
        *,
        children: Children,
        activity: Activity,
        memory_events: MemoryEvents,
        leftovers: Leftovers,
        log: Callable[[str], None],
    ) -> None:
        self.loop = loop
        self.config = config
        self.incarnation = incarnation
        self.children = children
        self.activity = activity
        self.memory_events = memory_events
        self.leftovers = leftovers
        self.log = log
        self.stopping = False
        # The limit for files holds for this process as well, and a spool outside memory is a file.
        largest_file = config.rlimits.get("fsize", config.spool_limit)
        self.spool_limit = min(config.spool_limit, max(largest_file, DATA_IN_MEMORY))
        self._table: dict[str, Process] = {}
        self._serial = 0
        self._null = -1

    def __len__(self) -> int:
        return sum(each.running for each in self._table.values())

    # --- starting -----------------------------------------------------------------------------

    def refuse_if_stopping(self) -> None:
        """Begin nothing that the sandbox's end would cut short at once.

        Raises
        ------
        ContainerUnavailableError
            The sandbox is about to end.
        """
        if self.stopping:
            raise stopping_error(self.config)

    def _start(
        self,
        argv: list[str],
        *,
        process_id: str | None,
        cwd: str | None,
        env: dict[str, str | None],
        timeout: float | None,
        merge_stderr: bool,
        with_stdin: bool,
        base_env: Mapping[str, str] | None = None,
    ) -> Process:
        name = program_name(argv)
        check_timeout(timeout)
        whole_env = overlay(self.config.env if base_env is None else base_env, env)
        self.refuse_if_stopping()
        process_id = self.new_id(process_id)
        process = Process(self, process_id, self._serial, list(argv), self.folder(cwd))
        ours: list[int] = []
        theirs: list[int] = []
        try:
            out, out_write = os.pipe2(os.O_CLOEXEC)
            ours.append(out)
            theirs.append(out_write)
            err_write = out_write
            if not merge_stderr:
                err, err_write = os.pipe2(os.O_CLOEXEC)
                ours.append(err)
                theirs.append(err_write)
            stdin = self._null_device()
            if with_stdin:
                stdin, stdin_write = os.pipe2(os.O_CLOEXEC)
                ours.append(stdin_write)
                theirs.append(stdin)
            process.pid = spawn(
                argv, cwd=process.cwd, env=whole_env, stdio=(stdin, out_write, err_write)
            )
        except OSError as error:
            _close(ours)
            process.spool.close()
            raise ProcessSpawnFailedError(name, error.strerror or str(error)) from error
        except BaseException:
            _close(ours)
            process.spool.close()
            raise
        finally:
            _close(theirs)
        for fd in ours:
            # Only our ends: both ends of a pipe are files of their own, programs expect to block.
            os.set_blocking(fd, False)
        if with_stdin:
            process.stdin = Input(process, ours.pop())
        process.outputs = [
            Output(process, stream, fd) for stream, fd in zip((STDOUT, STDERR), ours, strict=False)
        ]
        if timeout is not None:
            process.timer = self.loop.call_at(process.began + timeout, process.time_is_up)
        self.enter(process)
        self.children.watch(process.pid, process.exited)
        return process

    def folder(self, cwd: str | None, base: str | None = None) -> str:
        """Return the folder that a request means; by default relative to the sandbox's own."""
        return folder_from(base or self.config.cwd, cwd)

    @property
    def serial(self) -> int:
        """The number of the newest process."""
        return self._serial

    def new_id(self, wanted: str | None) -> str:
        """Return the id of a new process, and count it.

        Raises
        ------
        ValidationFailedError
            The wanted one cannot be had.
        """
        self._serial += 1
        if wanted is None:
            while f"p-{self._serial}" in self._table:
                self._serial += 1
            return f"p-{self._serial}"
        if not 0 < len(wanted) <= 128 or not wanted.isprintable():
            raise ValidationFailedError("process_id", "must be 1 to 128 printable characters")
        known = self._table.get(wanted)
        if known is not None and (not known.finished or known.followers):
            raise ValidationFailedError(
                "process_id",
                f"is {wanted!r}, the name of a process that has not ended",
                hint="get_process() finds that one; end it with kill(), or take another name.",
            )
        return wanted

    def enter(self, process: Process) -> None:
        """List a process, which holds the sandbox awake until its end."""
        ended = self._table.get(process.process_id)
        if ended is not None:
            self._forget(ended)
        self._table[process.process_id] = process
        self.activity.hold(f"process {process.process_id}")

    def _null_device(self) -> int:
        if self._null < 0:
            self._null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        return self._null

    def exec(
        self,
        request: ExecRequest,
        exchange: Exchange,
        *,
        cwd: str | None = None,
        base_env: Mapping[str, str] | None = None,
    ) -> None:
        """Run a command, stream its output, and end it when its caller is gone.

        `cwd` and `base_env` hold where the request says nothing.
        """
        process = self._begin(
            request.argv,
            request.command,
            process_id=request.process_id,
            cwd=self.folder(request.cwd, cwd),
            env=request.env,
            timeout=request.fallback_timeout if request.timeout is None else request.timeout,
            merge_stderr=request.merge_stderr,
            with_stdin=request.stdin is not None or request.stdin_open,
            base_env=base_env,
        )
        self.serve(process, exchange)
        feed(process, request)

    def _begin(self, argv: list[str], command: str | None, **how: Any) -> Process:
        """Start argv, or a text in a shell of its own."""
        if command is None:
            return self._start(argv, **how)
        check_text(command)
        try:
            process = self._start(["bash", "-c", command], **how)
        except CommandNotFoundError:
            process = self._start(["sh", "-c", command], **how)
        process.command = command[:MOST_ARGV_SHOWN]
        return process

    def serve(self, process: Process, exchange: Exchange) -> None:
        """Stream a command's output and end to its one caller, without whom it is ended."""
        process.keeps_output = False

        def make_end() -> Record | SandboxError:
            self._forget(process)
            if process.failure is not None:
                return process.failure
            if process.reason == "stopped":
                return ProcessAbortedError(process.process_id)
            return ExecResult(
                process_id=process.process_id,
                exit_code=process.exit_code or 0,
                signal=process.signal,
                duration=process.duration,
                timed_out=process.reason == "timeout",
                reason=process.reason or ("cancelled" if exchange.cancelled else None),
            )

        follower = _Follower(process, exchange, 0, until=None, make_end=make_end)

        def cancelled() -> None:
            process.end("cancelled")
            follower.pump()

        exchange.on_cancel = cancelled

    def start(
        self,
        request: StartProcessRequest,
        *,
        cwd: str | None = None,
        base_env: Mapping[str, str] | None = None,
    ) -> ProcessInfo:
        """Start a process that outlives its caller."""
        process = self._begin(
            request.argv,
            request.command,
            process_id=request.process_id,
            cwd=self.folder(request.cwd, cwd),
            env=request.env,
            timeout=request.timeout,
            merge_stderr=request.merge_stderr,
            with_stdin=request.stdin,
            base_env=base_env,
        )
        return process.info()

    # --- asking -------------------------------------------------------------------------------

    def _get(self, process_id: str) -> Process:
        process = self._table.get(process_id)
        if process is None:
            raise ProcessNotFoundError(process_id)
        return process

    def get(self, process_id: str) -> ProcessInfo:
        """Return what is known of a process."""
        return self._get(process_id).info()

    def known(self) -> list[ProcessInfo]:
        """Return every known process, running ones first."""
        every = sorted(self._table.values(), key=lambda each: (not each.running, each.serial))
        return [each.info() for each in every]

    def output(self, request: OutputRequest, exchange: Exchange) -> None:
        """Stream output from a cursor."""
        process = self._get(request.process_id)
        if not process.keeps_output:
            raise ValidationFailedError(
                "process_id", "names a command of exec, whose output goes to its caller only"
            )
        spool = process.spool
        if request.since is not None:
            offset = read_cursor(
                request.since,
                self.incarnation,
                process.serial,
                process_id=process.process_id,
                start=spool.start,
                end=spool.end,
            )
        else:
            offset = spool.start if request.replay else spool.end
        holder = f"stream of {process.process_id}"

        def make_end() -> Record:
            if request.follow:
                self.activity.let_go(holder, time.monotonic())
            return OutputEnd(cursor=process.cursor(follower.offset), info=process.info())

        # Of a process that has exited everything is wanted, also what is still in its pipe.
        until = spool.end if process.running and not request.follow else None
        follower = _Follower(process, exchange, offset, until=until, make_end=make_end)
        if request.follow:
            self.activity.hold(holder)
        exchange.on_cancel = follower.finish
        follower.pump()

    def wait(self, request: WaitRequest, exchange: Exchange) -> ProcessInfo | None:
        """Answer when the process has exited; a timeout ends the waiting only."""
        process = self._get(request.process_id)
        if not process.running:
            return process.info()
        process.waiters.append(exchange)

        def leave(error: SandboxError) -> None:
            if exchange in process.waiters:
                process.waiters.remove(exchange)
            if timer is not None:
                timer.cancel()
            exchange.fail(error)

        timer = None
        if request.timeout is not None:
            timeout = max(0.0, request.timeout)
            timer = self.loop.call_later(
                timeout, lambda: leave(ProcessWaitTimeoutError(process.process_id, timeout))
            )
        exchange.on_cancel = lambda: leave(
            OperationInterruptedError("process.wait", "the call was cancelled")
        )
        return None

    def when_exited(self, process_id: str, tell: Callable[[Process], None]) -> Callable[[], None]:
        """Have `tell` called once a process has exited, at once if it has.

        Returns what takes that back; twice is fine.
        """
        process = self._get(process_id)
        if process.running:
            process.on_exit.append(tell)
        else:
            tell(process)

        def take_back() -> None:
            if tell in process.on_exit:
                process.on_exit.remove(tell)

        return take_back

    def answer_wait(self, process: Process, exchange: Exchange) -> None:
        """Tell one who waits how the process ended."""
        if process.reason == "stopped":
            exchange.fail(ProcessAbortedError(process.process_id))
        else:
            exchange.result(process.info())

    def write_stdin(self, request: WriteStdinRequest, exchange: Exchange) -> None:
        """Write to a process; the answer comes when all bytes are in its pipe."""
        process = self._get(request.process_id)
        if process.stdin is None or not process.running:
            raise StdinClosedError(process.process_id)
        process.stdin.write(request.data, exchange, close=request.close)

    def signal(self, request: SignalRequest) -> None:
        """Signal a process or its group; one that has exited gets nothing."""
        if not 1 <= request.signal < signal.NSIG:
            raise ValidationFailedError("signal", f"must be 1 to {signal.NSIG - 1}")
        process = self._get(request.process_id)
        if process.running:
            process.send_signal(request.signal, group=request.group)

    def kill_all(self, request: KillAllRequest, exchange: Exchange) -> Record | None:
        """End every process that `start` started; answered when they have ended."""
        if not 0 <= request.grace <= 300:
            raise ValidationFailedError("grace", "must be 0 to 300 seconds")
        every = [each for each in self._table.values() if each.running and each.keeps_output]
        left = set(every)

        def ended(process: Process) -> None:
            left.discard(process)
            if not left:
                exchange.result(KillAllResult(count=len(every)))

        for each in every:
            each.on_exit.append(ended)
            each.end("killed", request.grace)
        return None if every else KillAllResult(count=0)

    # --- the end ------------------------------------------------------------------------------

    def finished(self, process: Process) -> None:
        """Keep a finished process for later questions, and forget the oldest ones."""
        if not process.keeps_output:
            if not process.followers:
                self._forget(process)
            return
        done = [each for each in self._table.values() if each.finished and not each.followers]
        done.sort(key=lambda each: each.ended_at or 0.0, reverse=True)
        held = 0
        for number, each in enumerate(done, start=1):
            held += each.spool.end - each.spool.start
            too_much = held > self.spool_limit and number > FINISHED_KEPT_AT_LEAST
            if too_much or number > FINISHED_KEPT:
                self._forget(each)

    def _forget(self, process: Process) -> None:
        if self._table.get(process.process_id) is process:
            del self._table[process.process_id]
            process.spool.close()

    def stop(self, grace: float) -> None:
        """End every process; new ones are refused from now on."""
        self.stopping = True
        for each in list(self._table.values()):
            each.end("stopped", grace)


def stopping_error(config: Config, reason: str = "it is stopping") -> ContainerUnavailableError:
    """Return what whoever begins something in a sandbox that is about to end is told."""
    return ContainerUnavailableError(config.env.get("SANDBOX_ID", config.sandbox_id), reason)


def check_timeout(timeout: float | None) -> None:
    """Make sure that a time limit can be kept."""
    if timeout is not None and not 0 < timeout < 1e9:
        raise ValidationFailedError("timeout", "must be a number of seconds above zero")


def check_text(command: str) -> None:
    """Make sure that a shell can be given a text."""
    if not command:
        raise InvalidCommandError("the text is empty")
    if "\0" in command:
        raise InvalidCommandError("the text holds a NUL")


def feed(process: Process, request: ExecRequest) -> None:
    """Give a command the input that came with it."""
    if process.stdin is not None and request.stdin is not None:
        process.stdin.write(request.stdin, None, close=not request.stdin_open)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
