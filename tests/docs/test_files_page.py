"""docs/files.md: every method, parameter and error is there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox, errors
from sandbox_kernel.client.files import FileInfo, FileOperations
from sandbox_kernel.client.git import GitOperations
from sandbox_kernel.client.transfer import FolderTransfers

_TEXT = (Path(__file__).parents[2] / "docs" / "files.md").read_text()
_METHODS = [
    name
    for cls in (FileOperations, FolderTransfers, GitOperations)
    for name in vars(cls)
    if not name.startswith("_")
]


@pytest.mark.parametrize("name", _METHODS)
def test_each_parameter_is_in_the_signature_that_is_shown(name):
    """With its default."""
    shown = re.search(rf"`{name}\((.*?)\)`", _TEXT)

    assert shown is not None
    for parameter in inspect.signature(getattr(Sandbox, name)).parameters.values():
        if parameter.name == "self":
            continue
        has_default = parameter.default is not parameter.empty
        word = f"{parameter.name}={parameter.default}" if has_default else parameter.name
        assert word in shown[1].replace('"', "")


def test_each_fact_of_a_file_is_described():
    """Fields and properties."""
    for name in vars(FileInfo):
        if not name.startswith("_"):
            assert f"`{name}`" in _TEXT, name
    for name in FileInfo.__dataclass_fields__:
        assert f"`{name}`" in _TEXT, name


def test_each_error_is_described_with_its_code():
    """Those of files and of git."""
    for each in vars(errors).values():
        if isinstance(each, type) and issubclass(each, (errors.FileSystemError, errors.GitError)):
            assert f"`{each.__name__}`" in _TEXT, each
            assert f"`{each.code}`" in _TEXT, each
