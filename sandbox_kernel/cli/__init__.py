"""The command ``jupyter sandbox``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import cast

from sandbox_kernel.cli.parser import parse_arguments
from sandbox_kernel.cli.report import INTERRUPTED, report_error
from sandbox_kernel.errors import SandboxError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.
    """
    arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    module_name, _, function_name = arguments.command.partition(":")
    try:
        module = importlib.import_module(module_name)
        command = cast("Callable[..., int]", getattr(module, function_name))
        return command(arguments)
    except SandboxError as error:
        return report_error(error, as_json=arguments.json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone, such as head; Python would complain at exit once more.
        sys.stderr.close()
        return 1
