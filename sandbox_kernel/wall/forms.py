"""The forms of an output: which pass, in which shape, and what is said of those that do not.

A form is a MIME type with its value.  Those on the list pass, each through the check of its kind;
all others are withheld, and if nothing but text is left, the text says so.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from sandbox_kernel.wall.modes import Wall
from sandbox_kernel.wall.verdicts import Refused

__all__ = ["MODEL_ID", "WIDGET_VIEW", "bundle", "note", "output", "outputs"]

Content = dict[str, Any]  # JSON values of any shape below the checked fields

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
MODEL_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""What names a widget's model."""

_PLAIN = "text/plain"
_HTML = "text/html"
_MARKDOWN = "text/markdown"
_JSON_FORM = re.compile(r"application/(.*\+)?json")
_IMAGES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    "image/bmp": (b"BM",),
}
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_SPACE = b" \t\r\n"
_TRUST = 'To see it, set c.SandboxManager.output_policy = "trusted" on the host.'


class _Withheld(Exception):  # noqa: N818  a decision
    """A form is not shown; says why, and perhaps what to do instead."""


def note(what: str, mend: str = _TRUST) -> str:
    """Return the text that stands where something is not shown."""
    return f"[{what} is withheld from the page. {mend}]"


def bundle(data: Content, metadata: Content, wall: Wall) -> tuple[Content, Content]:
    """Return the data and metadata of something that is shown, as it may be shown.

    Parameters
    ----------
    data, metadata : dict
        As in a display_data message: values, and more about each, by MIME type.
    wall : Wall
        What the judgement depends on.

    Raises
    ------
    Refused
        It has too many forms.
    """
    if wall.is_off:
        return {form: _text_unless_json(form, value) for form, value in data.items()}, metadata
    if len(data) > wall.limits.forms:
        raise Refused(f"an output in more than {wall.limits.forms} forms")
    kept: Content = {}
    told: Content = {}
    withheld: dict[str, str] = {}
    for form, value in data.items():
        if form == _MARKDOWN and _HTML in data:
            continue  # it would become HTML as well
        check = _FORMS.get(form)
        if check is None:
            withheld[form] = _mend(form)
            continue
        try:
            shown_as, shown = check(value, wall)
        except _Withheld as reason:
            withheld[form] = str(reason)
        except Refused as reason:
            withheld[form] = f"It is {reason}."
        else:
            kept.setdefault(shown_as, shown)
            if (more := _metadata(form, metadata)) and shown_as == form:
                told[form] = more
    if withheld and not kept.keys() - {_PLAIN}:
        notes = "\n".join(
            note(f"Output of type {_printable(form)}", mend)
            for form, mend in list(withheld.items())[:3]
        )
        kept[_PLAIN] = f"{kept[_PLAIN]}\n{notes}" if kept.get(_PLAIN) else notes
    return kept, told


def outputs(values: object, wall: Wall) -> list[Content]:
    """Return a list of a notebook's outputs as they may be shown; see `output`."""
    return [output(each, wall) for each in values] if isinstance(values, list) else []


def output(value: object, wall: Wall) -> Content:
    """Return an output, in nbformat's shape, as it may be shown; a note if it has no such shape."""
    try:
        return _output(value, wall)
    except Refused as reason:
        text = note("An output", f"It is {reason}.")
        return {"output_type": "stream", "name": "stderr", "text": f"{text}\n"}


def _output(value: object, wall: Wall) -> Content:
    if not isinstance(value, dict):
        raise Refused("no object")
    kind = value.get("output_type")
    if kind == "stream":
        name = value.get("name")
        return {
            "output_type": kind,
            "name": name if name in ("stdout", "stderr") else "stdout",
            "text": _text(value.get("text", "")),
        }
    if kind == "error":
        traceback = value.get("traceback")
        return {
            "output_type": kind,
            "ename": _text(value.get("ename", "")),
            "evalue": _text(value.get("evalue", "")),
            "traceback": [each for each in traceback if isinstance(each, str)]
            if isinstance(traceback, list)
            else [],
        }
    if kind not in ("display_data", "execute_result"):
        raise Refused("of unknown type")
    data, metadata = value.get("data", {}), value.get("metadata", {})
    if not isinstance(data, dict) or not isinstance(metadata, dict):
        raise Refused("without data")
    shown, told = bundle(data, metadata, wall)
    result: Content = {"output_type": kind, "data": shown, "metadata": told}
    if kind == "execute_result":
        count = value.get("execution_count")
        is_count = isinstance(count, int) and not isinstance(count, bool) and count >= 0
        result["execution_count"] = count if is_count else None
    return result


# --- values -----------------------------------------------------------------------------------


