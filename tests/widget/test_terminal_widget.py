"""The kernel's half of the widget, with a page made of Python."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from sandbox_kernel import errors, sync
from sandbox_kernel.manager.manager import Manager
from sandbox_kernel.widget import TerminalWidget
from sandbox_kernel.widget.bundle import bundle_name, bundle_source


class Page:
    """A page that speaks through the widget's messages, as `kernel_socket.ts` does."""

    def __init__(self, widget: TerminalWidget, name: str = "s1") -> None:
        self.widget = widget
        self.name = name
        self.frames: queue.Queue[Any] = queue.Queue()

    def hear(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        if content.get("socket") != self.name:
            return
        rest = list(buffers)
        for frame in content.get("frames", []):
            self.frames.put(rest.pop(0) if frame is None else json.loads(frame))
        if "close" in content:
            self.frames.put(content["close"])

    def say(self, buffer: bytes | None = None, **content: Any) -> None:
        self.widget._take(
            self.widget,
            {"type": "socket", "socket": self.name, **content},
            [] if buffer is None else [memoryview(buffer)],
        )

    def open(self, **query: str) -> None:
        self.say(open={"cols": "80", "rows": "24", "ack": "1", **query})

    def wait_for(self, kind: str) -> dict[str, Any]:
        while True:
            frame = self.frames.get(timeout=20)
            if isinstance(frame, dict) and frame["type"] == kind:
                return frame

    def read_until(self, text: bytes) -> bytes:
        seen = b""
        while text not in seen:
            frame = self.frames.get(timeout=20)
            if isinstance(frame, bytes):
                seen += frame
                self.say(text=json.dumps({"type": "ack", "bytes": len(seen)}))
        return seen


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("jw")


@pytest.fixture(autouse=True)
def user(home, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(home))
    yield
    manager = Manager()
    for found in manager.list():
        manager.destroy(found.sandbox_id)


@pytest.fixture
def shown(monkeypatch):
    """Make a widget with a page."""
    pages: list[Page] = []

    def send(self, content, buffers=None):
        for page in pages:
            if page.widget is self:
                page.hear(content, buffers or [])

    monkeypatch.setattr(TerminalWidget, "send", send)

    def show(*arguments: str, **options: Any) -> Page:
        pages.append(Page(TerminalWidget(*arguments, **options)))
        return pages[-1]

    yield show
    for page in pages:
        page.widget.close()


def test_what_is_synced_is_small():
    """The widget's code travels with each widget and is saved in notebooks."""
    with closing(TerminalWidget("one")) as widget:
        state = widget.get_state()

    assert len(state["_esm"]) < 1600
    assert state["_bundle"] == bundle_name()
    assert (state["sandbox_id"], state["session_id"], state["terminal_id"]) == ("one", None, None)
    assert len(json.dumps({key: value for key, value in state.items() if key != "layout"})) < 4000


def test_making_one_starts_nothing():
    """Only showing it does."""
    TerminalWidget("not-started").close()

    assert sync.get_sandbox("not-started").info() is None


def test_a_wrong_id_is_told_at_once():
    """Not in the page, where nobody could act on it."""
    with pytest.raises(errors.InvalidSandboxIdError):
        TerminalWidget("Not An Id")
    with pytest.raises(ValueError, match="not both"):
        TerminalWidget("one", session_id="s", terminal_id="t")


def test_it_says_what_it_is_where_widgets_are_not_drawn():
    """Text for consoles, and for pages whose kernel has gone."""
    with closing(TerminalWidget("one", session_id="build")) as widget:
        data, _ = widget._repr_mimebundle_()

    assert data["text/plain"] == "Terminal of sandbox 'one', build"


def test_importing_the_package_needs_no_widgets():
    """Neither the SDK nor the server's part loads anywidget."""
    code = (
        "import sys, sandbox_kernel, sandbox_kernel.sync, sandbox_kernel.widget\n"
        "import sandbox_kernel.widget.bundle, jupyter_ext.static\n"
        "print([name for name in ('anywidget', 'ipywidgets') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout == "[]\n"


def test_a_program_with_a_widget_ends():
    """A widget that nobody closed holds up nothing at the interpreter's end."""
    code = "from sandbox_kernel.widget import TerminalWidget; kept = TerminalWidget('kept')"
    run = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )

    assert (run.returncode, run.stderr) == (0, "")


def test_the_bundle_comes_on_demand(monkeypatch):
    """A page without a server gets the code from the kernel."""
    sent: list[Any] = []
    monkeypatch.setattr(TerminalWidget, "send", lambda _, *parts: sent.append(parts))
    with closing(TerminalWidget("one")) as widget:
        widget._take(widget, {"type": "bundle"}, [])

    assert sent == [({"type": "bundle"}, [bundle_source()])]


def test_a_terminal_over_the_kernel(shown):
    """What is typed reaches the shell, and what it prints the page."""
    page = shown("by-kernel")
    page.open()
    assert page.wait_for("ready")["cols"] == 80
    page.say(b"echo $((6*7))_$SANDBOX_ID\r")
    page.read_until(b"42_by-kernel")


def test_two_views_of_one_widget(shown):
    """Both show the same, what was there before and what comes."""
    page = shown("two-views")
    page.open()
    page.wait_for("ready")
    page.say(b"echo first_$((1+1))\r")
    page.read_until(b"first_2")
    other = Page(page.widget, "s2")
    hear = page.hear
    page.hear = lambda content, buffers: (hear(content, buffers), other.hear(content, buffers))
    other.open()
    assert b"first_2" in other.read_until(b"first_2")
    other.say(b"echo second_$((1+1))\r")
    other.read_until(b"second_2")
    page.read_until(b"second_2")


def test_a_flood_is_held_back_until_it_is_drawn(shown):
    """A page that draws nothing gets 256 KiB and a bit; the program waits, and then goes on."""
    page = shown("flood")
    page.open()
    page.wait_for("ready")
    page.say(b"stty -echo; clear; head -c 3000000 /dev/zero | tr '\\0' x; echo end_$((1+1))\r")
    came = 0
    while True:
        try:
            frame = page.frames.get(timeout=1.5)
        except queue.Empty:
            break
        came += len(frame) if isinstance(frame, bytes) else 0
    assert 200_000 < came < 700_000
    page.say(text=json.dumps({"type": "ack", "bytes": came}))
    seen = came
    tail = b""
    while b"end_2" not in tail:
        frame = page.frames.get(timeout=20)
        if isinstance(frame, bytes):
            seen += len(frame)
            tail = (tail + frame)[-2000:]
            page.say(text=json.dumps({"type": "ack", "bytes": seen}))


def test_a_terminal_that_is_not_there(shown):
    """The page is told, and need not ask again."""
    page = shown("nobody", terminal_id="t-none")
    page.open()
    assert page.wait_for("error")["code"] == "TERMINAL_NOT_FOUND"

    assert page.frames.get(timeout=20) == 1008
    assert sync.get_sandbox("nobody").info() is None


def test_a_terminals_own_widget():
    """`Terminal.widget` shows that terminal, also from code without an event loop."""
    with sync.get_sandbox("own-widget") as sandbox:
        terminal = sandbox.create_terminal(["cat"])
        with closing(terminal.widget(rows=10)) as widget:
            assert (widget.sandbox_id, widget.terminal_id) == ("own-widget", terminal.id)
            assert widget.rows == 10


def test_a_view_of_an_earlier_kernel_is_sent_away(shown):
    """After a restart the page's sockets are unknown; it connects anew."""
    page = shown("restarted")
    page.say(b"typed")

    assert page.frames.get(timeout=20) == 1006


def test_a_misspelt_option_is_told_at_once():
    """It would show another terminal than the one that is meant."""
    with pytest.raises(TypeError, match="sesion_id"):
        TerminalWidget("demo", sesion_id="build")
