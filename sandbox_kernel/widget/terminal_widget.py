"""`TerminalWidget`, the kernel's half of a terminal in a cell."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

import traitlets

try:
    import anywidget
except ImportError as error:
    raise ImportError(
        "A terminal in a cell needs anywidget, here and where JupyterLab runs: "
        "pip install anywidget, then load the page again."
    ) from error

from sandbox_kernel.client.loop_thread import LoopThread
from sandbox_kernel.client.sandbox import get_sandbox
from sandbox_kernel.client.terminal_protocol import Acknowledged
from sandbox_kernel.client.terminal_socket import refused
from sandbox_kernel.errors import TerminalNotFoundError
from sandbox_kernel.manager.identity import check_sandbox_id
from sandbox_kernel.manager.settings import data_folder
from sandbox_kernel.widget.bundle import bundle_name, bundle_source, home_id, loader_source
from sandbox_kernel.widget.comm_socket import CommSocket
from sandbox_kernel.widget.pace import Pace

if TYPE_CHECKING:
    from sandbox_kernel.client.sandbox import Sandbox

__all__ = ["TerminalWidget"]

_thread = LoopThread("sandbox-kernel-widget")
_pace = Pace()

_MOST_VIEWS = 32
"""Views of one widget over the kernel; beyond it the one that was silent longest is left."""

_SILENCE = 180.0
"""Seconds without a word after which a page has gone; one that is there speaks every 25 s, and a
hidden one, whose timers the browser slows down, every minute."""


class TerminalWidget(anywidget.AnyWidget):
    """Shows a terminal of a sandbox in a cell.

    The terminal belongs to the sandbox: it goes on when the output is cleared, the page closed or
    the kernel restarted, and the next widget of the same sandbox and session shows it as it is.
    Making a widget starts nothing; showing it does, the first time: a page that is loaded again
    does not start a sandbox that has stopped meanwhile.

    Its bytes come through the Jupyter server; where the page has none, or one of another machine,
    through the kernel.  A line below the terminal says which, and how the connection is.

    Parameters
    ----------
    sandbox_id : str
        Which sandbox.
    session_id : str, optional
        One shell is kept per session; by default the sandbox's default session.
    terminal_id : str, optional
        A terminal that exists, in the place of a session's shell.
    rows : int
        Height in lines when it is first shown; the mouse can change it at the lower right corner.
    font_size : int
        In pixels; 0 for the size that code has in the page.
    screen_reader : bool
        Keep the screen's text where screen readers find it; slower.
    graphemes : bool
        Give a composed emoji the two columns that it is drawn in; programs that count by older
        rules may draw their lines awry.
    clipboard_write : bool
        Let programs put text on the clipboard (OSC 52) while the terminal has the focus.  They can
        never read it.
    carrier : {"auto", "server", "kernel"}
        Through what its bytes come.

    Raises
    ------
    InvalidSandboxIdError
        The id cannot be one.
    """

    _esm = loader_source()

    sandbox_id = traitlets.Unicode(read_only=True).tag(sync=True)
    session_id = traitlets.Unicode(None, allow_none=True, read_only=True).tag(sync=True)
    terminal_id = traitlets.Unicode(None, allow_none=True, read_only=True).tag(sync=True)
    rows = traitlets.Int(24, min=2, max=500).tag(sync=True)
    font_size = traitlets.Int(0, min=0, max=100).tag(sync=True)
    screen_reader = traitlets.Bool(default_value=False).tag(sync=True)
    graphemes = traitlets.Bool(default_value=True).tag(sync=True)
    clipboard_write = traitlets.Bool(default_value=False).tag(sync=True)
    carrier = traitlets.Enum(("auto", "server", "kernel"), "auto").tag(sync=True)
    # Set by the page once it was connected: one that is loaded again then starts no sandbox.
    _shown = traitlets.Bool(default_value=False).tag(sync=True)
    _bundle = traitlets.Unicode().tag(sync=True)
    _home = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        sandbox_id: str,
        *,
        session_id: str | None = None,
        terminal_id: str | None = None,
        **traits: Any,  # those of the class and of ipywidgets, which has no types
    ) -> None:
        check_sandbox_id(sandbox_id)
        if session_id is not None and terminal_id is not None:
            raise ValueError("Give a session_id or a terminal_id, not both.")
        for name in traits:
            # traitlets would let a slip of the pen pass, and the default session be shown.
            if not self.has_trait(name):
                raise TypeError(f"TerminalWidget() got an unexpected keyword argument {name!r}")
        self._views: dict[str, CommSocket] = {}
        self._sandbox: Sandbox | None = None
        self.set_trait("sandbox_id", sandbox_id)
        self.set_trait("session_id", session_id)
        self.set_trait("terminal_id", terminal_id)
        super().__init__(_bundle=bundle_name(), _home=home_id(data_folder()), **traits)
        self.on_msg(self._take)

    def __repr__(self) -> str:
        which = self.terminal_id or self.session_id
        return f"Terminal of sandbox {self.sandbox_id!r}" + (f", {which}" if which else "")

    def close(self) -> None:
        """Take the widget off the page; the terminal goes on."""
        super().close()
        # Also called when the object is collected, at the interpreter's end, too: no thread then.
        if getattr(self, "_views", None):
            _thread.post(self._leave_all)

    # --- from the page, in the kernel's thread ---

    def _take(self, _widget: object, content: dict[str, Any], buffers: list[memoryview]) -> None:
        if content.get("type") == "bundle":
            self.send({"type": "bundle"}, [bundle_source()])
        elif content.get("type") == "socket" and isinstance(content.get("socket"), str):
            # What the loop's thread sends later answers this message.
            context = contextvars.copy_context()
            data = [bytes(buffer) for buffer in buffers]
            _thread.post(self._take_frame, content, data, context)

    # --- in the loop's thread ---

    def _take_frame(
        self, content: dict[str, Any], data: list[bytes], context: contextvars.Context
    ) -> None:
        name = content["socket"]
        view = self._views.get(name)
        if isinstance(content.get("open"), dict):
            if view is None:
                self._open(name, content["open"], context)
        elif view is None:
            # Of a kernel before this one: the page shall connect anew.
            if not content.get("close"):
                gone = {"type": "socket", "socket": name, "close": 1006, "reason": "unknown"}
                context.run(self.send, gone)
        elif content.get("close"):
            del self._views[name]
            view.end()
        elif isinstance(content.get("text"), str):
            view.take(content["text"])
        elif data:
            view.take(data[0])

    def _open(self, name: str, query: dict[str, Any], context: contextvars.Context) -> None:
        loop = _thread.loop

        def publish(message: dict[str, Any], buffers: list[bytes]) -> None:
            context.run(self.send, message, buffers)

        self._leave_silent(loop.time())
        view = self._views[name] = CommSocket(name, publish, _pace, loop)
        view.open()
        task = loop.create_task(self._serve(view, query))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _serve(self, view: CommSocket, query: dict[str, Any]) -> None:
        if self._sandbox is None:
            self._sandbox = get_sandbox(self.sandbox_id)
        wanted = query.get("cursor")
        cursor = wanted if isinstance(wanted, str) else None
        cols, rows = _number(query.get("cols"), 80), _number(query.get("rows"), 24)
        if self.terminal_id is None:
            await self._sandbox.terminal(
                view,
                session_id=self.session_id or "default",
                cols=cols,
                rows=rows,
                cursor=cursor,
                acknowledged=True,
                start=query.get("start") != "0",
            )
            return
        terminal = await self._sandbox.get_terminal(self.terminal_id)
        if terminal is None:
            refused(view, Acknowledged(), TerminalNotFoundError(self.terminal_id))
        else:
            await terminal.connect(view, cursor=cursor, cols=cols, rows=rows, acknowledged=True)

    def _leave_silent(self, now: float) -> None:
        by_silence = sorted(self._views.items(), key=lambda item: item[1].heard_at)
        surplus = len(self._views) - _MOST_VIEWS + 1
        for number, (name, view) in enumerate(by_silence):
            if view.is_closed or number < surplus or now - view.heard_at > _SILENCE:
                view.end()
                del self._views[name]

    def _leave_all(self) -> None:
        while self._views:
            self._views.popitem()[1].end()


def _number(value: object, default: int) -> int:
    try:
        return int(str(value))
    except ValueError:
        return default
