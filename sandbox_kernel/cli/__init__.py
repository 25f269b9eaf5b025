"""The command ``jupyter sandbox``."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import cast

from sandbox_kernel.cli.exit_codes import INTERRUPTED
from sandbox_kernel.cli.parser import parse_arguments
from sandbox_kernel.cli.report import report_error, report_os_error
from sandbox_kernel.errors import SandboxError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.
    """
    _open_closed_streams()
    arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    module_name, _, function_name = arguments.command.partition(":")
    try:
        # Terminals that are not UTF-8 show what they lack as an escape.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        from sandbox_kernel.manager.activity import name_program  # noqa: PLC0415  start-up time

        name_program("command line")
        module = importlib.import_module(module_name)
        command = cast("Callable[..., int]", getattr(module, function_name))
        code = command(arguments)
        sys.stdout.flush()
    except SandboxError as error:
        try:
            return report_error(error, as_json=arguments.json)
        except OSError as second:
            return report_os_error(second)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone, such as head; Python would complain at exit once more.
        sys.stderr.close()
        return 1
    except OSError as error:
        return report_os_error(error)
    return code


def _open_closed_streams() -> None:
    """Put the null device where a standard stream is closed.

    Otherwise the next file that we open gets its number, and is read or written in its place.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
    # Python has None for a stream that was closed at its start.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  for good
