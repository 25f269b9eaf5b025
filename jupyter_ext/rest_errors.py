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


def status_of(error: SandboxError) -> int:
    """Return the status of an answer that tells an error."""
    return error.http_status


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
