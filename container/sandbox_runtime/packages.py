"""Tells whether the packages of an interpreter have changed, without starting it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["fingerprint"]


def fingerprint(python: str, home: str | None) -> tuple[tuple[str, int], ...]:
    """Return the site-packages folders of an interpreter with their times of change.

    Installing, removing or upgrading a package adds and removes entries there, so it changes the
    folder's time.

    Parameters
    ----------
    python : str
        Path of the interpreter; its folders are those beside its ``bin``.
    home : str, optional
        Home folder whose user packages count, too.
    """
    roots = [os.path.dirname(os.path.dirname(python))]
    if home:
        roots.append(os.path.join(home, ".local"))
    found = []
    for folder in _site_packages(roots):
        try:
            found.append((folder, os.stat(folder).st_mtime_ns))
        except OSError:
            continue
    return tuple(found)


def _site_packages(roots: list[str]) -> Iterator[str]:
    for root in roots:
        for library in ("lib", "lib64"):
            folder = os.path.join(root, library)
            try:
                names = sorted(os.listdir(folder))
            except OSError:
                continue
            for name in names:
                if name.startswith("python3"):
                    yield os.path.join(folder, name, "site-packages")
