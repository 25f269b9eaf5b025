"""doctor: whether sandboxes work here, found out by trying."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from dataclasses import asdict, dataclass

from sandbox_kernel.cli.report import NO_ENGINE, OK, print_json, printable
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.manager.engine_choice import load_engine
from sandbox_kernel.manager.settings import Settings, load_settings

__all__ = ["doctor"]


@dataclass(frozen=True, kw_only=True)
class _Finding:
    what: str
    works: bool
    detail: str
    mend: str = ""


def doctor(arguments: Namespace) -> int:
    """Print each finding with its mend, and fail when something does not work."""
    settings = load_settings()
    findings = [_engine(settings), _data_folder(settings), _kernelspec()]
    if arguments.json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            print(
                f"{'ok ' if finding.works else 'BAD'}  {finding.what}: {printable(finding.detail)}"
            )
            if finding.mend:
                print(f"     {printable(finding.mend, keep=chr(10))}")
    return OK if all(finding.works for finding in findings) else NO_ENGINE


def _engine(settings: Settings) -> _Finding:
    name = settings.engine
    what = f"engine {name}"
    try:
        probe = load_engine(name, settings).probe()
    except SandboxError as error:
        return _Finding(what=what, works=False, detail=error.message, mend=error.hint)
    if not probe.works:
        return _Finding(what=what, works=False, detail=probe.cause, mend=probe.mend)
    facts = ", ".join(f"{name} {value}" for name, value in probe.facts.items())
    return _Finding(what=what, works=True, detail=facts or "works")


def _data_folder(settings: Settings) -> _Finding:
    """Look at the first folder on the way that exists: the others will be made in it."""
    folder = settings.data_dir
    existing = folder
    while not os.path.lexists(existing):
        existing = existing.parent
    if os.access(existing, os.W_OK | os.X_OK):
        return _Finding(what="data folder", works=True, detail=str(folder))
    return _Finding(
        what="data folder",
        works=False,
        detail=f"{existing} cannot be written",
        mend="Make it writable, or point JUPYTER_DATA_DIR elsewhere.",
    )


def _kernelspec() -> _Finding:
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel  # noqa: PLC0415

    try:
        spec = KernelSpecManager().get_kernel_spec("sandbox-python")
    except NoSuchKernel:
        return _Finding(
            what="kernelspec",
            works=False,
            detail=f"Jupyter at {sys.prefix} does not know sandbox-python",
            mend="Run: jupyter sandbox kernelspec install",
        )
    return _Finding(what="kernelspec", works=True, detail=spec.resource_dir)
