"""From the setting ``engine`` to an engine that works here; never silently to a weaker one.

``auto`` means bubblewrap if it passes a real trial, else Docker if its daemon answers and runs the
image, else an error that says what is missing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Mapping
from typing import Any, cast

from sandbox_kernel.engines.base import Engine, Probe
from sandbox_kernel.errors import EngineUnavailableError, SandboxConfigurationError

__all__ = ["AUTO", "GROUP", "OWN", "engine_for", "load_engine"]

AUTO = "auto"
GROUP = "sandbox_kernel.engines"
"""Entry-point group in which other packages offer engines."""

# Ours are named here too: reading entry points costs more than starting a sandbox.
OWN = {
    "bubblewrap": "sandbox_kernel.engines.bubblewrap:BubblewrapEngine",
    "docker": "sandbox_kernel.engines.docker:DockerEngine",
}
# In the order of preference.
_CANDIDATES = ("bubblewrap", "docker")


def engine_for(setting: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> Engine:
    """Return the engine that a setting means on this machine.

    Parameters
    ----------
    setting : str
        ``auto``, an engine's name, or ``module:Class``.
    options : mapping of str to mapping, optional
        Arguments for the engines' classes, by engine name.

    Raises
    ------
    EngineUnavailableError
        ``auto`` found none that works; names each with what it lacks and the mend.
    SandboxConfigurationError
        There is no such engine, or it cannot be imported.
    """
    options = options or {}
    if setting != AUTO:
        return load_engine(setting, options.get(setting, {}))
    refusals: list[Probe] = []
    for name in _CANDIDATES:
        engine = load_engine(name, options.get(name, {}))
        if _passed_before(engine):
            return engine
        probe = engine.probe()
        if probe.works:
            _remember(engine)
            return engine
        refusals.append(probe)
    raise EngineUnavailableError(
        AUTO,
        "; ".join(f"{each.engine}: {each.cause}" for each in refusals),
        " Or: ".join(each.mend for each in refusals if each.mend),
    )


def load_engine(name: str, options: Mapping[str, Any] | None = None) -> Engine:
    """Return the engine of this name.

    Parameters
    ----------
    name : str
        ``bubblewrap``, a name in the entry-point group, or ``module:Class`` for one in no group.
    options : mapping, optional
        Arguments of its class.

    Raises
    ------
    SandboxConfigurationError
        There is no such engine, or it cannot be imported.
    """
    reference = name if ":" in name else OWN.get(name) or _registered(name)
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
    return cast("Engine", cls(**(options or {})))


def _registered(name: str) -> str:
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and rarely needed

    for point in entry_points(group=GROUP, name=name):
        return point.value
    known = sorted({*OWN, *(point.name for point in entry_points(group=GROUP))})
    raise SandboxConfigurationError(
        f"There is no engine {name!r}.",
        hint=f"Installed: {', '.join(known)}.",
        context={"engine": name},
    )


# A trial costs as much as a start.  One that passed since the machine's last boot is not repeated:
# should it no longer hold, the start itself fails with the same words.


def _passed_before(engine: Engine) -> bool:
    return os.path.exists(_mark(engine))


def _remember(engine: Engine) -> None:
    path = _mark(engine)
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "w", encoding="ascii"):
            pass


def _mark(engine: Engine) -> str:
    import hashlib  # noqa: PLC0415 - for a choice only, not for an engine that is named

    from sandbox_kernel.engines.incarnation import boot_id  # noqa: PLC0415
    from sandbox_kernel.engines.runtime_code import cache_folder  # noqa: PLC0415

    key = repr((engine.name, getattr(engine, "settings", None), os.environ.get("PATH"), boot_id()))
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:20]
    return os.path.join(os.path.dirname(cache_folder()), f"trial-{digest}")
