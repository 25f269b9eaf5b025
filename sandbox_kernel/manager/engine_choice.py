"""From the setting ``engine`` to an engine that can be used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from sandbox_kernel.engines.base import Engine
from sandbox_kernel.errors import SandboxConfigurationError
from sandbox_kernel.manager.settings import Settings

__all__ = ["load_engine", "resolve_engine_name"]

_GROUP = "sandbox_kernel.engines"

# Ours are named here too: reading entry points costs more than starting a sandbox's runtime.
_OWN = {"bubblewrap": "sandbox_kernel.engines.bubblewrap:BubblewrapEngine"}


def resolve_engine_name(setting: str) -> str:
    """Return the engine that a setting of ``auto`` means here, or the setting itself."""
    return "bubblewrap" if setting == "auto" else setting


def load_engine(name: str, settings: Settings) -> Engine:
    """Return the engine of this name.

    Parameters
    ----------
    name : str
        ``bubblewrap``, a name in the entry-point group ``sandbox_kernel.engines``, or
        ``module:Class`` for one that is in no group.

    Raises
    ------
    SandboxConfigurationError
        There is no such engine, or it cannot be imported.
    """
    reference = name if ":" in name else _OWN.get(name) or _registered(name)
    module, _, attribute = reference.partition(":")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SandboxConfigurationError(
            f"Engine {name!r} cannot be loaded: {error}.",
            hint="Check the setting 'engine', or install the package that provides it.",
            context={"engine": name},
        ) from error
    # Whatever a third party registered; it is held to the protocol from here on.
    return cast("Engine", cls(**_options(name, settings)))


def _options(name: str, settings: Settings) -> Mapping[str, Any]:
    if name == "bubblewrap":
        private = (*settings.bubblewrap.private_folders, str(settings.data_dir))
        return {"settings": replace(settings.bubblewrap, private_folders=private)}
    return {}


def _registered(name: str) -> str:
    from importlib.metadata import entry_points  # noqa: PLC0415  slow, and rarely needed

    for point in entry_points(group=_GROUP, name=name):
        return point.value
    known = sorted({*_OWN, *(point.name for point in entry_points(group=_GROUP))})
    raise SandboxConfigurationError(
        f"There is no engine {name!r}.",
        hint=f"Installed: {', '.join(known)}.",
        context={"engine": name},
    )
