"""What of the host's Python environment a sandbox must be shown, so that it works at its own path.

An environment is rarely one folder: a virtual environment points at the Python it was made from,
often through links (``.venv/bin/python`` -> ``~/.pyenv/versions/3.12/bin/python3.12``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox_kernel.engines.folders import HostFolders, lies_in, touches_private

__all__ = ["PythonEnvironment", "look_up", "show"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
# Of a prefix that may not be shown as a whole (such as ``~/.local``), what Python itself needs.
_PARTS = ("bin", "lib", "lib64", "include")


@dataclass(frozen=True, kw_only=True)
class PythonEnvironment:
    """The environment as a sandbox sees it; every path is the same inside and outside.

    Parameters
    ----------
    interpreter : str
        Runs the kernels.
    runtime_interpreter : str
        Runs the runtime: the same program, by a path that nobody inside can have changed, if there
        is one.
    prefix : str
        The environment's own ``sys.prefix``.
    folders : tuple of str
        To be shown read-only.
    links : dict of str to str
        Symbolic links to make: name and target.
    layered : str, optional
        The folder to put a writable layer over, so that pip installs there.
    """

    interpreter: str
    runtime_interpreter: str
    prefix: str
    folders: tuple[str, ...]
    links: dict[str, str] = field(default_factory=dict)
    layered: str | None = None


def look_up(prefix: str, base_prefix: str, host: HostFolders) -> PythonEnvironment:
    """Find out from the file system; see `show` for the decision."""
    interpreter = next(
        (path for name in ("python", "python3") if os.path.exists(path := f"{prefix}/bin/{name}")),
        f"{prefix}/bin/python3",
    )
    return show(
        prefix,
        base_prefix,
        interpreter,
        host,
        hops=_hops(interpreter),
        real=os.path.realpath,
        # A layer over files that are somebody else's would not be writable: inside, only our own
        # user exists.
        is_ours=lambda path: os.path.isdir(path) and os.stat(path).st_uid == os.geteuid(),
    )


def show(
    prefix: str,
    base_prefix: str,
    interpreter: str,
    host: HostFolders,
    *,
    hops: list[str],
    real: Callable[[str], str],
    is_ours: Callable[[str], bool],
) -> PythonEnvironment:
    """Decide what to show.

    Parameters
    ----------
    prefix, base_prefix : str
        ``sys.prefix`` and ``sys.base_prefix`` of the environment; equal outside virtual ones.
    interpreter : str
        The program to run.
    hops : list of str
        The files its symbolic links lead through, itself left out.
    real : callable
        Resolves all symbolic links of a path.
    is_ours : callable
        Whether a folder exists and belongs to the caller.
    """
    # The real path of each folder, and whether it may be taken as a whole.
    folders: list[str] = []
    links: dict[str, str] = {}
    for given in dict.fromkeys((prefix, base_prefix, *map(_root, hops))):
        path = real(given)
        if _is_system(path):
            pass
        elif touches_private(path, host):
            folders += [f"{path}/{part}" for part in _PARTS if real(f"{path}/{part}") != path]
        else:
            folders.append(path)
        if given != path and not _is_system(given):
            links[given] = path
    own = real(prefix)
    is_layered = own not in ("/", "/usr") and is_ours(own) and not touches_private(own, host)
    layered = own if is_layered else None
    kept = _outermost(folders)
    program = hops[-1] if hops else interpreter
    if layered is not None and lies_in(real(program), layered):
        program = interpreter
    return PythonEnvironment(
        interpreter=interpreter,
        runtime_interpreter=program,
        prefix=prefix,
        folders=tuple(each for each in kept if each != layered),
        links={
            name: target
            for name, target in links.items()
            if not any(lies_in(name, each) for each in kept)
        },
        layered=layered,
    )


def _hops(path: str) -> list[str]:
    """Return what a file's symbolic links lead through, to the end."""
    found: list[str] = []
    while os.path.islink(path) and len(found) < 40:  # the kernel's own limit on links
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        found.append(path)
    return found


def _root(hop: str) -> str:
    folder, name = os.path.split(os.path.dirname(hop))
    return folder if name == "bin" else os.path.dirname(hop)


def _is_system(path: str) -> bool:
    return any(lies_in(path, each) for each in _SYSTEM)


def _outermost(folders: list[str]) -> list[str]:
    unique = list(dict.fromkeys(folders))
    return [
        each
        for each in unique
        if not any(each != other and lies_in(each, other) for other in unique)
    ]
