"""The comms of a sandbox: which widget each stands for, and what of its messages may pass.

A widget keeps the type it was opened with.  One that is not of ipywidgets, or would act in the
page, stays a stranger: a page is told of a text widget in its place, so that boxes which hold it
and pages which are reloaded show why it is not there.

What is known of each comm is told to `remember` before the message passes, so that the next relay
of the same interpreter knows it too; a comm that nobody knows is refused.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sandbox_kernel.wall import forms
from sandbox_kernel.wall.modes import Wall
from sandbox_kernel.wall.verdicts import Refused
from sandbox_kernel.wall.widget_states import Model, find_model, is_same, judge_state, note_state

__all__ = ["Passed", "Widgets"]

Data = dict[str, Any]  # JSON
Buffer = TypeVar("Buffer")

_WIDGETS = "jupyter.widget"
_CONTROL = "jupyter.widget.control"
_STRANGER = "!"
"""What the kind of a stranger begins with; the rest says what it is."""
_FOREIGN = "?"
"""What the kind of a comm of clients begins with that is for no widget: it is not answered."""

_MOST_OPEN = 50_000
_MOST_CLOSED = 10_000
_UNPRINTABLE = re.compile(r"[^\w./@-]", re.ASCII)


class Passed(NamedTuple):
    """What of a message may pass.

    Parameters
    ----------
    data : dict
        Its data.
    buffers : sequence
        Those of its buffers that the data has a place for.
    note : str or None
        What was put in the place of something else.
    """

    data: Data
    buffers: Sequence[Any]  # bytes-like, as they came
    note: str | None = None


class Widgets:
    """What is known of an interpreter's comms.

    Parameters
    ----------
    wall : Wall
        What a judgement depends on.
    remember : callable, optional
        Takes a comm id with its kind, or with None once it is closed.
    """

    def __init__(
        self, wall: Wall, remember: Callable[[str, str | None], None] = lambda *_: None
    ) -> None:
        self.wall = wall
        self._remember = remember
        self._kinds: dict[str, str] = {}
        """Kinds of the open comms: a model's name, a stranger, a foreign target or the control."""
        self._closed: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        """Return how many comms are open."""
        return len(self._kinds)

    def begin(self, known: Iterable[tuple[str, str]]) -> None:
        """Listen to an interpreter of which this is known, as comm ids with their kinds."""
        self._kinds = dict(known)
        self._closed.clear()

    # --- what clients say ---------------------------------------------------------------------

    def hear_open(self, comm_id: str, target: str, data: object) -> None:
        """Learn that a client opens a comm; the sandbox may answer on it."""
        if (
            comm_id in self._kinds
            or len(self._kinds) >= _MOST_OPEN
            or not forms.MODEL_ID.fullmatch(comm_id)
        ):
            return
        if target == _CONTROL:
            self._set(comm_id, _CONTROL)
        elif target == _WIDGETS:
            self._set(comm_id, _kind_of(data.get("state") if isinstance(data, dict) else None))
        else:
            self._set(comm_id, _FOREIGN + _printable(target))

    def hear_close(self, comm_id: str) -> None:
        """Learn that a client closes a comm."""
        self._close(comm_id)

    # --- what the sandbox says ----------------------------------------------------------------

    def open(
        self, comm_id: str, target: str, data: object, buffers: Sequence[Buffer] = ()
    ) -> Passed:
        """Take a comm_open.

        Raises
        ------
        Refused
            It is for no widget, uses an id again, or there are too many.
        """
        value = data if isinstance(data, dict) else {}
        if self.wall.is_off:
            if (
                target == _WIDGETS
                and forms.MODEL_ID.fullmatch(comm_id)
                and self._kind(comm_id) is None
                and len(self._kinds) < _MOST_OPEN
            ):
                # If the wall stands again, its next relay knows what has been opened.
                self._set(comm_id, _kind_of(value.get("state")))
            return Passed(value, buffers)
        if target != _WIDGETS:
            raise Refused(f"a comm for {_printable(target)}, which pages are not given")
        if not forms.MODEL_ID.fullmatch(comm_id):
            raise Refused("a comm with a strange id")
        kind = _kind_of(value.get("state"))
        passed = self._judge_opening(kind, value, buffers)
        if passed.note is not None and not kind.startswith(_STRANGER):
            kind = f"{_STRANGER}{kind}"
        if self._kind(comm_id) not in (None, kind):
            raise Refused("a widget in the place of another one")
        if comm_id not in self._kinds:
            if len(self._kinds) >= _MOST_OPEN:
                raise Refused(f"a widget beyond the first {_MOST_OPEN}")
            self._set(comm_id, kind)
        return passed

    def message(self, comm_id: str, data: object, buffers: Sequence[Buffer] = ()) -> Passed | None:
        """Take a comm_msg; None means that it is for a stranger, and says nothing new.

        Raises
        ------
        Refused
            It is for no open comm, or the page must not be given it.
        """
        value = data if isinstance(data, dict) else {}
        if self.wall.is_off:
            return Passed(value, buffers)
        kind = self._kinds.get(comm_id)
        if kind is None:
            raise Refused("a message of a comm that is not open")
        if kind.startswith(_FOREIGN):
            raise Refused(f"a message for {kind.removeprefix(_FOREIGN)}, which pages are not given")
        method = value.get("method")
        if kind == _CONTROL:
            if method != "update_states":
                raise Refused("a word that the control of widgets does not have")
            return self._judge_states(value, buffers)
        model = find_model(kind)
        if method in ("update", "echo_update"):
            if model is None:
                state = value.get("state")
                # A page that was reloaded asks a stranger for all of it, as any other.
                is_whole = isinstance(state, dict) and "_model_name" in state
                return Passed({"method": "update", **_stand_in(kind)}, ()) if is_whole else None
            passed = self._judge_update(model, value, buffers)
            return Passed({"method": method, **passed.data}, passed.buffers)
        if method == "custom":
            # To a widget of ipywidgets it says no more than to take the focus: what is typed
            # elsewhere would go to the sandbox.
            return None
        raise Refused("a word that widgets do not have")

    def close(self, comm_id: str, data: object, buffers: Sequence[Buffer] = ()) -> Passed:
        """Take a comm_close.

        Raises
        ------
        Refused
            No such comm is open.
        """
        if comm_id not in self._kinds and not self.wall.is_off:
            raise Refused("the end of a comm that is not open")
        self._close(comm_id)
        if self.wall.is_off:
            return Passed(data if isinstance(data, dict) else {}, buffers)
        return Passed({}, ())

    def listed(self, comms: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of a comm_info_reply's comms that pages may know."""
        if self.wall.is_off:
            return dict(comms)
        return {comm_id: {"target_name": _WIDGETS} for comm_id in comms if self.is_widget(comm_id)}

    def is_widget(self, comm_id: str) -> bool:
        """Whether this is a widget that is open, or a stranger that stands for one."""
        kind = self._kinds.get(comm_id, _CONTROL)
        return kind != _CONTROL and not kind.startswith(_FOREIGN)

    def mend_view(self, shown: Data) -> None:
        """Put a note in the place of the view of a stranger, in the data of an output."""
        view = shown.get(forms.WIDGET_VIEW)
        kind = self._kind(view.get("model_id")) if isinstance(view, dict) else None
        if kind is None or not kind.startswith(_STRANGER) or self.wall.is_off:
            return
        del shown[forms.WIDGET_VIEW]
        shown["text/plain"] = _text(kind)

    # --- judgements ---------------------------------------------------------------------------

    def _judge_opening(self, kind: str, value: Data, buffers: Sequence[Buffer]) -> Passed:
        """Return a whole state as a page may be given it, perhaps that of a text in its place."""
        model = find_model(kind)
        if model is None:
            return Passed(_stand_in(kind), (), f"widget {kind.removeprefix(_STRANGER)}")
        try:
            return self._judge_update(model, value, buffers)
        except Refused as reason:
            return Passed(_stand_in(kind), (), str(reason))

    def _judge_update(self, model: Model, value: Data, buffers: Sequence[Buffer]) -> Passed:
        state, paths = judge_state(
            model,
            value.get("state"),
            paths=value.get("buffer_paths"),
            buffers=len(buffers),
            wall=self.wall,
            find=lambda comm_id: find_model(self._kinds.get(comm_id, "")),
        )
        for output in state.get("outputs", ()) if model.name == "OutputModel" else ():
            if "data" in output:
                self.mend_view(output["data"])
        return Passed({"state": state, "buffer_paths": paths}, buffers)

    def _judge_states(self, value: Data, buffers: Sequence[Buffer]) -> Passed:
        """Judge the states that a page asks for when it is reloaded, one by one."""
        states, paths = value.get("states"), value.get("buffer_paths") or []
        if not isinstance(states, dict):
            raise Refused("states of widgets that are none")
        if not isinstance(paths, list) or len(paths) != len(buffers):
            raise Refused("buffers whose places are not told")
        places: dict[str, list[tuple[list[Any], Buffer]]] = {}
        for path, buffer in zip(paths, buffers, strict=True):
            match path:
                case [str(comm_id), "state", *rest]:
                    places.setdefault(comm_id, []).append((rest, buffer))
                case _:
                    raise Refused("a buffer outside of the states")
        judged: Data = {}
        kept_paths: list[list[Any]] = []
        kept: list[Buffer] = []
        for comm_id, entry in states.items():
            if not (self.is_widget(comm_id) and isinstance(entry, dict)):
                continue
            kind = self._kinds[comm_id]
            own = places.get(comm_id, [])
            told = {"state": entry.get("state"), "buffer_paths": [path for path, _ in own]}
            passed = self._judge_opening(kind, told, [buffer for _, buffer in own])
            judged[comm_id] = _entry(kind, passed)
            kept_paths += [[comm_id, "state", *path] for path in passed.data["buffer_paths"]]
            kept += passed.buffers
        data = {"method": "update_states", "states": judged, "buffer_paths": kept_paths}
        return Passed(data, kept)

    # --- memory -------------------------------------------------------------------------------

    def _kind(self, comm_id: object) -> str | None:
        """Return the kind of a comm that is open, or was so lately: a page may still have it."""
        if not isinstance(comm_id, str):
            return None
        return self._kinds.get(comm_id) or self._closed.get(comm_id)

    def _set(self, comm_id: str, kind: str) -> None:
        self._closed.pop(comm_id, None)
        self._kinds[comm_id] = kind
        self._remember(comm_id, kind)

    def _close(self, comm_id: str) -> None:
        kind = self._kinds.pop(comm_id, None)
        if kind is None:
            return
        self._closed[comm_id] = kind
        if len(self._closed) > _MOST_CLOSED:
            self._closed.popitem(last=False)
        self._remember(comm_id, None)


def _kind_of(state: object) -> str:
    """Return the kind of a widget by the whole of its state."""
    told = state if isinstance(state, dict) else {}
    name, module = told.get("_model_name"), told.get("_model_module")
    model = find_model(name) if isinstance(name, str) else None
    if model is not None and is_same(model, told):
        return model.name
    shown = f"{_printable(name)} of {_printable(module)}"
    if model is not None and module == model.module:
        shown = f"{shown} with a view of its own"
    return _STRANGER + shown


def _text(kind: str) -> str:
    return forms.note(f"Widget {kind.removeprefix(_STRANGER)}")


def _stand_in(kind: str) -> Data:
    return {"state": note_state(_text(kind)), "buffer_paths": []}


def _entry(kind: str, passed: Passed) -> Data:
    """Return a widget among the states; its class is that of the kind, whatever it says."""
    state = passed.data["state"]
    model = find_model(kind if passed.note is None else state["_model_name"])
    return {
        "model_name": model.name if model else None,
        "model_module": model.module if model else None,
        "model_module_version": state.get("_model_module_version", "2.0.0"),
        "state": state,
    }


def _printable(value: object) -> str:
    return _UNPRINTABLE.sub("?", value)[:60] if isinstance(value, str) else "?"
