"""import, as a user types it."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def notebook(home):
    path = home.work / "found.ipynb"
    value = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"widgets\x1b[2J": {}},
        "cells": [
            {
                "cell_type": "markdown",
                "id": "a",
                "metadata": {},
                "source": "![x](https://example.com/x.png)",
            }
        ],
    }
    path.write_text(json.dumps(value))
    return path


def test_it_says_what_it_changed(sandbox, notebook):
    """A line for each thing, with what could act on the terminal escaped."""
    ended = sandbox("import", notebook)

    assert ended.code == 0
    assert ended.out.splitlines() == [
        "metadata of the notebook: left out 'widgets\\x1b[2J'",
        "cell 1: markup that acts or loads shown as text",
        f"Wrote {notebook.with_name('found-sandbox.ipynb')}",
    ]
    assert sandbox("import", notebook).code == 2


def test_the_network_setting_decides_on_images(sandbox, notebook, monkeypatch):
    """Where sandboxes have network, a notebook may load what it names; trust is not for files."""
    monkeypatch.setenv(
        "SANDBOX_CONFIG",
        json.dumps({"SandboxManager": {"network": True, "output_policy": "trusted"}}),
    )

    ended = sandbox("import", "--inplace", "--json", notebook)

    assert ended.json["notebook"] == str(notebook)
    assert len(ended.json["changes"]) == 1
    assert "![x](https" in notebook.read_text()


def test_output_and_inplace_exclude_each_other(sandbox, notebook):
    assert sandbox("import", "--inplace", "-o", "x.ipynb", notebook).code == 2
