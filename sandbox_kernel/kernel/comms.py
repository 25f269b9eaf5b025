"""The interpreter's comms on their way to the clients, as the output wall judges them.

What the wall knows of widgets is loaded when the first comm is heard of: with all it needs it takes
half a megabyte, and most notebooks have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandbox_kernel.kernel.jsontext import read, write
from sandbox_kernel.kernel.notes import Notes
from sandbox_kernel.kernel.speaker import EMPTY
from sandbox_kernel.wall import forms
from sandbox_kernel.wall.modes import Wall

if TYPE_CHECKING:
    from sandbox_kernel.wall.widgets import Passed, Widgets

__all__ = ["COMM_MESSAGES", "Comms"]

COMM_MESSAGES = frozenset({"comm_close", "comm_msg", "comm_open"})

_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}")
_MOST_TOLD = 20


class Comms:
    """The comms of one interpreter; those of the host are not among them.

    Parameters
    ----------
    wall : Wall
        How they are judged.
    notes : Notes
        Where it is noted what was put in the place of a widget.
    remember : callable
        Takes what a successor must know: a comm id with its kind, or with None once it is closed.
    """

    def __init__(
        self, wall: Wall, notes: Notes, remember: Callable[[str, str | None], None]
    ) -> None:
        self._wall = wall
        self._notes = notes
        self._remember = remember
        self._known: list[tuple[str, str]] = []
        self._loaded: Widgets | None = None
        self._told: set[str] = set()

    def begin(self, known: Iterable[tuple[str, str]]) -> None:
        """Listen to an interpreter of which predecessors have remembered this."""
        self._known, self._loaded = list(known), None

    @property
    def _widgets(self) -> Widgets:
        if self._loaded is None:
            from sandbox_kernel.wall.widgets import Widgets  # noqa: PLC0415  see above

            self._loaded = Widgets(self._wall, self._remember)
            self._loaded.begin(self._known)
        return self._loaded

    def hear(self, msg_type: str, content: Mapping[str, Any]) -> None:
        """Learn of a comm that a client opens or closes."""
        comm_id, target = content.get("comm_id"), content.get("target_name")
        if not isinstance(comm_id, str):
            return
        if msg_type == "comm_close":
            self._widgets.hear_close(comm_id)
        elif msg_type == "comm_open" and isinstance(target, str):
            self._widgets.hear_open(comm_id, target, content.get("data"))

    def judge(
        self, msg_type: str, content: Mapping[str, Any], buffers: Sequence[memoryview]
    ) -> Passed | None:
        """Return what of a message may pass; None if it says nothing that a page needs.

        Raises
        ------
        Refused
            Nothing may.
        """
        comm_id, data = content["comm_id"], content["data"]
        if msg_type == "comm_msg":
            return self._widgets.message(comm_id, data, buffers)
        if msg_type == "comm_close":
            return self._widgets.close(comm_id, data, buffers)
        passed = self._widgets.open(comm_id, content["target_name"], data, buffers)
        if passed.note is not None:
            self._notes.add(f"a widget of the sandbox: {passed.note}; a text stands in its place")
        return passed

    def metadata(self, encoded: bytes) -> bytes:
        """Return of a message's metadata the version of the widgets' protocol."""
        if encoded == EMPTY or self._wall.is_off:
            return encoded
        version = read(encoded).get("version")
        is_known = isinstance(version, str) and _VERSION.fullmatch(version)
        return write({"version": version}) if is_known else EMPTY

    def listed(self, comms: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of a comm_info_reply's comms that pages may know."""
        return self._widgets.listed(comms) if comms else {}

    def mend(self, content: Mapping[str, Any]) -> None:
        """Put a text in the place of a view, in the data of an output, where the wall did so."""
        if forms.WIDGET_VIEW in content.get("data", ()):
            self._widgets.mend_view(content["data"])

    def is_widget(self, comm_id: str) -> bool:
        """Whether pages have a widget for this comm."""
        return self._widgets.is_widget(comm_id)

    def tell_withheld(self, opening: Mapping[str, Any]) -> str | None:
        """Return what to tell of a comm that was refused; None the next time."""
        target = opening["target_name"]
        if target in self._told or len(self._told) == _MOST_TOLD:
            return None
        self._told.add(target)
        if target == "jupyter.widget":
            return forms.note("A widget")
        printable = re.sub(r"[^\w.-]", "?", target, flags=re.ASCII)[:60]
        return forms.note(f"What {printable} draws by messages of its own")
