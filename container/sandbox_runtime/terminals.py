"""Terminals: programs on a PTY of their own, whose output is kept, modelled and shown to viewers.

A terminal has *ended* when its program has ended and its output was read: until the PTY has nobody
left, or brings nothing for `QUIET` seconds, at most for `LONGEST_DRAIN`.  What programs left in the
background write later is read and thrown away, so that they do not die of it; it belongs to no
terminal any more.

Overflow rules: output goes into a log that forgets the oldest; `viewers.py` says when a program
waits for its viewers.  Input waits in one queue in the order it came, bounded for all viewers
(`terminal_readers.MOST_INPUT_OF_ALL`) and for calls (`MOST_WRITE`).
"""

from __future__ import annotations

import os
import time

from sandbox_kernel.errors import (
    InvalidProcessCwdError,
    InvalidTerminalCwdError,
    OperationInterruptedError,
    ProcessAbortedError,
    ProcessSpawnFailedError,
    TerminalControlError,
    TerminalNotFoundError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import (
    ConnectTerminalRequest,
    CreateTerminalRequest,
    Empty,
    ResizeTerminalRequest,
    TerminalInfo,
    TerminalOutputRequest,
    TerminalRequest,
    TerminalScreen,
    TerminateTerminalRequest,
    WriteTerminalRequest,
)
from sandbox_kernel.wire.terminal import MOST_GRACE, check_size, decode_cursor, encode_cursor
from sandbox_runtime import pty
from sandbox_runtime.input_queue import InputQueue
from sandbox_runtime.loop import READ, WRITE
from sandbox_runtime.processes import stopping_error
from sandbox_runtime.quick import deque, signal
from sandbox_runtime.replay import TerminalLog
from sandbox_runtime.spawn import (
    check_folder,
    folder_from,
    overlay,
    program_name,
    shown,
    spawn,
)
from sandbox_runtime.terminal_cuts import Cutter
from sandbox_runtime.terminal_members import VARIABLE, Ending, find_members
from sandbox_runtime.terminal_questions import Questions
from sandbox_runtime.terminal_readers import InputShare, OutputStream, Viewer
from sandbox_runtime.viewers import WINDOW, Flow, Sizes, may_read, next_stall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox_runtime.activity import Activity
    from sandbox_runtime.children import Children
    from sandbox_runtime.config import Config
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.leftovers import Leftovers
    from sandbox_runtime.loop import Loop, Timer
    from sandbox_runtime.memory_events import MemoryEvents

__all__ = ["Terminal", "Terminals"]

ENDED_KEPT = 25
"""How many ended terminals are kept for reading; the oldest is forgotten first."""

MOST_LIVING = 256
"""How many terminals may live at once; none of them is ever dropped."""

MOST_WRITE = 16 << 20
"""Bytes of calls that may wait for one terminal; more is refused."""

MOST_BUFFER = 16 << 20
LEAST_BUFFER = 4 << 10

SMALL = 1 << 10
"""Bytes up to which output goes to the viewers at once, if nothing waits."""

JOINED = 64 << 10
"""Bytes that waiting output is joined up to."""

JOIN_TIME = 0.002
"""Seconds that output waits, at most, to be joined with more."""

READS = 4
"""How often a terminal is read for one wake-up, at most, while each read brings much.

Each brings 4 KiB at most, and takes some 20 us, for which everything else waits.  So there is one
only while anybody types, in whatever terminal.
"""

CALM = 0.5
"""Seconds without a keystroke after which nobody types."""

MANY_READERS = 16
"""Readers from which on, after each piece of output, the next one waits twice as long as it took.

Whoever passes the pieces on needs that time, too; it is some milliseconds for hundreds of readers.
"""

HOLD_TIME = 0.02
"""Seconds for which the beginning of a sequence waits, at most, for the rest of it."""

QUIET = 0.05
"""Seconds without output after which an ended program's terminal has ended."""

LONGEST_DRAIN = 0.5
"""Seconds for which an ended program's terminal is read, at most, while others write to it."""

FOREGROUND_CHECK = 10.0
"""Seconds, at most, between two looks at what runs in the foreground."""

_CHUNK = 64 << 10
_MUCH = 2 << 10  # for one read
_CHANNEL_BUFFER = 128 << 10
_MOST_MARKS = 4096
_MOST_UNLOGGED = 256
_MARK_EVERY = 0.1
_SHELLS = frozenset(("ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"))


class Terminal:
    """A program, its PTY, what it has written, and who reads that."""

    def __init__(
        self,
        table: Terminals,
        terminal_id: str,
        argv: list[str],
        cwd: str,
        *,
        session: str | None,
        size: tuple[int, int],
        buffer_size: int,
    ) -> None:
        self.table = table
        self.terminal_id = terminal_id
        self.session = session
        self.pid = 0
        self.log = TerminalLog(*size, size=buffer_size)
        self.sizes = Sizes(size)
        self.readers: list[Viewer | OutputStream] = []
        # Stands for the first reader while its creator may be about to connect one.
        self._until_viewed: Flow | None = Flow(WINDOW)
        self.waiters: list[Callable[[], None]] = []
        """Called once when the terminal has ended."""
        self.ending_waiters: list[Callable[[], None]] = []
        """Called once when also nothing is left of what is being ended with it."""
        self.finished = False
        self.exit_code: int | None = None
        self.signal: int | None = None
        self._argv = shown(argv)
        self._cwd = cwd
        self._is_shell = _is_shell(argv)
        self._questions = Questions(is_shell=self._is_shell)
        self.reason: str | None = None
        self._created_at = time.time()
        self._ended_at: float | None = None
        self._master = self._slave = -1
        self._is_reading = False
        self._events = 0
        self._input: InputQueue | None = None
        self._calls_waiting = 0
        self._cutter = Cutter()
        self._joining: list[bytes] = []  # output that they were not offered yet
        self._joining_size = 0
        self._unlogged: list[bytes] = []  # output that is not in the log yet, up to `end`
        self._join_timer: Timer | None = None
        self._join_by = 0.0
        self._rests_until = 0.0
        self._hold_timer: Timer | None = None
        self._held_from = 0  # what the timer waits for the rest of
        self._stall_timer: Timer | None = None
        self._marks: list[tuple[int, float]] = []
        self._heard = False
        self._drained = 0.0
        self._holds = False
        self._session_leader: int | None = None
        self._ending: Ending | None = None

    def __repr__(self) -> str:
        return f"<Terminal {self.terminal_id} pid={self.pid} exit_code={self.exit_code}>"

    @property
    def holder(self) -> str:
        """Its name among what holds the sandbox awake."""
        return f"terminal {self.terminal_id}"

    def cursor(self, offset: int) -> str:
        """Return the cursor of an offset in the output."""
        return encode_cursor(self.table.incarnation, self.terminal_id, offset)

    def info(self, *, existing: bool = False) -> TerminalInfo:
        """Return what is known."""
        self.settle()
        title = self.log.title
        self.watch_log()
        stopped = self.finished and self.reason == "stopped"
        error = ProcessAbortedError(self.terminal_id) if stopped else None
        cols, rows = self.sizes.size
        return TerminalInfo(
            terminal_id=self.terminal_id,
            pid=self.pid,
            argv=self._argv,
            cwd=self._cwd,
            status="error" if stopped else "exited" if self.finished else "running",
            exit_code=self.exit_code if self.finished else None,
            signal=self.signal if self.finished else None,
            reason=self.reason if self.finished else None,
            error_code=error.code if error else None,
            error_message=error.message if error else None,
            cols=cols,
            rows=rows,
            title=title,
            session=self.session,
            created_at=self._created_at,
            ended_at=self._ended_at,
            viewers=sum(isinstance(each, Viewer) for each in self.readers),
            cursor=self.cursor(self.log.end),
            existing=existing,
            incarnation=self.table.incarnation,
        )

    def started(self, pid: int, master: int, slave: int) -> None:
        """Take over a started program and both ends of its PTY.

        The program's end stays open here, too, until the program has ended: one that closes its
        terminal and opens it anew must not look as if it had gone.
        """
        self.pid = self._session_leader = pid
        self._master, self._slave = master, slave
        self._input = InputQueue(master, self._input_blocked, self._input_broken)
        self.table.children.watch(pid, self._exited)
        self._questions.look(master, pid)
        self.check_pace()
        self.check_foreground()

    # --- output -------------------------------------------------------------------------------

    def _ready(self, events: int) -> None:
        if events & WRITE and self._input is not None:
            self._input.pump()
        if not self._is_reading or self._master < 0:
            return
        try:
            data = os.read(self._master, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._hung_up()
            return
        self._heard = True
        joining = self._joining
        was_joining = bool(joining)
        joining.append(data)
        size = self._joining_size + len(data)
        most = self._most_joined()
        if len(data) >= _MUCH and size < most and time.monotonic() >= self.table.calm_from:
            size += self._read_on(most - size)
        self._joining_size = size
        if size >= most:
            self._offer()
        elif not was_joining:
            now = time.monotonic()
            if size < SMALL and now >= self._rests_until:
                self._offer()
                return
            self._join_by = max(now + JOIN_TIME, self._rests_until)
            if self._join_timer is None:
                self._join_timer = self.table.loop.call_at(self._join_by, self._join_is_due)

    def _read_on(self, most: int) -> int:
        """Read more of a flood, up to about `most` bytes, if it is there; return how much came."""
        size = 0
        for _ in range(READS - 1):
            try:
                data = os.read(self._master, _CHUNK)
            except OSError:
                break  # nothing more for now; an end is told in the next turn
            self._joining.append(data)
            size += len(data)
            if len(data) < _MUCH or size >= most:
                break
        return size

    def _most_joined(self) -> int:
        return min(JOINED, self.log.appetite)

    def _join_is_due(self) -> None:
        """Offer what has waited long enough; the timer of an earlier piece is too early for it."""
        self._join_timer = None
        if self._joining:
            loop = self.table.loop
            if time.monotonic() < self._join_by:
                self._join_timer = loop.call_at(self._join_by, self._join_is_due)
            else:
                self._offer()

    def _offer(self) -> None:
        """Let the readers have what was joined, up to where it is cut."""
        pieces, self._joining, self._joining_size = self._joining, [], 0
        if pieces:
            parted = self._cutter.parted
            data = self._cutter.feed(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            self._watch_held()
            if len(self.readers) < MANY_READERS:
                self._offer_piece(data, parted)
                return
            started = time.monotonic()
            self._offer_piece(data, parted)
            now = time.monotonic()
            self._rests_until = now + 2 * (now - started)

    def _watch_held(self) -> None:
        """See to it that what is held back does not wait for ever."""
        cutter = self._cutter
        if self._hold_timer is not None and not (
            cutter.is_holding and cutter.end == self._held_from
        ):
            self._hold_timer.cancel()
            self._hold_timer = None
        if cutter.is_holding and self._hold_timer is None:
            self._held_from = cutter.end
            self._hold_timer = self.table.loop.call_later(HOLD_TIME, self._held_long_enough)

    def _held_long_enough(self) -> None:
        self._hold_timer = None
        parted = self._cutter.parted
        self._offer_piece(self._cutter.release(), parted)

    def _offer_the_last(self) -> None:
        """Let the readers have everything, since nothing follows."""
        self._offer()
        parted = self._cutter.parted
        self._offer_piece(self._cutter.finish(), parted)
        self._watch_held()

    def _offer_piece(self, data: bytes, parted: bytes) -> None:
        """Let the readers have a piece; `parted` is what it may go on with, if anything.

        Who has everything before it gets it as it is, and the log later, when there is enough for
        it or somebody looks: it is the larger part of the work.
        """
        if not data:
            return
        begin = self.end - len(data)
        self._mark(begin)
        self._unlogged.append(data)
        if not self._is_viewed():
            self._questions.note(parted + data, self._master, self.pid)
        if self._until_viewed is not None:
            self._until_viewed.sent(len(data), self.end, time.monotonic())
        is_full = self._until_viewed is not None
        late = []
        for each in self.readers:
            if not each.take(data, begin, self.end):
                late.append(each)
            is_full = is_full or each.flow.is_full
        if self.end - self.log.end >= self._most_joined() or len(self._unlogged) >= _MOST_UNLOGGED:
            self.fill_log()
        for each in late:
            each.pump()
            is_full = is_full or each.flow.is_full
        if is_full:
            self.check_pace()

    @property
    def end(self) -> int:
        """Bytes of output that the readers were offered."""
        return self._cutter.end

    @property
    def is_parted(self) -> bool:
        """Whether they were offered the beginning of a sequence without the rest."""
        return self._cutter.whole_end != self._cutter.end

    def _is_viewed(self) -> bool:
        return any(isinstance(each, Viewer) for each in self.readers)

    def unanswered(self) -> bytes:
        """Return, once, what was asked while nobody could answer, and is still waited for."""
        return self._questions.take(self._master)

    def is_answered_by(self, viewer: Viewer) -> bool:
        """Whether queries go to this viewer: to the one who decides, else to the first."""
        decider = self.sizes.decider
        if decider is None:
            decider = next(each for each in self.readers if isinstance(each, Viewer))
        return decider is viewer

    def fill_log(self) -> None:
        """Put into the log what was offered."""
        pieces, self._unlogged = self._unlogged, []
        if pieces:
            self.log.feed(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            self.watch_log()

    def watch_log(self) -> None:
        """Read no more, for now, than the log can draw; for whoever has let it draw."""
        if self.log.is_behind:
            self.table.catch_up_later(self)
            if self._is_reading:
                self.check_pace()

    def catch_up(self) -> bool:
        """Let the log draw for a turn; return whether it needs another one."""
        self.log.catch_up()
        if not self.log.is_behind:
            self.check_pace()
        return self.log.is_behind

    def settle(self) -> None:
        """Bring the log up to date, for somebody who looks."""
        self._offer()
        self.fill_log()

    def _mark(self, offset: int) -> None:
        """Remember when output came, roughly."""
        marks, now = self._marks, time.time()
        if marks and now - marks[-1][1] < _MARK_EVERY:
            return
        marks.append((offset, now))
        if len(marks) > _MOST_MARKS:
            del marks[: _MOST_MARKS // 2]

    def time_of(self, offset: int) -> float:
        """Return when the output at an offset came, to a tenth of a second."""
        found = self._created_at
        for start, when in reversed(self._marks):
            found = when
            if start <= offset:
                break
        return found

    def check_pace(self) -> None:
        """Read on or not, as the viewers and the state of the program demand."""
        if self._master < 0:
            return
        now = time.monotonic()
        flows = [each.flow for each in self.readers]
        if self._until_viewed is not None:
            flows.append(self._until_viewed)
        wanted = not self.log.is_behind and may_read(flows, now)
        if wanted != self._is_reading:
            self._is_reading = wanted
            self._watch()
        if not wanted and self._stall_timer is None:
            when = next_stall(flows, now)
            if when is not None:
                self._stall_timer = self.table.loop.call_at(when, self._stalled)

    def _stalled(self) -> None:
        self._stall_timer = None
        self.check_pace()

    def _watch(self) -> None:
        """Ask the loop for exactly what can be acted on."""
        blocked = self._input is not None and self._input.blocked
        events = (READ if self._is_reading else 0) | (WRITE if blocked else 0)
        if events == self._events:
            return
        loop, before, self._events = self.table.loop, self._events, events
        if not before:
            loop.add(self._master, events, self._ready)
        elif events:
            loop.modify(self._master, events)
        else:
            loop.remove(self._master)

    def _unwatch(self) -> int:
        """Give the PTY up; return its descriptor, which nobody watches any more."""
        master, self._master = self._master, -1
        self._is_reading = False
        if self._events:
            self._events = 0
            self.table.loop.remove(master)
        return master

    # --- input --------------------------------------------------------------------------------

    def type(self, data: bytes, owner: object, done: Callable[[bool], None]) -> None:
        """Pass on what was typed; what comes after the program's end goes nowhere."""
        queue = self._input
        if queue is None:
            done(False)
            return
        now = time.monotonic()
        self.table.activity.touch(now)
        self.table.calm_from = now + CALM
        overtaking = pty.overtakes(self._master, data) if queue.waiting else 0
        if overtaking:
            queue.clear()
            pty.discard_input(self._slave)
            queue.put(pty.interrupt(self._master), self, _ignore)
            data = data[overtaking:]
        queue.put(data, owner, done)

    def _input_blocked(self, _blocked: bool) -> None:  # noqa: FBT001
        if self._master >= 0:
            self._watch()

    def _input_broken(self) -> None:
        if self._input is not None:
            self._input.clear()

    def write(self, data: bytes, exchange: Exchange) -> None:
        """Type on behalf of a call, which is answered when all is in the terminal."""
        queue = self._must_live("write to")
        if self._calls_waiting and self._calls_waiting + len(data) > MOST_WRITE:
            raise ValidationFailedError("data", f"exceeds {MOST_WRITE} bytes with what waits")

        def done(written: bool) -> None:  # noqa: FBT001
            self._calls_waiting -= len(data)
            if written:
                exchange.result(Empty())
            else:
                exchange.fail(self._refused("write to", "its input was discarded"))

        def cancelled() -> None:
            self._calls_waiting -= len(data)
            queue.cancel(exchange)
            exchange.fail(OperationInterruptedError("terminal.write", "the call was cancelled"))

        self._calls_waiting += len(data)
        exchange.on_cancel = cancelled
        self.type(data, exchange, done)

    def _must_live(self, action: str) -> InputQueue:
        if self._input is None:
            raise self._refused(action, "it has ended")
        return self._input

    def _refused(self, action: str, reason: str) -> TerminalControlError:
        return TerminalControlError(self.terminal_id, action, reason)

    # --- size ---------------------------------------------------------------------------------

    def viewer_resized(self, viewer: Viewer, size: tuple[int, int]) -> None:
        """Take a viewer's size, and tell it if another one is that of the terminal."""
        self.apply_size(self.sizes.resize(viewer, size))
        viewer.tell_size(self.sizes.size)

    def resize(self, size: tuple[int, int]) -> None:
        """Set the size on behalf of a call."""
        self._must_live("resize")
        self.sizes.set(size)
        self.apply_size(size)

    def apply_size(self, size: tuple[int, int]) -> None:
        """Give the PTY and the model a size, and tell the viewers that do not know it."""
        if size == (self.log.cols, self.log.rows):
            return
        if self._master >= 0 and not self.finished:
            try:
                pty.set_size(self._master, *size)
            except OSError as error:
                raise self._refused("resize", error.strerror or str(error)) from error
        self.settle()
        self.log.resize(*size)
        self.watch_log()
        for each in self.readers:
            each.tell_size(size)

    def read_by(self, reader: Viewer | OutputStream) -> None:
        """Offer a reader all output from now on."""
        self._until_viewed = None
        self.readers.append(reader)
        self.check_pace()

    def viewer_left(self, viewer: Viewer) -> None:
        """Go on without a viewer."""
        if viewer in self.readers:
            self.readers.remove(viewer)
            self._questions.look(self._master, self.pid)
        self.apply_size(self.sizes.leave(viewer))
        self.check_pace()

    # --- control ------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Interrupt what runs in the foreground."""
        queue = self._must_live("interrupt")
        self.table.activity.touch(time.monotonic())
        queue.put(pty.interrupt(self._master), self, _ignore)

    def terminate(self, grace: float, reason: str = "terminated", *, politely: bool = True) -> None:
        """End the program and all that was started in the terminal."""
        if self.running:
            self.reason = self.reason or reason
        if self._ending is None:
            self._ending = Ending(
                self.table.loop, self._members, grace, politely=politely, done=self._all_ended
            )
            self._ending.begin()
        elif grace <= 0:
            self._ending.hurry()

    def _members(self) -> list[int]:
        found = find_members(self._session_leader, self.terminal_id)
        if not found and not self.running:
            # From now on the session's number may be somebody else's.
            self._session_leader = None
        return found

    def _all_ended(self) -> None:
        self._ending = None
        self._tell_waiters()

    @property
    def running(self) -> bool:
        """Whether the program has not been reaped."""
        return self.exit_code is None

    @property
    def is_ending(self) -> bool:
        """Whether something that was started in it is being ended."""
        return self._ending is not None

    # --- what holds the sandbox awake ---------------------------------------------------------

    def check_foreground(self) -> None:
        """Hold the sandbox awake while a command runs in the foreground."""
        busy = self.running and (
            not self._is_shell or pty.foreground_group(self._master) not in (0, self.pid)
        )
        if busy == self._holds:
            return
        self._holds = busy
        if busy:
            self.table.activity.hold(self.holder)
        else:
            self.table.activity.let_go(self.holder, time.monotonic())

    # --- the end ------------------------------------------------------------------------------

    def _exited(self, status: int) -> None:
        """Take the program's wait status; what it has written is still to be read."""
        code = os.waitstatus_to_exitcode(status)
        self.signal = -code if code < 0 else None
        self.exit_code = 128 - code if code < 0 else code
        if self.signal == signal.SIGKILL and self.table.memory_events.explains_kill():
            self.reason = "memory_limit"
        if self._ending is None:
            self._session_leader = None
        self.check_foreground()
        queue, self._input = self._input, None
        if queue is not None:
            queue.clear()
        os.close(self._slave)
        self._slave = -1
        self._heard = False
        if self._master < 0:
            self._finish()
        else:
            self._watch()
            self.table.loop.call_later(QUIET, self._check_quiet)

    def _check_quiet(self) -> None:
        """End when nothing has come for a while, not counting the time that viewers need."""
        if self.finished:
            return
        if self._is_reading:
            self._drained += QUIET
            if not self._heard or self._drained >= LONGEST_DRAIN:
                self._finish()
                return
        self._heard = False
        self.table.loop.call_later(QUIET, self._check_quiet)

    def _hung_up(self) -> None:
        """Nobody has the terminal any more, or somebody has revoked it."""
        os.close(self._unwatch())
        if not self.running:
            self._finish()

    def _finish(self) -> None:
        if self._master >= 0:
            self.table.leftovers.discard(self._unwatch())
        self._ended_at = time.time()
        self.finished = True
        self._offer_the_last()
        self.fill_log()
        for each in list(self.readers):
            each.pump()
        self._tell_waiters()
        self.table.ended(self)

    def _tell_waiters(self) -> None:
        if not self.finished:
            return
        told, self.waiters = self.waiters, []
        if not self.is_ending:
            told, self.ending_waiters = told + self.ending_waiters, []
        for each in told:
            each()


class Terminals:
    """Every living terminal, and the last ended ones."""

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
    ) -> None:
        self.loop = loop
        self.config = config
        self.incarnation = incarnation
        self.children = children
        self.activity = activity
        self.memory_events = memory_events
        self.leftovers = leftovers
        self.stopping = False
        self._table: dict[str, Terminal] = {}
        self._foreground_timer: Timer | None = None
        self._behind: deque[Terminal] = deque()
        self.calm_from = 0.0
        """When nobody types any more, if nobody does meanwhile."""
        self.input_share = InputShare()

    def __len__(self) -> int:
        return sum(not each.finished or each.is_ending for each in self._table.values())

    # --- creating -----------------------------------------------------------------------------

    def create(
        self,
        request: CreateTerminalRequest,
        *,
        session_cwd: str | None = None,
        session_env: Mapping[str, str] | None = None,
    ) -> TerminalInfo:
        """Find the session's terminal, or start one, in folder and environment of its shell."""
        check_size(request.cols, request.rows)
        if not LEAST_BUFFER <= request.buffer_size <= MOST_BUFFER:
            raise ValidationFailedError("buffer_size", f"must be {LEAST_BUFFER} to {MOST_BUFFER}")
        _check_name("session", request.session)
        found = self._of_session(request)
        if found is not None:
            return found.info(existing=True)
        terminal_id = self._new_id(request.terminal_id)
        env = self._env(request, terminal_id, session_env)
        argv = [_shell(env)] if request.argv is None else list(request.argv)
        name = program_name(argv)
        if session_cwd is None or not os.path.isdir(session_cwd):
            session_cwd = self.config.cwd
        cwd = folder_from(session_cwd, request.cwd)
        self._check_room(name)
        size = (request.cols, request.rows)
        try:
            check_folder(cwd)
            terminal = Terminal(
                self,
                terminal_id,
                argv,
                cwd,
                session=request.session,
                size=size,
                buffer_size=request.buffer_size,
            )
            self._start(terminal, argv, cwd, env)
        except InvalidProcessCwdError as error:
            raise InvalidTerminalCwdError(**error.context) from None
        self._table[terminal_id] = terminal
        self.activity.touch(time.monotonic())
        self._watch_foreground()
        return terminal.info()

    def _start(self, terminal: Terminal, argv: list[str], cwd: str, env: dict[str, str]) -> None:
        try:
            master, slave, path = pty.open_pty(*terminal.sizes.size)
        except OSError as error:
            raise ProcessSpawnFailedError(
                argv[0][:200],
                f"there is no terminal left ({error.strerror})",
                "End terminals that are not needed any more.",
            ) from error
        try:
            pid = spawn(argv, cwd=cwd, env=env, stdio=path)
        except BaseException:
            os.close(master)
            os.close(slave)
            raise
        terminal.started(pid, master, slave)

    def _of_session(self, request: CreateTerminalRequest) -> Terminal | None:
        if request.session is None:
            return None
        every = [each for each in self._table.values() if each.session == request.session]
        living = [each for each in every if each.running]
        if living:
            return living[-1]
        return every[-1] if every and request.find_ended else None

    def _new_id(self, wanted: str | None) -> str:
        if wanted is None:
            # Never that of another container's terminal: addresses of viewers hold nothing else.
            return f"t-{os.urandom(8).hex()}"
        _check_name("terminal_id", wanted)
        if wanted in self._table:
            raise ValidationFailedError("terminal_id", f"{wanted!r} is taken")
        return wanted

    def _env(
        self,
        request: CreateTerminalRequest,
        terminal_id: str,
        session_env: Mapping[str, str] | None,
    ) -> dict[str, str]:
        base = {
            name: value
            for name, value in (self.config.env if session_env is None else session_env).items()
            # These are the terminal's to say, at any time.
            if name not in ("COLUMNS", "LINES")
        }
        if not {"LC_ALL", "LC_CTYPE", "LANG"} & base.keys():
            base["LANG"] = "C.UTF-8"
        base.update(TERM="xterm-256color", COLORTERM="truecolor")
        return {**overlay(base, request.env), VARIABLE: terminal_id}

    def _check_room(self, name: str) -> None:
        if self.stopping:
            raise stopping_error(self.config)
        if sum(not each.finished for each in self._table.values()) >= MOST_LIVING:
            raise ProcessSpawnFailedError(
                name,
                f"{MOST_LIVING} terminals live already",
                "End terminals that are not needed any more.",
            )

    # --- asking -------------------------------------------------------------------------------

    def _get(self, terminal_id: str) -> Terminal:
        terminal = self._table.get(terminal_id)
        if terminal is None:
            raise TerminalNotFoundError(terminal_id)
        return terminal

    def get(self, request: TerminalRequest) -> TerminalInfo:
        """Return what is known of a terminal."""
        return self._get(request.terminal_id).info()

    def known(self) -> list[TerminalInfo]:
        """Return every known terminal, living ones first."""
        return [
            each.info() for each in sorted(self._table.values(), key=lambda each: each.finished)
        ]

    def snapshot(self, request: TerminalRequest) -> TerminalScreen:
        """Return what a terminal shows."""
        terminal = self._get(request.terminal_id)
        terminal.settle()
        screen = terminal.log.snapshot()
        terminal.watch_log()
        return TerminalScreen(
            info=terminal.info(),
            lines=list(screen.lines),
            cursor_col=screen.cursor[0],
            cursor_row=screen.cursor[1],
            is_cursor_visible=bool(screen.modes["cursor_visible"]),
            is_alternate=screen.is_alternate,
        )

    # --- using --------------------------------------------------------------------------------

    def write(self, request: WriteTerminalRequest, exchange: Exchange) -> None:
        """Type; the answer comes when all is in the terminal."""
        self._get(request.terminal_id).write(request.data, exchange)

    def resize(self, request: ResizeTerminalRequest) -> Empty:
        """Set a terminal's size."""
        check_size(request.cols, request.rows)
        self._get(request.terminal_id).resize((request.cols, request.rows))
        return Empty()

    def interrupt(self, request: TerminalRequest) -> Empty:
        """Interrupt what runs in the foreground."""
        self._get(request.terminal_id).interrupt()
        return Empty()

    def terminate(
        self, request: TerminateTerminalRequest, exchange: Exchange
    ) -> TerminalInfo | None:
        """End a terminal; answered when it and all that was started in it has ended."""
        if not 0 <= request.grace <= MOST_GRACE:
            raise ValidationFailedError("grace", f"must be 0 to {MOST_GRACE} seconds")
        terminal = self._get(request.terminal_id)
        terminal.terminate(request.grace)
        if terminal.finished and not terminal.is_ending:
            return terminal.info()
        self._wait(terminal, terminal.ending_waiters, exchange, "terminal.terminate")
        return None

    def wait(self, request: TerminalRequest, exchange: Exchange) -> TerminalInfo | None:
        """Answer when a terminal has ended."""
        terminal = self._get(request.terminal_id)
        if terminal.finished:
            return terminal.info()
        self._wait(terminal, terminal.waiters, exchange, "terminal.wait")
        return None

    @staticmethod
    def _wait(
        terminal: Terminal, waiters: list[Callable[[], None]], exchange: Exchange, operation: str
    ) -> None:
        def tell() -> None:
            exchange.result(terminal.info())

        def cancelled() -> None:
            if tell in waiters:
                waiters.remove(tell)
            exchange.fail(OperationInterruptedError(operation, "the call was cancelled"))

        waiters.append(tell)
        exchange.on_cancel = cancelled

    def output(self, request: TerminalOutputRequest, exchange: Exchange) -> None:
        """Stream output from a cursor."""
        terminal = self._get(request.terminal_id)
        terminal.settle()
        log = terminal.log
        if request.since is not None:
            offset = self._offset(terminal, request.since)
        else:
            offset = log.start if request.replay else log.end
        until = None if request.follow else log.end
        stream = OutputStream(terminal, exchange, offset, until=until)
        if request.follow:
            holder = f"stream of {terminal.terminal_id}"
            self.activity.hold(holder)
            stream.on_end = lambda: self.activity.let_go(holder, time.monotonic())
        exchange.on_cancel = stream.finish
        stream.pump()

    def _offset(self, terminal: Terminal, cursor: str) -> int:
        return decode_cursor(cursor, self.incarnation, terminal.terminal_id, terminal.log.end)

    def connect(self, request: ConnectTerminalRequest, exchange: Exchange) -> None:
        """Turn the connection into a viewer's channel."""
        terminal = self._get(request.terminal_id)
        terminal.settle()
        size = None
        if request.cols is not None and request.rows is not None:
            check_size(request.cols, request.rows)
            size = (request.cols, request.rows)
        elif request.cols is not None or request.rows is not None:
            raise ValidationFailedError("cols", "needs rows, and rows need cols")
        since = None
        if request.cursor is not None:
            since = self._offset(terminal, request.cursor)
        connection = exchange.connection
        if not connection.can_become_channel:
            raise ValidationFailedError("op", "needs a connection without other calls")
        viewer = Viewer(
            terminal,
            connection,
            acknowledges=request.acknowledges,
            strip_queries=request.strip_queries,
        )
        exchange.result(terminal.info())
        connection.become_channel(viewer, send_buffer=_CHANNEL_BUFFER)
        viewer.begin(since, size)

    # --- drawing ------------------------------------------------------------------------------

    def catch_up_later(self, terminal: Terminal) -> None:
        """Let a terminal's log catch up, bit by bit."""
        if terminal not in self._behind:
            self._behind.append(terminal)
            if len(self._behind) == 1:
                self.loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        """Let one of them draw for a turn of the loop, however many there are."""
        terminal = self._behind.popleft()
        try:
            if terminal.catch_up():
                self._behind.append(terminal)
        finally:
            if self._behind:
                self.loop.call_soon(self._catch_up)

    # --- ending -------------------------------------------------------------------------------

    def ended(self, terminal: Terminal) -> None:
        """Keep an ended terminal for later questions, and forget the oldest ones."""
        # Put behind those that ended before.
        if self._table.pop(terminal.terminal_id, None) is not None:
            self._table[terminal.terminal_id] = terminal
        done = [each for each in self._table.values() if each.finished]
        for each in done[:-ENDED_KEPT]:
            del self._table[each.terminal_id]

    def stop(self, grace: float) -> None:
        """End every terminal; new ones are refused from now on."""
        self.stopping = True
        for each in list(self._table.values()):
            if each.running:
                each.terminate(grace, "stopped", politely=False)

    # --- what holds the sandbox awake ---------------------------------------------------------

    def check_foreground(self) -> None:
        """Note which terminals hold the sandbox awake now."""
        for each in self._table.values():
            if each.running:
                each.check_foreground()

    def _watch_foreground(self) -> None:
        if self._foreground_timer is None:
            period = (self.activity.sleep_after or FOREGROUND_CHECK * 10) / 10
            period = min(FOREGROUND_CHECK, max(0.05, period))
            self._foreground_timer = self.loop.call_later(period, self._look_at_foreground)

    def _look_at_foreground(self) -> None:
        self._foreground_timer = None
        self.check_foreground()
        if any(each.running for each in self._table.values()):
            self._watch_foreground()


def _check_name(field: str, name: str | None) -> None:
    if name is not None and not (0 < len(name) <= 128 and name.isprintable()):
        raise ValidationFailedError(field, "must be 1 to 128 printable characters")


def _shell(env: dict[str, str]) -> str:
    """Return the user's shell."""
    for path in (env.get("SHELL", ""), "/bin/bash"):
        if path.startswith("/") and "\0" not in path and os.access(path, os.X_OK):
            return path
    return "/bin/sh"


def _is_shell(argv: list[str]) -> bool:
    """Whether a command is a shell that waits for commands, and has none to carry out."""
    name = os.path.basename(argv[0]).lstrip("-")
    options = argv[1:]
    return name in _SHELLS and all(
        each.startswith("-") and (each.startswith("--") or "c" not in each) for each in options
    )


def _ignore(_written: bool) -> None:  # noqa: FBT001
    """Not need to know."""
