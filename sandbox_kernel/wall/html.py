"""HTML of a sandbox: what may stand in the page itself, and whether that is all of it.

`route` only decides where HTML is drawn, and may be wrong: whatever is drawn in the page has gone
through `clean`, which parses it and keeps what is on a list.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from sandbox_kernel.wall import formulas

if TYPE_CHECKING:
    import nh3

__all__ = ["clean", "embedded_page", "is_large", "loads_images", "plain_table", "route"]

# What does something, or is lost when it is left out: scripts, frames, styles, drawings, controls.
_ACTIVE_TAGS = {
    *("script", "iframe", "frame", "frameset", "object", "embed", "applet", "portal"),
    *("style", "link", "meta", "base", "template", "slot"),
    *("svg", "math", "canvas", "video", "audio"),
    *("form", "input", "button", "textarea", "select", "dialog"),
}
_TAG = re.compile("<([a-z]+)")
_HANDLER = re.compile(r"""<[a-z][^<>]*[\s/"']on[a-z]+\s*=""")
# Tables of pandas and polars bring these; the page has styles of its own for the class.
_TABLE_STYLE = re.compile(r"<style(?: scoped)?>(?:\s*\.dataframe[^{}<]*\{[^{}<]*\})*\s*</style>")
# A table of theirs without that style.  It has no tag but these, and nothing in them.
_TABLE = re.compile(
    r"""\s*(<div>)?\s*(?:<small>[^<]*</small>)?\s*<table border="1" class="dataframe">[^<]*+"""
    # Whole cells first, as there are most of them.
    r"""(?:<t[dh]>[^<]*+</t[dh]>[^<]*+|</?+(?:tr|td|th|thead|tbody)>[^<]*+"""
    r"""|<tr style="text-align: right;">[^<]*+"""
    r"""|<th (?:rowspan|colspan)="[0-9]{1,5}" (?:valign="top"|halign="left")>[^<]*+)*+"""
    r"""</table>\s*(?:<p>[^<]*</p>)?\s*(?(1)</div>)\s*"""
)
# Commands of formulas begin with a backslash; this is one that is spelled otherwise.
_BACKSLASH = re.compile("&(?:#|bsol)")
_REMOTE_IMAGE = re.compile(
    r"""<(?:img|source)\b[^<>]*\bsrc(?:set)?\s*=\s*["']?\s*(?:https?:|//)""", re.IGNORECASE
)
_EMBEDDED = re.compile(
    r"""\s*<iframe\b(?:(?!srcdoc)[^<>])*?\ssrc="(https?://[^"<>]*)"(?:(?!srcdoc)[^<>])*>\s*</iframe>\s*""",
    re.IGNORECASE,
)
_LONGEST_EMBEDDING = 4000
_MOST_ELEMENTS = 2000
_IMAGE_DATA = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*", re.ASCII)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TAGS = _words(
    "a abbr b bdi bdo blockquote br caption center cite code col colgroup dd del details dfn div"
    " dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark meter ol p pre progress"
    " q rp rt ruby s samp section small span strike strong sub summary sup table tbody td tfoot th"
    " thead time tr tt u ul var wbr"
)
_ATTRIBUTES = {
    "*": {"align", "dir", "lang", "style", "title"},
    "a": {"href"},
    "col": {"span", "width"},
    "colgroup": {"span", "width"},
    "details": {"open"},
    "img": {"alt", "height", "src", "width"},
    "meter": {"high", "low", "max", "min", "optimum", "value"},
    "ol": {"start", "type"},
    "progress": {"max", "value"},
    "table": {"border", "cellpadding", "cellspacing", "width"},
    "td": {"colspan", "height", "rowspan", "valign", "width"},
    "th": {"colspan", "height", "rowspan", "scope", "valign", "width"},
    "tr": {"valign"},
}
# The page's own classes would let an output look like a dialog of the page, and lie over it.
_CLASSES = {
    "dataframe",
    "highlight",
    "lsframe",
    "rendered_html",
    "simpletable",
    "table",
    "task-list-item",
    # Pygments' short names
    *_words(
        "bp c c1 ch cm cp cpf cs dl err fm gd ge gh gi gp gr gs gt gu hll il k kc kd kn kp kr kt l"
        " ld m mb mf mh mi mo n na nb nc nd ne nf ni nl nn no nt nv nx o ow p s s1 s2 sa sb sc sd"
        " se sh si sr ss sx vc vg vi vm w x"
    ),
}
_STYLES = _words(
    "background-color border border-bottom border-bottom-color border-bottom-style"
    " border-bottom-width border-collapse border-color border-left border-radius border-right"
    " border-spacing border-style border-top border-width box-sizing caption-side color display"
    " empty-cells float font font-family font-size font-style font-variant font-weight height"
    " letter-spacing line-height list-style-type margin margin-bottom margin-left margin-right"
    " margin-top max-height max-width min-height min-width overflow overflow-wrap overflow-x"
    " overflow-y padding padding-bottom padding-left padding-right padding-top table-layout"
    " text-align text-decoration text-overflow text-transform vertical-align white-space width"
    " word-break word-spacing word-wrap"
)
_MARGINS = frozenset(name for name in _STYLES if name.startswith("margin"))
# What loads something, or hides its meaning.
_BAD_STYLE = re.compile(r"url|image|src|\\|/\*", re.IGNORECASE)


