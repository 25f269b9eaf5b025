"""One bash that runs text after text, keeps its state, and says how each ended.

How it is spoken to.  Its own descriptors are 0: lines of ours, 1: a pipe for its reports, 2: the
null device.  Each of our lines is a loop that waits for a turn on a FIFO of its own and then
sources the file ``cmd`` with the command's own stdin, stdout and stderr:

    { report; while a turn comes; do for it; do . cmd <in >out 2>err; done; report; note; done } <n0

The inner loop is what a stray ``break`` or ``continue`` ends; one of more levels gets to the head
of the outer loop, which then reports.

While a text runs, bash has moved our three descriptors out of the way, with close-on-exec: no
program inherits them, and nothing printed can be a report.  Redirections that a text makes with
``exec`` end with it.  Sourcing makes an unbalanced quote an error of that text alone.

The shell is interactive, so that SIGINT throws it back to its top level with all its state.  There
it reads the next of our lines; two more are always there.  A report says in which line's loop it
was made (its epoch): after a SIGINT, the loop is left on purpose by closing its FIFO, and only the
next loop's first report makes the shell usable again.  A turn can thus neither be lost nor be taken
twice.

A shell that has eaten lines without a report (somebody has redefined ``builtin``) will never report
again: the owner's `check` finds that out.  One that reports without having run its text, since it
can open no files any more or reads no turns, is killed as well.
"""

from __future__ import annotations

import os

from sandbox_kernel.errors import CommandNotFoundError
from sandbox_runtime.loop import READ
from sandbox_runtime.quick import signal
from sandbox_runtime.spawn import spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox_runtime.children import Children
    from sandbox_runtime.loop import Loop

__all__ = ["Shell", "quote"]

_ARGUMENTS = (
    *("--norc", "--noprofile", "--noediting", "+m", "+H", "+o", "history", "-i"),
    # A mistyped `exec` shall not cost the state.
    *("-O", "execfail"),
)
_PLACES = ("bash", "/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")

_AHEAD = 2
"""Lines that wait in the pipe: one may be lost to a SIGINT while it is read."""

_RETURN = 0.005
"""Seconds in which a shell is usually back at its top level."""

_MOST_RETURNS = 50
"""How often in a row a shell may come back to its top level without having been given a turn."""

_TURN = "turn"

_LONGEST_REPORT = 1 << 16
_LONGEST_NOTE = 4 << 20


def quote(text: str) -> str:
    """Return a word that the shell reads as exactly this text."""
    return "'" + text.replace("'", "'\\''") + "'"


