"""The tree as those find it who clone it."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

_TOP = Path(__file__).parents[1]
_SOURCES = ("sandbox_kernel", "jupyter_ext", "container/sandbox_runtime")
_PACKAGES = sorted(
    str(path.parent.relative_to(_TOP))
    for source in _SOURCES
    for path in (_TOP / source).rglob("__init__.py")
)
# Nobody has written the engine yet that needs it.
_NOT_TESTED_YET = {"kubernetes"}

# Homes and working folders of whoever wrote it; hosts from which one machine takes its packages.
_OF_ONE_MACHINE = re.compile(
    r"(?<![\w.*/-])/(?:work/(?!work\b)|root/(?!var/))\w"
    r"|https?://[\w.-]*(?:mirror|proxy|artifactory|nexus|registry)[\w.-]*\.(?!example)\w+"
)


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("package", _PACKAGES)
def test_each_package_says_what_it_is_for_and_where_it_ends(package: str) -> None:
    """A README in its folder: what it owns, what it may import, what it must not do."""
    text = (_TOP / package / "README.md").read_text()

    assert text.startswith("# ")
    assert "May import" in text
    assert "Must not" in text


def test_what_is_required_was_tested_in_one_version() -> None:
    """Each requirement has its version in constraints.txt, which make and CI install by."""
    project = tomllib.loads((_TOP / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    required = {
        normalised(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
        for requirements in groups.values()
        for requirement in requirements
    }
    lines = (_TOP / "constraints.txt").read_text().splitlines()
    pinned = {normalised(line.partition("==")[0]) for line in lines if "==" in line}

    assert required - pinned - {normalised(project["name"])} == _NOT_TESTED_YET


def test_two_commands_are_all_it_takes() -> None:
    """The README begins with cloning and one target of make, and names a second that proves it."""
    text = (_TOP / "README.md").read_text()
    (block,) = re.findall(r"## Try it\n.*?```console\n(.*?)```", text, re.DOTALL)
    targets = re.findall(r"^([a-z-]+):", (_TOP / "Makefile").read_text(), re.MULTILINE)

    first, second = block.splitlines()
    assert first.startswith("$ git clone ")
    assert second == "$ make run"
    named = set(re.findall(r"`make ([a-z]+)", text))
    assert {"run", "test"} <= named <= set(targets)


def test_make_run_opens_the_example() -> None:
    """After the look at the machine; on a fresh one the installation comes before both."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MA")}
    planned = subprocess.run(
        ["make", "--dry-run", "run", "VENV=fresh", "LAB_ARGS=--no-browser"],
        cwd=_TOP,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    steps = ("-m venv", "pip install", ".[examples]", "jupyter sandbox doctor", "jupyter lab")

    places = [planned.index(step) for step in steps]
    assert places == sorted(places)
    assert "--no-browser sales.ipynb" in planned


def test_nothing_of_one_machine_is_in_the_tree() -> None:
    """No file names a home or working folder of its author, or a host for packages."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=_TOP, capture_output=True, check=False
    ).stdout
    if not listed:
        pytest.skip("what belongs to the tree is known only in a clone")
    found = []
    for name in listed.decode().split("\0"):
        path = _TOP / name
        if not name or not path.is_file() or name == "tests/test_repository.py":
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {hit[0]}" for hit in _OF_ONE_MACHINE.finditer(text)]
    assert not found, found
