"""The options of `get_sandbox`, checked before anything happens."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from sandbox_kernel.arguments import as_configuration, environment, flag, path_text, text
from sandbox_kernel.engines.base import FolderMode, Limits, check_limits
from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.wall.modes import Mode

__all__ = ["SandboxOptions", "parse_duration", "spec_changes"]


class SandboxOptions(TypedDict, total=False):
    """What may differ from the settings; each name is a field of `SandboxSpec`."""

    engine: str
    image: str
    network: bool
    notebook_folder: str | os.PathLike[str] | None
    folder_mode: FolderMode | str
    folder_required: bool
    keep_packages: bool
    env: Mapping[str, str]
    limits: Limits
    accept_weaker_limits: bool
    allow_ptrace: bool
    sleep_after: float | str | None
    keep_alive: bool
    output_policy: Mode | str


_FLAGS = frozenset(
    {
        "network",
        "folder_required",
        "keep_packages",
        "accept_weaker_limits",
        "allow_ptrace",
        "keep_alive",
    }
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(value: float | str | None) -> float | None:
    """Return seconds from a number of them or from text such as ``"30s"``, ``"10m"``, ``"1h"``.

    Raises
    ------
    SandboxConfigurationError
        It is neither, or not positive.
    """
    if value is None:
        return None
    seconds = None
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is not None:
            seconds = float(found[1]) * _SECONDS[found[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    if seconds is None or not 0 < seconds < float("inf"):
        raise SandboxConfigurationError(
            f"{value!r} is not a time.",
            hint='Give seconds as a number, or text such as "30s", "10m" or "1h".',
        )
    return seconds


def spec_changes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as fields of `SandboxSpec`.

    Raises
    ------
    SandboxConfigurationError
        An option is unknown or has a value that cannot be used.
    InvalidProcessEnvironmentError
        A name or value of `env` is no text.
    """
    changes = dict(options)
    for name in changes:
        if name not in SandboxOptions.__annotations__:
            raise SandboxConfigurationError(
                f"There is no option {name!r}.",
                hint=f"There are: {', '.join(SandboxOptions.__annotations__)}.",
            )
    with as_configuration():
        for name in _FLAGS & changes.keys():
            flag(name, changes[name])
        for name in ("engine", "image"):
            if changes.get(name) is not None:
                text(name, changes[name])
        if "env" in changes:
            changes["env"] = environment(changes["env"], may_unset=False)
        if changes.get("notebook_folder") is not None:
            changes["notebook_folder"] = path_text("notebook_folder", changes["notebook_folder"])
    if "limits" in changes:
        check_limits(changes["limits"])
    if "sleep_after" in changes:
        changes["sleep_after"] = parse_duration(changes["sleep_after"])
    if changes.get("notebook_folder") is not None:
        changes["notebook_folder"] = Path(changes["notebook_folder"]).absolute()
        # Who names a folder wants it, or wants to know.
        changes.setdefault("folder_required", True)
    if "folder_mode" in changes:
        try:
            changes["folder_mode"] = FolderMode(changes["folder_mode"])
        except ValueError as error:
            raise SandboxConfigurationError(
                f"folder_mode = {changes['folder_mode']!r} is unknown.",
                hint=f"There are: {', '.join(mode.value for mode in FolderMode)}.",
            ) from error
    if "output_policy" in changes:
        try:
            changes["output_policy"] = Mode(changes["output_policy"])
        except ValueError as error:
            raise SandboxConfigurationError(
                f"output_policy = {changes['output_policy']!r} is unknown.",
                hint=f"There are: {', '.join(mode.value for mode in Mode)}.",
            ) from error
    return changes
