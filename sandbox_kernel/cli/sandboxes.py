"""list, stop and destroy: the lives of sandboxes."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from typing import Any

from sandbox_kernel.cli.exit_codes import OK
from sandbox_kernel.cli.naming import existing
from sandbox_kernel.cli.report import (
    exit_code_of,
    print_json,
    print_table,
    report_error,
    time_text,
)
from sandbox_kernel.errors import SandboxConfigurationError, SandboxError
from sandbox_kernel.manager.manager import Manager, SandboxInfo

__all__ = ["confirm", "destroy", "facts", "list_all", "stop"]


def list_all(arguments: Namespace) -> int:
    """Print every sandbox."""
    with closing(Manager()) as manager:
        found = manager.list()
    if arguments.json:
        print_json([facts(info) for info in found])
    elif arguments.quiet:
        for info in found:
            print(info.sandbox_id)
    elif found:
        head = ("SANDBOX", "STATE", "ENGINE", "NETWORK", "STARTED", "NOTEBOOK FOLDER")
        print_table(head, map(_row, found))
    else:
        print("There are no sandboxes.")
    return OK


def stop(arguments: Namespace) -> int:
    """Stop the sandboxes named."""
    with closing(Manager()) as manager:
        return _each(
            arguments,
            _chosen(manager, arguments),
            "stopped",
            lambda info: manager.stop(info.sandbox_id, grace=arguments.grace),
        )


def destroy(arguments: Namespace) -> int:
    """Destroy the sandboxes named, once the user has said so."""
    with closing(Manager()) as manager:
        chosen = _chosen(manager, arguments)
        if chosen and not arguments.yes:
            names = ", ".join(info.sandbox_id for info in chosen)
            confirm(f"Destroy {names} with all files in it?")
        return _each(arguments, chosen, "destroyed", lambda info: manager.destroy(info.sandbox_id))


def confirm(question: str, *, hint: str = "Say so with --yes.") -> None:
    """Ask on the terminal; return only on yes.

    Parameters
    ----------
    question : str
        What to ask.
    hint : str
        What to do where there is nobody to ask.

    Raises
    ------
    SandboxConfigurationError
        The answer is no, or there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise SandboxConfigurationError(
            "There is nobody to ask whether this is meant; nothing was done.", hint=hint
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise SandboxConfigurationError("Nothing was done.")


def _chosen(manager: Manager, arguments: Namespace) -> list[SandboxInfo]:
    if bool(arguments.sandboxes) == arguments.all:
        raise SandboxConfigurationError("Name the sandboxes, or say --all.")
    if arguments.all:
        return manager.list()
    return [existing(manager, text) for text in arguments.sandboxes]


def _each(
    arguments: Namespace,
    chosen: list[SandboxInfo],
    done: str,
    act: Callable[[SandboxInfo], None],
) -> int:
    """Act on each; one that fails does not keep the others from their turn."""
    code = OK
    answers: list[dict[str, Any]] = []
    for info in chosen:
        try:
            act(info)
        except SandboxError as error:
            code = code or exit_code_of(error)
            answers.append({"sandbox_id": info.sandbox_id, "error": error.to_wire()})
            if not arguments.json:
                report_error(error, as_json=False)
            continue
        answers.append({"sandbox_id": info.sandbox_id, "result": done})
        if not arguments.json:
            print(f"{info.sandbox_id}: {done}")
    if arguments.json:
        print_json(answers)
    return code


def _row(info: SandboxInfo) -> tuple[str, ...]:
    folder = info.spec.notebook_folder
    return (
        info.sandbox_id,
        info.state,
        info.engine,
        "on" if info.spec.network else "off",
        time_text(info.started_at),
        f"{folder} ({info.spec.folder_mode})" if folder else "-",
    )


def facts(info: SandboxInfo) -> dict[str, Any]:
    """Return what programs are told of a sandbox."""
    instance = info.instance
    folder = info.spec.notebook_folder
    return {
        "sandbox_id": info.sandbox_id,
        "lifetime": info.lifetime,
        "state": info.state,
        "engine": info.engine,
        "network": info.spec.network,
        "notebook_folder": str(folder) if folder else None,
        "folder_mode": str(info.spec.folder_mode),
        "ephemeral": info.ephemeral,
        "created_at": info.created_at,
        "started_at": info.started_at,
        "isolation": instance.isolation if instance else None,
        "limits": instance.limits if instance else None,
        "notices": instance.notices if instance else [],
        "workspace": str(info.layout.workspace),
    }
