"""The widget's built JavaScript, and who may hand it out."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

__all__ = ["bundle_name", "bundle_source", "home_id", "loader_source"]

_STATIC = Path(__file__).with_name("static")


@functools.cache
def loader_source() -> str:
    """Return the module that travels with each widget."""
    return (_STATIC / "loader.js").read_text(encoding="utf-8")


@functools.cache
def bundle_name() -> str:
    """Return the file name of the bundle; a digest of the contents is part of it."""
    (path,) = _STATIC.glob("terminal.*.js")
    return path.name


@functools.cache
def bundle_source() -> bytes:
    """Return the module that the loader imports."""
    return (_STATIC / bundle_name()).read_bytes()


def home_id(data_folder: Path) -> str:
    """Return what is equal for two processes on one machine with the same sandboxes.

    A kernel may run elsewhere than the server of its page, where a sandbox of the same name would
    be another one.
    """
    data_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = data_folder.stat()
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    place = f"{boot} {found.st_dev} {found.st_ino} {os.getuid()}"
    return hashlib.sha256(place.encode()).hexdigest()[:32]
