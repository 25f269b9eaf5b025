"""The operations on git repositories."""

from __future__ import annotations

from sandbox_kernel.wire.operations import Kind, Operation
from sandbox_kernel.wire.record import Record

__all__ = ["ROWS"]


class GitCheckoutRequest(Record):
    """Clone a repository into a folder that does not exist yet or is empty.

    `target_dir` of None is the repository's name; a relative one begins at `folder`, which itself
    begins at the sandbox's.  User name and password may also stand in the address; either way no
    process list, log or error has them.
    """

    url: str
    branch: str | None = None
    target_dir: str | None = None
    folder: str | None = None
    depth: int | None = None
    timeout: float | None = 600.0
    username: str | None = None
    password: str | None = None


class GitProgress(Record):
    """How far git is in one of its phases, such as ``Receiving objects``."""

    phase: str
    percent: int | None = None
    done: int | None = None
    total: int | None = None


class GitCheckoutResult(Record):
    """Where the files are, and which."""

    path: str
    branch: str | None = None
    """None where a tag was asked for."""
    commit: str | None = None
    """None of an empty repository."""


ROWS = (
    Operation(
        "git.checkout", Kind.STREAM, GitCheckoutRequest, GitCheckoutResult, event=GitProgress
    ),
)
