"""The runtime's code as sandboxes see it: one folder with compiled files that need no checking.

A sandbox starts in a few milliseconds, so that compiling the runtime, or finding out that the
compiled files are out of date, would be felt.  The code is therefore copied once into the user's
cache, compiled, under a name made from what it was copied from.  The copy also holds nothing but
the code: neither the rest of the package nor its folder's path is shown inside.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterator

from sandbox_kernel.errors import EngineStartError, StorageError

__all__ = ["DIGEST", "cache_folder", "prepare"]

DIGEST = "digest"
"""File in a copy with what names its content, whenever and wherever it was made."""

# Of `sandbox_kernel`, what the runtime may import.
_SHARED = ("__init__.py", "errors.py", "wire")
_UNUSED_DAYS = 30
_SECONDS_A_DAY = 86400


def cache_folder() -> str:
    """Return the folder of prepared copies."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "jupyter-sandbox-kernel", "runtime")


def prepare(otherwise: str | None = None) -> str:
    """Return the folder with the runtime's code, made now if it is not there.

    Parameters
    ----------
    otherwise : str, optional
        A folder to use where the cache cannot be written.

    Raises
    ------
    EngineStartError
        The installation lacks the package ``sandbox_runtime``.
    StorageError
        The cache cannot be written.
    """
    sources = sorted(_sources())
    key = hashlib.sha256(repr((3, sys.implementation.cache_tag, sources)).encode()).hexdigest()[:20]
    cache = cache_folder()
    try:
        return _copy_in(cache, key, sources)
    except OSError as error:
        refused = error
    try:
        if otherwise is not None:
            return _copy_in(otherwise, key, sources)
    except OSError as error:
        cache, refused = otherwise or cache, error
    raise StorageError(
        cache,
        "prepare the runtime's code in",
        refused.strerror or str(refused),
        "Make it writable, or point XDG_CACHE_HOME elsewhere.",
    ) from refused


def _copy_in(folder: str, key: str, sources: list[tuple[str, str, int, int]]) -> str:
    """Return the copy in this folder, made now if it is not there."""
    target = os.path.join(folder, key)
    with contextlib.suppress(FileNotFoundError):
        if os.lstat(target).st_uid == os.geteuid():
            return target
        # Whoever owns it could change what our sandboxes run.
        raise PermissionError(errno.EPERM, f"{target} belongs to another user")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    _build(target, [(name, path) for name, path, _, _ in sources])
    _forget_unused(folder, key)
    return target


def _sources() -> Iterator[tuple[str, str, int, int]]:
    """Yield name inside, path, time of change and size of every file of the runtime."""
    runtime = _package("sandbox_runtime")
    yield from _walk(runtime, "sandbox_runtime")
    kernel = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in _SHARED:
        path = os.path.join(kernel, name)
        if os.path.isdir(path):
            yield from _walk(path, f"sandbox_kernel/{name}")
        else:
            status = os.stat(path)
            yield f"sandbox_kernel/{name}", path, status.st_mtime_ns, status.st_size


def _walk(folder: str, name: str) -> Iterator[tuple[str, str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _walk(entry.path, f"{name}/{entry.name}")
            elif not entry.name.endswith((".md", ".pyc")):
                status = entry.stat()
                yield f"{name}/{entry.name}", entry.path, status.st_mtime_ns, status.st_size


def _package(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise EngineStartError(
            "bubblewrap", "", f"the package {name!r} is not installed", "Reinstall the project."
        )
    return os.path.dirname(spec.origin)


def _build(target: str, files: list[tuple[str, str]]) -> None:
    # Needed at the first start only.
    import py_compile  # noqa: PLC0415
    import shutil  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    folder = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(target))
    try:
        for name, path in files:
            copy = os.path.join(folder, name)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copyfile(path, copy)
            if name.endswith(".py"):
                py_compile.compile(
                    copy,
                    cfile=importlib.util.cache_from_source(copy),
                    dfile=f"/opt/sandbox/{name}",
                    doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
        _write_digest(folder, [name for name, _ in files])
        _open_to_all(folder)
        os.rename(folder, target)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        # Another process was first: its copy is as good.
        if isinstance(error, OSError) and os.path.isdir(target):
            return
        raise


def _write_digest(folder: str, names: list[str]) -> None:
    """Note what the code is, so that an image can say whether it holds the same."""
    digest = hashlib.sha256()
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            content = file.read()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    with open(os.path.join(folder, DIGEST), "w", encoding="ascii") as file:
        file.write(digest.hexdigest()[:20])


def _open_to_all(folder: str) -> None:
    """Let the user of a container read the copy: the folder around it is closed to others here."""
    for path, _, names in os.walk(folder):
        os.chmod(path, 0o755)  # noqa: S103
        for name in names:
            os.chmod(os.path.join(path, name), 0o644)


def _forget_unused(cache: str, key: str) -> None:
    """Remove copies made long ago: a sandbox that still runs on one would lose its code."""
    import shutil  # noqa: PLC0415 - needed at the first start only

    limit = time.time() - _UNUSED_DAYS * _SECONDS_A_DAY
    with os.scandir(cache) as entries:
        for entry in entries:
            # Another process may be renaming its own copy at this moment.
            with contextlib.suppress(FileNotFoundError):
                if entry.name != key and entry.stat(follow_symlinks=False).st_mtime < limit:
                    shutil.rmtree(entry.path, ignore_errors=True)
