"""run: a notebook from its first cell to its last, without a front end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from sandbox_kernel.cli.exit_codes import FAILED, INTERRUPTED, NO_ENGINE, OK
from sandbox_kernel.cli.naming import checked_id, pairs
from sandbox_kernel.cli.notebooks import code_cells, read_notebook, write_notebook
from sandbox_kernel.cli.report import print_json, warn
from sandbox_kernel.cli.wishes import spec_fields, wished_settings
from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.folder.notebook_files import import_lean
from sandbox_kernel.kernel.starter import asking, read_answer

if TYPE_CHECKING:
    from nbformat import NotebookNode

__all__ = ["run"]

_START_TIMEOUT = 180


def run(arguments: Namespace) -> int:
    """Execute the notebook; fails when a cell does."""
    source = Path(arguments.notebook).absolute()
    _check_target(arguments)
    _check_kernel(arguments.kernel)
    notebook = read_notebook(source)
    with import_lean():
        from nbclient.exceptions import (  # noqa: PLC0415  start-up time
            CellExecutionError,
            CellTimeoutError,
            DeadKernelError,
        )
    failure, code = "", OK
    with (
        TemporaryDirectory(prefix="jupyter-sandbox-") as place,
        _Progress(notebook, quiet=arguments.quiet or arguments.json) as progress,
    ):
        answer = Path(place, "answer.json")
        environment = _environment(arguments, answer)
        try:
            asyncio.run(
                _execute(notebook, source.parent, arguments, environment, progress, answer=answer)
            )
        except CellExecutionError as error:
            failure, code = f"{progress.where}: {error.ename}: {error.evalue}", FAILED
        except _UnusableMessageError as error:
            failure, code = f"{progress.where}: an output no notebook can hold: {error}", FAILED
        except CellTimeoutError:
            failure, code = f"{progress.where}: took longer than {arguments.timeout:g} s", FAILED
        except DeadKernelError:
            # nbclient's word for a wait that was cancelled, whoever did so.
            if progress.is_interrupted:
                failure, code = f"{progress.where}: interrupted", INTERRUPTED
            else:
                failure, code = f"{progress.where}: the kernel died", FAILED
        except RuntimeError as error:
            # What jupyter_client raises when the kernel never answered.
            _, reason = read_answer(answer)
            if reason is not None:
                raise reason from error
            failure, code = f"the kernel did not start: {error}", NO_ENGINE
        except (KeyboardInterrupt, asyncio.CancelledError):
            failure, code = f"{progress.where}: interrupted", INTERRUPTED
    if target := source if arguments.inplace else arguments.output and Path(arguments.output):
        write_notebook(notebook, target)
    if arguments.json:
        print_json(
            {"notebook": str(source), "cells_executed": progress.done, "failure": failure or None}
        )
    elif failure:
        warn(failure)
    return code


async def _execute(
    notebook: NotebookNode,
    folder: Path,
    arguments: Namespace,
    environment: dict[str, str],
    progress: _Progress,
    *,
    answer: Path,
) -> None:
    """Execute the notebook in place; SIGINT and SIGTERM cancel this and end the kernel."""
    from jupyter_client.manager import AsyncKernelManager  # noqa: PLC0415  start-up time
    from nbclient import NotebookClient  # noqa: PLC0415

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101  a coroutine runs in a task

    def interrupt() -> None:
        progress.is_interrupted = True
        task.cancel()

    def started(**facts: Any) -> None:
        # nbclient takes the signals itself, and then loses the kernel it would shut down.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        progress.started(**facts)

    manager = AsyncKernelManager(kernel_name=arguments.kernel)
    await manager.start_kernel(cwd=str(folder), env=environment)
    kernel = manager.client()
    kernel.start_channels()
    # Nobody is there to type: `input` raises in the cell instead of waiting for ever.
    kernel.allow_stdin = False
    try:
        await kernel.wait_for_ready(timeout=_START_TIMEOUT)
        for notice in read_answer(answer)[0]:
            warn(notice)
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=arguments.timeout,
            allow_errors=arguments.allow_errors,
            coalesce_streams=True,
            on_cell_start=started,
            on_cell_executed=progress.executed,
        )
        client.kc = kernel
        with _unusable_messages():
            await client.async_execute()
    finally:
        kernel.stop_channels()
        await manager.shutdown_kernel()


class _UnusableMessageError(Exception):
    """A cell has sent what nbclient fails at; says what that was."""


@contextmanager
def _unusable_messages() -> Iterator[None]:
    """Tell faults in what a cell sent from faults of ours.

    nbclient takes any message apart as if an honest kernel had made it.
    """
    from nbformat import ValidationError  # noqa: PLC0415  start-up time

    try:
        yield
    except ValidationError as error:
        raise _UnusableMessageError(str(error).partition("\n")[0]) from error
    except (AttributeError, LookupError, TypeError) as error:
        raise _UnusableMessageError(f"{type(error).__name__}: {error}") from error


def _check_target(arguments: Namespace) -> None:
    """Refuse a target that cannot be written before the work is done."""
    if not arguments.output:
        return
    folder = Path(arguments.output).absolute().parent
    if not folder.is_dir():
        raise SandboxConfigurationError(
            f"The folder {folder} of --output does not exist.", hint="Create it first."
        )


def _check_kernel(name: str) -> None:
    """Refuse a kernel that would run the cells on the host: `run` promises a sandbox."""
    from jupyter_client.kernelspec import (  # noqa: PLC0415  start-up time
        KernelSpecManager,
        NoSuchKernel,
    )

    try:
        spec = KernelSpecManager().get_kernel_spec(name)
    except NoSuchKernel as error:
        raise SandboxConfigurationError(
            f"Jupyter knows no kernel {name!r}.", hint="Run: jupyter sandbox kernelspec install"
        ) from error
    if "sandbox_kernel.kernel.launch" not in spec.argv:
        raise SandboxConfigurationError(
            f"The kernel {name!r} does not run in a sandbox; nothing was run.",
            hint="Use a kernel of 'jupyter sandbox kernelspec install', or 'jupyter execute'"
            " to run the notebook on this machine itself.",
        )


def _environment(arguments: Namespace, answer: Path) -> dict[str, str]:
    """Return the relay's environment, with this command's wishes in it."""
    environment = dict(os.environ)
    # Set when the command itself is run from a notebook: that notebook's sandbox is not meant.
    environment.pop("JPY_SESSION_NAME", None)
    if arguments.id:
        environment["SANDBOX_ID"] = checked_id(arguments.id)
    wishes = wished_settings(arguments)
    if arguments.env:
        wishes["env"] = pairs(arguments.env)
    environment |= asking(spec_fields(wishes), answer)
    if wishes:
        try:
            inherited = json.loads(environment.get("SANDBOX_CONFIG") or "{}")
            manager = {**inherited.get("SandboxManager", {}), **wishes}
        except (ValueError, AttributeError) as error:
            raise SandboxConfigurationError(f"SANDBOX_CONFIG cannot be read: {error}.") from error
        environment["SANDBOX_CONFIG"] = json.dumps({**inherited, "SandboxManager": manager})
    return environment


class _Progress:
    """The bar, and which cell we are at."""

    def __init__(self, notebook: NotebookNode, *, quiet: bool) -> None:
        self.done = 0
        self.where = "before the first cell"
        self.is_interrupted = False
        from tqdm import tqdm  # noqa: PLC0415  start-up time

        # disable=None: no bar where there is no terminal.
        self._bar = tqdm(total=code_cells(notebook), unit="cell", disable=True if quiet else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def started(self, *, cell: NotebookNode, cell_index: int) -> None:
        """Note which cell comes; nbclient calls this before cells of every kind."""
        if cell.cell_type == "code":
            self.where = f"cell {cell_index + 1}"

    def executed(self, **_: object) -> None:
        """Move the bar; nbclient calls this after each code cell, failed ones too."""
        self.done += 1
        self._bar.update()
