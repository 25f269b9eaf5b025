"""What to wait for at a port, as both a sandbox and a process of it are asked."""

from __future__ import annotations

from sandbox_kernel.arguments import choice, text
from sandbox_kernel.client.time_limits import limit_to_send
from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.wire.port_operations import WaitPortRequest, check_port

__all__ = ["wait_request"]


def wait_request(
    port: int,
    *,
    mode: str,
    path: str,
    status: int | tuple[int, int],
    timeout: float | None,
    process_id: str | None = None,
) -> WaitPortRequest:
    """Return the request of `wait_for_port`."""
    low, high = _statuses(status)
    return WaitPortRequest(
        port=check_port(port),
        mode=choice("mode", mode, ("tcp", "http")),
        path=text("path", path),
        min_status=low,
        max_status=high,
        timeout=limit_to_send(timeout),
        process_id=process_id,
    )


def _statuses(status: object) -> tuple[int, int]:
    first, last = status if isinstance(status, tuple) and len(status) == 2 else (status, status)
    if not isinstance(first, int) or not isinstance(last, int):
        raise ValidationFailedError(
            "status", f"must be a number such as 200, or two, first and last, not {status!r:.60}"
        )
    return first, last
