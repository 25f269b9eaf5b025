"""REST routes of terminals: create, list, look at, resize, interrupt, end."""

from __future__ import annotations

from typing import Any, TypeVar

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_ext.handles import handle
from jupyter_ext.rest import SandboxApiHandler, iso_time
from sandbox_kernel.client.terminal import Terminal, TerminalExit
from sandbox_kernel.errors import TerminalNotFoundError, ValidationFailedError
from sandbox_kernel.wire.terminal import check_size

__all__ = ["HANDLERS"]

T = TypeVar("T")

_FIELDS = frozenset(("command", "cwd", "env", "cols", "rows", "bufferSize"))


class TerminalsHandler(SandboxApiHandler):
    """``terminals``."""

    @web.authenticated
    @authorized
    async def get(self, sandbox_id: str) -> None:
        """List the terminals of the present container; starts nothing."""
        terminals = await handle(sandbox_id).list_terminals()
        self.answer([_described(each) for each in terminals])

    @web.authenticated
    @authorized
    async def post(self, sandbox_id: str) -> None:
        """Create a terminal; starts the sandbox."""
        body = self.body()
        for name in body.keys() - _FIELDS:
            raise ValidationFailedError(name[:80], "is unknown")
        terminal = await handle(sandbox_id).create_terminal(
            _checked(body, "command", _words),
            cwd=_checked(body, "cwd", _text),
            env=_checked(body, "env", _environment),
            cols=_given(_checked(body, "cols", _whole), 80),
            rows=_given(_checked(body, "rows", _whole), 24),
            buffer_size=_given(_checked(body, "bufferSize", _whole), 1 << 20),
        )
        self.set_header("Location", f"{self.request.path}/{terminal.id}")
        self.answer(_described(terminal), 201)


class TerminalHandler(SandboxApiHandler):
    """``terminals/{id}``."""

    @web.authenticated
    @authorized
    async def get(self, sandbox_id: str, terminal_id: str) -> None:
        """Return its state and what its screen shows."""
        terminal = await _found(sandbox_id, terminal_id)
        shown = await terminal.get_snapshot()
        screen = {
            "lines": shown.lines,
            "cursorCol": shown.cursor_col,
            "cursorRow": shown.cursor_row,
            "isCursorVisible": shown.is_cursor_visible,
            "isAlternate": shown.is_alternate,
        }
        self.answer({**_described(terminal), "screen": screen})

    @web.authenticated
    @authorized
    async def delete(self, sandbox_id: str, terminal_id: str) -> None:
        """End it and all that was started in it, also what it has left after its end."""
        terminal = await _found(sandbox_id, terminal_id)
        await terminal.terminate()
        self.answer(_described(terminal))


class ResizeHandler(SandboxApiHandler):
    """``terminals/{id}/resize``."""

    @web.authenticated
    @authorized
    async def post(self, sandbox_id: str, terminal_id: str) -> None:
        """Set its size."""
        body = self.body()
        cols, rows = (_checked(body, name, _whole) for name in ("cols", "rows"))
        if cols is None or rows is None:
            raise ValidationFailedError("cols" if cols is None else "rows", "is missing")
        check_size(cols, rows)
        await (await _found(sandbox_id, terminal_id)).resize(cols, rows)
        self.done()


class InterruptHandler(SandboxApiHandler):
    """``terminals/{id}/interrupt``."""

    @web.authenticated
    @authorized
    async def post(self, sandbox_id: str, terminal_id: str) -> None:
        """Interrupt what runs in the foreground."""
        await (await _found(sandbox_id, terminal_id)).interrupt()
        self.done()


async def _found(sandbox_id: str, terminal_id: str) -> Terminal:
    terminal = await handle(sandbox_id).get_terminal(terminal_id)
    if terminal is None:
        raise TerminalNotFoundError(terminal_id)
    return terminal


def _described(terminal: Terminal) -> dict[str, Any]:
    said: dict[str, Any] = {
        "id": terminal.id,
        "pid": terminal.pid,
        "command": terminal.argv,
        "cwd": terminal.cwd,
        "status": terminal.status,
        "cols": terminal.cols,
        "rows": terminal.rows,
        "title": terminal.title,
        "session": terminal.session,
        "createdAt": iso_time(terminal.created_at),
        "cursor": terminal.cursor,
    }
    if terminal.exit is not None:
        said["exit"] = _ended(terminal.exit)
    return said


def _ended(ended: TerminalExit) -> dict[str, Any]:
    said: dict[str, Any] = {"code": ended.exit_code, "timedOut": False}
    if ended.signal is not None:
        said["signal"] = ended.signal
    return said


# --- what a body may hold -----------------------------------------------------------------------


def _checked(body: dict[str, Any], name: str, check: Any) -> Any:
    """Return a field that was checked; None if it is not there."""
    value = body.get(name)
    return None if value is None else check(name, value)


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValidationFailedError(name, "must be an integer")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValidationFailedError(name, "must be text")
    return value


def _words(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValidationFailedError(name, "must be a list of texts")
    return value


def _environment(name: str, value: Any) -> dict[str, str | None]:
    if not isinstance(value, dict) or not all(
        each is None or isinstance(each, str) for each in value.values()
    ):
        raise ValidationFailedError(name, "must be an object of texts, or null to unset")
    return value


_TERMINALS = r"/sandbox/api/sandboxes/([^/]+)/terminals"

HANDLERS = [
    (_TERMINALS, TerminalsHandler),
    (_TERMINALS + "/([^/]+)", TerminalHandler),
    (_TERMINALS + "/([^/]+)/resize", ResizeHandler),
    (_TERMINALS + "/([^/]+)/interrupt", InterruptHandler),
]
