"""Starts programs, and says in the error's class why one could not be started.

The only module that starts processes.  `os.posix_spawn` does the work: nothing of this process is
copied, and every descriptor but the three given ends at exec, since Python makes all of its own
with close-on-exec.
"""

from __future__ import annotations

import errno
import os
import stat

from sandbox_kernel.errors import (
    CommandNotFoundError,
    CommandPermissionDeniedError,
    InvalidCommandError,
    InvalidProcessCwdError,
    InvalidProcessEnvironmentError,
    OperationError,
    ProcessSpawnFailedError,
)
from sandbox_runtime.oom_score import OomScore
from sandbox_runtime.prctl import adopt_orphans, hide_memory
from sandbox_runtime.quick import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "MOST_ARGV_SHOWN",
    "check_folder",
    "folder_from",
    "overlay",
    "program_name",
    "share_process",
    "shown",
    "spawn",
]

MOST_ARGV_SHOWN = 4096
"""Characters of a command that are remembered for whoever lists processes."""

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SCRIPT_HEAD = 256


def overlay(base: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the base environment with changes; None unsets a name.

    Raises
    ------
    InvalidProcessEnvironmentError
        A name is empty or holds ``=``, or a name or value holds a NUL.
    """
    env = dict(base)
    for name, value in changes.items():
        if not name or "=" in name:
            raise InvalidProcessEnvironmentError(name, "is no name: it is empty or holds '='")
        if "\0" in name or (value is not None and "\0" in value):
            raise InvalidProcessEnvironmentError(name, "holds a NUL")
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def program_name(argv: Sequence[str]) -> str:
    """Return the first word of a command, short enough for a message.

    Raises
    ------
    InvalidCommandError
        There is none, or a word holds a NUL.
    """
    if not argv:
        raise InvalidCommandError("the list is empty")
    if not argv[0]:
        raise InvalidCommandError("the program's name is empty")
    if any("\0" in word for word in argv):
        raise InvalidCommandError("a word holds a NUL")
    return argv[0][:200]


def shown(argv: list[str]) -> list[str]:
    """Return a command for people to look at: the list of all commands must fit into one frame."""
    room, words = MOST_ARGV_SHOWN, []
    for word in argv:
        if len(word) > room:
            words.append(f"{word[:room]}...")
            break
        words.append(word)
        room -= len(word)
    return words


def spawn(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdio: tuple[int, int, int] | str,
    extra: int | None = None,
) -> int:
    """Start a program as leader of a session of its own and return its pid.

    Parameters
    ----------
    argv : sequence of str
        The program, found through the PATH of `env` unless it holds a slash, and its arguments.
    cwd : str
        Its working directory; relative programs are found from there.
    env : mapping
        Its whole environment.
    stdio : tuple of int, or str
        What becomes its descriptors 0, 1 and 2; or the path of a terminal, which becomes all three
        and the session's controlling terminal.
    extra : int, optional
        What becomes its descriptor 3.

    Raises
    ------
    InvalidCommandError, InvalidProcessCwdError, InvalidProcessEnvironmentError
        The request cannot be carried out whatever the sandbox holds.
    CommandNotFoundError, CommandPermissionDeniedError, ProcessSpawnFailedError
        The system refuses the program.
    """
    name = program_name(argv)
    words = [_encode_word(word) for word in argv]
    pairs = {_encode_env(key, key): _encode_env(key, value) for key, value in env.items()}
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]]
    if isinstance(stdio, str):
        # The child leads a session by then: the first terminal that it opens is its own.
        actions = [(os.POSIX_SPAWN_OPEN, 0, stdio, os.O_RDWR, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2)]
    else:
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(stdio)]
    if extra is not None:
        actions.append((os.POSIX_SPAWN_DUP2, extra, 3))
    score = _prepare()
    # The working directory is this thread's alone, so it may be borrowed for the moment of the
    # start; posix_spawn itself has no portable way to set it.
    _enter(cwd)
    try:
        path = _find(name, words[0], env.get("PATH", _DEFAULT_PATH))
        score.up()
        try:
            return os.posix_spawn(
                path,
                words,
                pairs,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=_ignored_signals(),
            )
        except OSError as error:
            raise _explain(error, name, path) from error
        finally:
            score.down()
    finally:
        os.chdir("/")


_score: OomScore | None = None


def share_process() -> None:
    """Start programs without changing this process: it is not the runtime's alone."""
    global _score  # noqa: PLW0603  a fact about this process, once true always true
    _score = OomScore(is_ours=False)


def _prepare() -> OomScore:
    """Before the first program: close this process's memory to it, and adopt what it orphans."""
    global _score  # noqa: PLW0603  likewise
    if _score is None:
        _score = OomScore()
        hide_memory()
        adopt_orphans()
    return _score


def _encode_word(word: str) -> bytes:
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidCommandError("a word holds a character that is no text") from None


def _encode_env(name: str, text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidProcessEnvironmentError(
            ascii(name), "holds a character that is no text"
        ) from None


def folder_from(base: str, cwd: str | None) -> str:
    """Return the folder that a request means: `base`, or what begins there."""
    if cwd is None:
        return base
    return os.path.join(base, cwd) if cwd else cwd


def check_folder(cwd: str) -> None:
    """Make sure that a program could start in a folder.

    Raises
    ------
    InvalidProcessCwdError
        It could not.
    """
    _enter(cwd)
    os.chdir("/")


def _enter(cwd: str) -> None:
    shown = cwd[:200]
    if "\0" in cwd or not cwd:
        raise InvalidProcessCwdError(shown, "is no path")
    if not cwd.startswith("/"):
        raise InvalidProcessCwdError(shown, "is not absolute")
    try:
        os.chdir(cwd)
    except FileNotFoundError:
        raise InvalidProcessCwdError(shown, "does not exist") from None
    except NotADirectoryError:
        raise InvalidProcessCwdError(shown, "is not a directory") from None
    except (OSError, UnicodeEncodeError) as error:
        reason = getattr(error, "strerror", None) or "is no path"
        raise InvalidProcessCwdError(shown, f"cannot be entered ({reason})") from None


def _find(name: str, program: bytes, search: str) -> bytes:
    """Return the path of the program, as execvp would look for it."""
    if b"/" in program:
        return program
    denied = False
    for folder in search.encode("utf-8", "surrogateescape").split(b":"):
        path = os.path.join(folder or b".", program)
        try:
            mode = os.stat(path).st_mode
        except PermissionError:
            denied = True
            continue
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(mode) and os.access(path, os.X_OK):
            return path
        denied = denied or stat.S_ISREG(mode)
    if denied:
        raise CommandPermissionDeniedError(name)
    raise CommandNotFoundError(name, "not found in PATH")


def _explain(error: OSError, name: str, path: bytes) -> OperationError:
    """Turn what posix_spawn said into the error the caller can act on."""
    number = error.errno
    if number in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP):
        if number != errno.ENOENT or not os.path.exists(path):
            return CommandNotFoundError(name)
        interpreter = _interpreter(path)
        if interpreter:
            return CommandNotFoundError(name, f"its interpreter {interpreter!r} does not exist")
        return CommandNotFoundError(name, "its program loader does not exist")
    if number in (errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR):
        return CommandPermissionDeniedError(name)
    if number == errno.E2BIG:
        return ProcessSpawnFailedError(
            name,
            "the argument list is too long (131071 bytes at most in one argument or variable, and "
            f"{os.sysconf('SC_ARG_MAX')} in all of them)",
            "Pass long data through stdin or a file.",
        )
    if number == errno.EAGAIN:
        return ProcessSpawnFailedError(
            name,
            "the sandbox's limit of processes is reached",
            "End some processes, or raise the limit.",
        )
    if number == errno.ENOMEM:
        return ProcessSpawnFailedError(name, "the sandbox's memory is used up")
    return ProcessSpawnFailedError(name, error.strerror or str(error))


def _interpreter(path: bytes) -> str:
    """Return what the first line of a script names, or an empty string."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        head = os.read(fd, _SCRIPT_HEAD)
    except OSError:
        return ""
    finally:
        os.close(fd)
    if not head.startswith(b"#!"):
        return ""
    words = head[2:].split(b"\n", 1)[0].split()
    return words[0].decode("utf-8", "replace") if words else ""


_ignored: list[int] = []


def _ignored_signals() -> list[int]:
    """Return the signals this process ignores: Python's own two, and what its starter left."""
    if not _ignored:
        _ignored.extend(
            number
            for number in signal.valid_signals()
            if signal.getsignal(number) == signal.SIG_IGN
        )
    return _ignored
