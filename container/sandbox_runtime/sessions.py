"""Sessions: shells that run one command at a time and keep their state from one to the next.

Commands of a session wait for their turn in the order they came, at most `MOST_WAITING` of them.
A command's result is complete when the shell is done with it and what was in its pipes then has
been read, as for any other command; what it left in the background goes on.

A command that is ended (time limit, cancellation) gets what Ctrl-C would send, then TERM, and KILL
after a grace, together with all it has started; the shell itself comes back with its state.  One
that does not come back is replaced, and the next command says so once.
"""

from __future__ import annotations

import os
import time

from sandbox_kernel.errors import (
    InvalidProcessEnvironmentError,
    OperationInterruptedError,
    ProcessSpawnFailedError,
    SandboxError,
    SessionAlreadyExistsError,
    SessionBusyError,
    SessionDestroyedError,
    SessionNotFoundError,
    SessionTerminatedError,
    ValidationFailedError,
)
from sandbox_kernel.wire.operations import Empty
from sandbox_kernel.wire.session_operations import SessionInfo
from sandbox_runtime import shell_text
from sandbox_runtime.command_members import (
    VARIABLE,
    Moment,
    direct_children,
    find_members,
    signal_members,
)
from sandbox_runtime.loop import READ
from sandbox_runtime.processes import (
    KILL_GRACE,
    Input,
    Output,
    Process,
    check_text,
    check_timeout,
    feed,
)
from sandbox_runtime.quick import deque, signal
from sandbox_runtime.shell import Shell
from sandbox_runtime.spawn import MOST_ARGV_SHOWN, check_folder, overlay
from sandbox_runtime.spool import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from sandbox_kernel.wire.operations import ExecRequest
    from sandbox_kernel.wire.session_operations import CreateSessionRequest, SetEnvRequest
    from sandbox_runtime.connection import Exchange
    from sandbox_runtime.processes import Processes

    class Job(Protocol):
        """What has a turn in a session."""

        def begin(self) -> None:
            """Use the idle shell; call the session's `release` in the end."""

        def refuse(self, error: SandboxError) -> None:
            """Learn that there will be no turn."""

        def shell_died(self, error: SandboxError) -> None:
            """Learn that the shell ended within the turn."""


__all__ = ["DEFAULT", "MOST_SESSIONS", "MOST_WAITING", "Sessions"]

DEFAULT = "default"
"""The session that is there without being made."""

MOST_WAITING = 256
"""How many commands may wait for their turn in one session; more are refused."""

MOST_SESSIONS = 1024

SHELL_GRACE = 1.0
"""Seconds that a shell has to come back once everything its command had started is killed."""

_FIRST_STEP = 0.003
_LONGEST_STEP = 0.05
_CHECK = 1.0
_INNER_LIMIT = 5.0
_MOST_INNER_OUTPUT = 4 << 20


class _Ending:
    """Ends what a command has started, and brings its shell back."""

    def __init__(self, command: SessionCommand, grace: float) -> None:
        self._command = command
        self._session: Session = command.home
        self._grace = grace
        self._began = time.monotonic()
        self._told: set[int] = set()
        self._delay = _FIRST_STEP
        self._is_first = True
        self._step()

    def hurry(self) -> None:
        """Wait no longer with KILL."""
        self._grace = 0.0
        self._step()

    def _step(self) -> None:
        command, shell = self._command, self._command.shell
        if shell is None:
            return
        passed = time.monotonic() - self._began
        if command.running:
            # As Ctrl-C does it: a shell whose program dies of SIGINT while it waits for it goes no
            # step further.  To be quick matters: of one that has ended by itself it takes no note.
            children = direct_children(shell.pid)
            shell.interrupt()
            signal_members(children, signal.SIGINT)
        members = find_members(
            shell.pid if shell.alive else 0,
            self._session.session_id,
            command.moment,
            command.last_moment,
        )
        if command.running and passed > self._grace + SHELL_GRACE:
            signal_members(members, signal.SIGKILL)
            self._session.is_replaced = True
            shell.kill()
            return
        if not command.running and (not members or passed > self._grace + SHELL_GRACE):
            return
        if passed >= self._grace:
            signal_members(members, signal.SIGKILL)
        else:
            signal_members([pid for pid in members if pid not in self._told], signal.SIGINT)
            if not (self._is_first and command.running):
                new = [pid for pid in members if pid not in self._told]
                self._told.update(new)
                signal_members(new, signal.SIGTERM)
                signal_members(new, signal.SIGCONT)
        self._is_first = False
        self._session.loop.call_later(self._delay, self._step)
        self._delay = min(2 * self._delay, _LONGEST_STEP)


