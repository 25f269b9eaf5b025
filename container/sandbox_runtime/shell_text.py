"""The texts that we have a session's shell run ourselves, and what it answers; no I/O.

They call builtins by way of ``builtin`` with a backslash, so that neither aliases nor functions of
those names get in the way, end with success, since the user may have set ``errexit``, and leave
nothing behind.
"""

from __future__ import annotations

import re

from sandbox_kernel.errors import InvalidCommandError, InvalidProcessEnvironmentError
from sandbox_runtime.shell import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "TELL_ENV",
    "Prepared",
    "check_env",
    "encode",
    "prepare",
    "read_env",
    "read_exports",
    "status_text",
    "with_input",
    "with_status",
]

TELL_ENV = b"\\builtin command -p env -0 2>/dev/null || \\builtin true\n"
"""Has the environment of programs printed, as `read_env` reads it."""

_EXPORT = re.compile(rb"(?:declare -[A-Za-z]+|export) ([A-Za-z_][A-Za-z0-9_]*)")
_DOUBLE = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ANSI = re.compile(rb"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {
    b"n": b"\n",
    b"t": b"\t",
    b"r": b"\r",
    b"a": b"\a",
    b"b": b"\b",
    b"v": b"\v",
    b"f": b"\f",
    b"E": b"\x1b",
    b"e": b"\x1b",
}

_DONE = b"\0done"
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_DIGITS = frozenset("0123456789")


def encode(text: str) -> bytes:
    """Return a text as the shell reads it.

    Raises
    ------
    InvalidCommandError
        It holds a character that is no text.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidCommandError("the text holds a character that is no text") from None


def check_env(env: Mapping[str, str | None]) -> None:
    """Make sure that a shell can have these variables.

    Raises
    ------
    InvalidProcessEnvironmentError
        A name is none of a shell's, or a value holds a NUL.
    """
    for name, value in env.items():
        if not name or name[0] not in _LETTERS or not set(name) <= _LETTERS | _DIGITS:
            raise InvalidProcessEnvironmentError(
                name, "is no name: use letters, digits and underscores, no digit first"
            )
        if value is not None and "\0" in value:
            raise InvalidProcessEnvironmentError(name, "holds a NUL")
        try:
            (value or "").encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise InvalidProcessEnvironmentError(
                name, "holds a character that is no text"
            ) from None


def prepare(env: Mapping[str, str | None], cwd: str | None) -> bytes:
    """Return a text that tells what is there, then changes folder and variables: all or says so."""
    names = " ".join(env)
    lines = ['\\builtin printf \'%s\\0%s\\0\' "${PWD-}" "${OLDPWD-}"']
    changes = []
    if names:
        lines.append(f"\\builtin declare -p -- {names} 2>/dev/null || \\builtin true")
        changes.append(f"\\builtin unset -v {names}")
        given = [f"{name}={quote(value)}" for name, value in env.items() if value is not None]
        if given:
            changes.append(f"\\builtin export {' '.join(given)}")
    if cwd is not None:
        changes.append(f"\\builtin cd -- {quote(cwd)}")
    changes.append("\\builtin printf '\\0done'")
    lines.append("{ " + " && ".join(changes) + "; } 2>/dev/null || \\builtin true")
    return encode("\n".join(lines) + "\n")


class Prepared:
    """What the shell answered to `prepare`."""

    def __init__(self, output: bytes, env: Mapping[str, str | None], cwd: str | None) -> None:
        self.is_done = output.endswith(_DONE)
        """Whether all changes were made."""
        pwd, _, rest = output.removesuffix(_DONE).partition(b"\0")
        oldpwd, _, variables = rest.partition(b"\0")
        lines = []
        if env:
            lines.append(b"\\builtin unset -v " + " ".join(env).encode())
            # As `declare` printed them: a text for the shell.
            lines.append(variables.rstrip(b"\n"))
        if cwd is not None and pwd:
            lines.append(b"\\builtin cd -- " + _quote(pwd))
            lines.append(b"OLDPWD=" + _quote(oldpwd) if oldpwd else b"\\builtin unset -v OLDPWD")
        self.restore = (
            b"{ "
            + b"\n".join(lines or [b"\\builtin true"])
            + b"\n} 2>/dev/null || \\builtin true\n"
        )
        """A text that undoes the changes."""


def with_status(text: bytes, path: str) -> bytes:
    """Return a text that finds a status in ``$?``: that of the text at `path`."""
    # No subshell: where no process can be had, a text of builtins still runs.  And `&& :` keeps
    # errexit and the ERR trap from acting on it.
    return b"\\builtin . " + encode(quote(path)) + b" && :; " + text


def status_text(status: int) -> bytes:
    """Return a text that does nothing and has a status."""
    return b"\\builtin return %d\n" % status


def with_input(path: str, opened: str) -> bytes:
    """Return a text that runs the one at `path` after having written a byte into a FIFO."""
    return encode(f"\\builtin printf . >|{quote(opened)}; \\builtin . {quote(path)}\n")


def read_env(output: bytes) -> dict[str, str]:
    """Return the variables that the shell has told."""
    pairs = (each.partition(b"=") for each in output.split(b"\0") if each)
    return {
        name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
        for name, is_pair, value in pairs
        if is_pair
    }


def read_exports(text: bytes) -> dict[str, str]:
    """Return the variables with their values that ``export -p`` has printed."""
    found: dict[str, str] = {}
    at = 0
    while True:
        head = _EXPORT.match(text, at)
        if head is None:
            break
        name, at = head[1].decode(), head.end()
        if text[at : at + 1] != b"=":
            # Exported, and not set.
            at += 1
            continue
        if text[at + 1 : at + 2] == b"(":
            # An array, in one line; programs get none.
            at = text.find(b"\n", at) + 1 or len(text)
            continue
        value, at = _read_value(text, at + 1)
        if text[at : at + 1] != b"\n":
            break
        at += 1
        found[name] = value.decode("utf-8", "surrogateescape")
    return found


def _read_value(text: bytes, at: int) -> tuple[bytes, int]:
    """Return a quoted word of bash, and where it ends."""
    if text[at : at + 1] == b'"':
        plain = _DOUBLE.match(text, at)
        if plain is None:
            return b"", len(text)
        return re.sub(rb"\\([$`\"\\\\])", rb"\1", plain[1]), plain.end()
    quoted = _ANSI.match(text, at)
    if quoted is None:
        return b"", len(text)
    return _ESCAPE.sub(_unescape, quoted[1]), quoted.end()


def _unescape(found: re.Match[bytes]) -> bytes:
    escape = found[1]
    if escape[:1] in b"01234567":
        return bytes([int(escape, 8) & 255])
    return _ESCAPES.get(escape, escape)


def _quote(text: bytes) -> bytes:
    return quote(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
