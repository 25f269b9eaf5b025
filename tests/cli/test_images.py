"""image build, with a docker of our own."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """Put a docker first that notes its words, and return a function that says how it ends."""
    folder = tmp_path / "docker-bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def ends(code: int) -> None:
        program = folder / "docker"
        program.write_text(f'#!/bin/sh\necho "$@" >&2\necho sha256:abc\nexit {code}\n')
        program.chmod(0o755)

    return ends


def test_an_image_is_built_by_docker_under_its_name(sandbox, docker):
    """On the base that is given; the answer is its name and id, the rest is standard error."""
    docker(0)
    ended = sandbox("image", "build", "mine", "--base", "other:1")

    assert (ended.code, ended.out) == (0, "mine  sha256:abc\n")
    assert "--tag mine" in ended.err
    assert "BASE=other:1" in ended.err
    quiet = sandbox("image", "build", "--quiet", "--json")
    assert quiet.json == {"image": "jupyter-sandbox", "id": "sha256:abc"}
    assert quiet.err == ""


def test_a_build_that_fails_is_an_error(sandbox, docker, monkeypatch):
    """Also in JSON; without docker the code is that of a missing engine."""
    docker(3)
    failed = sandbox("image", "build", "--json")
    assert failed.code == 1
    assert "ended with 3" in failed.json["error"]["message"]

    monkeypatch.setenv("PATH", "/nowhere")
    missing = sandbox("image", "build", "--json")
    assert missing.code == 5
    assert "docker" in missing.json["error"]["message"]
