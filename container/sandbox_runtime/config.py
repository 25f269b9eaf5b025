"""What the engine tells a runtime at its start: one JSON object on a descriptor."""

from __future__ import annotations

import os

from sandbox_kernel.errors import ValidationFailedError
from sandbox_kernel.wire.codec import decode, load_json
from sandbox_kernel.wire.record import Record

__all__ = ["Config", "read_config"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox_kernel.wire.record import JSON


class Config(Record):
    """How one incarnation shall run.

    Parameters
    ----------
    sandbox_id, token : str
        Whose runtime this is, and the secret every client must name.
    listen : object
        ``{"fd": N}``, a listening stream socket; or, to be bound here, ``{"unix": PATH}`` or
        ``{"tcp": PORT}``.
    lock_fd : int, optional
        A descriptor kept open, so that its lock ends with this process.
    sleep_after : float, optional
        Idle seconds until the runtime ends by itself; None never.
    keep_alive : bool
        Never end by itself.
    cwd : str
        Default working directory of programs.
    env : dict of str to str
        The whole base environment of programs.
    spool_dir : str
        Where output that outgrows memory goes, in files without a name.
    spool_limit : int
        Bytes of output kept for each process; then its writer waits.  No more than ``fsize``, which
        holds for the runtime's own files, too.
    rlimits : dict of str to int
        ``nproc``, ``fsize``, ``as``, ``nofile``: set here, hence inherited by every program.
    python : str
        Interpreter of kernels; empty for the one that runs this.
    kernel_argv : list of str, optional
        Command of the default kernel in place of the sandbox's own Python kernel.
    memory_events : str, optional
        File with an ``oom_kill N`` line.
    """

    sandbox_id: str
    token: str
    listen: JSON
    lock_fd: int | None = None
    sleep_after: float | None = 600.0
    keep_alive: bool = False
    cwd: str = "/workspace"
    env: dict[str, str] = {}  # noqa: RUF012  records are frozen
    spool_dir: str = "/tmp"  # noqa: S108  files there have no name
    spool_limit: int = 1 << 30
    rlimits: dict[str, int] = {}  # noqa: RUF012
    python: str = ""
    kernel_argv: list[str] | None = None
    memory_events: str | None = None


def read_config(fd: int) -> Config:
    """Read a descriptor to its end, close it, and return the configuration in it.

    Raises
    ------
    ValidationFailedError, ProtocolViolationError
        It holds no valid configuration.
    """
    with open(fd, "rb") as file:
        config = decode(Config, load_json(file.read()))
    if config.spool_limit < 1 << 12:
        raise ValidationFailedError("spool_limit", "must be at least 4096")
    if not os.path.isabs(config.cwd):
        raise ValidationFailedError("cwd", "must be absolute")
    if not os.path.isdir(config.spool_dir):
        raise ValidationFailedError("spool_dir", "must be a folder")
    return config
