"""What of an output could act in a page, judged by parsing it as a browser would.

Nothing here looks at how the output wall decides: HTML and SVG are parsed with html5lib and every
element and attribute of the result is compared with what only shows something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

import html5lib

__all__ = ["FORMS", "active_parts", "active_parts_of_html", "active_parts_of_svg"]

FORMS = {
    "application/json",
    "application/vnd.jupyter.widget-view+json",
    "application/vnd.plotly.v1+json",
    "image/bmp",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/svg+xml",
    "image/webp",
    "text/html",
    "text/latex",
    "text/plain",
}
"""All that may come through."""

_XHTML = "{http://www.w3.org/1999/xhtml}"
_SVG = "{http://www.w3.org/2000/svg}"
_PASSIVE = set(
    re.findall(
        r"\w+",
        """a abbr b bdi bdo blockquote br caption center cite code col colgroup dd del details dfn div
        dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark meter ol p pre
        progress q rp rt ruby s samp section small span strike strong sub summary sup table tbody td
        tfoot th thead time tr tt u ul var wbr""",
    )
)
_ATTRIBUTES = set(
    re.findall(
        r"\w+",
        """align alt border cellpadding cellspacing class colspan dir halign height high href lang low max min
        open optimum rel rowspan scope span src start style title type valign value width""",
    )
)
_DANGEROUS_STYLE = re.compile(r"url|position|expression|image|z-index|transform|@", re.IGNORECASE)
_LOADING_STYLE = r"url\(\s*[\"']?(?!#|[\"'])|(?:image|image-set|cross-fade|src)\s*\("
_SVG_ACTS = {"script", "foreignobject", "iframe", "animate", "set", "animatetransform", "handler"}


def active_parts(data: Mapping[str, Any], *, frames: bool) -> list[str]:
    """Return what of an output's forms could act or load; an empty list if nothing could.

    Parameters
    ----------
    data : mapping
        Values by MIME type.
    frames : bool
        Whether frames of our making are expected.
    """
    found = [f"form {form}" for form in data if form not in FORMS]
    if "text/html" in data:
        found += active_parts_of_html(data["text/html"], frames=frames)
    if "image/svg+xml" in data:
        found += active_parts_of_svg(data["image/svg+xml"])
    for form, value in data.items():
        if form.startswith("image/") and not form.endswith("xml"):
            found += [] if re.fullmatch(r"[\w+/=\s]*", value, re.ASCII) else [f"value of {form}"]
    return found


def active_parts_of_html(text: str, *, frames: bool = False) -> list[str]:
    """Return what acts in HTML that is put into a page, in every way that browsers read it."""
    found: list[str] = []
    for container in ("div", "td", "select", "template"):
        tree = html5lib.parseFragment(text, container=container, namespaceHTMLElements=True)
        found += [part for element in tree.iter() for part in _look_at(element, frames=frames)]
    return found


def active_parts_of_svg(text: str) -> list[str]:
    """Return what acts in a drawing, as an image and when its text is put into a page."""
    found = []
    tree = html5lib.parseFragment(text, namespaceHTMLElements=True)
    for element in tree.iter():
        if not isinstance(element.tag, str):
            continue  # a comment
        name = _name(element)
        if name == "DOCUMENT_FRAGMENT":
            continue
        if not element.tag.startswith(_SVG):
            found.append(f"<{name}> outside of the drawing")
        if name.lower() in _SVG_ACTS:
            found.append(f"<{name}>")
        for attribute, value in element.attrib.items():
            key = str(attribute).rpartition("}")[2].lower()
            if key.startswith("on"):
                found.append(key)
            if key in ("href", "src") and not re.match(r"#|data:image/(png|jpeg|gif|webp)", value):
                found.append(f"{key}={value}")
            if re.search(rf"javascript:|{_LOADING_STYLE}", value, re.IGNORECASE):
                found.append(f"{key}={value}")
        if name == "style" and re.search(
            rf"@import|{_LOADING_STYLE}", "".join(element.itertext()), re.IGNORECASE
        ):
            found.append("a style that loads")
    return found


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _look_at(element: Element, *, frames: bool) -> Iterator[str]:
    if not isinstance(element.tag, str):
        return  # a comment
    name = _name(element)
    if name == "DOCUMENT_FRAGMENT":
        return
    if frames and element.tag == f"{_XHTML}iframe":
        yield from _look_at_frame(element)
        return
    if not element.tag.startswith(_XHTML) or name not in _PASSIVE:
        yield f"<{name}>"
    for attribute, value in element.attrib.items():
        key = str(attribute)
        if key not in _ATTRIBUTES:
            yield f"{name} {key}={value}"
        if key == "href" and urlsplit(value.strip()).scheme not in ("http", "https", "mailto"):
            yield f"{name} href={value}"
        if key == "src" and not re.match(r"data:image/(png|jpeg|gif|webp);base64,", value):
            yield f"{name} src={value}"
        if key == "style" and _DANGEROUS_STYLE.search(value):
            yield f"{name} style={value}"
        if key == "class" and re.search(r"\b(jp|lm|p|cm|bp\d?)-", value):
            yield f"{name} class={value}"


def _look_at_frame(element: Element) -> Iterator[str]:
    """Check the frame, its policy, and that the policy comes before anything it is to bind."""
    attributes = dict(element.attrib)
    if attributes.get("sandbox") != "allow-scripts":
        yield "a frame without a sandbox"
    extra = attributes.keys() - {"class", "referrerpolicy", "sandbox", "srcdoc", "style"}
    if extra:
        yield f"a frame with {sorted(map(str, extra))}"
    document = html5lib.parse(attributes.get("srcdoc", ""), namespaceHTMLElements=False)
    head = document.find("head")
    policy = [
        each.attrib.get("content", "")
        for each in list(head if head is not None else [])[:2]
        if each.tag == "meta" and each.attrib.get("http-equiv") == "Content-Security-Policy"
    ]
    if not policy or "frame-src 'none'" not in policy[0] or "default-src 'none'" not in policy[0]:
        yield "a frame without a policy of its own"
    inner = document.findall(".//iframe")
    if len(inner) != 1 or inner[0].attrib.keys() != {"sandbox", "srcdoc"}:
        yield "a frame without one frame in it"
    elif (
        inner[0].attrib["sandbox"] != "allow-scripts" or "base-uri" not in inner[0].attrib["srcdoc"]
    ):
        yield "an inner frame without a sandbox"
    if len(document.findall(".//script")) > 1:
        yield "scripts of the sandbox in the outer frame"
