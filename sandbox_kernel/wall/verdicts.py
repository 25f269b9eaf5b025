"""How the judges of a sandbox's messages say no."""

from __future__ import annotations

__all__ = ["Refused"]


class Refused(ValueError):  # noqa: N818  a verdict on the sandbox's message, not a failure of ours
    """A message from the sandbox that is not passed on; says why."""
