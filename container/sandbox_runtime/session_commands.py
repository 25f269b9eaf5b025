"""A text in a session's shell, listed as a process: its wait, its turn, its end.

A command that is ended (time limit, cancellation) gets what Ctrl-C would send, then TERM, and KILL
after a grace, together with all it has started; the shell itself comes back with its state.
"""

from __future__ import annotations

import os
import time

from sandbox_kernel.errors import (
    InvalidProcessEnvironmentError,
    OperationInterruptedError,
    ProcessSpawnFailedError,
    SandboxError,
    SessionBusyError,
)
from sandbox_runtime import shell_text
from sandbox_runtime.command_members import (
    MANY,
    Moment,
    dies_of,
    direct_children,
    find_members,
    kill_members,
    signal_members,
)
from sandbox_runtime.loop import READ
from sandbox_runtime.processes import KILL_GRACE, Input, Output, Process
from sandbox_runtime.quick import signal
from sandbox_runtime.spawn import MOST_ARGV_SHOWN
from sandbox_runtime.spool import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_kernel.wire.operations import ExecRequest
    from sandbox_runtime.processes import Processes
    from sandbox_runtime.sessions import Session
    from sandbox_runtime.shell import Shell

__all__ = ["SHELL_GRACE", "SessionCommand"]

SHELL_GRACE = 1.0
"""Seconds that a shell has to come back once everything its command had started is killed."""

_INTERRUPT = 0.05
_LONGEST_INTERRUPT = 0.5
"""Seconds in which only SIGINT is sent: at least, and at most where something is to die of it."""

_FIRST_STEP = 0.003
_LONGEST_STEP = 0.05
_CHECK = 1.0


class _Ending:
    """Ends what a command has started, and brings its shell back."""

    def __init__(self, command: SessionCommand, grace: float) -> None:
        self._command = command
        self._session: Session = command.home
        self._grace = grace
        self._began = time.monotonic()
        self._interrupted: set[int] = set()
        self._told: set[int] = set()
        self._delay = _FIRST_STEP
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
        children: list[int] = []
        if command.running:
            # As Ctrl-C does it: a shell whose program dies of SIGINT while it waits for it goes no
            # step further.  To be quick matters: of one that has ended by itself it takes no note.
            children = direct_children(shell.pid)
            shell.interrupt()
            signal_members(children, signal.SIGINT)
            signal_members(children, signal.SIGCONT)
        members = self._members()
        if len(members) >= MANY:
            # Asked to end, some would have started others before all are asked.
            kill_members(self._members)
            members = []
        if command.running and passed > self._grace + SHELL_GRACE:
            signal_members(members, signal.SIGKILL)
            self._session.is_replaced = True
            shell.kill()
            return
        if not command.running and (not members or passed > self._grace + SHELL_GRACE):
            return
        new = [pid for pid in members if pid not in self._told]
        if command.running and self._interrupts(passed, children):
            self._interrupt(new)
        elif passed >= self._grace:
            signal_members(members, signal.SIGKILL)
        else:
            self._told.update(new)
            signal_members(new, signal.SIGINT)
            signal_members(new, signal.SIGTERM)
            signal_members(new, signal.SIGCONT)
        self._session.loop.call_later(self._delay, self._step)
        self._delay = min(2 * self._delay, _LONGEST_STEP)

    def _members(self) -> list[int]:
        command, shell = self._command, self._command.shell
        return find_members(
            shell.pid if shell is not None and shell.alive else 0,
            self._session.session_id,
            command.moment,
            command.last_moment,
        )

    def _interrupt(self, members: list[int]) -> None:
        """Interrupt each once, for it may be tidying up; or again, where that was lost on it.

        What is about to become a program still has the shell's handler, and goes on.
        """
        due = [
            pid for pid in members if pid not in self._interrupted or dies_of(pid, signal.SIGINT)
        ]
        self._interrupted.update(due)
        signal_members(due, signal.SIGINT)

    @staticmethod
    def _interrupts(passed: float, children: list[int]) -> bool:
        """Whether to leave it at SIGINT: after a death of another kind the shell would go on.

        A program that is about to die of it may have to wait for a processor first.
        """
        return passed < _INTERRUPT or (
            passed < _LONGEST_INTERRUPT and any(dies_of(pid, signal.SIGINT) for pid in children)
        )


class SessionCommand(Process):
    """A text that a session's shell runs, listed as a process."""

    def __init__(
        self, table: Processes, session: Session, request: ExecRequest, cwd: str | None
    ) -> None:
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
        self._cwd = cwd
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
        text = self._text
        try:
            if home.last_status:
                code = shell.place_text(shell_text.status_text(home.last_status), "code")
                text = shell_text.with_status(text, code)
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
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(got, os.O_RDONLY | flags)
        self._keepers.append(fd)
        # With a writer of ours, only what the shell writes can be read, whatever event comes.
        self._keepers.append(os.open(got, os.O_WRONLY | flags))

        def opened(_events: int) -> None:
            try:
                os.read(fd, 16)
            except BlockingIOError:
                return
            self._drop_keepers()

        loop.add(fd, READ, opened)
        return shell_text.with_input(shell.place_text(text, "text"), got)

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
