"""Whatever messages a sandbox sends in whatever order, no page comes to hold what could act.

The page here does with messages what JupyterLab's widgets do: it picks classes by the names in a
state, sets traits, draws HTML, copies values along links, and asks for everything when it is
reloaded.  What it draws is judged by parsing it.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.wall.modes import Mode, Wall
from sandbox_kernel.wall.verdicts import Refused
from sandbox_kernel.wall.widget_table import MODELS
from sandbox_kernel.wall.widgets import Widgets
from tests.support.page_judge import active_parts, active_parts_of_html
from tests.support.widget_state import identity
from tests.wall.test_fuzz import FORM, TEXT

IDS = ["a", "b", "c"]
HTML_NAMES = ("HTMLModel", "HTMLMathModel")
HTML_VIEWS = ("HTMLView", "HTMLMathView")
Told = dict[str, Any]
Step = tuple[str, str, tuple[Any, list[bytes]]]


class Page:
    """The models of one page."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, Any]] = {}

    def open(self, comm_id: str, told: Told, name: object = None) -> None:
        state = told["state"]
        self.models[comm_id] = {"_model_name": name, **state}
        self.put_buffers(comm_id, told)

    def update(self, comm_id: str, told: Told) -> None:
        if comm_id in self.models:
            self.models[comm_id].update(told["state"])
            self.put_buffers(comm_id, told)

    def load(self, told: Told) -> None:
        for comm_id, entry in told["states"].items():
            self.open(comm_id, {"state": entry["state"]}, entry["model_name"])
            assert entry["model_module"] == MODELS[entry["model_name"]][0]

    def put_buffers(self, comm_id: str, told: Told) -> None:
        for path in told.get("buffer_paths", []):
            place: Any = self.models[comm_id]
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = memoryview(b"")

    def follow_links(self) -> None:
        for model in list(self.models.values()):
            ends = [model.get(end) for end in ("source", "target")]
            if not all(isinstance(end, list) for end in ends):
                continue
            (source, read), (target, written) = ends
            pair = [self.models.get(end.removeprefix("IPY_MODEL_")) for end in (source, target)]
            if None in pair:
                continue
            first, second = pair
            assert first is not None
            assert second is not None
            if read in first:
                second[written] = first[read]
            if model["_model_name"] == "LinkModel" and written in second:
                first[read] = second[written]

    def look(self) -> None:
        """Draw every model; nothing of it may act."""
        for model in self.models.values():
            name = model["_model_name"]
            expected = identity(name)
            for trait in ("_model_module", "_view_name"):
                assert model.get(trait, expected[trait]) == expected[trait]
            assert "_esm" not in model
            assert not model.get("description_allow_html")
            assert "url" not in str(model.get("background", ""))
            assert str(model.get("format")).lower() not in ("url", "svg+xml")
            assert not any(each.startswith("jp-") for each in model.get("_dom_classes", []))
            if expected["_view_name"] in HTML_VIEWS and model.get("value"):
                # As a browser would write it, whatever it is.
                assert isinstance(model["value"], str)
                assert active_parts_of_html(model["value"]) == []
            for output in model.get("outputs", []) if name == "OutputModel" else []:
                assert active_parts(output.get("data", {}), frames=True) == []


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | TEXT
    | st.sampled_from(["url", "svg+xml", "HTMLView", "jp-Dialog", "url(//x.invalid)", "content"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["value", "content", "data", "_esm"]) | st.text(max_size=4),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)
OUTPUTS = st.lists(
    st.fixed_dictionaries(
        {
            "output_type": st.sampled_from(["display_data", "execute_result", "stream", "x"]),
            "data": st.dictionaries(FORM, TEXT, max_size=2) | VALUES,
        }
    ),
    max_size=2,
)
# Few widgets and traits, so that they meet: those that are judged, and those that are not.
NAMES = st.sampled_from(
    [
        *("HTMLModel", "HTMLMathModel", "LabelModel", "TextModel", "OutputModel", "ImageModel"),
        *("HTMLStyleModel", "FileUploadModel", "VBoxModel", "IntSliderModel"),
    ]
)
COMMON = ("value", "description", "description_allow_html", "outputs")
RARE = (
    *("format", "background", "_dom_classes", "children", "icon", "_esm", "__proto__", "width"),
    *("_view_name", "_model_name", "_model_module", "_view_module", "source", "target"),
)
TRAITS = st.sampled_from([*COMMON * 5, *RARE])
TEXTS = st.sampled_from(["<b>x</b><img src=x onerror=y>", "<script>x</script>"]) | TEXT
ENDS = st.tuples(
    st.sampled_from([f"IPY_MODEL_{each}" for each in IDS]),
    st.sampled_from(["value"] * 3) | TRAITS,
).map(list)
TOLD_PATHS = st.sampled_from([[]] * 12 + [[["value"]], [["value", 0, "content"]], [["_esm"]], "x"])


