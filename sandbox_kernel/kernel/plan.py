"""Which sandbox a kernel is to have, from its connection file, environment and folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox_kernel.engines.base import SandboxSpec
from sandbox_kernel.kernel.identity import Identity, choose
from sandbox_kernel.kernel.started import Started
from sandbox_kernel.manager.activity import activity_log
from sandbox_kernel.manager.running import Running
from sandbox_kernel.manager.settings import Settings, load_settings, own_config_file
from sandbox_kernel.wall.modes import FrameKeeper

__all__ = ["Plan", "plan"]

_EPHEMERAL_STAY = 20.0
"""Lease and idle time, in seconds, of a sandbox for one kernel: only a new relay could want it."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be started for a kernel."""

    settings: Settings
    identity: Identity
    spec: SandboxSpec
    lease: float
    config_file: str

    def started(self, running: Running) -> Started:
        """Return what the relay needs, now that the sandbox runs."""
        return Started(
            identity=self.identity,
            running=running,
            lease=self.lease,
            limits=self.settings.outputs,
            keeper=_keeper(self.settings, running.sandbox_id),
            config_file=self.config_file,
            activity=activity_log(self.settings),
        )


def plan(connection_file: str, key: bytes, *, environ: Mapping[str, str], cwd: str) -> Plan:
    """Decide for one kernel; reads the settings and starts nothing.

    Raises
    ------
    SandboxConfigurationError
        As of `load_settings`.
    """
    settings = load_settings(environ)
    identity = choose(
        connection_file=connection_file,
        key=key,
        environ=environ,
        cwd=cwd,
        configured_id=settings.kernel.sandbox_id,
    )
    spec = settings.spec(notebook_folder=Path(cwd))
    lease = settings.kernel.lease
    if identity.ephemeral:
        spec = replace(spec, sleep_after=_EPHEMERAL_STAY, keep_alive=False)
        lease = _EPHEMERAL_STAY
    return Plan(
        settings=settings,
        identity=identity,
        spec=spec,
        lease=lease,
        config_file=str(own_config_file(environ)),
    )


def _keeper(settings: Settings, sandbox_id: str) -> FrameKeeper | None:
    """Return what keeps documents of frames where the server hands them out, if it is to."""
    if settings.kernel.frame_url is None:
        return None
    from sandbox_kernel.manager import frames  # noqa: PLC0415  only on such servers

    store = frames.FrameStore(frames.frame_folder(settings.data_dir))
    return frames.KeptFrames(store, sandbox_id, settings.kernel.frame_url)
