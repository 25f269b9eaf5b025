"""gc: what crashes, ephemeral sandboxes and destroyed ones left behind."""

from __future__ import annotations

from argparse import Namespace
from contextlib import closing
from dataclasses import asdict

from sandbox_kernel.cli.exit_codes import FAILED, OK
from sandbox_kernel.cli.progress import Progress
from sandbox_kernel.cli.report import print_json, warn
from sandbox_kernel.manager.manager import Manager

__all__ = ["clean"]

_WORDS = {
    "sandboxes": ("sandbox", "to remove", "removed"),
    "ended": ("sandbox", "to end, files stay", "ended, files stay"),
    "files": ("files", "to remove", "removed"),
    "activity": ("activity", "to remove", "removed"),
}


def clean(arguments: Namespace) -> int:
    """Clean up, or tell what would be; fails when something could not be."""
    with closing(Manager()) as manager:
        before = asdict(manager.leftovers())
        left: dict[str, tuple[str, ...]] = {}
        if not arguments.dry_run:
            with Progress(quiet=arguments.quiet, unit=" sandboxes") as progress:

                def told(done: int, total: int) -> None:
                    progress.expect(total, "cleaning up")
                    progress.reach(done)

                manager.gc(on_progress=told)
            after = asdict(manager.leftovers())
            left = {kind: tuple(n for n in before[kind] if n in after[kind]) for kind in before}
    done = {kind: [n for n in before[kind] if n not in left.get(kind, ())] for kind in before}
    is_whole = not any(left.values())
    if arguments.json:
        print_json({"dry_run": arguments.dry_run, **done, "left": left})
        return OK if is_whole else FAILED
    for kind, names in done.items():
        what, planned, past = _WORDS[kind]
        for name in names:
            print(f"{what} {name}: {planned if arguments.dry_run else past}")
    for kind, those in left.items():
        for name in those:
            warn(f"{_WORDS[kind][0]} {name}: left for the next time")
    if not any(before.values()):
        print("There is nothing to clean up.")
    return OK if is_whole else FAILED
