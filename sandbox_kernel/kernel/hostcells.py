"""Cells that the host side answers itself: those whose first word is one of our magics.

A host cell takes its turn behind the cells sent before it, and those sent after it wait for it.
Commands that only look (`immediate`) are answered at once, also while a cell runs or the
interpreter hangs.  Host cells never weaken the isolation: the sandbox can plant cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandbox_kernel.kernel.requests import Request

__all__ = ["HELP", "Command", "Commands", "HostCell", "UsageProblem", "parse"]

HELP = """\
%sandbox status    which sandbox this is, how it is isolated, what was refused
%sandbox outputs   what cells wrote whose page was closed or lost while they ran
%sandbox preview   a link to what listens on a port: %sandbox preview 8000
%sandbox restart   a fresh interpreter in the same sandbox; files stay
%sandbox help      this text
"""


@dataclass(frozen=True)
class HostCell:
    """A cell for the host: the magic without its percent sign, and its words."""

    magic: str
    words: list[str]


class UsageProblem(ValueError):  # noqa: N818  told to the user as the cell's error
    """A host cell that cannot be understood; says what would be."""


def parse(code: str, magics: frozenset[str] = frozenset({"sandbox"})) -> HostCell | None:
    """Return the host cell in `code`, or None if the sandbox is to run it.

    Raises
    ------
    UsageProblem
        It begins with one of our magics but cannot be run.
    """
    text = code.lstrip()
    if not text.startswith("%"):
        return None
    first = text.split(maxsplit=1)[0]
    if first.lstrip("%") not in magics or first.count("%") > 2:
        return None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if first.startswith("%%") or len(lines) > 1:
        magic = first.lstrip("%")
        raise UsageProblem(f"%{magic} is answered by the host and stands alone in its cell.")
    import shlex  # noqa: PLC0415  not worth its time in a notebook without host cells

    try:
        words = shlex.split(lines[0], comments=True)
    except ValueError as error:
        raise UsageProblem(f"{lines[0]!r} cannot be read: {error}.") from None
    return HostCell(first.lstrip("%"), words[1:])


@dataclass(frozen=True)
class Command:
    """One host command.

    Parameters
    ----------
    run : callable
        Takes the cell's request and the words after the command; returns the text to show, or
        None if the cell is finished later by whoever runs it.
    immediate : bool
        Whether it is answered at once instead of in turn.
    """

    run: Callable[[Request, list[str]], str | None]
    immediate: bool = False


class Commands:
    """The commands of a magic, by their first word.

    Parameters
    ----------
    magic : str
        Its name, for messages.
    table : mapping of str to Command
        Every command; `default` is what the magic alone means.
    default : str
        The command meant by no word at all.
    """

    def __init__(self, magic: str, table: Mapping[str, Command], default: str) -> None:
        self._magic = magic
        self._table = dict(table)
        self._default = default

    def find(self, cell: HostCell) -> tuple[Command, list[str]]:
        """Return the command a cell names, and its own words.

        Raises
        ------
        UsageProblem
            There is no such command.
        """
        name, *words = cell.words or [self._default]
        command = self._table.get(name)
        if command is None:
            known = ", ".join(self._table)
            raise UsageProblem(f"%{self._magic} has no command {name!r}; it has: {known}.")
        return command, words
