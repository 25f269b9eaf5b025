"""The environment variables of every program in a sandbox; nothing of the host's slips in."""

from __future__ import annotations

from sandbox_kernel.engines import etc, recipe
from sandbox_kernel.engines.base import SandboxSpec
from sandbox_kernel.engines.python_environment import PythonEnvironment

__all__ = ["program_environment"]


def program_environment(
    spec: SandboxSpec,
    sandbox_id: str | None,
    python: PythonEnvironment,
    *,
    shell: str,
    is_layered: bool,
) -> dict[str, str]:
    """Return the environment of every program in the sandbox, which may have no id yet."""
    prefix = python.prefix
    is_virtual = spec.python_prefix != spec.python_base_prefix
    path = [f"{prefix}/bin"] if prefix != "/usr" else []
    env = {
        "HOME": recipe.HOME,
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": shell,
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
    }
    if sandbox_id is not None:
        env["SANDBOX_ID"] = sandbox_id
    if is_virtual:
        env["VIRTUAL_ENV"] = prefix
    if not is_layered and is_virtual:
        # A virtual environment looks at no user's packages.
        site = f"{recipe.PACKAGES}/site"
        env |= {"PIP_TARGET": site, "PYTHONPATH": site}
        path.insert(0, f"{site}/bin")
    elif not is_layered:
        # pip goes there by itself when the environment's own folder is read-only; the other
        # setting is for systems whose package manager claims that folder.
        env |= {"PYTHONUSERBASE": recipe.PACKAGES, "PIP_BREAK_SYSTEM_PACKAGES": "1"}
        path.insert(0, f"{recipe.PACKAGES}/bin")
    path += [f"{recipe.HOME}/.local/bin", "/usr/local/bin", "/usr/bin", "/bin"]
    path += ["/usr/local/sbin", "/usr/sbin", "/sbin"]
    env["PATH"] = ":".join(dict.fromkeys(path))
    if spec.network:
        env |= etc.network_environment()
    return env | dict(spec.env)
