"""What the wheel carries to a user's machine."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

_TOP = Path(__file__).parents[1]
_STATIC = "sandbox_kernel/widget/static"


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
    labextension = _TOP / "data" / "labextensions"
    for path in labextension.rglob("*.*"):
        assert f"share/jupyter/labextensions/{path.relative_to(labextension)}" in names


def test_settings_of_a_locked_server_are_there(wheel):
    """JupyterLab reads them from the package."""
    names = set(wheel.namelist())
    for name in ("default_setting_overrides", "page_config"):
        assert f"jupyter_ext/locked/labconfig/{name}.json" in names


def test_the_terminals_bundle_needs_no_node(wheel, tmp_path):
    """What runs in pages is in wheel and sdist as it is in the tree, with its licences."""
    built = {path.name: path.read_bytes() for path in (_TOP / _STATIC).iterdir()}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path],
        cwd=_TOP,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        root = path.name.removesuffix(".tar.gz")
        members = [name for name in sdist.getnames() if f"/{_STATIC}/" in name]
        in_sdist = {name.rsplit("/", 1)[1]: sdist.extractfile(name).read() for name in members}
        assert f"{root}/js/packages/widget/src/view.ts" in sdist.getnames()
        assert not [name for name in sdist.getnames() if "node_modules" in name]
    in_wheel = {
        name.rsplit("/", 1)[1]: wheel.read(name)
        for name in wheel.namelist()
        if name.startswith(f"{_STATIC}/")
    }

    assert built == in_wheel == in_sdist
    assert {"loader.js", "LICENSES.txt"} < built.keys()
    assert len(built) == 3


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
