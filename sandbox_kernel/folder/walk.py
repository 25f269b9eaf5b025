"""Reach files below a folder by descriptors, without ever following a symbolic link."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

from sandbox_kernel.errors import ValidationFailedError

__all__ = ["LinkInTheWayError", "make_parents", "open_folder", "open_parent", "split_path"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LinkInTheWayError(OSError):
    """A component of the path is a symbolic link, or no directory."""


def split_path(path: str) -> tuple[str, ...]:
    """Return the components of a path relative to the folder.

    Raises
    ------
    ValidationFailedError
        The path is absolute, empty, has ``..`` in it, or holds a NUL.
    """
    pure = PurePosixPath(path)
    if "\0" in path or pure.is_absolute() or not pure.parts or ".." in pure.parts:
        raise ValidationFailedError("path", f"{path!r} is not a path inside the notebook's folder")
    return pure.parts


@contextmanager
def open_folder(root: str | os.PathLike[str]) -> Iterator[int]:
    """Yield a descriptor of the folder everything starts from; it must be no link itself."""
    descriptor = os.open(root, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_parent(root: int, parts: tuple[str, ...]) -> Iterator[int]:
    """Yield a descriptor of the directory that holds the last component.

    Each component is opened in the one before it, so that a link put there at any moment is
    refused and not followed.

    Raises
    ------
    LinkInTheWayError
        A component is a link or no directory.
    FileNotFoundError
        A component does not exist.
    """
    here = os.dup(root)
    try:
        for part in parts[:-1]:
            here = _step(here, part)
        yield here
    finally:
        os.close(here)


def make_parents(root: int, parts: tuple[str, ...]) -> None:
    """Make the missing directories above the last component, mode 0755 less the umask."""
    here = os.dup(root)
    try:
        for part in parts[:-1]:
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=here)
            here = _step(here, part)
    finally:
        os.close(here)


def _step(here: int, part: str) -> int:
    try:
        below = os.open(part, _FOLDER, dir_fd=here)
    except OSError as error:
        # Linux answers ENOTDIR to a link as well: O_DIRECTORY is checked before O_NOFOLLOW.
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise LinkInTheWayError(error.errno, "is a link or no directory", part) from error
        raise
    os.close(here)
    return below
