"""doctor: whether sandboxes work here, and what holds on Jupyter servers, found out by trying."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from dataclasses import asdict, replace

from sandbox_kernel.cli.exit_codes import NO_ENGINE, OK
from sandbox_kernel.cli.report import print_json, printable
from sandbox_kernel.cli.servers import look_at, running_servers
from sandbox_kernel.engines.doctor import Finding, findings
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.manager.engine_choice import load_engine
from sandbox_kernel.manager.settings import Settings, load_settings

__all__ = ["doctor"]


def doctor(arguments: Namespace) -> int:
    """Print each finding with its mend, and fail when something needed does not work."""
    settings = load_settings()
    servers = [finding for server in running_servers() for finding in look_at(server)]
    found = [*_engine(settings), _data_folder(settings), _kernelspec(), *servers]
    if arguments.json:
        print_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            _print(finding)
    is_fit = all(finding.ok or not finding.required for finding in found)
    return OK if is_fit else NO_ENGINE


def _print(finding: Finding) -> None:
    verdict = "ok" if finding.ok else "BAD" if finding.required else "less"
    print(f"{verdict:<4}  {finding.name}: {printable(finding.detail)}")
    for line in finding.mend.splitlines():
        print(f"      {printable(line)}")


def _engine(settings: Settings) -> list[Finding]:
    if settings.engine not in ("auto", "bubblewrap"):
        return [_probed(settings.engine, settings)]
    found = findings(settings.bubblewrap, state_folder=str(settings.data_dir))
    if settings.engine == "bubblewrap":
        return found
    docker = _probed("docker", settings)
    if all(finding.ok or not finding.required for finding in found):
        return [*found, replace(docker, required=False)]
    # One of the two will do.
    return [*(replace(each, required=each.required and not docker.ok) for each in found), docker]


def _probed(engine: str, settings: Settings) -> Finding:
    name = f"engine {engine}"
    try:
        probe = load_engine(engine, settings).probe()
    except SandboxError as error:
        return Finding(name=name, ok=False, detail=error.message, mend=error.hint)
    facts = ", ".join(f"{name}: {value}" for name, value in probe.facts.items())
    return Finding(
        name=name, ok=probe.works, detail=probe.cause or facts or "works", mend=probe.mend
    )


def _data_folder(settings: Settings) -> Finding:
    """Look at the first folder on the way that exists: the others will be made in it."""
    folder = settings.data_dir
    existing = folder
    while not os.path.lexists(existing):
        existing = existing.parent
    if os.access(existing, os.W_OK | os.X_OK):
        return Finding(name="data folder", ok=True, detail=str(folder))
    return Finding(
        name="data folder",
        ok=False,
        detail=f"{existing} cannot be written",
        mend="Make it writable, or point JUPYTER_DATA_DIR elsewhere.",
    )


def _kernelspec() -> Finding:
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel  # noqa: PLC0415

    try:
        spec = KernelSpecManager().get_kernel_spec("sandbox-python")
    except NoSuchKernel:
        return Finding(
            name="kernelspec",
            ok=False,
            detail=f"Jupyter at {sys.prefix} does not know sandbox-python",
            mend="Run: jupyter sandbox kernelspec install",
        )
    return Finding(name="kernelspec", ok=True, detail=spec.resource_dir)
