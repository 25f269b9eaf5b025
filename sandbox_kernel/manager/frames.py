"""Documents of framed outputs, kept where the Jupyter server hands them out by their digest.

A page with a content security policy of its own gives that to every frame whose document stands in
the output itself, so that nothing in it would run.  A document that comes from the server has the
policy it came with.  Notebooks that are opened again name it by its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from sandbox_kernel.errors import SandboxConfigurationError, StorageError, StorageFullError
from sandbox_kernel.manager.storage import make_private_folder, write_private_file

__all__ = ["FrameStore", "KeptFrames", "frame_folder"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_OWNER = re.compile(r"[\w-][\w.-]{0,99}", re.ASCII)
_URL = re.compile(r"/(?:[\w.~%-]+/)*sandbox/frame/", re.ASCII)
_MOST_OF_OWNER = 500
_MOST_OF_ALL = 5000
"""Documents, so that looking through them takes no time."""
_ROUND = 16
"""Documents of one sandbox after which all are counted."""


def frame_folder(data_dir: Path) -> Path:
    """Return where the documents of this user lie."""
    return data_dir / "frames"


class FrameStore:
    """The documents of all sandboxes of a user.

    Every process of the user may use it at the same time.  When there are too many, those go that
    nobody has asked for the longest: of the sandbox that has too many, then of all.

    Parameters
    ----------
    folder : Path
        Where they lie; made when there is something to keep.
    owner_bytes : int
        Most bytes of the documents of one sandbox, so that one cannot drive out those of others.
    total_bytes : int
        Most bytes of all.
    """

    def __init__(
        self, folder: Path, *, owner_bytes: int = 64 << 20, total_bytes: int = 1 << 30
    ) -> None:
        self._folder = folder
        self._owner_bytes = owner_bytes
        self._total_bytes = total_bytes

    def keep(self, owner: str, document: str) -> str | None:
        """Keep a document of a sandbox; return its digest, or None where it is too large for that.

        Raises
        ------
        StorageFullError, StorageError
            It cannot be written.
        """
        content = document.encode("utf-8", "replace")
        if len(content) > self._owner_bytes:
            return None
        digest = hashlib.sha256(content).hexdigest()
        place = self._folder / (owner if _OWNER.fullmatch(owner) else "other")
        path = place / digest
        try:
            os.utime(path)
        except OSError:
            make_private_folder(self._folder)
            make_private_folder(place)
            write_private_file(path, content)
            self._make_room(place)
        return digest

    def read(self, digest: str) -> bytes | None:
        """Return a document, or None if it is not kept (any longer)."""
        if not _DIGEST.fullmatch(digest):
            return None
        for path in self._folder.glob(f"*/{digest}"):
            with contextlib.suppress(OSError):
                content = path.read_bytes()
                os.utime(path)
                return content
        return None

    def _make_room(self, place: Path) -> None:
        """Remove what is beyond the bounds; others may be doing the same."""
        mine = _documents(place)
        _shrink(mine, self._owner_bytes, _MOST_OF_OWNER)
        if len(mine) % _ROUND == 1:
            everything = _documents(*self._folder.iterdir())
            _shrink(everything, self._total_bytes, _MOST_OF_ALL)


@dataclass(frozen=True)
class KeptFrames:
    """The keeper that the output wall knows: one sandbox's documents, at one server's addresses."""

    store: FrameStore
    owner: str
    url: str

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.url):
            raise SandboxConfigurationError(
                f"SandboxKernelApp.frame_url = {self.url!r} is not the path of a Jupyter server.",
                hint="It is like /sandbox/frame/, with the server's base_url before it.",
                context={"setting": "SandboxKernelApp.frame_url"},
            )

    def keep(self, document: str) -> str | None:
        """Return the document's digest, or None where it cannot be kept: outputs then hold it."""
        try:
            return self.store.keep(self.owner, document)
        except (StorageError, StorageFullError):
            return None


def _documents(*places: Path) -> list[tuple[float, int, str]]:
    """Return time of last use, size and path of every document."""
    found: list[tuple[float, int, str]] = []
    for place in places:
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime, status.st_size, entry.path))
    return found


def _shrink(documents: list[tuple[float, int, str]], most_bytes: int, most: int) -> None:
    left, count = sum(size for _, size, _ in documents), len(documents)
    for _, size, path in sorted(documents):
        if left <= most_bytes and count <= most:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        left -= size
        count -= 1
