"""Markdown of a sandbox, rendered on the host: a page would take its HTML as trusted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

__all__ = ["MOST_CHARACTERS", "render"]

# How formulas begin and end for the page, which typesets them when the HTML is drawn.
_DELIMITERS = {"$$": "$$", "\\\\(": "\\\\)", "\\\\[": "\\\\]", "\\(": "\\)", "\\[": "\\]"}
_ENVIRONMENT = re.compile(r"\\begin\{([a-z]{1,20}\*?)\}")
_LONGEST_FORMULA = 10_000

MOST_CHARACTERS = 30_000
"""What is rendered in well under a second, whatever it holds."""


def render(text: str) -> str:
    """Return HTML of a Markdown text; HTML in the text is shown as the text it is.

    A text of more than `MOST_CHARACTERS` is shown as it is written.
    What comes out is still to be judged as HTML: it has links and images of the text's choice.
    """
    if len(text) > MOST_CHARACTERS:
        return f"<pre>{_escaped(text)}</pre>"
    rendered: str = _parser().render(text)
    return rendered


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415  for notebooks that print Markdown

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 40})
    parser.enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.block.ruler.before("code", "formulas", _formulas, {"alt": ["paragraph"]})
    parser.add_render_rule("formula", _render_formula)
    return parser


def _formula(state: StateInline, silent: bool) -> bool:  # noqa: FBT001  the parser's signature
    end = _end_of_formula(state.src, state.pos, state.posMax)
    if end is None:
        return False
    if not silent:
        state.push("formula", "", 0).content = state.src[state.pos : end]
    state.pos = end
    return True


def _formulas(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """Take a formula of several lines whole, whatever its lines begin with."""
    begin = state.bMarks[start] + state.tShift[start]
    if not state.src.startswith(("$$", "\\"), begin):
        return False
    behind = _end_of_formula(state.src, begin, state.eMarks[end - 1])
    if behind is None:
        return False
    line = start
    while line < end and state.eMarks[line] < behind:
        line += 1
    if line >= end or state.src[behind : state.eMarks[line]].strip():
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content, token.block = state.src[begin:behind], True
        token.map = [start, line + 1]
        state.line = line + 1
    return True


def _end_of_formula(text: str, begin: int, limit: int) -> int | None:
    """Return the position behind the formula that begins here, or None if none does."""
    if text[begin : begin + 1] not in ("$", "\\"):
        return None
    limit = min(limit, begin + _LONGEST_FORMULA)
    for opening, closing in _DELIMITERS.items():
        if text.startswith(opening, begin):
            at = text.find(closing, begin + len(opening), limit)
            return at + len(closing) if at > begin + len(opening) else None
    if environment := _ENVIRONMENT.match(text, begin):
        closing = f"\\end{{{environment[1]}}}"
        at = text.find(closing, environment.end(), limit)
        return at + len(closing) if at > 0 else None
    at = text.find("$", begin + 1, limit) if text[begin] == "$" else -1
    # Prices are no formulas: one has no space inside its signs, and no digit behind them.
    if at < begin + 2 or text[begin + 1].isspace() or text[at - 1] in " \n\t\\":
        return None
    if text[at + 1 : at + 2].isdigit() or "\n" in text[begin:at]:
        return None
    return at + 1


def _render_formula(
    _self: object, tokens: Sequence[object], index: int, _options: object, _env: object
) -> str:
    token = tokens[index]
    text = _escaped(token.content)  # type: ignore[attr-defined]
    return f"<p>{text}</p>\n" if token.block else text  # type: ignore[attr-defined]