def plain_table(html: str) -> str | None:
    """Return a table of pandas or polars, in which there is nothing to clean; else None.

    Tables are what cells show most, and to parse them takes longer than all else the relay does.
    """
    table = _without_table_style(html)
    if "\\" in table or ("&" in table and _BACKSLASH.search(table)):
        return None
    return table if _TABLE.fullmatch(table) else None


def route(html: str) -> Literal["passive", "active"]:
    """Return whether all of this HTML can be drawn in the page, or needs a place of its own."""
    text = _without_table_style(html).lower()
    # The set of all tags is found faster than the first of those looked for.
    if not _ACTIVE_TAGS.isdisjoint(_TAG.findall(text)):
        return "active"
    return "active" if _HANDLER.search(text) else "passive"


def embedded_page(html: str) -> str | None:
    """Return the address of a page if HTML does nothing but embed it; such as `IFrame` does."""
    found = _EMBEDDED.fullmatch(html) if len(html) < _LONGEST_EMBEDDING else None
    return found[1] if found else None


def is_large(html: str) -> bool:
    """Return whether it has more elements than are parsed here.

    A parser takes the square of the time for elements that are not closed.
    """
    return html.count("<") - html.count("</") > _MOST_ELEMENTS


def loads_images(html: str) -> bool:
    """Return whether it seems to have images from elsewhere, which `clean` leaves out."""
    return _REMOTE_IMAGE.search(html) is not None


def clean(html: str) -> str:
    """Return the HTML that remains when everything but text, tables and their looks is left out.

    What comes out has no script, style sheet, form, id, name, event handler or data attribute,
    loads nothing, and links only to the web and to mail addresses; nor do its formulas more.  HTML
    that `is_large` comes out as the text it is.
    """
    if is_large(html):
        return f"<pre>{html.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}</pre>"
    text = html.lower()
    if "<img" not in text and "margin" not in text:
        rest = _cleaner(filters=False).clean(html)
        # An escape in a style, which may have come as an entity, means what nobody sees.
        if "\\" not in rest or "style=" not in rest:
            return formulas.tame_html(rest)
    return formulas.tame_html(_cleaner(filters=True).clean(html))


def _without_table_style(html: str) -> str:
    # It stands at the beginning; elsewhere it is no table of theirs.
    return html if html.find("<style", 0, 100) < 0 else _TABLE_STYLE.sub("", html, count=1)


@lru_cache(maxsize=2)
def _cleaner(*, filters: bool) -> nh3.Cleaner:
    """Return the sanitizer.

    That without a filter in Python is faster, and leaves out all that only a filter can judge.
    """
    import nh3  # noqa: PLC0415  half a megabyte, for notebooks that print HTML

    return nh3.Cleaner(
        tags=_TAGS if filters else _TAGS - {"img"},
        clean_content_tags={"script", "style", "template", "title", "noscript"},
        attributes=_ATTRIBUTES,
        attribute_filter=_keep if filters else None,
        allowed_classes=dict.fromkeys(_TAGS, _CLASSES),
        link_rel="noopener noreferrer",
        url_schemes={"http", "https", "mailto", *(("data",) if filters else ())},
        url_relative="deny",
        filter_style_properties=_STYLES if filters else _STYLES - _MARGINS,
    )


def _keep(tag: str, attribute: str, value: str) -> str | None:
    if attribute == "src":
        return value if tag == "img" and _IMAGE_DATA.fullmatch(value) else None
    if attribute == "href":
        return None if value.lstrip()[:5].lower() == "data:" else value
    if attribute == "style":
        return None if _BAD_STYLE.search(value) or _pulls(value) else value
    return value


def _pulls(style: str) -> bool:
    """Whether a style may have a margin below zero, and so pull a thing over its neighbours."""
    return any(
        "margin" in each and re.search(r"[-(]", each.partition(":")[2])
        for each in style.lower().split(";")
    )
