"""A control group tree of version 2 in an ordinary folder, with the kernel's rules.

The rules are those of the kernel's ``cgroup-v2.rst``: what a group's files are follows from what
its parent hands down; a group with processes hands nothing down, and one that hands down takes no
process (both but the root); moving a process needs write permission on the nearest common ancestor;
below a threaded group nothing is a domain.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["FakeTree"]

_FILES = {
    "memory": ("memory.max", "memory.swap.max", "memory.events"),
    "cpu": ("cpu.max",),
    "pids": ("pids.max", "pids.events"),
}
_real_mkdir = os.mkdir


class FakeTree:
    """The tree at `point`; `ours` are the groups that this user may write."""

    def __init__(self, point: Path, controllers: str = "cpu memory pids") -> None:
        self.point = point
        self.ours: set[str] = set()
        point.mkdir(exist_ok=True)
        self._fill(point, controllers.split())

    def add(
        self,
        path: str,
        *,
        procs: str = "",
        hands_down: str = "",
        ours: bool = False,
        kind: str = "domain",
    ) -> Path:
        """Make a group and those above it; the parents hand down whatever it is to have."""
        folder = self.point
        for name in path.strip("/").split("/"):
            folder = folder / name
            if not folder.exists():
                _real_mkdir(folder)
                self._fill(folder, self._read(folder.parent, "cgroup.subtree_control").split())
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in procs.split()))
        (folder / "cgroup.subtree_control").write_text(hands_down)
        (folder / "cgroup.type").write_text(f"{kind}\n")
        if ours:
            self.ours.add(str(folder))
        return folder

    def _fill(self, folder: Path, controllers: list[str]) -> None:
        base = ["cgroup.procs", "cgroup.subtree_control", "cgroup.kill"]
        if folder != self.point:
            base.append("cgroup.type")
        for name in [*base, *(file for each in controllers for file in _FILES[each])]:
            (folder / name).touch()
        (folder / "cgroup.controllers").write_text(" ".join(controllers))
        if folder != self.point:
            threaded = self._read(folder.parent, "cgroup.type").strip() in (
                *("threaded", "domain threaded", "domain invalid"),
            )
            (folder / "cgroup.type").write_text("domain invalid\n" if threaded else "domain\n")

    @staticmethod
    def _read(folder: Path, name: str) -> str:
        path = folder / name
        return path.read_text() if path.exists() else ""

    def may_write(self, path: str) -> bool:
        """As access(2) answers this user."""
        return path in self.ours or os.path.dirname(path) in self.ours

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """As mkdir(2) in the tree; elsewhere the real one."""
        folder = Path(path)
        if self.point not in folder.parents:
            _real_mkdir(path, mode)
            return
        if str(folder.parent) not in self.ours:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        _real_mkdir(path)
        self.ours.add(path)
        self._fill(folder, self._read(folder.parent, "cgroup.subtree_control").split())

    def write(self, path: str, value: str) -> None:
        """As write(2) to one of the files."""
        folder, name = Path(path).parent, Path(path).name
        if not Path(path).exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not self.may_write(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if name == "cgroup.subtree_control":
            self._hand_down(folder, value)
        elif name == "cgroup.procs":
            self._move(folder, value)
        else:
            Path(path).write_text(value)

    def _hand_down(self, folder: Path, value: str) -> None:
        controller = value.removeprefix("+")
        if controller not in self._read(folder, "cgroup.controllers").split():
            raise OSError(errno.ENOENT, "no such controller here")
        if folder != self.point and self._read(folder, "cgroup.procs").strip():
            raise OSError(errno.EBUSY, "it holds processes")
        now = [*self._read(folder, "cgroup.subtree_control").split(), controller]
        (folder / "cgroup.subtree_control").write_text(" ".join(now))
        for child in folder.iterdir():
            if child.is_dir():
                self._fill(child, now)

    def _move(self, folder: Path, pid: str) -> None:
        if folder != self.point and self._read(folder, "cgroup.subtree_control").strip():
            raise OSError(errno.EBUSY, "it hands controllers down")
        if self._read(folder, "cgroup.type").strip() != "domain" and folder != self.point:
            raise OSError(errno.EOPNOTSUPP, "it is no domain")
        source = next(
            each.parent
            for each in self.point.rglob("cgroup.procs")
            if pid in each.read_text().split()
        )
        common = Path(os.path.commonpath([source, folder]))
        if str(common) not in self.ours:
            raise PermissionError(errno.EACCES, "the common ancestor is not ours")
        rest = [each for each in self._read(source, "cgroup.procs").split() if each != pid]
        (source / "cgroup.procs").write_text("".join(f"{each}\n" for each in rest))
        with (folder / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")
