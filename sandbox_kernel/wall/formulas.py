"""Formulas: a page typesets them wherever it draws a text, and some of their commands do more.

They make links to any address, and give a part any style, which may load something as soon as it is
drawn.  What the page filters by itself has been seen to leave ways.  What they define holds for all
formulas of the page from then on, so that an output could change what those of others show.  A
command is only one where its backslash stands right before its name, so something harmless is put
between them.
"""

from __future__ import annotations

import re
from html import unescape

__all__ = ["leads_out", "tame", "tame_html", "tame_markdown"]

_END = r"(?![A-Za-z])"
# What leads out of a formula, or hides that it does; what a typesetter might know is among it.
_DEFINES = (
    r"(?:new|renew|provide)command|(?:re)?new(?:environment|tagform)|usetagform|[egx]?def|let"
    r"|Declare[A-Za-z]+|Newextarrow|definecolor|mathtoolsset|setOptions"
)
_LEADS_OUT = re.compile(
    rf"\\(?:{_DEFINES}|href|url|style|class|cssId|data|require|unicode|html\w*|include\w*|input|csname"
    rf"|mmlToken|bbox){_END}"
)
# What of it a page knows.  The others are words that texts with a backslash have for other reasons.
_ACTING = "href|style|class|cssId|data|require|unicode|html[A-Za-z]*|includegraphics|mmlToken|bbox"
_ACTS = re.compile(rf"\\(?=(?:{_ACTING}){_END})")
_ACTS_OR_DEFINES = re.compile(rf"\\(?=(?:{_ACTING}|{_DEFINES}){_END})")
# A page reads the text on both sides of it as one.
_BREAK_HINT = re.compile(r"<wbr\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"(<[^<>]*>)")
# As pages with rules of their own for quotes and ends may read them.
_TAGS_OF_SOURCES = (
    re.compile(r"<[^<>]*>?"),
    re.compile(r"""<(?=[A-Za-z/!?])(?:"[^"]*"|'[^']*'|[^'">])*>?"""),
)


def leads_out(text: str) -> bool:
    """Return whether a formula does more than show itself."""
    return _LEADS_OUT.search(text) is not None


def tame(text: str) -> str:
    """Return a text whose formulas do no more than show themselves."""
    return _ACTS_OR_DEFINES.sub(r"\\ ", text) if "\\" in text else text


def tame_html(html: str) -> str:
    """Return HTML whose formulas do no more than show themselves; the text looks as it did.

    Parameters
    ----------
    html : str
        As a sanitizer writes it: without comments, and with all tags as tags and all else escaped.
    """
    if "\\" not in html:
        return html
    parts = _TAG.split(_BREAK_HINT.sub("", html))
    # Every second part is a tag.
    parts[::2] = [_ACTS_OR_DEFINES.sub(r"\\<span></span>", text) for text in parts[::2]]
    return "".join(parts)


def tame_markdown(text: str) -> str:
    """Return a Markdown text, of a page that draws tags in it, with formulas that only show.

    They may define: a notebook's cells are read as one text, whose later formulas need it.
    """
    text = _ACTS.sub(r"\\ ", text)
    # A command may be spelled with references to characters, and with tags that draw nothing.
    for tag in _TAGS_OF_SOURCES if "<" in text or "&" in text else ():
        if _ACTS.search(unescape(tag.sub("", text))):
            return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text.replace("&", "&amp;"))
    return text
