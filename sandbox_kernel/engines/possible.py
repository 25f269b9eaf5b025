"""Which specifications no engine can make a sandbox of, whatever the machine; a decision only."""

from __future__ import annotations

import math

from sandbox_kernel.engines.base import Engine, SandboxSpec
from sandbox_kernel.errors import InvalidProcessEnvironmentError, SandboxConfigurationError

__all__ = ["check_image", "check_possible"]

_LEAST = {
    # The runtime, a kernel and its threads; with fewer, not even the sandbox comes to be.
    "processes": (8, "processes"),
    # What the runtime and an idle Python kernel take, roughly.
    "memory_bytes": (32 << 20, "bytes (32 MiB)"),
    "cpus": (0.01, "of a core"),
    "file_bytes": (1, "byte"),
}
_LONGEST_SLEEP_AFTER = 1e9


def check_possible(spec: SandboxSpec) -> None:
    """Make sure that a sandbox can be what is asked for.

    Raises
    ------
    InvalidProcessEnvironmentError
        A name or value of `env` cannot be passed to programs.
    SandboxConfigurationError
        A limit is too low for any sandbox, or `sleep_after` is no time.
    """
    for name, value in spec.env.items():
        if not name or "=" in name:
            raise InvalidProcessEnvironmentError(name, "is no name: it is empty or holds '='")
        if any(each.isspace() for each in name):
            raise InvalidProcessEnvironmentError(name, "is no name: it holds white space")
        if "\0" in name or "\0" in value:
            raise InvalidProcessEnvironmentError(name, "holds a NUL")
    for name, (least, unit) in _LEAST.items():
        value = getattr(spec.limits, name)
        if value is not None and not least <= value < math.inf:
            raise SandboxConfigurationError(
                f"The limit {name} = {value} is too low for a sandbox."
                if value < least
                else f"The limit {name} = {value} is no number.",
                hint=f"Ask for at least {least} {unit}, or for None, which sets no limit.",
                context={"setting": name},
            )
    if spec.sleep_after is not None and not 0 < spec.sleep_after < _LONGEST_SLEEP_AFTER:
        raise SandboxConfigurationError(
            f"sleep_after = {spec.sleep_after} is no time to wait.",
            hint="Use seconds above zero, or None, which never lets it sleep.",
            context={"setting": "sleep_after"},
        )


def check_image(spec: SandboxSpec, engine: Engine) -> None:
    """Make sure that a sandbox of its own image is asked of an engine that has images.

    Raises
    ------
    SandboxConfigurationError
        The engine has none.
    """
    if spec.image is not None and not getattr(engine, "has_images", False):
        raise SandboxConfigurationError(
            f"image = {spec.image!r} is of no use: the {engine.name} engine has no images.",
            hint='Ask for engine="docker", or leave the image out.',
            context={"setting": "image"},
        )
