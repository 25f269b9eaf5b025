"""What the wheel carries to a user's machine."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_TOP = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=_TOP,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_three_packages_are_complete(wheel):
    """Every module and every marker of types that is in the tree is in the wheel."""
    names = set(wheel.namelist())
    for package, folder in {
        "sandbox_kernel": _TOP / "sandbox_kernel",
        "jupyter_ext": _TOP / "jupyter_ext",
        "sandbox_runtime": _TOP / "container" / "sandbox_runtime",
    }.items():
        for path in folder.rglob("*.py"):
            assert f"{package}/{path.relative_to(folder)}" in names
        assert f"{package}/py.typed" in names


def test_jupyter_finds_kernel_and_extension(wheel):
    """The kernelspec with its pictures, and the switch that enables the server extension."""
    names = [name.partition(".data/data/")[2] for name in wheel.namelist()]

    for name in ("kernel.json", "logo-32x32.png", "logo-64x64.png", "logo-svg.svg"):
        assert f"share/jupyter/kernels/sandbox-python/{name}" in names
    assert "etc/jupyter/jupyter_server_config.d/jupyter_ext.json" in names


def test_the_command_is_installed(wheel):
    """`jupyter sandbox` is the program jupyter-sandbox."""
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]

    assert "jupyter-sandbox = sandbox_kernel.cli:main" in wheel.read(name).decode()


def test_nothing_else_is_in_it(wheel):
    """Neither tests nor what lies about in a working tree."""
    tops = {name.split("/")[0] for name in wheel.namelist()}

    assert {top for top in tops if not top.startswith("jupyter_sandbox_kernel-")} == {
        "sandbox_kernel",
        "sandbox_runtime",
        "jupyter_ext",
    }
    assert not [name for name in wheel.namelist() if name.endswith((".pyc", ".ipynb"))]
