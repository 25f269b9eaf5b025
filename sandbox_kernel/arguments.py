"""What callers pass, checked: a value of the wrong kind is refused by its name, never guessed at.

Each function takes the parameter's name and the value, and returns the value as it is used.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from sandbox_kernel.errors import (
    InvalidCommandError,
    InvalidProcessEnvironmentError,
    SandboxConfigurationError,
    ValidationFailedError,
)

__all__ = [
    "as_configuration",
    "check_flags",
    "choice",
    "count",
    "environment",
    "file_mode",
    "flag",
    "inside_path",
    "number",
    "path_text",
    "patterns",
    "signal_number",
    "text",
    "words",
]

_SHOWN = 60
_MODES = 0o7777
_NO_MODE_IN_DECIMAL = range(0o1000, 778)
"""Whole numbers that are hardly meant as modes (the sticky bit with few others), and which people
write who mean octal digits."""

_SIGNALS = (
    *("HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2"),
    *("PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG"),
    *("XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS"),
)
"""Names of Linux's signals from 1 on; another system numbers its own otherwise."""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@contextmanager
def as_configuration() -> Iterator[None]:
    """Make of what is refused in the block a refused setting or option."""
    try:
        yield
    except ValidationFailedError as error:
        name, problem = error.context["parameter"], error.context["problem"]
        raise SandboxConfigurationError(
            f"The option {name} {problem}.", hint=error.hint, context={"setting": name}
        ) from error


def flag(name: str, value: object) -> bool:
    """Return a bool; text such as ``"no"`` would count as true."""
    if not isinstance(value, bool):
        raise ValidationFailedError(name, f"must be True or False, not {_shown(value)}")
    return value


def check_flags(options: Any) -> None:  # any dataclass
    """Make sure that every field of a dataclass which is declared as bool holds one.

    Raises
    ------
    SandboxConfigurationError
        One holds something else.
    """
    with as_configuration():
        for each in fields(options):
            if each.type == "bool":
                flag(each.name, getattr(options, each.name))


def _plain(value: object) -> int | float | None:
    """Return a number of another library as one of Python's own."""
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else None


def number(name: str, value: object, *, of: str = "seconds", least: float | None = 0.0) -> float:
    """Return a number, which may be infinite; neither text nor a bool nor NaN is one."""
    # Also those of numpy, which are no float and no int, and which JSON does not know.
    known = value if isinstance(value, int | float) else _plain(value)
    if known is None or isinstance(known, bool) or math.isnan(known):
        raise ValidationFailedError(name, f"must be a number of {of}, not {_shown(value)}")
    if least is not None and known < least:
        raise ValidationFailedError(name, f"must be at least {least:g}, not {_shown(value)}")
    return known


def count(name: str, value: object, *, least: int | None = 0, of: str = "") -> int:
    """Return a whole number."""
    known = value if isinstance(value, int) else _plain(value)
    is_whole = isinstance(known, int) and not isinstance(known, bool)
    if not isinstance(known, int) or not is_whole or (least is not None and known < least):
        unit = f" of {of}" if of else ""
        begin = "" if least is None else f" from {least} on"
        raise ValidationFailedError(
            name, f"must be a whole number{unit}{begin}, not {_shown(value)}"
        )
    return known


