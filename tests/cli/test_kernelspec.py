"""kernelspec install: the kernel in Jupyter's list."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


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
    assert refused.code == 1
    assert "--prefix" in refused.err
