"""Formulas show themselves: no link, style or name of theirs gets into a page."""

from __future__ import annotations

import html as html_of_python
import re

import html5lib
import pytest

from sandbox_kernel.wall import forms, formulas, html
from sandbox_kernel.wall.modes import Wall
from sandbox_kernel.wall.notebooks import clean_notebook

COMMAND = re.compile(r"\\(?:href|style|class|cssId|bbox|mmlToken|unicode|require)(?![A-Za-z])")
SPELLINGS = [
    r"$\href{java&Tab;script:x}{y}$",
    r"$\style{cursor:url(https://x.invalid)}{x}$",
    r"$\sty<wbr>le{x}{y}$",
    r"$\<wbr title='>'>style{x}{y}$",
    r"$\<!-- x -->style{x}{y}$",
    r"$\<no-such-tag>style{x}{y}$",
    "$&#92;style{x}{y}$",
    "$&#x5c;style{x}{y}$",
    "$&bsol;style{x}{y}$",
    "$\\&#115;tyle{x}{y}$",
    r"$\bbox[1px]{x}$",
    r"$\style_{x}$",
    r"\(\class{x}{y}\)",
]


def typeset(text: str) -> str:
    """Return what a page reads formulas from: texts of an element, joined where it joins them."""
    tree = html5lib.parseFragment(text, namespaceHTMLElements=False)
    for element in tree.iter():
        if element.tag == "span" and not len(element) and not element.text:
            element.text = "|"
    return "".join(tree.itertext())


@pytest.mark.parametrize("text", SPELLINGS)
@pytest.mark.parametrize(
    "around",
    [
        "<p>{}</p>",
        '<table border="1" class="dataframe"><tr><td>{}</td></tr></table>',
        '<p style="margin:0">{}<img></p>',
    ],
)
def test_html_has_no_command_that_acts(text: str, around: str) -> None:
    """Also not in a table, which is not parsed where it need not be."""
    shown = around.format(text)
    assert COMMAND.search(
        typeset(re.sub("<!--.*?-->|<wbr(?: title='>')?>|<no-such-tag>", "", shown))
    )

    data, _ = forms.bundle({"text/html": shown}, {}, Wall())

    assert not COMMAND.search(typeset(data["text/html"].replace("<wbr>", "")))
    assert html.clean(data["text/html"]) == data["text/html"]


def test_markdown_has_no_command_that_acts() -> None:
    data, _ = forms.bundle({"text/markdown": r"a $\style{x}{y}$ and `\style`"}, {}, Wall())

    assert not COMMAND.search(typeset(data["text/html"]))


@pytest.mark.parametrize("text", SPELLINGS)
def test_cells_of_a_notebook_have_no_command_that_acts(text: str) -> None:
    cell = {"cell_type": "markdown", "metadata": {}, "source": text}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}

    clean, changes = clean_notebook(notebook, Wall())
    source = clean["cells"][0]["source"]

    assert not COMMAND.search(html_of_python.unescape(re.sub("<[^<>]*>", "", source)))
    assert changes


DEFINITIONS = [
    r"$\renewcommand{\alpha}{\beta}$",
    r"$\newcommand\x{y}$",
    r"$\def\alpha{\beta}$",
    r"$\let\alpha\beta$",
    r"$\newenvironment{matrix}{}{}$",
    r"$\DeclareMathOperator{\sin}{cos}$",
    r"$\definecolor{red}{RGB}{0,0,0}$",
    r"$\setOptions[physics]{italicdiff=true}$",
]


@pytest.mark.parametrize("text", DEFINITIONS)
def test_an_output_defines_nothing_for_formulas_of_others(text: str) -> None:
    """A page keeps what is defined for all its formulas; a notebook's own cells may need that."""
    defines = re.compile(
        r"\\(?:def|let|\w*new\w+|DeclareMathOperator|definecolor|setOptions)(?![A-Za-z])"
    )
    assert defines.search(text)

    for form in ("text/html", "text/markdown"):
        data, _ = forms.bundle({form: text}, {}, Wall())
        assert not defines.search(typeset(data["text/html"])), form
    data, _ = forms.bundle({"text/latex": text}, {}, Wall())
    assert "withheld" in data["text/plain"]
    assert not defines.search(formulas.tame(text))
    assert formulas.tame_markdown(text) == text


@pytest.mark.parametrize(
    "text",
    [
        r"$\frac{a}{b}\hat{x}$ \(\mathbf{x}\)",
        r"C:\dir\x",
        r"\stylex \hrefs",
        r"\left( \lettered \define",
        "&amp; <b>x</b>",
    ],
)
def test_other_formulas_are_not_touched(text: str) -> None:
    assert formulas.tame(text) == text
    assert formulas.tame_markdown(text) == text
    assert formulas.tame_html(text) == text
    assert not formulas.leads_out(text)