def text(name: str, value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ValidationFailedError(name, f"must be text, not {_shown(value)}")
    return value


def choice(name: str, value: object, choices: Collection[str]) -> str:
    """Return one of some texts."""
    if not isinstance(value, str) or value not in choices:
        shown = " or ".join(repr(each) for each in choices)
        raise ValidationFailedError(name, f"must be {shown}, not {_shown(value)}")
    return value


def path_text(name: str, value: object) -> str:
    """Return a path in a sandbox, which may be given as a `pathlib` path, as text."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise ValidationFailedError(name, f"must be a path as text, not {_shown(value)}")
    return value


def inside_path(name: str, value: object) -> str:
    """Return a path in a sandbox, which is not one that only a shell would understand."""
    path = path_text(name, value)
    if path == "~" or path.startswith("~/"):
        raise ValidationFailedError(
            name,
            f"is {_shown(path)}, of which nothing here expands the '~'",
            hint=f"Write /home/user{path[1:]} for the home folder, ./{path} for what is named so.",
        )
    return path


def words(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return program and arguments as texts.

    Raises
    ------
    InvalidCommandError
        It is no list, or something else than texts and paths is in it.
    """
    if isinstance(command, str | bytes | bytearray):
        # Splitting it would be a guess, and one word without arguments hides the mistake.
        raise InvalidCommandError("it is one string" if isinstance(command, str) else "it is bytes")
    if isinstance(command, Mapping) or not isinstance(command, Sequence):
        raise InvalidCommandError(f"it is {_shown(command)}")
    argv = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in command]
    for position, word in enumerate(argv):
        if not isinstance(word, str):
            raise InvalidCommandError(f"word {position} is {_shown(word)}, which is no text")
    return argv


def environment(
    value: object, *, may_unset: bool, name: str = "env"
) -> dict[str, Any]:  # str, and None where names may be unset
    """Return variables; numbers and paths are written as text.

    Raises
    ------
    InvalidProcessEnvironmentError
        A name or value is of a kind that no program can have.
    """
    if value is None and may_unset:
        return {}
    if not isinstance(value, Mapping):
        raise ValidationFailedError(
            name, f'must be a mapping such as {{"NAME": "value"}}, not {_shown(value)}'
        )
    variables: dict[str, str | None] = {}
    for key, given in value.items():
        if not isinstance(key, str):
            raise InvalidProcessEnvironmentError(_shown(key), "has a name that is no text")
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        item = os.fspath(given) if isinstance(given, os.PathLike) else given
        if is_number:
            item = str(item)
        if not isinstance(item, str) and not (item is None and may_unset):
            kind = "None, which unsets nothing here" if item is None else _shown(item)
            raise InvalidProcessEnvironmentError(key, f"must be text, not {kind}")
        variables[key] = item
    return variables


def patterns(name: str, value: str | Sequence[str]) -> list[str]:
    """Return patterns; a text is one of them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping | bytes) or not isinstance(value, Sequence | set | frozenset):
        raise ValidationFailedError(name, f"must be patterns as text, not {_shown(value)}")
    for each in value:
        if not isinstance(each, str):
            raise ValidationFailedError(name, f"holds {_shown(each)}, which is no text")
    return list(value)


def file_mode(name: str, value: object) -> int:
    """Return permission bits: a number such as ``0o755``, or its octal digits as text."""
    octal = 'permission bits such as 0o755, or "755"'
    if isinstance(value, str):
        digits = value.removeprefix("0o")
        if not digits or not set(digits) <= set("01234567"):
            raise ValidationFailedError(name, f"must be {octal}, not {_shown(value)}")
        bits = int(digits, 8)
    else:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValidationFailedError(name, f"must be {octal}, not {_shown(value)}")
        bits = value
        if bits in _NO_MODE_IN_DECIMAL and set(str(bits)) <= set("01234567"):
            raise ValidationFailedError(
                name,
                f"is {bits}, a decimal number: as bits that is {bits:#o}",
                hint=f'Write 0o{bits}, or "{bits}" as text; "{bits:#o}" if you mean that.',
            )
    if not 0 <= bits <= _MODES:
        raise ValidationFailedError(name, f"must be {octal}, not {_shown(value)}")
    return bits


def signal_number(name: str, value: object) -> int:
    """Return the number of a signal, which may be given by its name on Linux."""
    if isinstance(value, str):
        short = value.upper().removeprefix("SIG")
        if short in _SIGNALS:
            return _SIGNALS.index(short) + 1
    elif isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise ValidationFailedError(
        name, f'must be a signal: a number, or a name such as "SIGTERM", not {_shown(value)}'
    )
