"""kernelspec install: the sandbox kernel in Jupyter's list of kernels."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager

from sandbox_kernel.cli.report import OK, print_json
from sandbox_kernel.errors import SandboxConfigurationError, StorageError
from sandbox_kernel.manager.identity import check_sandbox_id

__all__ = ["install"]

_SOURCE = Path(__file__).parent.parent / "kernelspec"


def install(arguments: Namespace) -> int:
    """Install the kernelspec and print where."""
    prefix = arguments.prefix or (None if arguments.user else sys.prefix)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "kernelspec")
        shutil.copytree(_SOURCE, draft)
        _adapt(draft / "kernel.json", arguments)
        try:
            destination = KernelSpecManager().install_kernel_spec(
                str(draft), arguments.name, user=arguments.user, prefix=prefix
            )
        except ValueError as error:
            raise SandboxConfigurationError(f"{error}") from error
        except OSError as error:
            raise StorageError(
                str(error.filename or prefix),
                "write",
                error.strerror or str(error),
                "Install it for yourself with --user, or name another place with --prefix.",
            ) from error
    if arguments.json:
        print_json({"name": arguments.name, "path": destination})
    else:
        print(f"Installed kernelspec {arguments.name} in {destination}")
    return OK


def _adapt(kernel_json: Path, arguments: Namespace) -> None:
    spec = json.loads(kernel_json.read_text(encoding="utf-8"))
    # Jupyter may run in another environment, where "python" would be one without the project.
    spec["argv"][0] = sys.executable
    if arguments.display_name:
        spec["display_name"] = arguments.display_name
    if arguments.id:
        spec["env"] = {**spec.get("env", {}), "SANDBOX_ID": check_sandbox_id(arguments.id)}
    kernel_json.write_text(json.dumps(spec, indent=2) + "\n", encoding="utf-8")
