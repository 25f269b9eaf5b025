"""Protocol version and the handshake rule: the highest version both ends know."""

from __future__ import annotations

from sandbox_kernel.errors import ControlProtocolIncompatibleError

__all__ = ["PROTOCOL_VERSIONS", "agree"]

PROTOCOL_VERSIONS = (1,)
"""Every protocol version this code speaks, ascending."""


def agree(theirs: list[int]) -> int:
    """Return the version to speak with a peer that offered `theirs`.

    Raises
    ------
    ControlProtocolIncompatibleError
        There is no version in common.
    """
    common = set(PROTOCOL_VERSIONS).intersection(theirs)
    if not common:
        raise ControlProtocolIncompatibleError(PROTOCOL_VERSIONS, theirs)
    return max(common)
