"""What options ask of the sandbox that a command starts."""

from __future__ import annotations

import pytest

from sandbox_kernel.cli.parser import parse_arguments
from sandbox_kernel.cli.wishes import spec_fields, wished_options, wished_settings
from sandbox_kernel.engines.base import FolderMode, Limits
from sandbox_kernel.manager.settings import Settings


@pytest.mark.parametrize("words", [["run", "n.ipynb"], ["exec", "s", "true"], ["terminal", "s"]])
def test_what_is_not_given_is_as_configured(words):
    """Nothing is chosen for the sandbox by saying nothing."""
    arguments = parse_arguments(words)

    assert wished_settings(arguments) == {}
    assert wished_options(arguments, Settings(memory_bytes=1 << 30)) == {}


def test_limits_that_are_not_given_are_those_of_the_settings():
    """One that is given goes before its setting."""
    arguments = parse_arguments(
        ["exec", "s", "--memory", "2G", "--cpus", "1.5", "--notebook-folder", "read", "true"]
    )
    settings = Settings(memory_bytes=1 << 30, processes=100)

    options = wished_options(arguments, settings)

    assert options == {
        "folder_mode": "read",
        "limits": Limits(memory_bytes=2 << 30, cpus=1.5, processes=100),
    }
    assert spec_fields(wished_settings(arguments)) == ["folder_mode", "limits"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("512M", 512 << 20), ("2g", 2 << 30), ("1.5GiB", 3 << 29), ("1kB", 1024)],
)
def test_sizes(text, size):
    """In bytes, or in units that are powers of 1024."""
    assert parse_arguments(["exec", "s", "--memory", text, "true"]).memory == size


@pytest.mark.parametrize(
    "words",
    [
        *(["--memory", text] for text in ("", "0", "-1G", "1Q", "G", "nan", "inf")),
        *(["--cpus", text] for text in ("0", "many", "nan")),
        *(["--processes", text] for text in ("0", "1.5", "-3")),
        ["--notebook-folder", "all"],
    ],
)
def test_what_is_no_amount_is_refused(words, capsys):
    """As wrong arguments are, before anything is started."""
    with pytest.raises(SystemExit, match="2"):
        parse_arguments(["exec", "s", f"{words[0]}={words[1]}", "true"])
    assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize("mode", list(FolderMode))
def test_every_way_of_showing_the_folder_can_be_asked_for(mode):
    """The parser has its own list, for its start-up time."""
    assert parse_arguments(["run", "n.ipynb", "--notebook-folder", mode]).notebook_folder == mode
