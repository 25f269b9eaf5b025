"""Widgets of a sandbox: what a page is given of each, and that it keeps its type.

Rows are those of the table of ways out of a notebook page that the end-to-end suite walks.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sandbox_kernel.wall.modes import Mode, Wall
from sandbox_kernel.wall.verdicts import Refused
from sandbox_kernel.wall.widget_table import MODELS
from sandbox_kernel.wall.widgets import Passed, Widgets
from tests.support.widget_state import identity

CONTROLS = "@jupyter-widgets/controls"
ACTIVE = "<b>x</b><img src=x onerror=\"window.__ran='w'\">"
CLEANED = "<b>x</b><img>"


class Notebook:
    """The widgets of a sandbox, with the memory that a next relay is given."""

    def __init__(self, mode: Mode = Mode.DEFAULT) -> None:
        self.kept: dict[str, str] = {}
        self.wall = Wall(mode=mode)
        self.widgets = Widgets(self.wall, self.remember)

    def remember(self, comm_id: str, kind: str | None) -> None:
        if kind is None:
            del self.kept[comm_id]
        else:
            self.kept[comm_id] = kind

    def next_relay(self) -> None:
        """Begin anew, as a relay does whose predecessor was killed."""
        self.widgets = Widgets(self.wall, self.remember)
        self.widgets.begin(self.kept.items())

    def open(self, name: str, comm_id: str = "c", *buffers: bytes, **traits: Any) -> Passed:
        paths = traits.pop("paths", [])
        state = {**identity(name), **traits}
        data = {"state": state, "buffer_paths": paths}
        return self.widgets.open(comm_id, "jupyter.widget", data, buffers)

    def update(self, comm_id: str = "c", *buffers: bytes, **traits: Any) -> dict[str, Any]:
        """Return what a page is given of an update."""
        paths = traits.pop("paths", [])
        data = {"method": "update", "state": traits, "buffer_paths": paths}
        passed = self.widgets.message(comm_id, data, buffers)
        assert passed is not None
        return dict(passed.data["state"])


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


def stands_in(passed: Passed | None) -> str:
    """Return the text that a page shows in the place of a widget."""
    assert passed is not None
    state = passed.data["state"]
    assert (state["_model_name"], state["_view_name"]) == ("LabelModel", "LabelView")
    assert passed.buffers == ()
    return str(state["value"])


# --- what works -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_widget_of_ipywidgets_passes(notebook: Notebook, name: str) -> None:
    passed = notebook.open(name)

    assert passed.note is None
    assert passed.data["state"] == identity(name)
    assert notebook.kept == {"c": name}


def test_a_slider_passes_as_it_is(notebook: Notebook) -> None:
    traits = {
        "value": 3,
        "min": 0,
        "max": 10,
        "readout_format": "d",
        "description": "x",
        "layout": "IPY_MODEL_l",
        "style": "IPY_MODEL_s",
        "tooltip": None,
        "disabled": False,
    }
    notebook.open("IntSliderModel", **traits)
    passed = notebook.open("IntSliderModel", "d", **traits)

    assert passed.data == {
        "state": {**identity("IntSliderModel"), **traits},
        "buffer_paths": [],
    }
    assert notebook.update(value=4) == {"value": 4}


def test_an_echo_says_that_it_is_one(notebook: Notebook) -> None:
    notebook.open("IntSliderModel", value=3)
    echo = {"method": "echo_update", "state": {"value": 4}, "buffer_paths": []}

    passed = notebook.widgets.message("c", echo)

    assert passed == Passed(echo, ())


def test_bytes_of_an_image_pass_where_it_has_them(notebook: Notebook) -> None:
    passed = notebook.open("ImageModel", "c", b"png", format="png", paths=[["value"]])

    assert passed.buffers == (b"png",)
    assert passed.data["buffer_paths"] == [["value"]]


def test_files_that_were_uploaded_pass_with_their_bytes(notebook: Notebook) -> None:
    files = [{"name": "a"}, {"name": "b"}]
    places = [["value", 0, "content"], ["value", 1, "content"]]
    notebook.open("FileUploadModel")
    notebook.update("c", b"1", b"2", value=files, paths=places)

    with pytest.raises(Refused):
        notebook.update("c", b"1", b"2", value=files[:1], paths=places)


def test_a_widget_does_not_take_the_focus(notebook: Notebook) -> None:
    """What is typed elsewhere in the page would go to the sandbox."""
    notebook.open("TextModel")
    custom = {"method": "custom", "content": {"do": "focus"}}

    assert notebook.widgets.message("c", custom) is None


# --- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["HTMLModel", "HTMLMathModel"])
@pytest.mark.parametrize("value", [ACTIVE, "<b>x</b><script>window.__ran='w'</script>"])
def test_rows_13_and_14_html_is_cleaned(notebook: Notebook, name: str, value: str) -> None:
    opened = notebook.open(name, value=value).data["state"]

    assert opened["value"].removesuffix("<img>") == "<b>x</b>"
    assert notebook.update(value=value) == {"value": opened["value"]}


@pytest.mark.parametrize("value", [[ACTIVE], {"toString": ACTIVE}, 7, None])
def test_row_13_a_value_that_is_no_text_does_not_become_html(
    notebook: Notebook, value: object
) -> None:
    """A page would join a list to a text, and draw that."""
    opened = notebook.open("HTMLModel", value=value).data["state"]

    assert opened.get("value", "") == ""


def test_row_15_descriptions_stay_text(notebook: Notebook) -> None:
    traits = {"description": ACTIVE, "description_allow_html": True}
    opened = notebook.open("IntSliderModel", **traits).data["state"]

    assert opened["description"] == ACTIVE
    assert opened["description_allow_html"] is False
    assert notebook.update(description_allow_html=True) == {"description_allow_html": False}


def test_row_16_what_an_output_widget_holds_is_judged(notebook: Notebook) -> None:
    script = {"output_type": "display_data", "data": {"application/javascript": "1"}}
    active = {"output_type": "display_data", "data": {"text/html": ACTIVE}}
    odd = ["no output", {"output_type": "widget"}]
    notebook.open("OutputModel", outputs=[])

    withheld, framed, *rest = notebook.update(outputs=[script, active, *odd])["outputs"]

    assert list(withheld["data"]) == ["text/plain"]
    assert framed["data"]["text/html"].startswith("<iframe")
    assert 'sandbox="allow-scripts"' in framed["data"]["text/html"]
    assert [each["output_type"] for each in rest] == ["stream", "stream"]


def test_row_16_what_a_page_hands_back_is_the_same_when_it_returns(notebook: Notebook) -> None:
    """An Output widget is filled by the page; each reload would wrap a frame in another one."""
    active = {"output_type": "display_data", "data": {"text/html": ACTIVE}, "metadata": {}}
    notebook.open("OutputModel")
    first = notebook.update(outputs=[active])

    assert notebook.update(**first) == first


@pytest.mark.parametrize("shown", [True, False])
def test_rows_17_and_18_a_widget_with_code_of_its_own_is_a_note(
    notebook: Notebook,
    shown: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    state = {
        "_model_name": "AnyModel",
        "_model_module": "anywidget",
        "_model_module_version": "~0.9.*",
        "_view_name": "AnyView",
        "_view_module": "anywidget",
        "_esm": "window.__ran='w'",
        "_css": "body{}",
    }
    opened = notebook.widgets.open("c", "jupyter.widget", {"state": state})
    view = {"model_id": "c", "version_major": 2, "version_minor": 0}
    data: dict[str, Any] = {"application/vnd.jupyter.widget-view+json": view, "text/plain": "A()"}
    if shown:
        notebook.widgets.mend_view(data)
        assert list(data) == ["text/plain"]
        assert data["text/plain"] == stands_in(opened)

    assert "AnyModel of anywidget" in stands_in(opened)
    assert "__ran" not in json.dumps(opened.data)
    assert notebook.widgets.message("c", {"method": "update", "state": {"_esm": "1"}}) is None
    assert notebook.widgets.message("c", {"method": "custom", "content": 1}) is None


def test_row_18_code_in_a_widget_of_ipywidgets_is_refused(notebook: Notebook) -> None:
    stands_in(notebook.open("IntSliderModel", _esm="window.__ran='w'"))
    notebook.open("IntSliderModel", "d")

    with pytest.raises(Refused):
        notebook.update("d", _esm="window.__ran='w'")


@pytest.mark.parametrize(
    "trick",
    [
        {"_view_name": "HTMLView"},
        {"_view_module": "anywidget", "_view_name": "AnyView"},
        {"_model_module": "anywidget"},
        {"_model_module": "@jupyter-widgets/base"},
        {"_model_name": "HTMLModel"},
        {"_view_name": None},
        {"_view_name": ["LabelView"]},
        {"_model_module_version": "https://x"},
        {"_view_module_version": "*"},
    ],
)
def test_row_20_a_widget_has_the_view_that_belongs_to_it(
    notebook: Notebook, trick: dict[str, Any]
) -> None:
    """As a whole it is a note; as a part of a later message it does not pass."""
    stands_in(notebook.open("LabelModel", "t", **trick, value=ACTIVE))
    notebook.open("LabelModel", value=ACTIVE)

    with pytest.raises(Refused):
        notebook.update(**trick)


@pytest.mark.parametrize(
    "path",
    [
        ["value"],
        ["_esm"],
        ["__proto__", "x"],
        ["value", 0, "content"],
        [],
        "value",
        [["value"]],
    ],
)
def test_row_21_bytes_are_put_nowhere_else(notebook: Notebook, path: object) -> None:
    notebook.open("LabelModel", value="x")
    stands_in(notebook.open("HTMLModel", "h", b"x", paths=[path]))

    with pytest.raises(Refused):
        notebook.update("c", b"x", paths=[path])


@pytest.mark.parametrize("paths", [[], [["value"], ["value"]], None, {}])
def test_row_21_every_buffer_has_one_place(notebook: Notebook, paths: object) -> None:
    notebook.open("ImageModel")

    with pytest.raises(Refused):
        notebook.update("c", b"x", paths=paths)


# Row 22: the same when a page is reloaded.


def states_of(notebook: Notebook, *buffers: bytes, paths: object = (), **states: Any) -> Passed:
    notebook.widgets.hear_open("control", "jupyter.widget.control", {})
    data = {"method": "update_states", "states": states, "buffer_paths": list(paths)}  # type: ignore[call-overload]
    passed = notebook.widgets.message("control", data, buffers)
    assert passed is not None
    return passed


def entry(name: str, **traits: Any) -> dict[str, Any]:
    return {
        "model_name": name,
        "model_module": MODELS[name][0],
        "model_module_version": "2.0.0",
        "state": {**identity(name), **traits},
    }


def test_row_22_a_reloaded_page_is_told_of_known_widgets_only(notebook: Notebook) -> None:
    for name, comm_id in (("HTMLModel", "h"), ("ImageModel", "i"), ("IntSliderModel", "s")):
        notebook.open(name, comm_id)
    told = states_of(
        notebook,
        b"png",
        paths=[["i", "state", "value"]],
        h=entry("HTMLModel", value=ACTIVE),
        i=entry("ImageModel", format="png"),
        s=entry("IntSliderModel", value=4),
        unknown=entry("IntSliderModel"),
        control=entry("IntSliderModel"),
    )

    assert list(told.data["states"]) == ["h", "i", "s"]
    assert told.data["states"]["h"] == entry("HTMLModel", value=CLEANED)
    assert told.data["states"]["s"] == entry("IntSliderModel", value=4)
    assert told.data["buffer_paths"] == [["i", "state", "value"]]
    assert told.buffers == [b"png"]


def test_row_22_a_state_is_judged_by_the_type_that_was_opened(notebook: Notebook) -> None:
    """Whatever else it says of itself; a text stands in its place."""
    notebook.open("LabelModel", "l")
    notebook.open("ImageModel", "i")
    any_widget = {"model_name": "AnyModel", "model_module": "anywidget", "state": {"_esm": "1"}}
    told = states_of(
        notebook,
        b"1",
        b"2",
        paths=[["l", "state", "_esm"], ["i", "state", "value"]],
        l=any_widget,
        i={**any_widget, "state": {"format": "gif"}},
    )

    assert told.data["states"]["l"]["model_name"] == "LabelModel"
    assert told.data["states"]["l"]["state"]["_view_name"] == "LabelView"
    assert told.data["states"]["i"] == {
        "model_name": "ImageModel",
        "model_module": CONTROLS,
        "model_module_version": "2.0.0",
        "state": {"format": "gif"},
    }
    assert told.data["buffer_paths"] == [["i", "state", "value"]]
    assert told.buffers == [b"2"]
    assert "anywidget" not in json.dumps(told.data)


def test_row_22_a_stranger_answers_a_reloaded_page_with_its_note(notebook: Notebook) -> None:
    state = {"_model_name": "AnyModel", "_model_module": "anywidget", "_esm": "1"}
    note = stands_in(notebook.widgets.open("c", "jupyter.widget", {"state": state}))
    told = states_of(notebook, c={"model_name": "AnyModel", "state": state})

    assert told.data["states"]["c"]["model_name"] == "LabelModel"
    assert told.data["states"]["c"]["state"]["value"] == note
    assert stands_in(notebook.widgets.message("c", {"method": "update", "state": state})) == note


def test_row_22_pages_are_told_of_comms_that_were_opened_as_widgets(notebook: Notebook) -> None:
    notebook.open("LabelModel", "l")
    notebook.widgets.hear_open("control", "jupyter.widget.control", {})
    told = {name: {"target_name": "jupyter.widget"} for name in ("l", "control", "planted")}

    assert notebook.widgets.listed(told) == {"l": {"target_name": "jupyter.widget"}}


def test_the_control_says_nothing_but_states(notebook: Notebook) -> None:
    notebook.widgets.hear_open("control", "jupyter.widget.control", {})

    for data in ({"method": "update", "state": {}}, {"method": "custom"}, {}, 3):
        with pytest.raises(Refused):
            notebook.widgets.message("control", data)


def test_a_comm_of_a_client_for_no_widget_is_only_closed(notebook: Notebook) -> None:
    """What a client opens it must see end; what it says is for code that nobody has judged."""
    notebook.widgets.hear_open("m", "matplotlib", {})

    with pytest.raises(Refused):
        notebook.widgets.message("m", {"method": "update", "state": {}})
    with pytest.raises(Refused):
        notebook.open("LabelModel", "m")
    assert notebook.widgets.listed({"m": {"target_name": "jupyter.widget"}}) == {}
    assert states_of(notebook, m=entry("LabelModel")).data["states"] == {}
    assert notebook.widgets.close("m", {"x": 1}) == Passed({}, ())


def test_the_sandbox_opens_no_control(notebook: Notebook) -> None:
    for target in ("jupyter.widget.control", "matplotlib", "", "jupyter.widget.version"):
        with pytest.raises(Refused):
            notebook.widgets.open("c", target, {"state": identity("LabelModel")})

    assert not notebook.kept


# --- ways around ------------------------------------------------------------------------------


def test_a_type_cannot_change(notebook: Notebook) -> None:
    notebook.open("HTMLModel", value="x")

    with pytest.raises(Refused):
        notebook.open("LabelModel", value=ACTIVE)
    with pytest.raises(Refused):
        notebook.update(**identity("LabelModel"), value=ACTIVE)
    notebook.widgets.close("c", {})
    with pytest.raises(Refused):
        notebook.open("LabelModel", value=ACTIVE)
    assert notebook.open("HTMLModel", value=ACTIVE).data["state"]["value"] == CLEANED


def test_a_type_cannot_change_when_the_relay_is_replaced(notebook: Notebook) -> None:
    """Nor does a value pass uncleaned, nor a widget that was a note become one that is drawn."""
    notebook.open("HTMLModel", value="x")
    stranger = {"_model_name": "AnyModel", "_model_module": "anywidget"}
    note = stands_in(notebook.widgets.open("a", "jupyter.widget", {"state": stranger}))
    notebook.next_relay()

    with pytest.raises(Refused):
        notebook.open("LabelModel", value=ACTIVE)
    with pytest.raises(Refused):
        notebook.update(**identity("LabelModel"), value=ACTIVE)
    assert notebook.update(value=ACTIVE) == {"value": CLEANED}
    with pytest.raises(Refused):
        notebook.open("LabelModel", "a")
    data: dict[str, Any] = {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}}
    notebook.widgets.mend_view(data)
    assert data == {"text/plain": note}


def test_a_message_that_is_read_twice_passes_twice(notebook: Notebook) -> None:
    """A next relay is given again what may not have reached the clients."""
    first = notebook.open("HTMLModel", value=ACTIVE)
    notebook.next_relay()

    assert notebook.open("HTMLModel", value=ACTIVE) == first


def test_what_nobody_knows_is_refused(notebook: Notebook) -> None:
    for data in ({"method": "update", "state": {"value": 1}}, {"method": "custom"}):
        with pytest.raises(Refused):
            notebook.widgets.message("c", data)
    with pytest.raises(Refused):
        notebook.widgets.close("c", {})


@pytest.mark.parametrize("link", ["LinkModel", "DirectionalLinkModel"])
@pytest.mark.parametrize(
    ("comm_id", "trait"),
    [
        ("html", "value"),
        ("label", "_view_name"),
        ("label", "description_allow_html"),
        ("image", "format"),
        ("style", "background"),
        ("layout", "width"),
        ("output", "outputs"),
        ("label", "no_such_trait"),
        ("nobody", "value"),
        ("stranger", "value"),
    ],
)
def test_a_link_does_not_carry_a_value_past_its_judge(
    notebook: Notebook, link: str, comm_id: str, trait: str
) -> None:
    """A page copies along a link what a text widget may hold and an HTML widget may not."""
    kinds = ["ValidModel", "HTMLModel", "LabelModel", "ImageModel", "OutputModel"]
    for name in [*kinds, "LabelStyleModel", "LayoutModel"]:
        known = {"LabelStyleModel": "style", "ValidModel": "text"}
        notebook.open(name, known.get(name, name.removesuffix("Model").lower()))
    notebook.widgets.open("stranger", "jupyter.widget", {"state": {}})
    source, target = ["IPY_MODEL_text", "value"], [f"IPY_MODEL_{comm_id}", trait]

    stands_in(notebook.open(link, source=source, target=target))
    good = notebook.open(link, "good", source=source, target=["IPY_MODEL_label", "value"])

    assert good.note is None
    with pytest.raises(Refused):
        notebook.update("good", target=target)


def test_a_link_goes_both_ways_or_one(notebook: Notebook) -> None:
    notebook.open("HTMLModel", "html")
    notebook.open("TextModel", "text")
    ends = {"source": ["IPY_MODEL_html", "value"], "target": ["IPY_MODEL_text", "value"]}

    assert notebook.open("DirectionalLinkModel", "one", **ends).note is None
    assert notebook.open("LinkModel", "both", **ends).note is not None


@pytest.mark.parametrize("link", ["LinkModel", "DirectionalLinkModel"])
@pytest.mark.parametrize("name", ["TextModel", "TextareaModel", "PasswordModel", "ComboboxModel"])
def test_what_is_typed_stays_as_it_is_and_is_not_drawn_by_a_link(
    notebook: Notebook, link: str, name: str
) -> None:
    """A page would typeset it as a formula elsewhere, past every judge."""
    text = r"C:\data $\style{x}{y}$"
    notebook.open("LabelModel", "label")
    ends = {"source": ["IPY_MODEL_c", "value"], "target": ["IPY_MODEL_label", "value"]}

    assert notebook.open(name, "c", value=text).data["state"]["value"] == text
    stands_in(notebook.open(link, "l", **ends))


@pytest.mark.parametrize(
    ("name", "trait", "value"),
    [
        ("LabelModel", "value", r"$\style{cursor:url(https://x.invalid)}{x}$"),
        ("IntSliderModel", "description", r"$\href{x}{y}$"),
        ("IntSliderModel", "value", [{"a": r"$\href{x}{y}$"}]),
        ("HTMLModel", "value", r"$\bbox[x]{y}$"),
        ("HTMLMathModel", "value", r"$\sty<wbr>le{x}{y}$"),
    ],
)
def test_formulas_in_widgets_only_show_themselves(
    notebook: Notebook, name: str, trait: str, value: object
) -> None:
    passed = notebook.open(name, **{trait: value}).data["state"][trait]

    assert passed
    assert not re.search(r"\\[a-z]", str(passed).replace("\\\\", "\\"))


@pytest.mark.parametrize(
    "value",
    [
        "url(https://x.invalid/leak)",
        "URL (https://x.invalid/leak)",
        r"u\72l(https://x.invalid/leak)",
        "image-set('https://x.invalid/leak' 1x)",
        "red/**/",
        "a" * 2000,
        ["red"],
    ],
)
def test_styles_load_nothing(notebook: Notebook, value: object) -> None:
    state = notebook.open("HTMLStyleModel", background=value, font_size="2em").data["state"]

    assert "background" not in state
    assert state["font_size"] == "2em"


def test_styles_that_only_style_pass(notebook: Notebook) -> None:
    traits = {
        "width": "calc(100% - 10px)",
        "grid_template_columns": "repeat(3, minmax(10px, 1fr))",
        "border_top": "1px solid rgb(0, 0, 0)",
        "margin": "1px 2.5em auto",
        "order": None,
    }

    assert notebook.open("LayoutModel", **traits).data["state"] == {
        **identity("LayoutModel"),
        **traits,
    }
    assert notebook.update(margin="-50px") == {}


def test_classes_are_those_of_widgets(notebook: Notebook) -> None:
    """With one of the page's, a widget could lie over the page as a dialog does."""
    classes = ["widget-interact", "jp-Dialog", "lm-Widget", "a b", 3, "jupyter-widgets"]

    assert notebook.open("VBoxModel", _dom_classes=classes).data["state"]["_dom_classes"] == [
        "widget-interact",
        "jupyter-widgets",
    ]
    icons = notebook.open("ToggleButtonsModel", "t", icons=["check", "x jp-Dialog", "plus fw"])
    assert icons.data["state"]["icons"] == ["check", "", "plus fw"]


