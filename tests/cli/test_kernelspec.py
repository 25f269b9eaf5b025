"""kernelspec install: the kernel in Jupyter's list."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest


def test_the_kernelspec_starts_this_very_python(sandbox, home):
    """Wherever Jupyter itself is installed; with its pictures."""
    ended = sandbox("kernelspec", "install", "--prefix", home.root / "p", "--json")
    folder = Path(ended.json["path"])
    spec = json.loads((folder / "kernel.json").read_text())

    assert ended.code == 0
    assert folder == home.root / "p" / "share" / "jupyter" / "kernels" / "sandbox-python"
    assert spec["argv"][0] == sys.executable
    assert spec["display_name"] == "Python 3 (sandbox)"
    assert {"logo-32x32.png", "logo-64x64.png", "logo-svg.svg"} <= set(os.listdir(folder))


def test_a_second_kernel_may_share_one_sandbox(sandbox, home):
    """Name, title and sandbox are the user's; --user installs beside Jupyter's own data."""
    words = ("--name", "team", "--display-name", "Team", "--id", "team-box")

    ended = sandbox("kernelspec", "install", "--user", *words)
    spec = json.loads((home.data / "kernels" / "team" / "kernel.json").read_text())

    assert ended.code == 0
    assert spec["display_name"] == "Team"
    assert spec["env"]["SANDBOX_ID"] == "team-box"


def test_what_cannot_be_installed_is_an_error_with_a_mend(sandbox, home):
    """A bad name, a bad id, and a place that cannot be written."""
    (home.root / "file").write_text("")

    assert sandbox("kernelspec", "install", "--user", "--name", "a b").code == 2
    assert sandbox("kernelspec", "install", "--user", "--id", "not an id").code == 2
    refused = sandbox("kernelspec", "install", "--prefix", home.root / "file")
    assert refused.code == 6
    assert "--prefix" in refused.err


@pytest.fixture
def other_kernels(home):
    """Return a function that gives Jupyter a kernel, an ipykernel said to be of that language."""

    def add(name, language, **more):
        folder = home.data / "kernels" / name
        folder.mkdir(parents=True)
        argv = ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": name.upper(), "language": language, **more}
        (folder / "kernel.json").write_text(json.dumps(spec))
        (folder / "logo-64x64.png").write_bytes(b"picture")

    return add


def test_a_kernel_of_another_language_runs_in_a_sandbox(sandbox, home, other_kernels):
    """It is wrapped as Jupyter knows it, with its variables and its picture."""
    other_kernels("ir", "R", env={"FLAVOUR": "sweet"})
    book = home.work / "book.ipynb"
    source = "import os\nprint(os.environ['SANDBOX_ID'] != '', os.environ['FLAVOUR'])"
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "id": "a"}
    cell["execution_count"] = None
    whole = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    book.write_text(json.dumps(whole))

    ended = sandbox("kernelspec", "install", "--user", "--language", "r", "--json")
    ran = sandbox("run", book, "--inplace", "--kernel", "sandbox-r")

    assert ended.code == 0
    folder = Path(ended.json["path"])
    spec = json.loads((folder / "kernel.json").read_text())
    assert folder.name == "sandbox-r"
    assert (spec["display_name"], spec["language"]) == ("IR (sandbox)", "R")
    assert (folder / "logo-64x64.png").read_bytes() == b"picture"
    assert ran.code == 0, ran.err
    assert json.loads(book.read_text())["cells"][0]["outputs"][0]["text"] == ["True sweet\n"]


def test_which_kernel_is_meant_must_be_clear(sandbox, other_kernels):
    """None and several are errors that say what to do; naming one decides."""
    other_kernels("ir", "R")
    other_kernels("ir-old", "R")
    install = ("kernelspec", "install", "--user")

    none = sandbox(*install, "--language", "julia")
    several = sandbox(*install, "--language", "R")

    assert (none.code, several.code) == (2, 2)
    assert "no kernel for 'julia'" in none.err
    assert "ir, ir-old" in several.err
    assert "--kernel" in several.err
    assert sandbox(*install, "--kernel", "ir-old", "--json").json["name"] == "sandbox-r"


def test_a_name_is_also_what_people_see(sandbox, home):
    """As ipykernel has it, so that two kernels can be told apart in the launcher."""
    sandbox("kernelspec", "install", "--prefix", home.root / "p", "--name", "team")

    spec = home.root / "p" / "share" / "jupyter" / "kernels" / "team" / "kernel.json"
    assert json.loads(spec.read_text())["display_name"] == "team"