def _text(value: object) -> str:
    """Return a form's text; other values as JSON, as a notebook holds only text here."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return orjson.dumps(value).decode()


def _text_unless_json(form: str, value: object) -> object:
    is_lines = isinstance(value, list) and all(isinstance(line, str) for line in value)
    if isinstance(value, str) or is_lines or _JSON_FORM.fullmatch(form):
        return value
    return orjson.dumps(value).decode()


def _printable(form: str) -> str:
    return re.sub(r"[^\w/.+;= -]", "?", form, flags=re.ASCII)[:80]


# --- checks: each returns the form to show, which may be another one, and its value ---------------
#
# What they need is imported where it is used: a relay that carries text alone stays small.


def _plain(value: object, _: Wall) -> tuple[str, object]:
    return _PLAIN, _text(value)


def _json(value: object, _: Wall) -> tuple[str, object]:
    return "application/json", value


def _show_html(value: object, wall: Wall) -> tuple[str, object]:
    return _HTML, _placed(_text(value), wall)


def _placed(text: str, wall: Wall) -> str:
    """Return HTML for the page: itself, cleaned, or a frame that holds it."""
    from sandbox_kernel.wall import frames, html  # noqa: PLC0415  see above

    if (table := html.plain_table(text)) is not None:
        return table
    if (url := frames.kept_at(text)) is not None:
        if wall.keeper is None or url != wall.keeper.url:
            raise _Withheld("Another server has kept it. To see it, run its cell again.")
        if wall.frames:
            return text
    text = frames.document_in(text) or text
    is_large = len(text) > wall.limits.inline_bytes or html.is_large(text)
    acts = is_large or html.route(text) == "active"
    if not acts and not (wall.loads and html.loads_images(text)):
        return html.clean(text)
    if (address := html.embedded_page(text)) is not None:
        # A frame would stay empty: its policy lets no page into it.
        return html.clean(f'<p>[Not loaded into the output: <a href="{address}">{address}</a>]</p>')
    if wall.frames:
        return frames.frame(text, wall)
    if is_large:
        raise _Withheld("It is larger than what is cleaned here. " + _TRUST)
    rest = html.clean(text)
    if not re.sub(r"<(?!img)[^>]*>|\s", "", rest):
        raise _Withheld('It acts, and c.SandboxManager.output_policy is "strict".')
    return f"{rest}\n<p>[Parts of this output act, and are left out.]</p>"


def _show_markdown(value: object, wall: Wall) -> tuple[str, object]:
    from sandbox_kernel.wall import markdown  # noqa: PLC0415  see above

    return _HTML, _placed(markdown.render(_text(value)), wall)


def _latex(value: object, _: Wall) -> tuple[str, object]:
    from sandbox_kernel.wall import formulas  # noqa: PLC0415  see above

    text = _text(value)
    if formulas.leads_out(text):
        raise _Withheld("It has commands that do more than show a formula.")
    return "text/latex", text


def _svg(value: object, _: Wall) -> tuple[str, object]:
    from sandbox_kernel.wall import svg  # noqa: PLC0415  see above

    return "image/svg+xml", svg.redraw(_text(value))


def _image(form: str) -> Callable[[object, Wall], tuple[str, object]]:
    begins = _IMAGES[form]

    def check(value: object, _: Wall) -> tuple[str, object]:
        text = _text(value)
        data = text.encode("ascii", "replace")
        if data.translate(None, _BASE64 + _SPACE):
            raise Refused("not in base64")
        try:
            head = binascii.a2b_base64(data[:64].translate(None, _SPACE)[:32])
        except binascii.Error:
            raise Refused("not in base64") from None
        if not head.startswith(begins):
            raise Refused("no such image")
        return form, text

    return check


def _plotly(value: object, _: Wall) -> tuple[str, object]:
    from sandbox_kernel.wall import figures  # noqa: PLC0415  see above

    return "application/vnd.plotly.v1+json", figures.check(value)


def _widget_view(value: object, _: Wall) -> tuple[str, object]:
    model = value.get("model_id") if isinstance(value, dict) else None
    if not isinstance(model, str) or not MODEL_ID.fullmatch(model):
        raise Refused("no view of a widget")
    return WIDGET_VIEW, {"version_major": 2, "version_minor": 0, "model_id": model}


_FORMS: Mapping[str, Callable[[object, Wall], tuple[str, object]]] = {
    _PLAIN: _plain,
    _HTML: _show_html,
    _MARKDOWN: _show_markdown,
    "text/latex": _latex,
    "application/json": _json,
    "application/vnd.plotly.v1+json": _plotly,
    "image/svg+xml": _svg,
    WIDGET_VIEW: _widget_view,
    **{form: _image(form) for form in _IMAGES},
}


def _mend(form: str) -> str:
    """Return what a user can do to see a form that is not on the list."""
    if form.startswith("application/vnd.vega"):
        return 'Draw it as HTML: alt.renderers.enable("html"), or chart.save("chart.html").'
    return _TRUST


def _metadata(form: str, metadata: Content) -> Content:
    """Return what a page may be told about a form: sizes of images, and how a tree unfolds."""
    about = metadata.get(form)
    if not isinstance(about, dict):
        return {}
    told: Content = {}
    if form.startswith("image/"):
        for name in ("width", "height"):
            value = about.get(name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            # No number compares as one that is neither small nor large.
            if is_number and 0 <= value <= 100_000:  # type: ignore[operator]
                told[name] = value
        if about.get("unconfined") is True:
            told["unconfined"] = True
        if about.get("needs_background") in ("light", "dark"):
            told["needs_background"] = about["needs_background"]
    elif form == "application/json" and isinstance(about.get("expanded"), bool):
        told["expanded"] = about["expanded"]
    return told