@pytest.mark.parametrize("form", ["url", "svg+xml", "svg", "html", "URL"])
def test_an_image_is_one(notebook: Notebook, form: str) -> None:
    """No address that a page would load, and no SVG, which runs where it is opened by itself."""
    assert "ImageModel" in stands_in(notebook.open("ImageModel", format=form))
    notebook.open("ImageModel", "i", format="png")

    with pytest.raises(Refused):
        notebook.update("i", format=form)


def test_traits_that_no_such_widget_has_are_left_out(notebook: Notebook) -> None:
    state = notebook.open("LabelModel", __proto__={"x": 1}, outputs=[], anything=1).data["state"]

    assert state == identity("LabelModel")


def test_a_trusted_sandbox_is_passed_unread_and_remembered() -> None:
    """Should the wall stand again while the interpreter lives, its widgets are known."""
    notebook = Notebook(Mode.TRUSTED)
    data = {"state": {"_model_name": "AnyModel", "_model_module": "anywidget", "_esm": "1"}}

    assert notebook.widgets.open("c", "jupyter.widget", data, [b"x"]) == Passed(data, [b"x"])
    assert notebook.widgets.open("m", "matplotlib", {}) == Passed({}, ())
    assert notebook.widgets.message("c", {"method": "x"}) == Passed({"method": "x"}, ())
    assert notebook.widgets.listed({"z": {}}) == {"z": {}}
    assert notebook.kept == {"c": "!AnyModel of anywidget"}
