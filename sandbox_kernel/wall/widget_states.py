"""The state of one widget: which widget it is, and what of its traits a page may be given; pure.

A page picks the code of a widget by the names in its state, so model, view and their modules must
be those of one widget of ipywidgets.  Traits that it does not have are left out, and so are texts
that are none.  What a page draws as HTML, loads, or styles with has a judge here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sandbox_kernel.wall import forms, formulas, html
from sandbox_kernel.wall.modes import Wall
from sandbox_kernel.wall.verdicts import Refused
from sandbox_kernel.wall.widget_table import MODELS

__all__ = ["Model", "find_model", "is_same", "judge_state", "note_state"]

State = dict[str, Any]  # JSON
Find = Callable[[str], "Model | None"]
"""Returns the model behind a comm id, or None if there is none to rely on."""

_REFERENCE = "IPY_MODEL_"
_IDENTITY = ("_model_name", "_model_module", "_view_name", "_view_module")
_VERSIONS = ("_model_module_version", "_view_module_version")
_VERSION = re.compile(r"[\^~]?\d{1,3}\.\d{1,3}\.\d{1,3}")
_CODE = ("_esm", "_css")

_STYLED_BY = ("LayoutView", "StyleView")
_FUNCTION = re.compile(r"([\w-]+)\s*\(")
_HARMLESS_FUNCTION = re.compile(
    r"calc|clamp|color|fit-content|hsla?|hwb|lab|lch|max|min|minmax|oklab|oklch|repeat|rgba?"
    r"|(?:repeating-)?(?:conic|linear|radial)-gradient",
    re.IGNORECASE,
)
_MOST_STYLE = 1000
_MARGIN = re.compile(r"[\w.% ]*", re.ASCII)
"""Not below zero, which pulls a widget over its neighbours."""

_CLASS = re.compile(r"(?:jupyter-(?:button|widget)|mod-|widget-)[\w-]*", re.ASCII)
"""Classes of widgets.  Others are those of the page, and would let a widget look like a dialog."""
_ICONS = re.compile(r"(?!(?:.* )?(?:jp|lm)-)[\w -]{0,100}", re.ASCII)

_FORMATS = {
    "ImageModel": frozenset({"bmp", "gif", "jpeg", "jpg", "png", "webp"}),
    "VideoModel": frozenset({"mov", "mp4", "mpeg", "ogg", "ogv", "webm"}),
    "AudioModel": frozenset({"aac", "flac", "m4a", "mp3", "mp4", "mpeg", "ogg", "wav", "webm"}),
}
"""What pages can show and cannot take for anything else: SVG may hold scripts, and a ``url`` makes
them load whatever it says."""

_TYPED = frozenset({"ComboboxModel", "PasswordModel", "TextareaModel", "TextModel"})
"""Their values are what is typed in, and stay as they are.  All other texts may be typeset by a
page, or end up by a link in one that is."""

_NOT_LINKED = frozenset(
    {"description_allow_html", "icon", "icons", "layout", "outputs", "source", "style", "target"}
)


@dataclass(frozen=True, slots=True)
class Model:
    """One widget of ipywidgets.

    Parameters
    ----------
    name, module : str
        Of the model.
    view, view_module : str or None
        Of its view.
    texts : frozenset of str
        Traits that hold one text.
    others : frozenset of str
        Its other traits.
    """

    name: str
    module: str
    view: str | None
    view_module: str | None
    texts: frozenset[str]
    others: frozenset[str]

    @property
    def is_style(self) -> bool:
        """Whether its traits are CSS."""
        return self.view in _STYLED_BY

    @property
    def is_link(self) -> bool:
        """Whether it copies traits of other widgets, in the page."""
        return "target" in self.others and "source" in self.others

    def may_be_read(self, trait: str) -> bool:
        """Whether a link may copy this trait to another widget."""
        return self._has(trait) and not self.is_typed(trait)

    def _has(self, trait: str) -> bool:
        return trait in self.texts or trait in self.others

    def is_typed(self, trait: str) -> bool:
        """Whether this trait is a text that users edit, of which nothing is changed."""
        return trait == "value" and self.name in _TYPED

    def may_be_set(self, trait: str) -> bool:
        """Whether any value of another widget may end up in this trait, past every judge."""
        return (
            self._has(trait)
            and not trait.startswith("_")
            and not self.is_style
            and not self.is_link
            and trait not in _NOT_LINKED
            and (self.name, trait) not in _JUDGES
        )


def find_model(name: str) -> Model | None:
    """Return the widget whose model has this name, or None."""
    return _models().get(name)


@lru_cache(maxsize=1)
def _models() -> dict[str, Model]:
    return {
        name: Model(
            name, module, view, view_module, frozenset(texts.split()), frozenset(others.split())
        )
        for name, (module, view, view_module, texts, others) in MODELS.items()
    }


def is_same(model: Model, state: State) -> bool:
    """Whether a whole state is one of this widget, by all names that it has."""
    return state.get("_model_module") == model.module and all(
        _is_identity(model, trait, state[trait]) for trait in _IDENTITY if trait in state
    )


def note_state(note: str) -> State:
    """Return the state of a widget that shows a text in the place of another one."""
    return {
        "_model_module": "@jupyter-widgets/controls",
        "_model_module_version": "2.0.0",
        "_model_name": "LabelModel",
        "_view_module": "@jupyter-widgets/controls",
        "_view_module_version": "2.0.0",
        "_view_name": "LabelView",
        "_view_count": None,
        "_dom_classes": [],
        "layout": None,
        "style": None,
        "tooltip": note,
        "value": note,
    }


def judge_state(
    model: Model, state: object, *, paths: object, buffers: int, wall: Wall, find: Find
) -> tuple[State, list[Sequence[str | int]]]:
    """Return what of a state a page may be given, and where its buffers go.

    Parameters
    ----------
    model : Model
        Which widget it is.
    state : object
        All or some of its traits.
    paths : object
        Where the buffers stand, in their order.
    buffers : int
        How many there are.
    wall : Wall
        What the judgement depends on.
    find : callable
        Knows the widgets that links refer to.

    Raises
    ------
    Refused
        It claims to be another widget, or has what the page must not be given.
    """
    if not isinstance(state, dict):
        raise Refused("a widget without a state")
    judged: State = {}
    for trait, value in state.items():
        if trait in _IDENTITY:
            if not _is_identity(model, trait, value):
                raise Refused(f"a {model.name} that claims to be another widget")
            judged[trait] = value
        elif trait in _VERSIONS:
            if not (isinstance(value, str) and _VERSION.fullmatch(value)):
                raise Refused(f"a {model.name} of a version that is none")
            judged[trait] = value
        elif trait == "_view_count":
            judged[trait] = value if isinstance(value, int) else None
        elif trait in _CODE:
            raise Refused(f"a {model.name} with code of its own")
        elif _is_of_kind(model, trait, value):
            kept = _judge_trait(model, trait, value, wall, find)
            if kept is not _LEFT_OUT:
                is_kept_whole = model.is_typed(trait) or trait == "outputs"
                judged[trait] = kept if is_kept_whole else _tamed(kept)
    return judged, _judge_paths(model, judged, paths, buffers)


def _tamed(value: Any) -> Any:
    """Return a value in whose texts formulas do no more than show themselves."""
    if isinstance(value, str):
        return formulas.tame(value)
    if isinstance(value, list):
        return [_tamed(each) for each in value]
    if isinstance(value, dict):
        return {name: _tamed(each) for name, each in value.items()}
    return value


def _is_identity(model: Model, trait: str, value: object) -> bool:
    if trait == "_view_module" and model.view is None:
        return value is None or value in (model.module, "@jupyter-widgets/base")
    expected = {
        "_model_name": model.name,
        "_model_module": model.module,
        "_view_name": model.view,
        "_view_module": model.view_module,
    }
    return value == expected[trait]


def _is_of_kind(model: Model, trait: str, value: object) -> bool:
    if trait in model.texts:
        return value is None or isinstance(value, str)
    return trait in model.others


def _judge_paths(
    model: Model, state: State, paths: object, buffers: int
) -> list[Sequence[str | int]]:
    if not paths and not buffers:
        return []
    if not isinstance(paths, list) or len(paths) != buffers:
        raise Refused("buffers whose places are not told")
    if any(not isinstance(path, list) or not _holds_bytes(model, state, path) for path in paths):
        raise Refused(f"a buffer in a place where a {model.name} has none")
    return paths


def _holds_bytes(model: Model, state: State, path: list[object]) -> bool:
    match path:
        case ["value"]:
            return model.name in _FORMATS
        case ["value", int(at), "content"]:
            files = state.get("value")
            return (
                model.name == "FileUploadModel"
                and isinstance(files, list)
                and 0 <= at < len(files)
                and isinstance(files[at], dict)
            )
    return False


# --- judges of single traits ------------------------------------------------------------------

_LEFT_OUT = object()
Judge = Callable[[Model, Any, Wall, Find], Any]


def _judge_trait(model: Model, trait: str, value: Any, wall: Wall, find: Find) -> Any:
    if trait == "description_allow_html":
        return False
    if trait == "_dom_classes":
        classes = value if isinstance(value, list) else []
        return [each for each in classes if isinstance(each, str) and _CLASS.fullmatch(each)]
    if model.is_style:
        return value if _is_style(trait, value) else _LEFT_OUT
    if model.is_link and trait in ("source", "target"):
        return _judge_end(model, trait, value, find)
    judge = _JUDGES.get((model.name, trait))
    return value if judge is None else judge(model, value, wall, find)


def _is_style(trait: str, value: object) -> bool:
    """Whether a value of CSS loads nothing, and stays in its place."""
    if not isinstance(value, str):
        return value is None
    if trait == "margin" and not _MARGIN.fullmatch(value):
        return False
    return (
        len(value) <= _MOST_STYLE
        and "\\" not in value
        and "/*" not in value
        and all(map(_HARMLESS_FUNCTION.fullmatch, _FUNCTION.findall(value)))
    )


def _judge_end(model: Model, trait: str, value: object, find: Find) -> object:
    """Return an end of a link: a page copies values along it that were judged for elsewhere."""
    if value is None:
        return None
    match value:
        case [str(other_id), str(linked)]:
            other = find(other_id.removeprefix(_REFERENCE))
            is_read = trait == "source" or model.name == "LinkModel"
            is_set = trait == "target" or model.name == "LinkModel"
            if (
                other is not None
                and (not is_read or other.may_be_read(linked))
                and (not is_set or other.may_be_set(linked))
            ):
                return value
    raise Refused("a link of widgets to what is judged before it is drawn")


def _html(_model: Model, value: str | None, _wall: Wall, _find: Find) -> str:
    return html.clean(value) if value else ""


def _format(model: Model, value: str | None, _wall: Wall, _find: Find) -> str | None:
    if value is not None and value.lower() not in _FORMATS[model.name]:
        raise Refused(f"a {model.name} in a format that pages may not be given")
    return value


def _outputs(_model: Model, value: object, wall: Wall, _find: Find) -> list[Any]:
    return forms.outputs(value, wall)


def _icon(_model: Model, value: str | None, _wall: Wall, _find: Find) -> str:
    return value if value and _ICONS.fullmatch(value) else ""


def _icons(model: Model, value: object, wall: Wall, find: Find) -> list[str]:
    icons = value if isinstance(value, list) else []
    return [_icon(model, each if isinstance(each, str) else None, wall, find) for each in icons]


_JUDGES: Mapping[tuple[str, str], Judge] = {
    ("HTMLModel", "value"): _html,
    ("HTMLMathModel", "value"): _html,
    ("OutputModel", "outputs"): _outputs,
    **{(name, "format"): _format for name in _FORMATS},
    ("ButtonModel", "icon"): _icon,
    ("FileUploadModel", "icon"): _icon,
    ("ToggleButtonModel", "icon"): _icon,
    ("ToggleButtonsModel", "icons"): _icons,
}
