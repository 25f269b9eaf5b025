"""The operations on sessions: shells that keep their state from one command to the next."""

from __future__ import annotations

from sandbox_kernel.wire.operations import Empty, Kind, Operation
from sandbox_kernel.wire.record import Record

__all__ = [
    "ROWS",
    "CreateSessionRequest",
    "SessionInfo",
    "SessionList",
    "SessionRequest",
    "SetEnvRequest",
]


class CreateSessionRequest(Record):
    """Make a session; its shell starts with the first command.

    `env` overlays the sandbox's environment; None unsets a name.  `command_timeout` holds for
    commands that bring none.
    """

    session_id: str | None = None
    cwd: str | None = None
    env: dict[str, str | None] = {}  # noqa: RUF012  records are frozen
    command_timeout: float | None = None


class SessionInfo(Record):
    """What is known of a session."""

    session_id: str
    status: str
    """``idle``, ``running`` (a command), or ``terminated``: its shell has ended, and the next
    command will say so."""
    pid: int = 0
    """The shell's; 0 while there is none."""
    cwd: str
    """Where the shell is, as last known."""
    command_timeout: float | None = None
    created_at: float
    commands: int = 0
    """How many have been run to their end."""
    waiting: int = 0
    """How many wait for their turn."""
    incarnation: str


class SessionRequest(Record):
    """Names a session."""

    session_id: str


class SessionList(Record):
    """Every session, oldest first."""

    sessions: list[SessionInfo]


class SetEnvRequest(Record):
    """Set variables of a session's shell, all or none; None unsets a name.

    `session_id` of None sets them for all that is started from now on, and in the default session
    if there is one.
    """

    session_id: str | None = None
    env: dict[str, str | None]


ROWS = (
    Operation("session.create", Kind.CALL, CreateSessionRequest, SessionInfo),
    Operation("session.get", Kind.CALL, SessionRequest, SessionInfo, idempotent=True),
    Operation("session.list", Kind.CALL, Empty, SessionList, idempotent=True),
    Operation("session.delete", Kind.CALL, SessionRequest, Empty),
    Operation("session.set_env", Kind.CALL, SetEnvRequest, Empty, idempotent=True),
)
