"""SVG of a sandbox: drawn anew from the elements and attributes that only draw.

A page shows it as an image, in which nothing acts; other readers of a notebook put it into the page
as it is.
"""

from __future__ import annotations

import re

from sandbox_kernel.wall.verdicts import Refused

__all__ = ["redraw"]

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_XML = "http://www.w3.org/XML/1998/namespace"

_ELEMENTS = """
    a circle clipPath defs desc ellipse feBlend feColorMatrix feComponentTransfer feComposite
    feConvolveMatrix feDiffuseLighting feDisplacementMap feDistantLight feDropShadow feFlood
    feFuncA feFuncB feFuncG feFuncR feGaussianBlur feMerge feMergeNode feMorphology feOffset
    fePointLight feSpecularLighting feSpotLight feTile feTurbulence filter g image line
    linearGradient marker mask path pattern polygon polyline radialGradient rect stop style svg
    switch symbol text textPath title tspan use view
"""
_DRAWS = frozenset(_ELEMENTS.split())
_LINKS = frozenset({"href", "src"})
# In elements that link to more than a part of the same drawing.
_IMAGE_DATA = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*", re.ASCII)
_OWN_PART = re.compile(r"#[\w.:-]+")
_FOREIGN = re.compile(
    r"@import|@font-face|javascript|expression|\\|(?:image|image-set|cross-fade|src)\s*\("
    r"|url\s*\(\s*(?![\"']?#[\w.:-]+[\"']?\s*\))",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z][\w.-]*")


def redraw(text: str) -> str:
    """Return the drawing without anything that acts, loads or refers to elsewhere.

    Raises
    ------
    Refused
        It is no SVG, or defines entities.
    """
    from xml.parsers import expat  # noqa: PLC0415  for notebooks that print SVG

    drawing = _Drawing()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = drawing.start
    parser.EndElementHandler = drawing.end
    parser.CharacterDataHandler = drawing.text
    parser.EntityDeclHandler = _refuse_entity
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError:
        raise Refused("an SVG that is not well-formed") from None
    if not drawing.parts:
        raise Refused("no SVG")
    return "".join(drawing.parts)


def _refuse_entity(*_: object) -> None:
    raise Refused("an SVG that defines entities")


class _Drawing:
    """Takes a parser's events and writes those that may pass."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._left_out = 0
        self._style: list[str] | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        element = name.removeprefix(_SVG + " ")
        # A style sheet is all text of its element, and is judged as one.
        if self._left_out or self._style is not None or not self._may_draw(element):
            self._left_out += 1
            return
        kept = []
        if not self.parts:
            kept.append(f' xmlns="{_SVG}" xmlns:xlink="{_XLINK}"')
        for key, value in attributes.items():
            written = _attribute(element, key, value)
            if written is not None:
                kept.append(f' {written}="{_escaped(value)}"')
        self.parts.append(f"<{element}{''.join(kept)}>")
        if element == "style":
            self._style = []

    def _may_draw(self, element: str) -> bool:
        return element in _DRAWS and (bool(self.parts) or element == "svg")

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
            return
        if self._style is not None:
            sheet = "".join(self._style)
            if not _FOREIGN.search(sheet):
                self.parts.append(_escaped(sheet))
            self._style = None
        self.parts.append(f"</{name.removeprefix(_SVG + ' ')}>")

    def text(self, text: str) -> None:
        if self._left_out:
            return
        if self._style is not None:
            self._style.append(text)
        elif self.parts:
            self.parts.append(_escaped(text))


def _escaped(text: str) -> str:
    for character, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        text = text.replace(character, f"&{name};")
    return text


def _attribute(element: str, key: str, value: str) -> str | None:
    """Return the name under which an attribute is written, or None for one that is left out."""
    space, _, name = key.rpartition(" ")
    if not _NAME.fullmatch(name) or name[:2].lower() == "on":
        return None
    if space == _XML:
        return f"xml:{name}" if name in ("space", "lang") else None
    if name in _LINKS or space == _XLINK:
        is_own = _OWN_PART.fullmatch(value) or (element == "image" and _IMAGE_DATA.fullmatch(value))
        if name != "href" or not is_own:
            return None
        return "xlink:href" if space == _XLINK else "href"
    if space:
        return None
    return None if _FOREIGN.search(value) else name
