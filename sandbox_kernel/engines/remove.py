"""Remove a tree that somebody else made: any depth, any permissions, no link followed."""

from __future__ import annotations

import os
import secrets
import stat

__all__ = ["remove_tree"]


def remove_tree(parent: int, name: str) -> None:
    """Remove the entry `name` of the directory `parent`, with all that is in it.

    A tree may be deeper than there are descriptors or stack frames, so folders are not descended
    into: each is emptied by moving the folders in it up to the top of the tree.
    """
    if not _is_folder(parent, name):
        os.unlink(name, dir_fd=parent)
        return
    top = _open(parent, name)
    try:
        _flatten(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _flatten(top: int) -> None:
    while names := os.listdir(top):
        for name in names:
            if not _is_folder(top, name):
                os.unlink(name, dir_fd=top)
                continue
            folder = _open(top, name)
            try:
                for child in os.listdir(folder):
                    if _is_folder(folder, child):
                        # Moving a folder rewrites its "..", which needs write permission on it.
                        os.chmod(child, 0o700, dir_fd=folder)
                        os.rename(child, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=top)
                    else:
                        os.unlink(child, dir_fd=folder)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)


def _is_folder(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _open(parent: int, name: str) -> int:
    os.chmod(name, 0o700, dir_fd=parent)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
