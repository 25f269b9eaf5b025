"""Sessions: shells that run one command at a time and keep their state from one to the next.

Commands of a session wait for their turn in the order they came, at most `MOST_WAITING` of them.
A command's result is complete when the shell is done with it and what was in its pipes then has
been read, as for any other command; what it left in the background goes on.

A shell that has ended, or did not come back from a command that was ended, is replaced when the
next command comes, which says so once.
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
    MANY,
    VARIABLE,
    find_members,
    kill_members,
    signal_members,
)
from sandbox_runtime.loop import READ
from sandbox_runtime.processes import (
    KILL_GRACE,
    Process,
    check_text,
    check_timeout,
    feed,
)
from sandbox_runtime.quick import deque, signal
from sandbox_runtime.session_commands import SessionCommand
from sandbox_runtime.shell import Shell
from sandbox_runtime.spawn import check_folder, overlay

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

_INNER_LIMIT = 5.0
_MOST_INNER_OUTPUT = 4 << 20


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

    @property
    def is_held(self) -> bool:
        """Whether a command has its turn, or others wait; a shell that only starts is no such."""
        return self._current is not None or len(self._waiting) > 1

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
        processes.refuse_if_stopping()
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
        if self.table.processes.stopping and self.shell is not None:
            self.shell.kill(signal.SIGHUP)
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
        reason = self._explain(number)
        self.shell = None
        self._on_idle = None
        if self._inner is not None:
            self._inner.close()
            self._inner = None
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

    def _explain(self, number: int | None) -> str:
        """Return why the shell has ended, where it is not its own doing."""
        if self.shell is not None and self.shell.is_broken:
            return "it ran nothing any more and was replaced"
        if self.is_replaced:
            return "it did not come back and was replaced"
        if number == signal.SIGKILL and self.table.processes.memory_events.explains_kill():
            return "the sandbox's memory limit was reached"
        return ""

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
            if len(members) < MANY:
                signal_members(members, signal.SIGTERM)
                signal_members(members, signal.SIGCONT)
            else:
                kill_members(lambda: find_members(shell.pid, self.session_id, None))
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
            # Never that of another container's session: handles hold nothing else.
            session_id = f"s-{os.urandom(8).hex()}"
        _check_id(session_id)
        check_timeout(request.command_timeout)
        shell_text.check_env(request.env)
        cwd = self.processes.folder(request.cwd)
        if request.cwd is not None:
            check_folder(cwd)
        self.processes.refuse_if_stopping()
        known = self._table.get(session_id)
        if known is not None and known.info().status != "terminated":
            raise SessionAlreadyExistsError(session_id)
        if known is None and len(self._table) >= MOST_SESSIONS:
            raise ValidationFailedError("session_id", f"is one more than {MOST_SESSIONS}")
        return self._make(
            session_id,
            cwd=cwd,
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
        session = self._table.get(session_id)
        cwd = None
        if request.cwd is not None:
            # A relative one begins where the shell is after its last command.
            cwd = self.processes.folder(request.cwd, None if session is None else session.cwd)
            check_folder(cwd)
        self.processes.refuse_if_stopping()
        if session is None and session_id == DEFAULT:
            session = self._make(DEFAULT)
        if session is None:
            raise SessionNotFoundError(session_id)
        command = SessionCommand(self.processes, session, request, cwd)
        if request.stdin is not None or request.stdin_open:
            try:
                command.open_stdin(self._stdin_path(command.process_id))
            except OSError as error:
                raise ProcessSpawnFailedError("bash", error.strerror or str(error)) from error
        self.processes.enter(command)
        self.processes.serve(command, exchange)
        feed(command, request)
        try:
            session.add(command)
        except SessionBusyError as error:
            command.refuse(error)
            return
        if session.is_held and command.shell is None:
            command.wait_turn()

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
