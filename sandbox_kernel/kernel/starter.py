"""What ``jupyter sandbox run`` asks of the relay it starts, and is told by it; pure but for a file.

Other programs that start kernels leave `VARIABLE` unset, and read the relay's standard error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sandbox_kernel.engines.base import SandboxSpec
from sandbox_kernel.errors import SandboxError

__all__ = ["VARIABLE", "Starter", "asking", "read_answer"]

VARIABLE = "SANDBOX_STARTER"


class Starter:
    """Whoever started this relay.

    Parameters
    ----------
    environ : mapping
        The relay's environment.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        asked = json.loads(environ.get(VARIABLE) or "{}")
        self._chosen: list[str] = asked.get("chosen", [])
        self._answer: str | None = asked.get("answer")

    def changes(self, spec: SandboxSpec) -> dict[str, Any]:
        """Return what of the specification goes before what was chosen for the sandbox earlier."""
        return {name: getattr(spec, name) for name in self._chosen}

    def tell_notices(self, notices: list[str]) -> None:
        """Say what is not as asked."""
        self._tell({"notices": notices})

    def tell_error(self, error: SandboxError) -> bool:
        """Say why there is no kernel; return whether there is somebody who says it to the user."""
        return self._tell({"error": error.to_wire()})

    def _tell(self, answer: dict[str, Any]) -> bool:
        if self._answer is None:
            return False
        try:
            Path(self._answer).write_text(json.dumps(answer), encoding="ascii")
        except OSError:
            return False
        return True


def asking(chosen: Iterable[str], answer: Path) -> dict[str, str]:
    """Return the variable to start a relay with.

    Parameters
    ----------
    chosen : iterable of str
        Fields of `SandboxSpec` that go before what was chosen for the sandbox earlier.
    answer : Path
        The file for its answer.
    """
    return {VARIABLE: json.dumps({"chosen": list(chosen), "answer": str(answer)})}


def read_answer(answer: Path) -> tuple[list[str], SandboxError | None]:
    """Return the notices, and the error if the relay could not start."""
    try:
        told = json.loads(answer.read_bytes())
    except (OSError, ValueError):  # it was killed before, or in the middle of it
        return [], None
    error = SandboxError.from_wire(told["error"]) if "error" in told else None
    return told.get("notices", []), error
