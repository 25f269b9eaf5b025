"""A real xterm.js, in one long-lived node process, that says what a terminal shows."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).with_name("xterm_judge.mjs")

State = dict[str, Any]
Step = bytes | tuple[int, int] | None
"""Bytes are written, a pair is a new size, None asks for the state."""


class XtermJudge:
    """Draws output with @xterm/headless."""

    def __init__(self) -> None:
        # Its packages are installed with the rest of js/ (make js).
        self._node = subprocess.Popen(
            ["node", str(_SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def looks(self, cols: int, rows: int, *steps: Step) -> list[State]:
        """Return the states that a new terminal has at each None among the steps."""
        request = {"cols": cols, "rows": rows, "steps": [_step(step) for step in steps]}
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps(request) + "\n")
        self._node.stdin.flush()
        answer = json.loads(self._node.stdout.readline())
        assert "error" not in answer, answer["error"]
        looks: list[State] = answer["looks"]
        return looks

    def look(self, cols: int, rows: int, *steps: Step) -> State:
        """Return the state after all steps."""
        return self.looks(cols, rows, *steps, None)[-1]

    def close(self) -> None:
        """End the process."""
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.close()
        self._node.wait(timeout=10)
        self._node.stdout.close()


def _step(step: Step) -> dict[str, object]:
    if step is None:
        return {"look": True}
    if isinstance(step, tuple):
        return {"resize": list(step)}
    return {"write": base64.b64encode(step).decode()}


def difference(seen: State, told: State, path: str = "") -> str:
    """Return where two states differ, empty where they do not.

    `seen` saw all of the output, `told` was given a screen.
    """
    if isinstance(seen, dict) and isinstance(told, dict):
        return "\n".join(
            filter(None, (difference(seen[key], told[key], f"{path}.{key}") for key in seen))
        )
    if isinstance(seen, list) and isinstance(told, list) and len(seen) == len(told):
        pairs = enumerate(zip(seen, told, strict=True))
        return "\n".join(filter(None, (difference(a, b, f"{path}[{n}]") for n, (a, b) in pairs)))
    if isinstance(seen, str) and isinstance(told, str) and "?" in (seen[-1:], told[-1:]):
        # The link has been forgotten on one side, see the script.
        seen, told = seen.rpartition(",")[0], told.rpartition(",")[0]
    return "" if seen == told else f"{path}: {seen!r} != {told!r}"
