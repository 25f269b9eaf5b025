"""The host label of an exposed port, ``PORT-SANDBOX-TOKEN``: a pure function each way.

A server that gives each exposed port a host of its own, such as
``8000-my-sandbox-k3j_0x9d.preview.example``, finds in the first label all that it needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sandbox_kernel.errors import InvalidSandboxIdError, PortError, ValidationFailedError
from sandbox_kernel.manager.identity import check_sandbox_id
from sandbox_kernel.wire.port_operations import HIGHEST_PORT, LOWEST_PORT, check_port

__all__ = ["LONGEST_LABEL", "TOKEN", "PreviewLabel", "parse_preview_label", "preview_label"]

LONGEST_LABEL = 63
"""Characters of a label in the domain name system (RFC 1035, 2.3.4)."""

TOKEN = re.compile(r"[a-z0-9_]{1,16}", re.ASCII)
"""What a token of a port is made of."""

# The port is before the first hyphen, the token after the last; a leading zero would make two
# labels of one port.
_LABEL = re.compile(r"([1-9][0-9]{3,4})-(.+)-([a-z0-9_]{1,16})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class PreviewLabel:
    """What a label names."""

    port: int
    sandbox_id: str
    token: str = field(repr=False)


def parse_preview_label(label: str, *, longest: int | None = LONGEST_LABEL) -> PreviewLabel | None:
    """Return what a host label names, or None if it is no label of an exposed port.

    The same text as part of a path may be of any length: `longest` is None then.

    Host names are alike in capitals and small letters (RFC 4343), ids and tokens have small ones
    only: ASCII capitals are lowered.  Whether there is such a port, and whether the token is right,
    is another question.
    """
    if not label.isascii() or (longest is not None and len(label) > longest):
        return None
    found = _LABEL.fullmatch(label.lower())
    if found is None or not LOWEST_PORT <= int(found[1]) <= HIGHEST_PORT:
        return None
    try:
        sandbox_id = check_sandbox_id(found[2])
    except InvalidSandboxIdError:
        return None
    return PreviewLabel(port=int(found[1]), sandbox_id=sandbox_id, token=found[3])


def preview_label(port: int, sandbox_id: str, token: str) -> str:
    """Return the host label of an exposed port.

    Raises
    ------
    InvalidPortError, InvalidSandboxIdError, ValidationFailedError
        Of capital letters too, as no browser would come back with them.
    PortError
        The label would be longer than the 63 characters a host name allows.
    """
    check_port(port)
    check_sandbox_id(sandbox_id)
    if TOKEN.fullmatch(token) is None:
        raise ValidationFailedError("token", "must be 1 to 16 of a-z, 0-9 and _")
    label = f"{port}-{sandbox_id}-{token}"
    if len(label) > LONGEST_LABEL:
        raise PortError(
            port,
            f"has no host name: its label would have {len(label)} of {LONGEST_LABEL} characters",
            hint="Expose it with a shorter token, or use a sandbox with a shorter id.",
        )
    return label
