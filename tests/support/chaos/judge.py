"""What must hold of the files that clients write, whoever of them was killed when."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.chaos.pieces import generation_of
from tests.support.chaos.record import lines_of

__all__ = ["Ledger", "half_files", "leftover_drafts"]

NOTHING = ""
"""Stands for a file that is not there."""


@dataclass
class Ledger:
    """What the record of one client says that its files may hold.

    Parameters
    ----------
    path : Path
        The record.
    """

    path: Path
    offset: int = 0
    allowed: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """For each sandbox and path, the generations that may be there."""
    begun: dict[int, dict[str, object]] = field(default_factory=dict)
    """What has begun and not ended."""
    problems: list[str] = field(default_factory=list)
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    slowest: tuple[float, str] = (0.0, "")
    is_finished: bool = False
    tokens: dict[tuple[str, int], str] = field(default_factory=dict)

    def read(self) -> None:
        """Take in what has been written since the last time."""
        if not self.path.exists():
            return
        lines, self.offset = lines_of(self.path, self.offset)
        for line in lines:
            if "begin" in line:
                self.begun[line["begin"]] = line
                for key in self._keys(line):
                    self.allowed.setdefault(key, {NOTHING}).add(line["generation"])
                if "deletes" in line:
                    for key in self._below(line):
                        self.allowed[key].add(NOTHING)
            elif "end" in line:
                self._ended(line)
            elif "problem" in line:
                self.problems.append(f"{self.path.stem}: {line['problem']}")
            elif "finished" in line:
                self.is_finished = True

    def _ended(self, line: dict[str, object]) -> None:
        begun = self.begun.pop(line["end"])  # type: ignore[call-overload]
        what, outcome = begun["what"], line["outcome"]
        counts = self.outcomes.setdefault(what, {})
        counts[outcome] = counts.get(outcome, 0) + 1
        self.slowest = max(self.slowest, (line["took"], what))  # type: ignore[arg-type]
        if outcome != "result":
            return
        for key in self._keys(begun):
            self.allowed[key] = {begun["generation"]}  # type: ignore[arg-type]
        if "deletes" in begun:
            for key in self._below(begun):
                self.allowed[key] = {NOTHING}

    @staticmethod
    def _keys(line: dict[str, object]) -> list[tuple[str, str]]:
        return [(line["sandbox"], path) for path in line.get("writes", ())]  # type: ignore[attr-defined]

    def _below(self, line: dict[str, object]) -> list[tuple[str, str]]:
        folder = f"{line['deletes']}/"
        return [
            key for key in self.allowed if key[0] == line["sandbox"] and key[1].startswith(folder)
        ]

    def check(self, workspaces: dict[str, Path]) -> list[str]:
        """Return what is wrong with its files, now that it writes no more."""
        wrong = []
        for (sandbox_id, path), generations in self.allowed.items():
            if sandbox_id not in workspaces:
                continue
            try:
                data = (workspaces[sandbox_id] / path).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                found: str | None = NOTHING
            else:
                found = generation_of(path, data)
            if found not in generations:
                wrong.append(
                    f"{sandbox_id}: {path} holds {found!r}, not one of {sorted(generations)}"
                )
        return wrong


def half_files(workspace: Path, known: dict[str, tuple[int, ...]]) -> list[str]:
    """Return the files under their final names that are not one whole piece.

    Parameters
    ----------
    known : dict
        What was found whole and has not changed since; kept by the caller.
    """
    wrong = []
    for folder, folders, names in os.walk(workspace):
        if "watched" in folders:
            folders.remove("watched")
        for name in names:
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, workspace)
            if name.startswith(".sandbox-draft-"):
                continue
            try:
                if known.get(inside) == _stamp(os.lstat(path)):
                    continue
                with open(path, "rb") as file:
                    stamp = _stamp(os.fstat(file.fileno()))
                    data = file.read()
            except FileNotFoundError:
                continue
            if generation_of(inside, data) is None:
                wrong.append(f"{inside} is not whole: {len(data)} bytes, {data[:80]!r}")
            else:
                known[inside] = stamp
    return wrong


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def leftover_drafts(folder: Path) -> list[str]:
    """Return what looks like something half-made, by its name."""
    return [
        os.path.join(where, name)
        for where, folders, names in os.walk(folder)
        for name in (*folders, *names)
        if "draft" in name and name != ".sandbox-drafts"
    ]
