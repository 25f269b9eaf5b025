"""Figures of plotly, which a page draws by itself: checked for what loads or leads elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

from sandbox_kernel.wall.verdicts import Refused

__all__ = ["check"]

_CONFIG = frozenset(
    {
        "autosizable",
        "displayModeBar",
        "displaylogo",
        "doubleClick",
        "doubleClickDelay",
        "edits",
        "editable",
        "fillFrame",
        "frameMargins",
        "locale",
        "modeBarButtonsToRemove",
        "responsive",
        "scrollZoom",
        "showAxisDragHandles",
        "showAxisRangeEntryBoxes",
        "showTips",
        "staticPlot",
        "toImageButtonOptions",
    }
)
# Traces for which a page fetches maps.  Templates name them without drawing any.
_MAPS = re.compile(r"(?:choropleth|density|scatter)(?:map|mapbox|geo)|choropleth")
_ADDRESSES = frozenset({"href", "source", "src", "style", "topojsonURL", "uri", "url"})
_ADDRESS = re.compile(r"[/:\\]")
_IMAGE_DATA = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*", re.ASCII)
# Where buttons and steps of an animation change a figure, traits are named by paths.
_PATH = re.compile(r"[.\[\]]+")
_LATER = frozenset({"args", "args2"})
_PLACE = re.compile(
    r"[\x00-\x20]*(?:\.{0,2}[/\\]|[a-z][a-z0-9+.\t\r\n-]*:\s*[/\\]|https?:)", re.IGNORECASE
)
_STYLED = re.compile(r"\bstyle\s*=", re.IGNORECASE)
_LOADING_STYLE = re.compile(r"(?:url|src|image|image-set|cross-fade)\s*\(|\\", re.IGNORECASE)
_SCRIPT = re.compile(r"(?:java|vb)script\s*:|data\s*:\s*text", re.IGNORECASE)
# Texts are put together of others: of what stands before and behind a tick, and of values that a
# template names.  A tag that is whole in one text is judged as what it will be; others are not.
_TAGS = ("span", "sup", "sub", "em", "br", "a", "b", "i", "s", "u")
_BEGUN = "|".join(sorted({tag[:length] for tag in _TAGS for length in range(1, len(tag) + 1)}))
_OPEN_TAG = re.compile(
    rf"<(?:/?(?:(?:{_BEGUN})?|(?:{'|'.join(_TAGS)})\s[^<>]*))(?:\Z|%\{{)", re.IGNORECASE
)
# A format may fill the place before a number with any character.
_FORMAT_WITH_TAG = re.compile(r"%\{[^}]*[<>]")
_PLAIN_NUMBERS = frozenset({int, float, bool, type(None)})


def check(figure: Any) -> dict[str, Any]:  # any JSON value
    """Return a figure with the parts that plotly knows.

    Raises
    ------
    Refused
        It has not the shape of one, or would make the page load something.
    """
    if not isinstance(figure, dict):
        raise Refused("a figure that is no object")
    checked: dict[str, Any] = {}
    for name, kind in (("data", list), ("layout", dict), ("frames", list)):
        if name in figure:
            if not isinstance(figure[name], kind):
                raise Refused(f"a figure whose {name} has the wrong type")
            checked[name] = figure[name]
    if "data" not in checked:
        raise Refused("a figure without data")
    for traces in (checked["data"], *_frames(checked.get("frames", []))):
        for trace in traces:
            form = trace.get("type") if isinstance(trace, dict) else None
            if isinstance(form, str) and _MAPS.fullmatch(form):
                raise Refused("a figure with a map, which the page would load")
    if isinstance(config := figure.get("config"), dict):
        checked["config"] = {name: value for name, value in config.items() if name in _CONFIG}
    _look_through(checked)
    return checked


def _frames(frames: list[Any]) -> Iterator[list[Any]]:
    """Return the traces of each step of an animation."""
    for frame in frames:
        traces = frame.get("data", []) if isinstance(frame, dict) else None
        if not isinstance(traces, list):
            raise Refused("a figure whose frames have the wrong type")
        yield traces


def _look_through(figure: dict[str, Any]) -> None:
    """Refuse addresses wherever plotly reads them; no recursion, as figures are deep and large."""
    left: list[Any] = [figure]
    while left:
        value = left.pop()
        if type(value) is list:
            if not set(map(type, value)) <= _PLAIN_NUMBERS:
                for each in value:
                    if type(each) is str:
                        _look_at(each)
                    elif type(each) in (list, dict):
                        left.append(each)
            continue
        for name, each in value.items():
            if name in _LATER:
                _look_at_later(each)
            elif type(each) is str:
                _look_at(each)
                is_address = _PATH.split(name.rstrip("]"))[-1] in _ADDRESSES
                if is_address and _ADDRESS.search(each) and not _IMAGE_DATA.fullmatch(each):
                    raise Refused("a figure that names an address")
            elif type(each) in (list, dict):
                left.append(each)


def _look_at_later(value: Any) -> None:
    """Refuse addresses and maps in what a button does to the figure, whatever they are for."""
    left = [value]
    while left:
        each = left.pop()
        if type(each) is list:
            left += each
        elif type(each) is dict:
            left += each.values()
        elif type(each) is str:
            _look_at(each)
            if _PLACE.match(each) and not _IMAGE_DATA.fullmatch(each):
                raise Refused("a figure with a button that names an address")
            if _MAPS.fullmatch(each):
                raise Refused("a figure with a map, which the page would load")


def _look_at(text: str) -> None:
    if ":" in text and _SCRIPT.search(text):
        raise Refused("a figure with a script in a text")
    if "<" in text and _OPEN_TAG.search(text):
        raise Refused("a figure with a part of a tag")
    if "%{" in text and _FORMAT_WITH_TAG.search(text):
        raise Refused("a figure with a tag in a format")
    if "=" in text:
        # Texts have tags for their looks, in which characters may be spelled by references.
        plain = unescape(text)
        if _STYLED.search(plain) and _LOADING_STYLE.search(plain):
            raise Refused("a figure with a style that loads something")