def traits(*, at_least: int) -> st.SearchStrategy[dict[str, Any]]:
    """Some traits, most with texts, some with anything."""

    def value_of(trait: str) -> st.SearchStrategy[Any]:
        return {
            "outputs": OUTPUTS,
            "source": ENDS,
            "target": ENDS,
            "description_allow_html": st.booleans(),
            "value": TEXTS | TEXTS | VALUES,
        }.get(trait, TEXTS | VALUES)

    names = st.lists(TRAITS, min_size=at_least, max_size=3, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({n: value_of(n) for n in chosen}))


def told(names: st.SearchStrategy[str] | None) -> st.SearchStrategy[tuple[Told, list[bytes]]]:
    """What is told of a widget with one of these names, or of one that is named already."""
    whole = st.just({}) if names is None else names.map(identity)
    state = st.builds(lambda own, more: {**own, **more}, whole, traits(at_least=1))
    return st.builds(
        lambda state, paths: ({"state": state, "buffer_paths": paths}, [b"x"] * len(paths)),
        state,
        TOLD_PATHS,
    )


def link() -> st.SearchStrategy[tuple[Told, list[bytes]]]:
    return st.builds(
        lambda name, source, target: (
            {"state": {**identity(name), "source": source, "target": target}, "buffer_paths": []},
            [],
        ),
        st.sampled_from(["LinkModel", "DirectionalLinkModel"]),
        st.just(["IPY_MODEL_a", "value"]) | ENDS,
        st.just(["IPY_MODEL_b", "value"]) | ENDS,
    )


def holding(outputs: list[Any]) -> tuple[Told, list[bytes]]:
    """What is told of an Output widget."""
    return {"state": {**identity("OutputModel"), "outputs": outputs}, "buffer_paths": []}, []


COMM = st.sampled_from(IDS)
OPEN = st.tuples(st.just("open"), COMM, told(NAMES))
UPDATE = st.tuples(st.just("update"), COMM, told(None))
STEPS = st.one_of(
    st.tuples(st.sampled_from(["open", "update", "load"]), st.just("o"), OUTPUTS.map(holding)),
    UPDATE,
    UPDATE,
    st.tuples(st.just("update"), st.just("l"), link()),
    st.tuples(st.just("update"), COMM, told(NAMES)),
    st.tuples(st.just("load"), COMM, told(NAMES)),
    st.tuples(
        st.sampled_from(["close", "relay", "word"]),
        st.sampled_from([*IDS, "l", "control"]),
        st.tuples(VALUES, st.just([])),
    ),
    OPEN,
)


class Sandbox:
    """Sends messages to two pages by way of relays of which each may be killed."""

    def __init__(self, wall: Wall) -> None:
        self.wall = wall
        self.kept: dict[str, str] = {}
        self.pages = [Page(), Page()]
        self.start_relay()

    def start_relay(self) -> None:
        def remember(comm_id: str, kind: str | None) -> None:
            if kind is None:
                self.kept.pop(comm_id, None)
            else:
                self.kept[comm_id] = kind

        known = list(self.kept.items())
        self.widgets = Widgets(self.wall, remember)
        self.widgets.begin(known)
        self.widgets.hear_open("control", "jupyter.widget.control", {})

    def step(self, what: str, comm_id: str, data: Any, buffers: list[bytes]) -> None:
        if what == "relay":
            self.start_relay()
        elif what == "open":
            passed = self.widgets.open(comm_id, "jupyter.widget", data, buffers)
            for page in self.pages:
                page.open(comm_id, passed.data)
        elif what == "close":
            self.widgets.close(comm_id, data)
            for page in self.pages:
                page.models.pop(comm_id, None)
        elif what == "load":
            paths = data["buffer_paths"] if isinstance(data["buffer_paths"], list) else []
            places = [
                [comm_id, "state", *path] if isinstance(path, list) else path for path in paths
            ]
            entries = {comm_id: data}
            word = {"method": "update_states", "states": entries, "buffer_paths": places}
            answer = self.widgets.message("control", word, buffers)
            assert answer is not None
            # One page was reloaded; the other keeps what it has.
            self.pages[1].load(answer.data)
        elif what == "update":
            answer = self.widgets.message(comm_id, {"method": "update", **data}, buffers)
            for page in self.pages if answer is not None else []:
                page.update(comm_id, answer.data)  # type: ignore[union-attr]
        else:
            self.widgets.message(comm_id, data, buffers)


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(
        st.tuples(st.just("open"), st.just("a"), told(st.just("TextModel"))),
        st.tuples(st.just("open"), st.just("b"), told(st.sampled_from(HTML_NAMES) | NAMES)),
        st.tuples(st.just("open"), st.just("c"), told(NAMES)),
        st.tuples(st.just("open"), st.just("l"), link()),
    ),
    st.lists(STEPS, min_size=2, max_size=8),
    st.sampled_from([Mode.DEFAULT, Mode.STRICT]),
)
def test_no_sequence_of_messages_gives_a_page_what_acts(
    first: tuple[Step, ...], then: list[Step], mode: Mode
) -> None:
    sandbox = Sandbox(Wall(mode=mode))
    for what, comm_id, (data, buffers) in [*first, *then]:
        try:
            sandbox.step(what, comm_id, data, buffers)
        except Refused:
            continue
        for page in sandbox.pages:
            json.dumps(page.models, default=str)
            page.follow_links()
            page.follow_links()
            page.look()
