"""The pages in docs/ and at the top: complete, and without dead links."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from sandbox_kernel.cli.parser import build_parser
from sandbox_kernel.config import CONFIGURABLES

_TOP = Path(__file__).parents[2]
_PAGES = sorted([*_TOP.glob("*.md"), *_TOP.glob("docs/*.md")])
# The picture is made from a running JupyterLab, after the pages.
_MADE_LATER = {"docs/images/lab.png"}


def leaves(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()):
    """Yield each command without further commands below it, with its words."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in below:
        for name, command in action.choices.items():
            yield from leaves(command, (*path, name))
    if not below:
        yield " ".join(path), parser


COMMANDS = dict(leaves(build_parser()))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_and_option_is_described(name):
    """docs/cli.md has a section for the command, which names each argument."""
    text = (_TOP / "docs" / "cli.md").read_text()
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))

    assert name in sections
    for action in COMMANDS[name]._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        for word in action.option_strings or [action.metavar]:
            assert word in sections[name], f"{name}: {word}"


def test_each_setting_is_described_with_its_default():
    """docs/configuration.md has a row for each trait, and no row for what is none."""
    text = (_TOP / "docs" / "configuration.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+\.\w+)` \| `(.+?)` \|", text, re.MULTILINE))
    made = {}
    for cls in CONFIGURABLES:
        for name, trait in cls.class_traits(config=True).items():
            default = trait.default()
            made[f"{cls.__name__}.{name}"] = (
                f'"{default}"' if isinstance(default, str) else repr(default)
            )

    assert rows == made


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Each relative link of a page names a file of the repository."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())

    missing = [target for target in targets if not (page.parent / target).exists()]
    assert set(missing) <= _MADE_LATER


def test_nothing_of_the_authors_machine_is_in_the_repository():
    """Pages and examples name no home folder or temporary folder of whoever wrote them."""
    for page in [*_PAGES, *_TOP.glob("docs/examples/*")]:
        assert not re.search(r"/(root|home/(?!user|ada)|work|var/tmp)/", page.read_text()), page
