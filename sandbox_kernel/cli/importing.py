"""import: somebody else's notebook, cleaned and set to a kernel in a sandbox."""

from __future__ import annotations

from argparse import Namespace

from sandbox_kernel.cli.exit_codes import OK
from sandbox_kernel.cli.report import print_json, printable
from sandbox_kernel.folder.importing import import_notebook
from sandbox_kernel.manager.settings import load_settings
from sandbox_kernel.wall.modes import Mode, Wall

__all__ = ["import_"]


def import_(arguments: Namespace) -> int:
    """Write the copy, and print what differs."""
    settings = load_settings()
    # Trust is for outputs of one's own sandboxes; those of the file are of somebody else's kernel.
    mode = Mode.STRICT if settings.output_policy is Mode.STRICT else Mode.DEFAULT
    output = arguments.notebook if arguments.inplace else arguments.output
    made = import_notebook(
        arguments.notebook, output, wall=Wall(mode=mode, network=settings.network)
    )
    if arguments.json:
        print_json({"notebook": str(made.path), "changes": made.changes})
    else:
        for change in made.changes:
            print(printable(change))
        print(f"Wrote {printable(str(made.path))}")
    return OK
