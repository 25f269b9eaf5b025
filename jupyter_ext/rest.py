"""What the REST routes share: JSON in and out, and errors in the form of the Sandbox SDK."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from http.client import responses
from typing import Any

import orjson
from jupyter_server.base.handlers import APIHandler
from tornado import web

from sandbox_kernel.errors import SandboxError, ValidationFailedError

__all__ = ["SandboxApiHandler", "iso_time"]

_CODES = {400: "VALIDATION_FAILED", 401: "UNAUTHORIZED", 403: "FORBIDDEN", 500: "INTERNAL_ERROR"}


def iso_time(seconds: float) -> str:
    """Return a time since the epoch as text."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class SandboxApiHandler(APIHandler):
    """Base of our handlers; jupyter_server authenticates, and authorises for ``sandboxes``."""

    auth_resource = "sandboxes"

    def body(self) -> dict[str, Any]:
        """Return the request's JSON object; empty if there is no body.

        Raises
        ------
        ValidationFailedError
            It is no JSON object.
        """
        if not self.request.body.strip():
            return {}
        try:
            value = orjson.loads(self.request.body)
        except orjson.JSONDecodeError:
            raise ValidationFailedError("body", "is not valid JSON") from None
        if not isinstance(value, dict):
            raise ValidationFailedError("body", "must be a JSON object")
        return value

    def answer(self, value: Any, status: int = 200) -> None:
        """End the request with a JSON value."""
        self.set_status(status)
        self.finish(orjson.dumps(value))

    def done(self) -> None:
        """End the request with nothing to say."""
        self.set_status(204)
        self.finish()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """End the request with an error; of faults of ours it says that there was one."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        now = iso_time(datetime.now(UTC).timestamp())
        if isinstance(error, SandboxError):
            said = {"code": error.code, "message": error.message, "context": error.context}
            if error.hint:
                said["suggestion"] = error.hint
            status_code = error.http_status
        else:
            message = responses.get(status_code, "Unknown error")
            if isinstance(error, web.HTTPError) and error.log_message:
                message = error.get_message() or message
            code = _CODES.get(status_code, "UNKNOWN_ERROR")
            said = {"code": code, "message": message, "context": {}}
        self.set_header("Content-Type", "application/json")
        self.answer({**said, "httpStatus": status_code, "timestamp": now}, status_code)

    def log_exception(self, *exc_info: Any) -> None:
        """Log our own faults with their traceback, and what was refused with a line."""
        error = exc_info[1]
        if isinstance(error, SandboxError):
            self.log.debug("%s %s: %s", self.request.method, self.request.path, error.code)
        elif isinstance(error, web.HTTPError):
            super().log_exception(*exc_info)
        else:
            self.log.error(
                "%s %s failed\n%s",
                self.request.method,
                self.request.path,
                "".join(traceback.format_exception(error)),
            )
