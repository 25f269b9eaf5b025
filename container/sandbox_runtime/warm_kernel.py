"""An interpreter that was started before anybody wanted it, and when it is what somebody wants."""

from __future__ import annotations

from sandbox_kernel.wire.codec import dump_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox_runtime.kernels import Kernel

__all__ = ["NAMED_LATER", "WarmKernel", "told_environment"]

NAMED_LATER = ("SANDBOX_ID", "JPY_SESSION_NAME")
"""Variables that are told to a running interpreter: nothing reads them when it starts."""


class WarmKernel:
    """A started interpreter with what it was started with."""

    __slots__ = ("_argv", "_cwd", "_env", "kernel")

    def __init__(self, kernel: Kernel, argv: list[str], cwd: str, env: dict[str, str]) -> None:
        self.kernel = kernel
        self._argv = argv
        self._cwd = cwd
        self._env = _fixed(env)

    def fits(self, argv: list[str], cwd: str, env: Mapping[str, str]) -> bool:
        """Whether it lives and one that is started now with these would be no different."""
        return (
            self.kernel.running
            and (argv, cwd) == (self._argv, self._cwd)
            and _fixed(env) == self._env
        )


def told_environment(variables: Mapping[str, str | None]) -> bytes:
    """Return the META record's part that tells an interpreter variables; None unsets one."""
    return dump_json({"op": "environment", "variables": dict(variables)})


def _fixed(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in NAMED_LATER}
