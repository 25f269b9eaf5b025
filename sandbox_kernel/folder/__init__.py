"""A sandbox's changes to the notebook's folder: see them, take them over, drop them."""

from __future__ import annotations

from sandbox_kernel.folder.changes import Change, ChangeKind, diff, folder_of
from sandbox_kernel.folder.dropping import discard, forget_taken_over
from sandbox_kernel.folder.layer import FileType
from sandbox_kernel.folder.notebooks import CleanNotebook, clean_notebook
from sandbox_kernel.folder.takeover import Outcome, Status, apply

__all__ = [
    "Change",
    "ChangeKind",
    "CleanNotebook",
    "FileType",
    "Outcome",
    "Status",
    "apply",
    "clean_notebook",
    "diff",
    "discard",
    "folder_of",
    "forget_taken_over",
]
