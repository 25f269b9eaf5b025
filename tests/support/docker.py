"""The Docker engine that tests use: the one ``.ci/dockerd`` starts, or whichever DOCKER_HOST names."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from sandbox_kernel.engines import docker_daemon
from sandbox_kernel.engines.docker import DockerEngine
from sandbox_kernel.engines.docker_trial import find_image
from sandbox_kernel.errors import EngineUnavailableError

__all__ = ["BARE", "HOST", "IMAGE", "client", "docker_engine", "need_docker", "ours"]

HOST = os.environ.get("DOCKER_HOST") or (
    f"unix://{os.environ.get('JUPYTER_SANDBOX_DOCKER', '/run/jupyter-sandbox-ci')}/docker.sock"
)
IMAGE = "jupyter-sandbox-ci"
"""What container/build.sh makes."""
BARE = "jupyter-sandbox-ci-bare"
"""A Debian with its Python, and nothing of ours."""


@functools.cache
def _lacking() -> str:
    """Return what is missing, or an empty text."""
    try:
        with closing(docker_daemon.connect(HOST)) as connected:
            for name in (IMAGE, BARE):
                find_image(connected, HOST, name)
    except EngineUnavailableError as error:
        return f"{error.message} '.ci/dockerd start' and '.ci/dockerd images' help."
    return ""


def need_docker() -> None:
    """Skip a test where no engine answers, or lacks the images; in CI that is a failure."""
    reason = _lacking()
    if not reason:
        return
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def docker_engine(**options: Any) -> DockerEngine:
    """Return the engine under test."""
    need_docker()
    return DockerEngine(**{"host": HOST, "image": IMAGE, **options})


@contextmanager
def client() -> Iterator[Any]:
    """Yield the SDK's client, to look at what the engine made."""
    need_docker()
    with closing(docker_daemon.connect(HOST)) as connected:
        yield connected


def ours(connected: Any) -> list[str]:
    """Return the names of all containers and volumes of sandboxes and trials."""
    label = {"label": "jupyter-sandbox"}
    containers = connected.containers(all=True, filters=label)
    volumes = connected.volumes(filters=label)["Volumes"] or []
    return [each["Names"][0] for each in containers] + [each["Name"] for each in volumes]
