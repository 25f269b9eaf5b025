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

__all__ = ["render"]

# As the page finds formulas in text, which it typesets when the HTML is drawn.
_FORMULA = re.compile(
    r"\$\$[^$]+\$\$"
    r"|\$(?!\s)[^$\n]+?(?<![\s\\])\$(?!\d)"
    r"|\\\\?\([^\n]+?\\\\?\)"
    r"|\\\\?\[[^$]+?\\\\?\]"
    r"|\\begin\{([a-z]+\*?)\}[^$]+?\\end\{\1\}",
)
_MOST_FORMULA = 10_000


def render(text: str) -> str:
    """Return HTML of a Markdown text; HTML in the text is shown as the text it is.

    What comes out is still to be judged as HTML: it has links and images of the text's choice.
    """
    rendered: str = _parser().render(text)
    return rendered


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
    if state.src[state.pos] not in "$\\":
        return False
    found = _FORMULA.match(state.src, state.pos, min(state.posMax, state.pos + _MOST_FORMULA))
    if found is None:
        return False
    if not silent:
        state.push("formula", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _formulas(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """Take a formula of several lines whole, whatever its lines begin with."""
    begin = state.bMarks[start] + state.tShift[start]
    if not state.src.startswith(("$$", "\\begin{", "\\[", "\\\\["), begin):
        return False
    found = _FORMULA.match(state.src, begin, min(state.eMarks[end - 1], begin + _MOST_FORMULA))
    if found is None:
        return False
    line = start
    while line < end and state.eMarks[line] < found.end():
        line += 1
    if line >= end or state.src[found.end() : state.eMarks[line]].strip():
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content, token.block, token.map = found[0], True, [start, line + 1]
        state.line = line + 1
    return True


def _render_formula(
    _self: object, tokens: Sequence[object], index: int, _options: object, _env: object
) -> str:
    token = tokens[index]
    text: str = token.content  # type: ignore[attr-defined]
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<p>{text}</p>\n" if token.block else text  # type: ignore[attr-defined]
