"""Errors as REST tells them: one JSON object, whatever went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox_kernel.errors import SandboxError

__all__ = ["CODES", "error_json", "iso_time", "status_of", "told_json"]

CODES = {
    400: "VALIDATION_FAILED",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    406: "NOT_ACCEPTABLE",
    408: "REQUEST_TIMEOUT",
    409: "CONFLICT",
    413: "BODY_TOO_LARGE",
    416: "RANGE_NOT_SATISFIABLE",
    500: "INTERNAL_ERROR",
}
"""Codes of what has no class of error, by its status."""


def iso_time(seconds: float) -> str:
    """Return a time since the epoch as text."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


_OURS = {
    "FILESYSTEM_ERROR": 409,
    "GIT_CHECKOUT_FAILED": 422,
    "GIT_CLONE_FAILED": 422,
    "GIT_OPERATION_FAILED": 422,
    "NO_SPACE": 507,
    "PORT_OPERATION_ERROR": 409,
    "PROCESS_EXITED_BEFORE_READY": 409,
    "TERMINAL_CONTROL_ERROR": 409,
    "TOO_MANY_FILES": 409,
    "TOO_MANY_LINKS": 400,
    "WATCH_START_ERROR": 409,
}
"""Statuses where the Sandbox SDK's table has 500 for what is no fault of the server.

Who watches a server counts its 500s, and clients repeat after them.
"""


def status_of(error: SandboxError) -> int:
    """Return the status of an answer that tells an error."""
    return _OURS.get(error.code, error.http_status)


def error_json(error: SandboxError) -> dict[str, Any]:
    """Return an error as it is told."""
    return told_json(error.code, error.message, error.hint, error.context, status_of(error))


def told_json(
    code: str, message: str, hint: str, context: Mapping[str, Any], status: int
) -> dict[str, Any]:
    """Return what went wrong as the body of an answer."""
    return {
        "code": code,
        "message": message,
        "hint": hint,
        "context": dict(context),
        "http_status": status,
        "timestamp": iso_time(datetime.now(UTC).timestamp()),
    }