class Shell:
    """A bash process; made idle or busy by what it reports.

    Parameters
    ----------
    folder : str
        Where to make its FIFOs; made here, removed by `close`.
    cwd, env
        As for `spawn`.
    on_idle : callable
        Called when it can take a text.
    on_death : callable
        Called once with exit code and signal, when it has ended.

    Raises
    ------
    OperationError, OSError
        It cannot be started.
    """

    def __init__(
        self,
        loop: Loop,
        children: Children,
        *,
        folder: str,
        cwd: str,
        env: Mapping[str, str],
        on_idle: Callable[[], None],
        on_death: Callable[[int, int | None], None],
    ) -> None:
        self._loop = loop
        self._folder = folder
        self._on_idle = on_idle
        self._on_death = on_death
        self._token = os.urandom(12).hex()
        self._epoch = -1
        self._returns = 0
        self._turns: dict[int, int] = {}
        self._writers: list[int] = []
        self._held: set[str] = set()
        self._has_input = False
        self._tail = b""
        self._done: Callable[[int], None] | None = None
        self._interrupted = False
        self._is_idle = False
        self._is_waiting = False
        self.alive = False
        self.is_broken = False
        """Whether it was killed because it ran nothing any more."""
        script, self._script = os.pipe2(os.O_CLOEXEC)
        self._reports, status = os.pipe2(os.O_CLOEXEC)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        try:
            self._make_folder()
            # Elements of arrays are exported to no program, whatever a text has set.
            os.write(self._script, b"\\builtin declare -a __sandbox\n")
            for epoch in range(_AHEAD):
                self._queue(epoch)
            self.pid = _spawn_bash(cwd, env, (script, status, null))
        except BaseException:
            self._remove()
            os.close(self._reports)
            raise
        finally:
            for fd in (script, status, null):
                os.close(fd)
        self.alive = True
        os.set_blocking(self._reports, False)
        loop.add(self._reports, READ, self._read)
        children.watch(self.pid, self._died)

    def __repr__(self) -> str:
        return f"<Shell pid={self.pid} idle={self.is_idle} epoch={self._epoch}>"

    @property
    def is_idle(self) -> bool:
        """Whether it takes a text now."""
        return self.alive and self._is_idle

    @property
    def cwd(self) -> str | None:
        """The folder it is in, if that still exists."""
        try:
            path = os.readlink(f"/proc/{self.pid}/cwd")
            return path if os.path.isdir(path) else None
        except OSError:
            return None

    @property
    def noted(self) -> bytes:
        """What ``export -p`` printed after the last text; may be cut while the shell is idle."""
        try:
            with open(f"{self._folder}/env", "rb") as file:
                return file.read(_LONGEST_NOTE)
        except OSError:
            return b""

    # --- running a text -----------------------------------------------------------------------

    def run(
        self,
        text: bytes,
        done: Callable[[int], None],
        *,
        stdin: str | None = None,
        merged: bool = False,
    ) -> tuple[int, int]:
        """Have an idle shell run a text; call `done` with its status at its end.

        A shell that dies instead calls `on_death`.

        Parameters
        ----------
        stdin : str, optional
            Path of a FIFO, which is taken over; else the text reads the null device.
        merged : bool
            Whether both streams go into stdout's pipe.

        Returns
        -------
        tuple of int
            Descriptors to read its stdout and stderr from, the latter -1 if merged.

        Raises
        ------
        OSError
            There is no room on the disk, or for descriptors; nothing was run.
        """
        out, err = self._open_outputs(merged=merged)
        try:
            self._write_text(text)
            self._set_stdin(stdin)
        except BaseException:
            self._close_writers()
            os.close(out)
            if err >= 0:
                os.close(err)
            raise
        self._done = done
        self._is_idle = self._is_waiting = False
        self._returns = 0
        os.write(self._turns[self._epoch], f"{_TURN}\n".encode())
        return out, err

    def hold(self, *, stdout: bool, stderr: bool) -> None:
        """Give later texts new pipes in the place of those that somebody still writes to."""
        if stdout:
            self._held.update(("out", "err"))
        elif stderr:
            self._held.add("err")

    def place_text(self, text: bytes, name: str) -> str:
        """Put a text into a file that another one sources, and return its path.

        `name` is ``text`` or ``code``: these have room on a full disk.
        """
        try:
            self._write_text(text, name)
        except FileNotFoundError:
            self._make_folder()
            self._write_text(text, name)
        return f"{self._folder}/{name}"

    @property
    def opened_path(self) -> str:
        """A FIFO that a text with input opens once its input is open."""
        return f"{self._folder}/got"

    def _open_outputs(self, *, merged: bool) -> tuple[int, int]:
        try:
            os.lstat(f"{self._folder}/in")
            return self._try_open_outputs(merged=merged)
        except FileNotFoundError:
            # Somebody has cleaned up thoroughly.
            self._close_writers()
            self._make_folder()
        except BaseException:
            self._close_writers()
            raise
        return self._try_open_outputs(merged=merged)

    def _try_open_outputs(self, *, merged: bool) -> tuple[int, int]:
        if merged:
            self._held.add("err")
        for name in sorted(self._held, reverse=True):
            _unlink(f"{self._folder}/{name}")
            if name == "err" and merged:
                os.symlink("out", f"{self._folder}/err")
            else:
                os.mkfifo(f"{self._folder}/{name}", 0o600)
        self._held.clear()
        out = self._open_output("out")
        if merged:
            self._held.add("err")
            return out, -1
        try:
            return out, self._open_output("err")
        except BaseException:
            os.close(out)
            raise

    def _open_output(self, name: str) -> int:
        """Open a pipe to read from, which has no end of file before the text's own end.

        Without a writer it would have one already, before the shell has opened it.
        """
        path, flags = f"{self._folder}/{name}", os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(path, os.O_RDONLY | flags)
        try:
            self._writers.append(os.open(path, os.O_WRONLY | flags))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _close_writers(self) -> None:
        writers, self._writers = self._writers, []
        for fd in writers:
            os.close(fd)

    def _write_text(self, text: bytes, name: str = "cmd") -> None:
        """Write a file that is sourced, in place: on a full disk a short text has room."""
        fd = os.open(f"{self._folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            view, at = memoryview(text or b"\n"), 0
            while at < len(view):
                at += os.pwrite(fd, view[at:], at)
            os.ftruncate(fd, len(view))
        finally:
            os.close(fd)

    def _set_stdin(self, path: str | None) -> None:
        place = f"{self._folder}/in"
        if path is not None:
            os.rename(path, place)
            self._has_input = True
        elif self._has_input:
            _unlink(place)
            os.symlink("/dev/null", place)
            self._has_input = False

    # --- ending a text ------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Throw a shell that runs a text back to its top level, if it listens."""
        if self.alive and self._done is not None:
            if self._interrupted:
                self._replenish()
            self._interrupted = True
            os.kill(self.pid, signal.SIGINT)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal the shell itself."""
        if self.alive:
            os.kill(self.pid, number)
            os.kill(self.pid, signal.SIGCONT)

    def _replenish(self) -> None:
        """Write another line if all have been eaten: a SIGINT takes the one that is being read."""
        if not _has_unread(self._script):
            self._queue(max(self._turns, default=self._epoch) + 1)

    def _await_return(self, delay: float) -> None:
        """See to it that a shell that is coming back finds a line to report from."""
        if self.alive and not self._is_idle and self._done is None:
            self._replenish()
            self._loop.call_later(delay, lambda: self._await_return(min(2 * delay, 0.1)))

    def check(self) -> bool:
        """Whether it can still report, as far as can be seen; call it now and then.

        One that cannot has eaten all of our lines without a word, or is found twice where it waits
        for its turn, though it has had it and has not said so.
        """
        was_waiting, self._is_waiting = self._is_waiting, self._waits_for_turn()
        return _has_unread(self._script) and not (was_waiting and self._is_waiting)

    def _waits_for_turn(self) -> bool:
        try:
            return os.readlink(f"/proc/{self.pid}/fd/0").startswith(f"{self._folder}/n")
        except OSError:
            return False

    # --- reports ------------------------------------------------------------------------------

    def _read(self, _events: int) -> None:
        try:
            data = os.read(self._reports, _LONGEST_REPORT)
        except BlockingIOError:
            return
        if not data:
            # It has become another program (exec), or is ending; its death will tell.
            self._loop.remove_if_added(self._reports)
            return
        lines = (self._tail + data).split(b"\n")
        self._tail = lines.pop()[-_LONGEST_REPORT:]
        for line in lines:
            words = line.decode("ascii", "replace").split(" ")
            if len(words) == 4 and words[0] == self._token and words[2].isdecimal():
                self._report(words[1], int(words[2]), int(words[3]) if words[3].isdecimal() else 1)

    def _report(self, kind: str, epoch: int, status: int) -> None:
        is_turn = kind.startswith("T") and epoch == self._epoch
        if kind == "R" and epoch > self._epoch:
            if self._done is not None and not self._interrupted and self._is_turn_unread():
                self._give_up()
                return
            self._enter(epoch)
        elif is_turn and kind != "T" and not self._interrupted:
            self._give_up()
            return
        elif not is_turn or self._done is None:
            return
        done, self._done = self._done, None
        self._close_writers()
        if self._interrupted:
            # What was sent may still be on its way; it ends this loop, or the end of file does.
            self._interrupted = False
            os.close(self._turns.pop(self._epoch))
            self._loop.call_later(_RETURN, lambda: self._await_return(_RETURN))
        else:
            self._is_idle = True
        if done is not None:
            done(status)
        if self.is_idle and self._done is None:
            self._on_idle()

    def _is_turn_unread(self) -> bool:
        turn = self._turns.get(self._epoch)
        return turn is not None and _has_unread(turn)

    def _give_up(self) -> None:
        """Kill a shell that runs nothing any more; its death will be told."""
        self.is_broken = True
        self.kill()

    def _enter(self, epoch: int) -> None:
        """Forget the loops before this one, and have as many lines wait as before."""
        for each in [each for each in self._turns if each < epoch]:
            os.close(self._turns.pop(each))
        for each in range(max(self._epoch, 0), epoch):
            _unlink(f"{self._folder}/n{each}")
        self._epoch = epoch
        self._returns += 1
        if self._returns > _MOST_RETURNS:
            self._give_up()
            return
        for each in range(epoch + 1, epoch + 1 + _AHEAD):
            if each not in self._turns:
                self._queue(each)

    def _queue(self, epoch: int) -> None:
        """Write one of our lines into the pipe."""
        self._make_turns(epoch)
        place = quote(self._folder)
        report = f"\\builtin printf '\\n{self._token} %s {epoch} %d\\n'"
        line = (
            f'{{ {report} R "$?"; __sandbox=; '
            # It comes here with this from a `continue` of more levels only.
            f"while [[ ${{__sandbox-}} == y ]] && {report} T 0; "
            "__sandbox=; \\builtin read -r -t 2000000 __sandbox; [[ $__sandbox ]]; do "
            # Redirected is `.` alone: what traces and traps say of our own words is not heard.
            f"for __sandbox in y; do \\builtin . {place}/cmd "
            f"<{place}/in >|{place}/out 2>|{place}/err; done; __sandbox[1]=$?; "
            # Where they cannot be opened (again) `.` was not begun.
            f"[[ ${{__sandbox[1]}} != 1 ]] || \\builtin : <{place}/cmd >|{place}/out "
            f"2>|{place}/err || __sandbox={_TURN}; "
            # A text that switches these off has no other way back.
            "\\builtin enable . : printf read || [[ _ ]]; "
            # A turn that is still there as it came was not begun.
            f'{report} "T${{__sandbox%%[!{_TURN}]*}}" "${{__sandbox[1]}}"; __sandbox=; '
            f"\\builtin export -p >|{place}/env || [[ _ ]]; "
            f"done; }} <{place}/n{epoch}\n"
        )
        try:  # noqa: SIM105  contextlib costs two milliseconds
            os.write(self._script, line.encode("utf-8", "surrogateescape"))
        except BrokenPipeError:
            # It has ended meanwhile; its death will be told.
            pass

    def _make_turns(self, epoch: int) -> None:
        path = f"{self._folder}/n{epoch}"
        os.mkfifo(path, 0o600)
        # Open for both, so that neither side waits for the other and nothing written is lost.
        self._turns[epoch] = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    # --- the folder ---------------------------------------------------------------------------

    def _make_folder(self) -> None:
        """Make the folder, or what is missing of it."""
        try:  # noqa: SIM105  contextlib costs two milliseconds
            os.mkdir(self._folder, 0o700)
        except FileExistsError:
            pass
        for name in ("out", "err", "got"):
            try:
                os.mkfifo(f"{self._folder}/{name}", 0o600)
            except FileExistsError:
                continue
        try:
            os.symlink("/dev/null", f"{self._folder}/in")
        except FileExistsError:
            self._has_input = True
        for name in ("cmd", "text", "code"):
            self._write_text(b"\n", name)
        for epoch in [each for each in self._turns if each > self._epoch]:
            if not os.path.exists(f"{self._folder}/n{epoch}"):
                os.close(self._turns.pop(epoch))
                self._make_turns(epoch)

    def _remove(self) -> None:
        os.close(self._script)
        for fd in self._turns.values():
            os.close(fd)
        self._turns.clear()
        try:
            for name in os.listdir(self._folder):
                _unlink(f"{self._folder}/{name}")
            os.rmdir(self._folder)
        except OSError:
            # Somebody has put a folder of theirs there.
            return

    # --- the end ------------------------------------------------------------------------------

    def _died(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self.alive = False
        self._read(READ)
        self._loop.remove_if_added(self._reports)
        os.close(self._reports)
        self._close_writers()
        self._remove()
        self._on_death(128 - code if code < 0 else code, -code if code < 0 else None)


def _spawn_bash(cwd: str, env: Mapping[str, str], stdio: tuple[int, int, int]) -> int:
    for place in _PLACES:
        try:
            return spawn([place, *_ARGUMENTS], cwd=cwd, env=env, stdio=stdio)
        except CommandNotFoundError:
            continue
    raise CommandNotFoundError(
        "bash", "sessions need it; run programs as lists, or text with enable_default_session=False"
    )


def _has_unread(pipe: int) -> bool:
    """Whether there is something in a pipe, told by either end."""
    from array import array  # noqa: PLC0415  only long commands come here
    from fcntl import ioctl  # noqa: PLC0415
    from termios import FIONREAD  # noqa: PLC0415

    left = array("i", [0])
    ioctl(pipe, FIONREAD, left)
    return left[0] > 0


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
