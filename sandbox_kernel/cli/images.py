"""image build: an image for the docker engine, by the script of a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

from sandbox_kernel.cli.exit_codes import OK
from sandbox_kernel.cli.report import print_json, warn
from sandbox_kernel.errors import EngineUnavailableError, SandboxConfigurationError, SandboxError

__all__ = ["build"]

_SCRIPT = Path(__file__).parents[2] / "container" / "build.sh"


def build(arguments: Namespace) -> int:
    """Build the image, and print its name and its id."""
    if not _SCRIPT.is_file():
        raise SandboxConfigurationError(
            "An image can only be built from a checkout of the project.",
            hint="Other images than the project's are named by --image, see docs/docker.md.",
        )
    if arguments.tag.startswith("-"):
        raise SandboxConfigurationError(f"{arguments.tag!r} is no name of an image.")
    if shutil.which("docker") is None:
        raise EngineUnavailableError(
            "docker", "there is no command 'docker' here", "Install Docker, then try again."
        )
    environment = dict(os.environ, **({"BASE": arguments.base} if arguments.base else {}))
    if not arguments.quiet and sys.stderr.isatty():
        warn("building; the first time takes some minutes")
    ended = subprocess.run(
        ["bash", os.fspath(_SCRIPT), arguments.tag],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if arguments.quiet else None,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SandboxError(f"The build ended with {ended.returncode}.")
    image = ended.stdout.split()[-1] if ended.stdout.split() else ""
    if arguments.json:
        print_json({"image": arguments.tag, "id": image})
    else:
        print(f"{arguments.tag}  {image}")
    return OK
