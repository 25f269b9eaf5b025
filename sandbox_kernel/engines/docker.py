"""The Docker engine: isolation by a daemon, in any image with Python 3.11 or later.

`docker_trial` finds out what the daemon can do, `docker_start` decides and starts, `docker_body`
says what the daemon is told, `docker_handover` gives the runtime its door and its secret, and
`docker_daemon` is how the daemon is spoken to: at a start and at an end, and never in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox_kernel.engines import incarnation
from sandbox_kernel.engines.base import Found, Instance, Launch, Probe, StateLayout
from sandbox_kernel.engines.settings import DockerSettings
from sandbox_kernel.errors import EngineError, SandboxError

if TYPE_CHECKING:
    from sandbox_kernel.engines.usage import Usage

__all__ = ["DockerEngine", "DockerSettings"]

_NAME = "docker"


class DockerEngine:
    """Starts runtimes in containers; see `sandbox_kernel.engines.base.Engine`.

    Parameters
    ----------
    settings : DockerSettings, optional
        What the user configured.
    **options
        Fields of `DockerSettings`, over `settings`.
    """

    name = _NAME
    has_images = True

    def __init__(
        self,
        settings: DockerSettings | None = None,
        **options: Any,  # fields of the settings
    ) -> None:
        self.settings = replace(settings or DockerSettings(), **options)

    def probe(self) -> Probe:
        """Find out by trying whether this engine works here: it runs the image once."""
        from sandbox_kernel.engines import docker_daemon as daemon  # noqa: PLC0415
        from sandbox_kernel.engines.docker_start import host_user  # noqa: PLC0415
        from sandbox_kernel.engines.docker_trial import find_image, try_image  # noqa: PLC0415

        host = daemon.host_of(self.settings.host)
        facts = {"daemon": host, "image": self.settings.image}
        try:
            with closing(daemon.connect(host)) as client:
                image = find_image(client, host, self.settings.image)
                found = try_image(
                    client,
                    host,
                    image,
                    user=host_user(self.settings),
                    runtime=self.settings.runtime,
                    python=self.settings.python,
                )
        except SandboxError as error:
            cause = str(error.context.get("cause", error.message))
            return Probe(engine=_NAME, works=False, cause=cause, mend=error.hint, facts=facts)
        facts["reached by"] = "unix socket" if found.shares_sockets else "TCP"
        facts["limits"] = ", ".join(found.limits) or "none"
        facts["files"] = "folders of this machine" if found.writes_files else "volumes"
        facts["notebooks"] = "yes" if found.has_kernel else "no, the image lacks ipykernel"
        return Probe(engine=_NAME, works=True, facts=facts)

    def start(self, launch: Launch) -> Instance:
        """Start the runtime; returns once it has its door, where clients may connect at once.

        Raises
        ------
        EngineUnavailableError
            No daemon answers, there is no such image, or it cannot be used.
        EngineStartError
            The daemon refused the container, or the runtime ended; nothing is left behind.
        LimitNotEnforceableError
            A limit cannot be enforced and `accept_weaker_limits` is off.
        NotebookFolderRefusedError
            The notebook's folder may not be shown and `folder_required` is on, or does not exist.
        StorageError, StorageFullError
            The sandbox's own files cannot be written, or the daemon's.
        """
        from sandbox_kernel.engines import docker_daemon as daemon  # noqa: PLC0415
        from sandbox_kernel.engines.docker_start import Start  # noqa: PLC0415

        host = daemon.host_of(self.settings.host)
        with closing(daemon.connect(host)) as client:
            return Start(launch, self._settings_of(launch), client, host).run()

    def _settings_of(self, launch: Launch) -> DockerSettings:
        image = launch.spec.image
        return self.settings if image is None else replace(self.settings, image=image)

    def is_alive(self, instance: Instance, layout: StateLayout) -> bool:
        """Whether the runtime of this instance still runs.

        Decided by the lock it holds, which ends with it; by TCP there is none, and the daemon is
        asked.
        """
        if not instance.socket.startswith("tcp://"):
            return incarnation.is_locked(layout)
        from sandbox_kernel.engines import docker_daemon as daemon  # noqa: PLC0415

        host = str(instance.data["host"])
        try:
            with closing(daemon.connect(host)) as client, daemon.errors(host):
                found = client.inspect_container(str(instance.data["container"]))
        except (daemon.NotThereError, EngineError):
            return False
        return bool(found["State"]["Running"])

    def usage(self, instance: Instance) -> Usage | None:
        """Return what the sandbox uses; None if it has gone.

        Raises
        ------
        EngineUnavailableError
            The daemon does not answer.
        """
        from sandbox_kernel.engines import docker_daemon as daemon  # noqa: PLC0415
        from sandbox_kernel.engines.usage import usage_of_container  # noqa: PLC0415

        host = str(instance.data["host"])
        with closing(daemon.connect(host)) as client:
            try:
                with daemon.errors(host):
                    # Without that option the daemon waits a second, for a second look.
                    found = client.stats(
                        str(instance.data["container"]), stream=False, one_shot=True
                    )
            except daemon.NotThereError:
                return None
        return usage_of_container(found)

    def stop(self, instance: Instance | None, layout: StateLayout, *, grace: float) -> None:
        """End every process of the sandbox and remove its container.

        Workspace, home, and the layers that persist are left alone.  A second call is fine.

        Raises
        ------
        EngineUnavailableError
            The daemon does not answer, and may have something of the sandbox.
        """
        from sandbox_kernel.engines.docker_stop import stop  # noqa: PLC0415

        stop(self.settings, instance, layout, grace=grace, is_alive=self.is_alive)

    def discard(self, layout: StateLayout) -> None:
        """Remove what the daemon keeps of a sandbox that has been stopped for good: its volumes.

        Raises
        ------
        EngineUnavailableError
            The daemon does not answer.
        """
        from sandbox_kernel.engines.docker_stop import discard  # noqa: PLC0415

        discard(self.settings, layout)

    def found(self, folder: Path) -> Iterator[Found]:
        """Yield the sandboxes of a data folder that the daemon knows, whatever the registry says.

        Parameters
        ----------
        folder : Path
            In which the layouts are.
        """
        from sandbox_kernel.engines.docker_stop import found  # noqa: PLC0415

        return found(self.settings, folder)
