"""diff, apply and discard: what a sandbox did to the notebook's folder."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

from sandbox_kernel import folder as layer
from sandbox_kernel.cli.exit_codes import FAILED, OK
from sandbox_kernel.cli.naming import existing
from sandbox_kernel.cli.report import print_json, printable, size_text
from sandbox_kernel.cli.sandboxes import confirm
from sandbox_kernel.engines.base import FolderMode
from sandbox_kernel.errors import SandboxConfigurationError, StorageError, StorageFullError
from sandbox_kernel.folder.notebooks import clean_notebook
from sandbox_kernel.folder.selection import Selection
from sandbox_kernel.manager import locks
from sandbox_kernel.manager.manager import Manager, SandboxInfo
from sandbox_kernel.wall.modes import Wall

__all__ = ["apply", "diff", "discard"]

_MOST_ASKED = 20
"""Files that are named in a question; people read no more."""


def diff(arguments: Namespace) -> int:
    """Print the changes."""
    with closing(Manager()) as manager:
        info, folder = _overlay(manager, arguments.sandbox)
    changes = layer.diff(info.layout, folder)
    if arguments.paths:
        changes = Selection(arguments.paths).of(changes)
    if arguments.json:
        print_json([_change_facts(change) for change in changes])
    elif changes:
        for change in changes:
            print(_line(str(change.kind), change, change.problem or change.conflict))
    else:
        print(f"No changes in {folder}.")
    return FAILED if changes and arguments.exit_code else OK


def apply(arguments: Namespace) -> int:
    """Take changes over; fails when one that was to be taken over was not."""
    with closing(Manager()) as manager:
        info, folder = _overlay(manager, arguments.sandbox)
    wall = Wall(mode=info.spec.output_policy, network=info.spec.network)
    try:
        outcomes = layer.apply(
            info.layout,
            folder,
            arguments.paths or None,
            links=arguments.links,
            hidden=arguments.hidden,
            force=arguments.force,
            clean=partial(clean_notebook, wall=wall),
            # Who names paths has said what is meant.
            ask=None if arguments.paths or arguments.yes else _ask,
        )
    except (StorageError, StorageFullError) as error:
        if not arguments.json:
            deleted = error.context.get("deleted", ())
            for path in error.context.get("applied", ()):
                print(_row("deleted" if path in deleted else "applied", printable(path)))
            for path in error.context.get("not_applied", ()):
                print(_row("not applied", printable(path)))
        raise
    if arguments.json:
        print_json(
            [
                {
                    **_change_facts(outcome.change),
                    "status": str(outcome.status),
                    "reason": outcome.reason,
                    "cleaned": outcome.cleaned,
                }
                for outcome in outcomes
            ]
        )
    elif outcomes:
        for outcome in outcomes:
            print(_line(_became(outcome), outcome.change, outcome.reason))
            for line in outcome.cleaned:
                print(_row("", printable(line)))
        _tell_left_out(outcomes)
    else:
        print(f"No changes in {folder}.")
    bad = {layer.Status.CONFLICT, layer.Status.REFUSED}
    return FAILED if any(outcome.status in bad for outcome in outcomes) else OK


def discard(arguments: Namespace) -> int:
    """Drop changes of a stopped sandbox."""
    if bool(arguments.paths) == arguments.all:
        raise SandboxConfigurationError("Name the paths to discard, or say --all.")
    with closing(Manager()) as manager:
        info, folder = _overlay(manager, arguments.sandbox)
    if not arguments.yes:
        confirm(f"Discard the changes of {info.sandbox_id}? They cannot be brought back.")
    with _kept_stopped(manager, info):
        changes = layer.discard(
            info.layout, folder, arguments.paths or None, sandbox_id=info.sandbox_id
        )
    if arguments.json:
        print_json([_change_facts(change) for change in changes])
    for change in () if arguments.json else changes:
        print(_line("discarded", change, ""))
    return OK


def _ask(changes: list[layer.Change]) -> None:
    """Have the user say that these files of the host may be deleted or replaced."""
    for change in changes[:_MOST_ASKED]:
        deletes = change.kind is layer.ChangeKind.DELETED
        print(_line("to delete" if deletes else "to replace", change, ""), file=sys.stderr)
    if len(changes) > _MOST_ASKED:
        print(f"and {len(changes) - _MOST_ASKED} more", file=sys.stderr)
    files = "this" if len(changes) == 1 else f"these {len(changes)}"
    confirm(
        f"Delete or replace {files} on the host? It cannot be undone.",
        hint="Name the paths to take over, or say --yes for all.",
    )


def _became(outcome: layer.Outcome) -> str:
    is_deletion = outcome.change.kind is layer.ChangeKind.DELETED
    if is_deletion and outcome.status is layer.Status.APPLIED:
        return "deleted"
    return str(outcome.status)


def _tell_left_out(outcomes: list[layer.Outcome]) -> None:
    left = [o for o in outcomes if o.status is layer.Status.SKIPPED and o.change.is_hidden]
    if left:
        print(
            f"{len(left)} hidden left out: they can configure tools on this machine."
            " Look at them, then name them or say --hidden."
        )


def _overlay(manager: Manager, text: str) -> tuple[SandboxInfo, Path]:
    """Return the sandbox and the host folder that its layer lies over."""
    info = existing(manager, text)
    folder = layer.folder_of(info.layout)
    if folder is None and info.spec.folder_mode is FolderMode.OVERLAY:
        # Its layer has not been made yet, or was discarded as a whole: there are no changes.
        folder = info.spec.notebook_folder
    if folder is None:
        raise SandboxConfigurationError(
            f"Sandbox {info.sandbox_id!r} has no layer over a notebook's folder.",
            hint="Only files of a folder shown as 'overlay' can be compared and taken over.",
        )
    return info, folder


def _kept_stopped(manager: Manager, info: SandboxInfo) -> AbstractContextManager[object]:
    """Keep every process of this user from starting the sandbox for the block."""
    settings = manager.settings
    return locks.hold(settings.data_dir / "locks", info.sandbox_id, timeout=settings.start_timeout)


def _line(what: str, change: layer.Change, remark: str) -> str:
    path = printable(change.path)
    details = []
    match change.type:
        case layer.FileType.FOLDER:
            path += "/"
        case layer.FileType.LINK:
            path += f" -> {printable(change.target or '')}"
        case layer.FileType.FILE if change.kind is not layer.ChangeKind.DELETED:
            details.append(size_text(change.size))
    if change.host_entries:
        details.append(f"with {change.host_entries} in it on the host")
    if remark:
        details.append(printable(remark))
    return _row(what, path) + (f"  ({', '.join(details)})" if details else "")


def _row(what: str, path: str) -> str:
    return f"{what:<12}  {path}"


def _change_facts(change: layer.Change) -> dict[str, Any]:
    return {
        "path": change.path,
        "kind": str(change.kind),
        "type": str(change.type),
        "size": change.size,
        "target": change.target,
        "conflict": change.conflict,
        "problem": change.problem,
        "host_entries": change.host_entries,
    }