class SessionCommand(Process):
    """A text that a session's shell runs, listed as a process."""

    def __init__(self, table: Processes, session: Session, request: ExecRequest) -> None:
        process_id = table.new_id(request.process_id)
        text = request.command or ""
        super().__init__(table, process_id, table.serial, [], session.cwd)
        self.home: Session = session
        self.command = text[:MOST_ARGV_SHOWN]
        self.session = session.session_id
        self.shell: Shell | None = None
        self.moment: Moment | None = None
        self.last_moment: Moment | None = None
        self._text = shell_text.encode(text)
        self._cwd = request.cwd
        self._env = request.env
        self._merged = request.merge_stderr
        self._timeout = next(
            (
                limit
                for limit in (request.timeout, session.command_timeout, request.fallback_timeout)
                if limit is not None
            ),
            None,
        )
        self._restore: bytes | None = None
        self._ending: _Ending | None = None
        self._stdin_path: str | None = None
        self._keepers: list[int] = []

    # --- waiting ------------------------------------------------------------------------------

    def open_stdin(self, path: str) -> None:
        """Make its input, which may be written to before its turn."""
        os.mkfifo(path, 0o600)
        self._stdin_path = path
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        reader = os.open(path, os.O_RDONLY | flags)
        self._keepers.append(reader)
        writer = os.open(path, os.O_WRONLY | flags)
        # Until the shell has opened its end both ends must exist, or what is written is lost.
        self._keepers.append(os.dup(writer))
        self.stdin = Input(self, writer)

    def wait_turn(self) -> None:
        """Wait no longer than the command itself might take."""
        if self._timeout is not None:
            self.timer = self.home.loop.call_later(
                self._timeout,
                lambda: self._withdraw(
                    SessionBusyError(
                        self.home.session_id, f"it had no turn within {self._timeout:g} s"
                    )
                ),
            )

    def _withdraw(self, error: SandboxError) -> None:
        self.home.withdraw(self)
        self.refuse(error)

    def refuse(self, error: SandboxError) -> None:
        """End without having begun."""
        self.failure = error
        self._finish(0)

    # --- the turn -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Take the turn: prepare folder and environment if they differ, and run the text."""
        self.shell = shell = self.home.shell
        assert shell is not None  # noqa: S101  a turn is given with a shell
        self.pid = shell.pid
        self.began = time.monotonic()
        self.started_at = time.time()
        self.moment = Moment()
        if self.timer is not None:
            self.timer.cancel()
        if self._timeout is not None:
            self.timer = self.home.loop.call_later(self._timeout, self.time_is_up)
        if self._env or self._cwd is not None:
            self.home.inner(shell_text.prepare(self._env, self._cwd), self._prepared)
        else:
            self._run()

    def _prepared(self, output: bytes) -> None:
        prepared = shell_text.Prepared(output, self._env, self._cwd)
        self._restore = prepared.restore
        if not prepared.is_done:
            self.failure = InvalidProcessEnvironmentError(
                ", ".join(self._env) or "PWD", "cannot be set in this shell (is it read-only?)"
            )
            self._finish(0)
            self._leave()
        elif self.reason is not None:
            self._finish(128 + signal.SIGINT)
            self._leave()
        else:
            self._run()

    def _run(self) -> None:
        home, shell = self.home, self.shell
        assert shell is not None  # noqa: S101
        text = shell_text.with_status(self._text, home.last_status)
        try:
            if self._stdin_path is not None:
                text = self._with_input(shell, text)
            out, err = shell.run(text, self._ended, stdin=self._stdin_path, merged=self._merged)
        except OSError as error:
            self.refuse(
                ProcessSpawnFailedError("bash", error.strerror or str(error), "Free some space.")
            )
            self._leave()
            return
        self._stdin_path = None
        self.outputs = [Output(self, STDOUT, out)]
        if err >= 0:
            self.outputs.append(Output(self, STDERR, err))
        home.loop.call_later(_CHECK, self._check)
        if self.reason is not None:
            self._end_now(KILL_GRACE)

    def _with_input(self, shell: Shell, text: bytes) -> bytes:
        """Have the shell tell when its end of the input is open."""
        loop, got = self.home.loop, shell.opened_path
        fd = os.open(got, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._keepers.append(fd)

        def opened(_events: int) -> None:
            self._drop_keepers()

        loop.add(fd, READ, opened)
        return shell_text.with_input(shell.place_text(text), got)

    def _drop_keepers(self) -> None:
        for fd in self._keepers:
            self.home.loop.remove_if_added(fd)
            os.close(fd)
        self._keepers.clear()

    def _check(self) -> None:
        """Find out about a shell that will never report again."""
        if self.running and self.shell is not None and self.shell.alive:
            if self.shell.check():
                self.home.loop.call_later(_CHECK, self._check)
            else:
                self.home.is_replaced = True
                self.shell.kill()

    # --- the end ------------------------------------------------------------------------------

    def end(self, reason: str, grace: float = KILL_GRACE) -> None:
        """End it with all it has started, or give up waiting."""
        if not self.running:
            return
        self.reason = self.reason or reason
        if self.shell is None:
            self._withdraw(OperationInterruptedError("exec", "it was given up before its turn"))
        elif self.outputs:
            self._end_now(grace)

    def _end_now(self, grace: float) -> None:
        if self._ending is None:
            self._ending = _Ending(self, grace)
        elif grace <= 0:
            self._ending.hurry()

    def send_signal(self, number: int, *, group: bool) -> None:  # noqa: ARG002
        """Signal what it has started; where the shell itself must stop, end it."""
        if self.shell is None or number in (signal.SIGKILL, signal.SIGTERM):
            self.end("killed", 0.0 if number == signal.SIGKILL else KILL_GRACE)
            return
        if number == signal.SIGINT:
            self.shell.interrupt()
        signal_members(find_members(self.shell.pid, self.home.session_id, self.moment), number)

    def _ended(self, status: int) -> None:
        """Learn from the shell that it is done."""
        self.home.last_status = status
        self._finish(status)
        self.home.note_outputs(self)
        self._leave()

    def _leave(self) -> None:
        """Give the turn on, with folder and environment as they were."""
        if self._restore is not None:
            restore, self._restore = self._restore, None
            self.home.when_idle(
                lambda: self.home.inner(restore, lambda _output: self.home.release(self))
            )
        else:
            self.home.release(self)

    def shell_died(self, error: SandboxError) -> None:
        """End because the shell has; who asked for that hears no complaint."""
        if not self.running:
            return
        code = int(error.context.get("exit_code", 128 + signal.SIGKILL))
        if self.reason is None:
            self.failure = error
        self._finish(code, None if self.failure is None else error.context.get("signal"))

    def _finish(self, code: int, number: int | None = None) -> None:
        if not self.running:
            return
        self._drop_keepers()
        if self.reason is not None and self.shell is not None:
            self.last_moment = Moment()
        if self._stdin_path is not None:
            try:  # noqa: SIM105  contextlib costs two milliseconds
                os.unlink(self._stdin_path)
            except OSError:
                pass
            self._stdin_path = None
        self.conclude(code, number)
        if self._ending is None and self.reason is not None and self.shell is not None:
            self._ending = _Ending(self, 0.0)


class _Inner:
    """A text of ours, run by the shell in between, its output kept."""

    def __init__(self, session: Session, text: bytes, done: Callable[[bytes], None]) -> None:
        self._session = session
        self._done = done
        self._data = bytearray()
        self._fds: list[int] = []
        shell = session.shell
        assert shell is not None  # noqa: S101
        self._fds = list(shell.run(text, self._ended))
        session.loop.add(self._fds[0], READ, self._ready)
        self._timer = session.loop.call_later(_INNER_LIMIT, shell.kill)

    def _ready(self, _events: int) -> None:
        try:
            data = os.read(self._fds[0], 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._session.loop.remove_if_added(self._fds[0])
        if len(self._data) < _MOST_INNER_OUTPUT:
            self._data += data

    def _ended(self, _status: int) -> None:
        is_held = False
        while True:
            try:
                data = os.read(self._fds[0], 1 << 16)
            except BlockingIOError:
                is_held = True
                break
            if not data or len(self._data) >= _MOST_INNER_OUTPUT:
                break
            self._data += data
        self.close()
        if is_held and self._session.shell is not None:
            self._session.shell.hold(stdout=True, stderr=True)
        self._done(bytes(self._data))

    def close(self) -> None:
        """Give everything back; twice is fine."""
        self._timer.cancel()
        fds, self._fds = self._fds, []
        for fd in fds:
            self._session.loop.remove_if_added(fd)
            os.close(fd)


class _SetEnv:
    """A change of the shell's variables that lasts."""

    def __init__(self, session: Session, env: dict[str, str | None], exchange: Exchange) -> None:
        self._session = session
        self._env = env
        self._exchange = exchange
        exchange.on_cancel = self._cancelled

    def _cancelled(self) -> None:
        self._session.withdraw(self)
        self._exchange.fail(OperationInterruptedError("session.set_env", "it was cancelled"))

    def begin(self) -> None:
        """Set them."""
        self._exchange.on_cancel = None
        self._session.inner(shell_text.prepare(self._env, None), self._prepared)

    def _prepared(self, output: bytes) -> None:
        prepared = shell_text.Prepared(output, self._env, None)
        if prepared.is_done:
            self._session.env.update(self._env)
            self._exchange.result(Empty())
            self._session.release(self)
            return
        self._exchange.fail(
            InvalidProcessEnvironmentError(
                ", ".join(self._env), "cannot be set in this shell (is it read-only?)"
            )
        )
        session = self._session
        session.inner(prepared.restore, lambda _output: session.release(self))

    def refuse(self, error: SandboxError) -> None:
        """Learn that there will be no turn."""
        self._exchange.fail(error)

    def shell_died(self, error: SandboxError) -> None:
        """Learn that the shell ended meanwhile."""
        self._exchange.fail(error)


class Session:
    """One shell, from its first command on, and who waits for it."""

    def __init__(
        self,
        table: Sessions,
        session_id: str,
        *,
        cwd: str,
        env: dict[str, str | None],
        command_timeout: float | None,
    ) -> None:
        self.table = table
        self.loop = table.processes.loop
        self.session_id = session_id
        self.cwd = cwd
        self.env = env
        self.command_timeout = command_timeout
        self.created_at = time.time()
        self.shell: Shell | None = None
        self.last_status = 0
        self.is_replaced = False
        """Whether the shell's end is our doing, so that the next command must tell."""
        self.is_deleted = False
        self._count = 0
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
        self._inner: _Inner | None = None
        self._lost: SessionTerminatedError | None = None
        self._on_idle: Callable[[], None] | None = None
        self._known_env: dict[str, str] | None = None
        self._is_stale = False

    def __repr__(self) -> str:
        return f"<Session {self.session_id} waiting={len(self._waiting)} {self.shell!r}>"

    def info(self) -> SessionInfo:
        """Return what is known."""
        status = "idle" if self._lost is None else "terminated"
        if self._current is not None and not isinstance(self._current, _Look):
            status = "running"
        return SessionInfo(
            session_id=self.session_id,
            status=status,
            pid=0 if self.shell is None else self.shell.pid,
            cwd=self.cwd,
            command_timeout=self.command_timeout,
            created_at=self.created_at,
            commands=self._count,
            waiting=len(self._waiting),
            incarnation=self.table.processes.incarnation,
        )

    @property
    def base_env(self) -> dict[str, str]:
        """What its shell starts with."""
        env = dict(self.table.processes.config.env)
        if not {"LC_ALL", "LC_CTYPE", "LANG"} & env.keys():
            env["LANG"] = "C.UTF-8"
        return overlay(env, self.env)

    @property
    def known_env(self) -> dict[str, str]:
        """The environment of its programs, as last known."""
        env = self.base_env if self._known_env is None else self._known_env
        if self._is_stale and self.shell is not None:
            # It is busy; what it has noted before is whole.
            env = shell_text.read_exports(self.shell.noted) or env
        return {name: value for name, value in env.items() if name != VARIABLE}

    # --- turns --------------------------------------------------------------------------------

    def add(self, job: Job) -> None:
        """Have a job wait for its turn, which may be now.

        Raises
        ------
        SessionBusyError
            Too many wait.
        """
        if len(self._waiting) >= MOST_WAITING:
            raise SessionBusyError(self.session_id, f"{MOST_WAITING} commands wait already")
        self._waiting.append(job)
        self._pump()

    def withdraw(self, job: Job) -> None:
        """Take a job out of those that wait."""
        if job in self._waiting:
            self._waiting.remove(job)

    def _pump(self) -> None:
        while self._waiting and self._current is None:
            if self._lost is not None:
                lost, self._lost = self._lost, None
                self._waiting.popleft().refuse(lost)
                continue
            if self.shell is None:
                try:
                    self._start_shell()
                except SandboxError as error:
                    self._waiting.popleft().refuse(error)
                    continue
                except OSError as error:
                    reason = error.strerror or str(error)
                    self._waiting.popleft().refuse(ProcessSpawnFailedError("bash", reason))
                    continue
            if self.shell is None or not self.shell.is_idle:
                return
            self._current = self._waiting.popleft()
            self._current.begin()

    def _start_shell(self) -> None:
        processes = self.table.processes
        if processes.stopping:
            raise ProcessSpawnFailedError("bash", "the sandbox is stopping")
        self._known_env, self._is_stale, self.last_status = None, False, 0
        env = {**self.base_env, VARIABLE: self.session_id}
        cwd = self.cwd if os.path.isdir(self.cwd) else processes.config.cwd
        self.shell = Shell(
            self.loop,
            processes.children,
            folder=self.table.new_folder(),
            cwd=cwd,
            env=env,
            on_idle=self._idle,
            on_death=self._died,
        )

    def _idle(self) -> None:
        then, self._on_idle = self._on_idle, None
        if then is not None:
            then()
        elif self._current is None:
            self._pump()

    def when_idle(self, then: Callable[[], None]) -> None:
        """Go on once the shell is idle, which may be now; never, if it dies."""
        if self.shell is not None and self.shell.is_idle:
            then()
        else:
            self._on_idle = then

    def inner(self, text: bytes, done: Callable[[bytes], None]) -> None:
        """Run a text of ours within a turn."""
        try:
            self._inner = _Inner(self, text, done)
        except OSError:
            done(b"")

    def release(self, job: Job) -> None:
        """End a job's turn."""
        if self._current is not job:
            return
        self._current = None
        if self.shell is not None and not isinstance(job, _Look):
            self.cwd = self.shell.cwd or self.cwd
            self._count += 1
            self._is_stale = True
        self.loop.call_soon(self._pump)

    def note_outputs(self, command: Process) -> None:
        """Give the next command pipes of its own where somebody still holds this one's."""
        if self.shell is not None:
            left = [each.is_open or each.is_left for each in command.outputs]
            self.shell.hold(stdout=left[0], stderr=any(left))

    # --- what it knows of its shell -----------------------------------------------------------

    def look(self, then: Callable[[], None]) -> None:
        """Bring `known_env` up to date if that takes no waiting, then go on."""
        is_free = self._current is None and not self._waiting
        if is_free and self._is_stale and self.shell is not None and self.shell.is_idle:
            self._is_stale = False
            self.add(_Look(self, then))
        else:
            then()

    def learn(self, env: dict[str, str]) -> None:
        """Take the environment that the shell has told."""
        self._known_env = env or self._known_env

    # --- the end ------------------------------------------------------------------------------

    def _died(self, code: int, number: int | None) -> None:
        self.shell = None
        self._on_idle = None
        if self._inner is not None:
            self._inner.close()
            self._inner = None
        reason = "it did not come back and was replaced" if self.is_replaced else ""
        error: SandboxError = SessionTerminatedError(
            self.session_id, code, signal=number, reason=reason
        )
        if self.is_deleted:
            error = SessionDestroyedError(self.session_id)
        current, self._current = self._current, None
        is_told = isinstance(current, SessionCommand) and current.running and not current.reason
        if current is not None:
            current.shell_died(error)
        if isinstance(error, SessionTerminatedError) and not is_told:
            self._lost = error
        self.is_replaced = False
        self._pump()

    def delete(self) -> None:
        """End the shell with all that was started in it; nobody has a turn any more."""
        self.is_deleted = True
        if isinstance(self._current, SessionCommand):
            self._current.failure = SessionDestroyedError(self.session_id)
        waiting, self._waiting = list(self._waiting), deque()
        for each in waiting:
            each.refuse(SessionDestroyedError(self.session_id))
        shell = self.shell
        if shell is not None and shell.alive:
            members = find_members(shell.pid, self.session_id, None)
            signal_members(members, signal.SIGTERM)
            signal_members(members, signal.SIGCONT)
            shell.kill()
            self.loop.call_later(KILL_GRACE, lambda: self._kill_left(members))

    def _kill_left(self, pids: list[int]) -> None:
        mark = f"{VARIABLE}={self.session_id}".encode("utf-8", "surrogateescape")
        for pid in pids:
            # The number may be somebody else's by now.
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        os.kill(pid, signal.SIGKILL)
            except OSError:
                continue

    def stop(self, grace: float) -> None:
        """End the shell because the sandbox stops."""
        shell = self.shell
        if shell is None or not shell.alive:
            return
        members = find_members(shell.pid, self.session_id, None)
        signal_members(members, signal.SIGTERM if grace > 0 else signal.SIGKILL)
        if self._current is None or grace <= 0:
            shell.kill(signal.SIGHUP if grace > 0 else signal.SIGKILL)
        self.loop.call_later(grace, lambda: self._stop_at_last(shell))

    def _stop_at_last(self, shell: Shell) -> None:
        if shell.alive:
            signal_members(find_members(shell.pid, self.session_id, None), signal.SIGKILL)
            shell.kill()


class _Look:
    """A turn in which the shell tells its environment."""

    def __init__(self, session: Session, then: Callable[[], None]) -> None:
        self._session = session
        self._then = then

    def begin(self) -> None:
        """Ask."""
        self._session.inner(shell_text.TELL_ENV, self._told)

    def _told(self, output: bytes) -> None:
        self._session.learn(shell_text.read_env(output))
        self._session.release(self)
        self._then()

    def refuse(self, error: SandboxError) -> None:
        """Go on with what is known."""
        del error
        self._then()

    def shell_died(self, error: SandboxError) -> None:
        """Go on with what is known."""
        del error
        self._then()


class Sessions:
    """Every session of a sandbox."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self._table: dict[str, Session] = {}
        self._folders = 0
        self._serial = 0
        _remove_old_folders(processes.config.spool_dir)

    def __len__(self) -> int:
        return sum(each.shell is not None for each in self._table.values())

    def new_folder(self) -> str:
        """Return the path of a shell's folder, to be made."""
        self._folders += 1
        return f"{self.processes.config.spool_dir}/{_FOLDER}{self._folders}"

    # --- sessions -----------------------------------------------------------------------------

    def create(self, request: CreateSessionRequest) -> SessionInfo:
        """Make a session."""
        session_id = request.session_id
        if session_id is None:
            self._serial += 1
            while f"s-{self._serial}" in self._table:
                self._serial += 1
            session_id = f"s-{self._serial}"
        _check_id(session_id)
        check_timeout(request.command_timeout)
        shell_text.check_env(request.env)
        if request.cwd is not None:
            check_folder(request.cwd)
        known = self._table.get(session_id)
        if known is not None and known.info().status != "terminated":
            raise SessionAlreadyExistsError(session_id)
        if known is None and len(self._table) >= MOST_SESSIONS:
            raise ValidationFailedError("session_id", f"is one more than {MOST_SESSIONS}")
        return self._make(
            session_id,
            cwd=request.cwd,
            env=dict(request.env),
            command_timeout=request.command_timeout,
        ).info()

    def _make(
        self,
        session_id: str,
        *,
        cwd: str | None = None,
        env: dict[str, str | None] | None = None,
        command_timeout: float | None = None,
    ) -> Session:
        session = self._table[session_id] = Session(
            self,
            session_id,
            cwd=cwd or self.processes.config.cwd,
            env=env or {},
            command_timeout=command_timeout,
        )
        return session

    def get(self, session_id: str) -> Session:
        """Return a session.

        Raises
        ------
        SessionNotFoundError
            There is none of this id.
        """
        session = self._table.get(session_id)
        if session is None:
            raise SessionNotFoundError(session_id)
        return session

    def known(self) -> list[SessionInfo]:
        """Return every session, oldest first."""
        return [each.info() for each in self._table.values()]

    def find(self, session_id: str | None) -> Session | None:
        """Return a session if there is one of this id."""
        return None if session_id is None else self._table.get(session_id)

    def delete(self, session_id: str) -> None:
        """End a session with all that was started in it.  The default one is made anew on use."""
        self.get(session_id).delete()
        del self._table[session_id]

    def set_env(self, request: SetEnvRequest, exchange: Exchange) -> Empty | None:
        """Set variables, all or none."""
        shell_text.check_env(request.env)
        if request.session_id is None:
            changed = overlay(self.processes.config.env, request.env)
            self.processes.config.env.clear()
            self.processes.config.env.update(changed)
            session = self._table.get(DEFAULT)
        else:
            session = self.get(request.session_id)
        if session is None or not request.env:
            return Empty()
        if session.shell is None and session.info().status == "idle":
            session.env.update(request.env)
            return Empty()
        session.add(_SetEnv(session, request.env, exchange))
        return None

    # --- commands -----------------------------------------------------------------------------

    def exec(self, request: ExecRequest, exchange: Exchange) -> None:
        """Run a text in a session's shell, when it has its turn."""
        session_id = request.session or DEFAULT
        check_text(request.command or "")
        check_timeout(request.timeout)
        check_timeout(request.fallback_timeout)
        shell_text.check_env(request.env)
        if request.cwd is not None:
            check_folder(request.cwd)
        if self.processes.stopping:
            raise ProcessSpawnFailedError("bash", "the sandbox is stopping")
        session = self._table.get(session_id)
        if session is None and session_id == DEFAULT:
            session = self._make(DEFAULT)
        if session is None:
            raise SessionNotFoundError(session_id)
        command = SessionCommand(self.processes, session, request)
        if request.stdin is not None or request.stdin_open:
            try:
                command.open_stdin(self._stdin_path(command.process_id))
            except OSError as error:
                raise ProcessSpawnFailedError("bash", error.strerror or str(error)) from error
        self.processes.enter(command)
        self.processes.serve(command, exchange)
        feed(command, request)
        command.wait_turn()
        try:
            session.add(command)
        except SessionBusyError as error:
            command.refuse(error)

    def _stdin_path(self, process_id: str) -> str:
        self._serial += 1
        del process_id
        return f"{self.processes.config.spool_dir}/{_STDIN}{self._serial}"

    # --- the end ------------------------------------------------------------------------------

    def stop(self, grace: float) -> None:
        """End every shell; new ones are refused from now on."""
        for each in list(self._table.values()):
            each.stop(grace)


_FOLDER = "session-"
_STDIN = "input-"


def _check_id(session_id: str) -> None:
    if not 0 < len(session_id) <= 128 or not session_id.isprintable():
        raise ValidationFailedError("session_id", "must be 1 to 128 printable characters")


def _remove_old_folders(place: str) -> None:
    """Remove what the shells of an earlier incarnation have left."""
    for name in os.listdir(place):
        path = f"{place}/{name}"
        try:
            if name.startswith(_STDIN):
                os.unlink(path)
            elif name.startswith(_FOLDER):
                for inner in os.listdir(path):
                    os.unlink(f"{path}/{inner}")
                os.rmdir(path)
        except OSError:
            # Not ours, or not empty: the numbers that follow will be found free or not.
            continue
