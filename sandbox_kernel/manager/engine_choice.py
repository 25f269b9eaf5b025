"""The engine that the user's settings mean, made with the user's options for it."""

from __future__ import annotations

from dataclasses import replace

from sandbox_kernel.engines.base import Engine
from sandbox_kernel.manager.settings import Settings

__all__ = ["load_engine"]


def load_engine(name: str, settings: Settings) -> Engine:
    """Return the engine of this name; see `sandbox_kernel.engines.select.engine_for`."""
    # The relay comes here at each kernel start, mostly to ask whether a sandbox lives.
    from sandbox_kernel.engines.select import engine_for  # noqa: PLC0415

    # A sandbox must never see what the manager keeps of the others.
    private = (*settings.bubblewrap.private_folders, str(settings.data_dir))
    bubblewrap = replace(settings.bubblewrap, private_folders=private)
    private = (*settings.docker.private_folders, str(settings.data_dir))
    docker = replace(settings.docker, private_folders=private)
    return engine_for(
        name, {"bubblewrap": {"settings": bubblewrap}, "docker": {"settings": docker}}
    )
