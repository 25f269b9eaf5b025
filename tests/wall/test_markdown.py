"""Markdown is rendered as a page would, with formulas left for it to typeset."""

from __future__ import annotations

import pytest

from sandbox_kernel.wall import forms
from sandbox_kernel.wall.markdown import MOST_CHARACTERS, render
from sandbox_kernel.wall.modes import Wall


@pytest.mark.parametrize(
    "formula",
    [
        "$a_b_c * d * e$",
        "$$a_1 + b_2$$",
        r"\(x_y_z\)",
        r"\\(x_y_z\\)",
        r"\[x_y_z\]",
        r"\begin{align}a_b &= c_d \\ e\end{align}",
        "$$\n- a_b\n+ c_d\n$$",
        "\\begin{align*}\n# a\n\\end{align*}",
        r"$\{a\} < b$",
    ],
)
def test_formulas_come_through_unchanged(formula: str) -> None:
    """Signs of Markdown in them are signs of the formula."""
    shown = formula.replace("&", "&amp;").replace("<", "&lt;")

    assert shown in render(f"before\n\n{formula}\n\n*after*")
    assert "<em>after</em>" in render(f"before\n\n{formula}\n\n*after*")


@pytest.mark.parametrize(
    "text", ["costs $5 and *not* $6", "$ a *b* $", "a $1 *b* $2", r"\$a *b* $"]
)
def test_prices_are_no_formulas(text: str) -> None:
    assert "<em>" in render(text)


def test_what_markdown_has_is_rendered() -> None:
    shown = render("# T\n\n|a|b|\n|-|-|\n|1|~~2~~|\n\n- x\n\n```py\na < b\n```\n\n> q\n\n`c`")

    for part in ("<h1>", "<table>", "<td>1</td>", "<s>2</s>", "<li>", "a &lt; b", "<blockquote>"):
        assert part in shown
    judged = forms.bundle({"text/markdown": "|a|\n|-|\n|1|"}, {}, Wall())[0]["text/html"]
    assert "<td>1</td>" in judged


def test_html_in_markdown_is_text() -> None:
    assert render("a <b>x</b>\n\n<script>1</script>").count("<p>") == 2
    assert "<b>" not in render("a <b>x</b>")


def test_a_large_text_is_shown_as_it_is_written() -> None:
    """What takes a parser of Markdown long takes the relay no time."""
    shown = render("<" * (MOST_CHARACTERS + 1))

    assert shown.startswith("<pre>&lt;&lt;")


@pytest.mark.parametrize("piece", ["[", "![a](", "$a ", "\\begin{a}", "\\(", "> ", "*a ", "`", "<"])
def test_repeated_signs_are_rendered_in_time(piece: str) -> None:
    """Within the time that a test has; those that know no bound take minutes at this size."""
    assert render(piece * (MOST_CHARACTERS // len(piece)))
