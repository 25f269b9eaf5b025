"""What the options of one command ask of the sandbox it starts, instead of the settings."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sandbox_kernel.client.options import SandboxOptions
from sandbox_kernel.manager.settings import Settings

__all__ = ["spec_fields", "wished_options", "wished_settings"]

_LIMITS = ("memory_bytes", "cpus", "processes")
_FIELDS = {"notebook_folder": "folder_mode", **dict.fromkeys(_LIMITS, "limits")}


def wished_settings(arguments: Namespace) -> dict[str, Any]:
    """Return the options that were given, under the names and with the values of the settings."""
    wishes = {
        "network": arguments.network,
        "notebook_folder": arguments.notebook_folder,
        "memory_bytes": arguments.memory,
        "cpus": arguments.cpus,
        "processes": arguments.processes,
    }
    return {name: value for name, value in wishes.items() if value is not None}


def spec_fields(wishes: Iterable[str]) -> list[str]:
    """Return which fields of a `SandboxSpec` these settings make."""
    return list(dict.fromkeys(_FIELDS.get(name, name) for name in wishes))


def wished_options(arguments: Namespace, settings: Settings) -> SandboxOptions:
    """Return the options that were given, as `get_sandbox` takes them.

    Limits go together: those that were not given are those of the settings.
    """
    wishes = wished_settings(arguments)
    options: SandboxOptions = {}
    if "network" in wishes:
        options["network"] = wishes["network"]
    if "notebook_folder" in wishes:
        options["folder_mode"] = wishes["notebook_folder"]
    limits = {name: wishes[name] for name in _LIMITS if name in wishes}
    if limits:
        options["limits"] = replace(settings.spec().limits, **limits)
    return options
