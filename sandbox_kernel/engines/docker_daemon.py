"""The Docker engine's daemon: how it is reached, and what its refusals mean to us.

The only module that knows the ``docker`` package, which is imported when a daemon is first spoken
to.  Everything that it raises leaves here as one of our errors.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sandbox_kernel.errors import (
    EngineStartError,
    EngineUnavailableError,
    SandboxError,
    StorageFullError,
)

if TYPE_CHECKING:
    from docker import APIClient

__all__ = [
    "ENGINE",
    "ConflictError",
    "NotThereError",
    "RefusedError",
    "connect",
    "errors",
    "host_of",
]

ENGINE = "docker"
_TIMEOUT = 60.0
_NO_SPACE = ("no space left on device", "disk quota exceeded")


class NotThereError(Exception):
    """The daemon knows no such thing."""


class ConflictError(Exception):
    """A name is in use, or the thing is in a state that does not allow it."""


class RefusedError(Exception):
    """The daemon refuses what was asked, or fails at it."""


def host_of(setting: str | None) -> str:
    """Return where the daemon is: as set, by DOCKER_HOST or the context, or the usual place."""
    if setting:
        return setting
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    return _host_of_context() or "unix:///var/run/docker.sock"


def _host_of_context() -> str | None:
    """Return what ``docker context use`` has chosen, as Docker Desktop does at its installation."""
    folder = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    if not os.environ.get("DOCKER_CONTEXT") and not os.path.exists(f"{folder}/config.json"):
        return None
    from docker.context import ContextAPI  # noqa: PLC0415  slow, and rarely needed

    with contextlib.suppress(Exception):  # whatever is wrong with the file, the usual place is left
        context = ContextAPI.get_current_context()
        return str(context.Host) if context is not None and context.Host else None
    return None


def connect(host: str) -> APIClient:
    """Return a client of the daemon; the caller closes it.

    Raises
    ------
    EngineUnavailableError
        Nobody answers there, or the ``docker`` package is not installed.
    """
    _knock(host)
    try:
        import docker  # noqa: PLC0415  70 ms
    except ImportError as error:
        raise EngineUnavailableError(
            ENGINE,
            "the Python package 'docker' is not installed",
            "Install it: pip install 'jupyter-sandbox-kernel[docker]'.",
        ) from error
    tls: Any = False
    if host == os.environ.get("DOCKER_HOST"):
        tls = docker.utils.kwargs_from_env().get("tls", False)
    with errors(host):
        return docker.APIClient(base_url=host, version="auto", timeout=_TIMEOUT, tls=tls)


def _knock(host: str) -> None:
    """Find out quickly that nobody is there; the package would leave a socket open as well."""
    path = host.removeprefix("http+").removeprefix("unix://")
    if not path.startswith("/") or path == host:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
        try:
            client.connect(path)
        except OSError as error:
            raise _unavailable(host, error) from error


@contextlib.contextmanager
def errors(host: str, action: str = "") -> Iterator[None]:
    """Turn what the package raises into errors of ours.

    Raises
    ------
    NotThereError, ConflictError, RefusedError
        For the caller to act on.
    EngineUnavailableError
        The daemon does not answer.
    StorageFullError
        Its disk is full.
    """
    from docker.errors import APIError, DockerException  # noqa: PLC0415
    from requests.exceptions import RequestException  # noqa: PLC0415

    try:
        yield
    except APIError as error:
        said = str(error.explanation or error)
        if any(each in said.lower() for each in _NO_SPACE):
            raise StorageFullError(
                "the Docker engine's data folder", action or "write to"
            ) from error
        status = error.response.status_code if error.response is not None else 0
        kind = {404: NotThereError, 409: ConflictError}.get(status, RefusedError)
        raise kind(said) from error
    except (DockerException, RequestException) as error:
        raise _unavailable(host, error) from error


def _unavailable(host: str, error: BaseException) -> EngineUnavailableError:
    number = _errno_in(error)
    if number in (errno.EACCES, errno.EPERM):
        return EngineUnavailableError(
            ENGINE,
            f"you may not use the daemon at {host}",
            "Join its group ('sudo usermod -aG docker $USER', then log in anew), or use a rootless"
            " one. Members of that group are as good as root.",
        )
    reason = os.strerror(number) if number is not None else str(error)
    return EngineUnavailableError(
        ENGINE,
        f"no daemon answers at {host} ({reason})",
        "Start it ('sudo systemctl start docker', or Docker Desktop), or say where it is:"
        " DockerEngine.host or DOCKER_HOST.",
    )


def _errno_in(error: BaseException | None) -> int | None:
    """Return the system's number of what lies at the bottom; packages nest it in arguments, too."""
    todo: list[object] = [error]
    for _ in range(32):
        if not todo:
            break
        each = todo.pop(0)
        if isinstance(each, OSError) and each.errno is not None and each.errno > 0:
            return each.errno
        if isinstance(each, BaseException):
            todo += [*each.args, each.__cause__, each.__context__, getattr(each, "reason", None)]
    return None


def start_error(sandbox_id: str, error: Exception, log: str = "") -> SandboxError:
    """Return the error of a start that the daemon has refused."""
    return EngineStartError(ENGINE, sandbox_id, str(error).strip().rstrip("."), log)
