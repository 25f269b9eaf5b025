"""What a Jupyter connection file says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from sandbox_kernel.errors import SandboxConfigurationError

__all__ = ["ConnectionInfo", "read_connection_file"]

_PORTS = ("shell_port", "control_port", "stdin_port", "iopub_port", "hb_port")


@dataclass(frozen=True, kw_only=True)
class ConnectionInfo:
    """What a connection file says."""

    transport: str
    ip: str
    ports: dict[str, int]
    key: bytes = field(repr=False)
    digest: str
    curve_public: bytes | None = None
    curve_secret: bytes | None = field(default=None, repr=False)


def read_connection_file(path: str) -> ConnectionInfo:
    """Read a connection file.

    Raises
    ------
    SandboxConfigurationError
        It cannot be read or lacks something.
    """
    try:
        with open(path, "rb") as file:
            value = json.load(file)
        scheme = str(value.get("signature_scheme", "hmac-sha256"))
        public, secret = value.get("curve_publickey"), value.get("curve_secretkey")
        return ConnectionInfo(
            transport=str(value.get("transport", "tcp")),
            ip=str(value.get("ip", "127.0.0.1")),
            ports={name: int(value[name]) for name in _PORTS},
            key=str(value.get("key", "")).encode(),
            digest=scheme.removeprefix("hmac-"),
            curve_public=str(public).encode() if public else None,
            curve_secret=str(secret).encode() if secret else None,
        )
    except OSError as error:
        raise SandboxConfigurationError(
            f"The connection file {path} cannot be read: {error.strerror}."
        ) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SandboxConfigurationError(
            f"{path} is no Jupyter connection file: {error!r}."
        ) from error
